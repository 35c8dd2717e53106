//! The verifier. Oracle: the constraints of the StableHLO specification; each program breaks one of them and the message must
//! say which, and where.

use tpusim_backend::hlo::{
    Attr, DYNAMIC, FuncBuilder, ModuleBuilder, Opcode, ReduceKind, TensorType, ValueId, VerifyError,
};
use tpusim_isa::num::DType;

fn errors(body: impl FnOnce(&mut FuncBuilder<'_>) -> Vec<ValueId>) -> Vec<VerifyError> {
    let mut m = ModuleBuilder::new("test");
    let mut f = m.func("main");
    f.name("layer/op");
    let r = body(&mut f);
    f.ret(&r);
    m.finish().err().unwrap_or_default()
}

fn t(dims: &[i64]) -> TensorType {
    TensorType::new(dims, DType::F32)
}

#[track_caller]
fn check(expected: &str, body: impl FnOnce(&mut FuncBuilder<'_>) -> Vec<ValueId>) {
    let all: String = errors(body).iter().map(|e| format!("{e}\n")).collect();
    assert!(all.contains(expected), "expected `{expected}` in:\n{all}");
}

#[test]
fn shapes_follow_their_rules() {
    check("stablehlo.add: operands differ: tensor<2xf32> and tensor<3xf32>", |f| {
        let (a, b) = (f.param("a", t(&[2])), f.param("b", t(&[3])));
        vec![f.add(a, b)]
    });
    check("stablehlo.reshape: cannot reshape tensor<6xf32> to tensor<4xf32>", |f| {
        let a = f.param("a", t(&[6]));
        vec![f.reshape(a, &[4])]
    });
    check("contracting dimensions of tensor<2x3xf32> and tensor<4x5xf32> differ", |f| {
        let (a, b) = (f.param("a", t(&[2, 3])), f.param("b", t(&[4, 5])));
        vec![f.matmul(a, b, DType::F32)]
    });
    check("names dimension 1 twice", |f| {
        let a = f.param("a", t(&[2, 3]));
        vec![f.transpose(a, &[1, 1])]
    });
    check("a dimension of size 2 cannot be broadcast to 3", |f| {
        let a = f.param("a", t(&[2]));
        vec![f.broadcast_along(a, &[0], &[3])]
    });
    check("is no slice of dimension 0", |f| {
        let a = f.param("a", t(&[4]));
        vec![f.slice(a, &[3], &[5])]
    });
    check("needs integers or booleans", |f| {
        let a = f.param("a", t(&[4]));
        vec![f.binary(Opcode::And, a, a)]
    });
}

#[test]
fn declared_types_are_compared() {
    check("gives (tensor<2xf32>), declared are (tensor<3xf32>)", |f| {
        let a = f.param("a", t(&[2]));
        f.op(Opcode::Negate, &[a], &[], &[t(&[3])])
    });
    check("result 0 should have dimensions [2]", |f| {
        let a = f.param("a", t(&[2, 3]));
        let zero = f.constant_f32(0.0);
        let body = f.region(&[t(&[]), t(&[])], |f, a| vec![f.add(a[0], a[1])]);
        f.op_with_regions(Opcode::Reduce, &[a, zero], &[("dimensions", Attr::Ints(vec![1]))], vec![body], &[t(&[3])])
    });
}

#[test]
fn regions_have_signatures() {
    check("the region should take scalars", |f| {
        let a = f.param("a", t(&[2, 3]));
        let zero = f.constant_f32(0.0);
        let body = f.region(&[t(&[])], |_, a| vec![a[0]]);
        f.op_with_regions(Opcode::Reduce, &[a, zero], &[("dimensions", Attr::Ints(vec![1]))], vec![body], &[t(&[2])])
    });
    check("results of the condition", |f| {
        let a = f.param("a", t(&[]));
        f.while_loop(&[a], |_, s| s[0], |_, s| s.to_vec())
    });
    check("takes 1 regions, has 0", |f| {
        let a = f.param("a", t(&[2]));
        let zero = f.constant_f32(0.0);
        f.op(Opcode::Reduce, &[a, zero], &[("dimensions", Attr::Ints(vec![0]))], &[t(&[])])
    });
}

#[test]
fn values_are_visible_where_they_are_used() {
    check("is not defined here", |f| {
        let a = f.param("a", t(&[]));
        let mut inner = a;
        f.region(&[t(&[])], |f, x| {
            inner = f.add(x[0], x[0]);
            vec![inner]
        });
        vec![f.add(a, inner)]
    });
}

#[test]
fn dynamic_shapes_are_named() {
    check("parameter 0 is tensor<?xf32>: a dimension of unknown size is not supported", |f| {
        vec![f.param("a", t(&[DYNAMIC]))]
    });
}

#[test]
fn symbols_resolve_and_calls_end() {
    check("func.call: there is no function `nowhere`", |f| f.call("nowhere", &[]));
    let mut m = ModuleBuilder::new("test");
    let mut f = m.func("a");
    let x = f.param("x", t(&[]));
    let y = f.op(Opcode::Call, &[x], &[("callee", Attr::Symbol("b".into()))], &[t(&[])]);
    f.ret(&y);
    let mut f = m.func("b");
    let x = f.param("x", t(&[]));
    let y = f.call("a", &[x]);
    f.ret(&y);
    let all: Vec<String> = m.finish().unwrap_err().iter().map(ToString::to_string).collect();
    assert_eq!(all, ["@a: calls itself, directly or through others", "@b: calls itself, directly or through others"]);
}

#[test]
fn errors_name_the_source_line() {
    let text = "module { func.func @main(%arg0: tensor<2xf32>) -> tensor<3xf32> {\n  %0 = \"stablehlo.negate\"(%arg0) : \
                (tensor<2xf32>) -> tensor<3xf32> loc(\"model.py\":7:0)\n  return %0 : tensor<3xf32>\n} }";
    let module = tpusim_backend::front::parse_program(text.as_bytes(), "test").unwrap_or_else(|e| panic!("{e}"));
    let all = tpusim_backend::hlo::verify(module).unwrap_err();
    assert_eq!(all[0].line, Some(("model.py".to_owned(), 7)));
    assert!(all[0].to_string().starts_with("model.py:7: @main: stablehlo.negate: "), "{}", all[0]);
}

#[test]
fn good_programs_pass() {
    let none = errors(|f| {
        let x = f.param("x", t(&[4, 8]));
        let s = f.reduce(ReduceKind::Max, x, &[1]);
        let b = f.broadcast_in_dim(s, &[4, 8], &[0]);
        let y = f.binary(Opcode::Subtract, x, b);
        let i = f.iota(TensorType::new([2, 3], DType::I32), 1);
        vec![y, f.take_rows(x, i)]
    });
    assert!(none.is_empty(), "{none:?}");
}
