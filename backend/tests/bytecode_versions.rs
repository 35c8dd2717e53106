//! Small programs written in several versions of VHLO and of the container by StableHLO itself (`data/bytecode/make.py`).
//!
//! Oracle: the text in that script, and that all versions of a program give the same module.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use tpusim_backend::front::bytecode::{ErrorKind, parse, parse_all};
use tpusim_backend::hlo::{Attr, Block, Func, Loc, Module, Op, Opcode, ReplicaGroups, TensorType, Type};
use tpusim_isa::num::DType;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/bytecode").join(name)
}

fn read(name: &str) -> Module {
    parse(&fs::read(data(name)).unwrap()).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Everything but locations.
fn render(m: &Module) -> String {
    let mut out = format!("{} {:?} {:?}\n", m.name, m.attrs, m.meshes);
    for f in &m.funcs {
        let params: Vec<_> = f.params.iter().map(|p| (p.value, f.ty(p.value), &p.attrs)).collect();
        writeln!(out, "{} {} {params:?} {:?} {:?}", f.name, f.public, f.results, f.attrs).unwrap();
        block(&mut out, f, &f.body);
    }
    out
}

fn block(out: &mut String, f: &Func, b: &Block) {
    writeln!(out, "{:?}", b.args).unwrap();
    for op in &b.ops {
        let types: Vec<_> = op.results.iter().map(|v| (v, f.ty(*v))).collect();
        writeln!(out, "{types:?} {} {:?} {:?}", op.opcode, op.operands, op.attrs).unwrap();
        op.regions.iter().for_each(|r| block(out, f, &r.block));
    }
}

fn find(m: &Module, opcode: Opcode) -> &Op {
    m.funcs.iter().flat_map(|f| &f.body.ops).find(|op| op.opcode == opcode).unwrap()
}

#[test]
fn every_version_gives_the_same_module() {
    let newest = render(&read("small.1.17.0.mlirbc"));
    let mut others = 0;
    for entry in fs::read_dir(data("")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.starts_with("small.") {
            assert_eq!(render(&read(&name)), newest, "{name}");
            others += 1;
        }
    }
    assert_eq!(others, 9);
}

#[test]
fn signature_and_attributes() {
    let m = read("small.0.9.0.mlirbc");
    assert_eq!(m.name, "small");
    let main = m.func("main").unwrap();
    assert!(main.public && !m.func("inner").unwrap().public);
    assert_eq!(main.ty(main.params[0].value).to_string(), "tensor<4x8xf32>");
    assert_eq!(main.params[0].attrs.text("mhlo.sharding"), Some("{replicated}"));
    assert_eq!(main.results[0].attrs.text("jax.result_info"), Some("result"));
    let call = find(&m, Opcode::CustomCall);
    assert_eq!(call.attrs.text("call_target_name"), Some("target"));
    assert_eq!(call.attrs.int("api_version"), Some(2));
    assert_eq!(call.attrs.get("operand_layouts"), Some(&Attr::Array(vec![Attr::Ints(vec![0])])));
    assert_eq!(call.attrs.get("has_side_effect"), None);
    let Some(Attr::Dict(d)) = call.attrs.get("mhlo.frontend_attributes") else { panic!() };
    assert_eq!(d.text("key"), Some("value"));
    let high = |s: &str| Attr::Enum(s.into());
    let precision = Attr::Array(vec![high("HIGHEST"), high("DEFAULT")]);
    assert_eq!(find(&m, Opcode::DotGeneral).attrs.get("precision_config"), Some(&precision));
    assert_eq!(find(&m, Opcode::Call).attrs.get("callee"), Some(&Attr::Symbol("inner".into())));
}

#[test]
fn constants() {
    for version in ["0.9.0", "1.17.0"] {
        let m = read(&format!("small.{version}.mlirbc"));
        let constant = |dims: &[i64], dtype| {
            let ty = TensorType::new(dims, dtype);
            let all = m.funcs.iter().flat_map(|f| &f.body.ops).filter_map(|op| match op.attrs.get("value") {
                Some(Attr::Dense(lit)) => Some(lit.clone()),
                _ => None,
            });
            all.into_iter().find(|lit| lit.ty == ty).unwrap()
        };
        assert_eq!(*constant(&[9], DType::I1).bytes, [1, 0, 1, 1, 0, 1, 1, 0, 1]);
        assert_eq!(*constant(&[3], DType::I4).bytes, [0xf8, 7, 1]);
        assert_eq!(*constant(&[8, 8], DType::F32).bytes, 0.5f32.to_le_bytes());
    }
}

#[test]
fn locations() {
    for version in ["0.9.0", "1.17.0"] {
        let m = read(&format!("small.{version}.mlirbc"));
        let at = |opcode| find(&m, opcode).loc;
        assert_eq!(m.locs.name(at(Opcode::DotGeneral)), Some("dot"));
        assert_eq!(m.locs.file_line(at(Opcode::DotGeneral)), Some(("model.py", 3)));
        let Loc::CallSite(callee, caller) = m.locs.get(at(Opcode::Exponential)) else { panic!() };
        assert_eq!(m.locs.file_line(*callee), Some(("model.py", 5)));
        assert_eq!(m.locs.get(*caller), &Loc::Name("main".into(), *main_file(&m, *caller)));
        assert_eq!(m.locs.file_line(*caller), Some(("model.py", 9)));
        let Loc::Fused(parts) = m.locs.get(at(Opcode::Reduce)) else { panic!() };
        assert_eq!(parts.len(), 2);
        assert_eq!(m.locs.get(parts[1]), &Loc::File { file: "model.py".into(), line: 7, col: 3 });
        assert_eq!(m.locs.name(m.funcs[0].params[0].loc), Some("x"));
    }
}

fn main_file(m: &Module, loc: tpusim_backend::hlo::LocId) -> &tpusim_backend::hlo::LocId {
    match m.locs.get(loc) {
        Loc::Name(_, child) => child,
        other => panic!("{other:?} has no name"),
    }
}

#[test]
fn shardy() {
    let m = read("sharded.mlirbc");
    let ids: Vec<String> = (0..16).rev().map(|i| i.to_string()).collect();
    let mesh = format!("sdy.mesh<[\"x\"=4, \"y\"=4], device_ids=[{}]>", ids.join(", "));
    assert_eq!(m.meshes, [("mesh".to_owned(), Attr::Opaque(mesh))]);
    let main = m.func("main").unwrap();
    let opaque = |s: &str| Some(Attr::Opaque(s.into()));
    let arg = opaque("sdy.sharding<@mesh, [{\"x\", ?}p1, {\"y\":(1)2}]>");
    assert_eq!(main.params[0].attrs.get("sdy.sharding").cloned(), arg);
    let result = opaque("sdy.sharding<mesh<[\"z\"=2]>, [{\"z\"}, {?}]>");
    assert_eq!(main.results[0].attrs.get("sdy.sharding").cloned(), result);
    let manual = find(&m, Opcode::SdyManualComputation);
    let shardings = opaque("sdy.sharding_per_value<[<@mesh, [{\"x\"}, {}], replicated={\"y\"}>]>");
    assert_eq!(manual.attrs.get("out_shardings").cloned(), shardings);
    assert_eq!(manual.attrs.get("manual_axes").cloned(), opaque("sdy<manual_axes{\"x\"}>"));
    // The casts between the types of both dialects are gone: the body begins with the collective.
    let reduce = &manual.regions[0].block.ops[0];
    assert_eq!(reduce.opcode, Opcode::AllReduce);
    assert_eq!(reduce.operands, manual.regions[0].block.args[..1]);
    assert_eq!(main.ty(manual.regions[0].block.args[1]).to_string(), "tensor<16x16xf8E4M3FN>");
    assert_eq!(reduce.attrs.get("channel_handle"), Some(&Attr::Channel { handle: 3, kind: 0 }));
    let groups = ReplicaGroups::Listed(vec![vec![0, 1], vec![2, 3]]);
    assert_eq!(reduce.attrs.get("replica_groups"), Some(&Attr::Groups(groups)));
    assert_eq!(reduce.attrs.get("use_global_device_ids"), Some(&Attr::Unit));
}

#[test]
fn plain_bytecode_is_refused_with_advice() {
    let e = parse(&fs::read(data("plain.mlirbc")).unwrap()).unwrap_err();
    assert_eq!(e.kind, ErrorKind::NotPortable("func.func".into()));
    assert!(e.to_string().contains("serialize_portable_artifact"), "{e}");
}

#[test]
fn an_unknown_version_spares_the_other_functions() {
    let mut bytes = fs::read(data("small.1.17.0.mlirbc")).unwrap();
    let at = bytes.windows(8).position(|w| w == b"while_v1").unwrap();
    bytes[at + 7] = b'7';
    let (module, errors) = parse_all(&bytes).unwrap();
    assert_eq!(module.funcs.iter().map(|f| f.name.as_str()).collect::<Vec<_>>(), ["main"]);
    let [e] = errors.as_slice() else { panic!("{errors:?}") };
    assert_eq!(e.kind, ErrorKind::UnknownOp("vhlo.while_v7".into()));
    assert_eq!((e.op.as_deref(), e.position.as_deref()), (Some("vhlo.while_v7"), Some("-:28")));
    assert_eq!(parse(&bytes).unwrap_err(), *e);
}

#[test]
fn builtin_attributes() {
    let m = read("attributes.mlirbc");
    let get = |name: &str| m.attrs.get(&format!("a.{name}")).cloned().unwrap();
    let int = |v, d| Attr::Int(v, Type::Scalar(d));
    assert_eq!(get("array"), Attr::Ints(vec![1, -2]));
    assert_eq!(get("array8"), Attr::Ints(vec![1, -2]));
    assert_eq!(get("arrayb"), Attr::Bools(vec![true, false]));
    assert_eq!(get("bool"), Attr::Bool(true));
    assert_eq!(get("f16"), Attr::Float(1.5, Type::Scalar(DType::F16)));
    assert_eq!(get("f64"), Attr::Float(0.1, Type::Scalar(DType::F64)));
    assert_eq!(get("i1"), int(-1, DType::I8));
    assert_eq!(get("u8"), int(255, DType::U8));
    assert_eq!(get("index"), Attr::Int(7, Type::Index));
    assert_eq!(get("list"), Attr::Array(vec![int(1, DType::I32), Attr::Str("x".into()), Attr::Unit]));
    assert_eq!(get("symbol"), Attr::Symbol("x::y".into()));
    assert_eq!(get("map"), Attr::Opaque("affine_map<(d0) -> (d0)>".into()));
    assert_eq!(get("strided"), Attr::Opaque("strided<[1, 2]>".into()));
    let Attr::Type(Type::Func(f)) = get("function") else { panic!() };
    assert_eq!(f.inputs[1].to_string(), "tensor<?x2xf8E5M2>");
    assert_eq!(f.outputs[0].to_string(), "tuple<i1, index>");
    let dense = |name: &str, dims: &[i64], dtype, bytes: &[u8]| {
        let Attr::Dense(lit) = get(name) else { panic!("{name}") };
        assert_eq!((&lit.ty, &*lit.bytes), (&TensorType::new(dims, dtype), bytes), "{name}");
    };
    dense("arrayf", &[1], DType::F32, &0.5f32.to_le_bytes());
    dense("dense", &[1, 2], DType::I16, &[1, 0, 0xfe, 0xff]);
    dense("denseb", &[3], DType::I1, &[1, 0, 1]);
    dense("splat", &[100], DType::I1, &[1]);
    let complex = [1.0f32.to_le_bytes(), 2.0f32.to_le_bytes()].concat();
    dense("c", &[2], DType::C64, &complex);
}

#[test]
fn resources() {
    let m = read("resource.mlirbc");
    let Some(Attr::Dense(lit)) = m.attrs.get("test.blob") else { panic!("{:?}", m.attrs) };
    let expected: Vec<u8> = [1i32, 2, 3].iter().flat_map(|v| v.to_le_bytes()).collect();
    assert_eq!(*lit.bytes, *expected);
    assert_eq!(lit.ty, TensorType::new([3], DType::I32));
}
