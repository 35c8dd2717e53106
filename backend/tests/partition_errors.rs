//! What cannot be partitioned is an error that says what and why, and large programs and meshes take no longer than they must.

mod partition_common;

use partition_common::collectives;
use tpusim_backend::front::parse_program;
use tpusim_backend::hlo::{Attr, AttrList, Block, ModuleBuilder, Opcode, TensorType, verify};
use tpusim_backend::partition::{Mesh, PartitionError, Sharding, assemble, cut, partition};
use tpusim_isa::num::DType;

fn error(text: &str) -> String {
    let module = verify(parse_program(text.as_bytes(), "test.mlir").unwrap()).unwrap();
    match partition(&module) {
        Ok(p) => panic!("partitioned:\n{}", *p.module),
        Err(e) => {
            assert!(!matches!(e, PartitionError::Invalid(_)), "{e}");
            e.to_string()
        }
    }
}

/// A program of one parameter with this sharding over a mesh of 4 and 2.
fn with(sharding: &str) -> String {
    format!(
        "module @m {{
           sdy.mesh @mesh = <[\"x\"=4, \"y\"=2]>
           func.func @main(%a: tensor<8x6xf32> {{sdy.sharding = #sdy.sharding<{sharding}>}}) -> tensor<8x6xf32> {{
             return %a : tensor<8x6xf32>
           }}
         }}"
    )
}

#[test]
fn shardings_that_do_not_fit_are_named() {
    let uneven = error(&with("@mesh, [{}, {\"x\"}]"));
    for part in ["parameter 0", "tensor<8x6xf32>", "dimension 1 of size 6", "x, 4 devices", "pad the dimension to 8"] {
        assert!(uneven.contains(part), "{uneven}");
    }
    assert!(error(&with("@mesh, [{\"z\"}, {}]")).contains("no axis \"z\""));
    assert!(error(&with("@mesh, [{\"x\"}, {\"x\"}]")).contains("twice"));
    assert!(error(&with("@mesh, [{\"x\"}]")).contains("1 dimensions"));
    assert!(error(&with("@other, [{\"x\"}, {}]")).contains("not in the module"));
    assert!(error(&with("@mesh, [{\"x\":(1)3}, {}]")).contains("does not fit"));
}

#[test]
fn meshes_that_do_not_fit_are_named() {
    let meshes = |m: &str| format!("module @m {{ {m} func.func @main() {{ return }} }}");
    let two = error(&meshes("sdy.mesh @a = <[\"x\"=4]> sdy.mesh @b = <[\"x\"=2]>"));
    assert!(two.contains("@a and @b differ"), "{two}");
    let huge = error(&meshes("sdy.mesh @a = <[\"x\"=1000000000, \"y\"=1000000000000000]>"));
    assert!(huge.contains("devices"), "{huge}");
    let ids = error(&meshes("sdy.mesh @a = <[\"x\"=4], device_ids=[0, 1, 1, 2]>"));
    assert!(ids.contains("each once"), "{ids}");
}

#[test]
fn ops_about_devices_belong_into_manual_computations() {
    let text = "module @m {
      sdy.mesh @mesh = <[\"x\"=4]>
      func.func @main() -> tensor<ui32> {
        %0 = stablehlo.partition_id : tensor<ui32>
        return %0 : tensor<ui32>
      }
    }";
    let e = error(text);
    assert!(e.contains("stablehlo.partition_id") && e.contains("manual_computation"), "{e}");
}

#[test]
fn what_a_constraint_did_not_get_is_noted() {
    let text = "module @m {
      sdy.mesh @mesh = <[\"x\"=4]>
      func.func @main(%a: tensor<6xf32>) -> tensor<6xf32> {
        %0 = sdy.sharding_constraint %a <@mesh, [{\"x\"}]> : tensor<6xf32>
        return %0 : tensor<6xf32>
      }
    }";
    let module = verify(parse_program(text.as_bytes(), "test.mlir").unwrap()).unwrap();
    let p = partition(&module).unwrap();
    assert!(p.notes.len() == 1 && p.notes[0].contains("size 6"), "{:?}", p.notes);
    assert!(p.params[0].is_replicated());
}

/// User priorities: what is asked first decides.
#[test]
fn priorities_decide_between_shardings() {
    let text = |a: &str, b: &str| {
        format!(
            "module @m {{
               sdy.mesh @mesh = <[\"x\"=4]>
               func.func @main(%a: tensor<8x8xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{a}, {{?}}]>}},
                               %b: tensor<8x8xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{?}}, {b}]>}})
                   -> tensor<8x8xf32> {{
                 %0 = stablehlo.add %a, %b : tensor<8x8xf32>
                 return %0 : tensor<8x8xf32>
               }}
             }}"
        )
    };
    let result = |text: String| {
        let module = verify(parse_program(text.as_bytes(), "test.mlir").unwrap()).unwrap();
        let p = partition(&module).unwrap();
        p.results[0].text(&p.mesh)
    };
    assert_eq!(result(text("{\"x\"}p1", "{\"x\"}p0")), "[{}, {\"x\"}]");
    assert_eq!(result(text("{\"x\"}p0", "{\"x\"}p1")), "[{\"x\"}, {}]");
}

#[test]
fn parts_make_the_whole_again() {
    let mesh = Mesh { name: "m".into(), axes: vec![("x".into(), 2), ("y".into(), 3)], device_ids: None };
    let bytes: Vec<u8> = (0..72 * 2).collect();
    let dims = [4, 3, 6];
    for s in [vec![vec![], vec![], vec![]], vec![vec![0], vec![1], vec![]], vec![vec![], vec![], vec![1, 0]]] {
        let s = Sharding { dims: s };
        let parts = cut(&bytes, &dims, DType::BF16, &s, &mesh).unwrap();
        assert_eq!(parts.len(), 6);
        assert_eq!(assemble(&parts, &dims, DType::BF16, &s, &mesh).unwrap(), bytes);
    }
    // Row-major: device 1 is y = 1, which has columns 2 and 3.
    let s = Sharding { dims: vec![vec![], vec![1]] };
    let parts = cut(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], &[2, 6], DType::I8, &s, &mesh).unwrap();
    assert_eq!(parts[1], [2, 3, 8, 9]);
    assert!(cut(&bytes, &[4, 3, 7], DType::BF16, &Sharding::replicated(3), &mesh).is_err());
    assert!(cut(&bytes, &[72, 1], DType::BF16, &Sharding { dims: vec![vec![], vec![0]] }, &mesh).is_err());
    assert!(assemble(&parts[1..], &[2, 6], DType::I8, &s, &mesh).is_err());
}

fn ops(b: &Block) -> usize {
    b.ops.iter().map(|op| 1 + op.regions.iter().map(|r| ops(&r.block)).sum::<usize>()).sum()
}

/// An MLP of many layers, written out, over a mesh of `data`, `fsdp` and `tp`.
fn layers(n: usize, mesh: &str) -> (usize, usize) {
    let mut m = ModuleBuilder::new("layers");
    m.mesh("mesh", Attr::Opaque(format!("sdy.mesh<{mesh}>")));
    let mut f = m.func("main");
    let cut =
        |s: &str| AttrList::from_iter([("sdy.sharding".to_owned(), Attr::Opaque(format!("sdy.sharding<@mesh, {s}>")))]);
    let (b, d, h) = (1 << 20, 4096, 8192);
    let mut x = f.param_with("x", TensorType::new([b, d], DType::F32), cut("[{\"data\", \"fsdp\"}, {}]"));
    let up = f.param_with("up", TensorType::new([d, h], DType::F32), cut("[{\"fsdp\"}, {\"tp\"}]"));
    let down = f.param_with("down", TensorType::new([h, d], DType::F32), cut("[{\"tp\"}, {\"fsdp\"}]"));
    for _ in 0..n {
        let u = f.matmul(x, up, DType::F32);
        let a = f.unary(Opcode::Logistic, u);
        let a = f.mul(a, u);
        let y = f.matmul(a, down, DType::F32);
        let s = f.binary_scalar(Opcode::Multiply, y, 0.5);
        x = f.add(x, s);
    }
    f.ret(&[x]);
    let module = m.finish().unwrap();
    let p = partition(&module).unwrap();
    // Weights are gathered once, as nothing changes them; each layer reduces once over tp.
    let c = collectives(&p.module);
    assert_eq!(c.get("stablehlo.all_reduce"), Some(&n), "{c:?}");
    assert_eq!(c.get("stablehlo.all_gather"), Some(&2), "{c:?}");
    (ops(&p.module.funcs[0].body), ops(&module.funcs[0].body))
}

#[test]
fn devices_do_not_cost() {
    let (few, _) = layers(4, "[\"data\"=2, \"fsdp\"=2, \"tp\"=2]");
    let (many, _) = layers(4, "[\"data\"=64, \"fsdp\"=16, \"tp\"=8]");
    assert!(many <= few + 8, "{few} ops for 8 devices, {many} for 8192");
    // A long program over many devices: nothing may be quadratic in either.
    let (_, global) = layers(4700, "[\"data\"=64, \"fsdp\"=16, \"tp\"=8]");
    assert!(global > 32_000);
}
