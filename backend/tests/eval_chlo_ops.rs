//! Ops that frameworks rarely write, from text. Oracles: values worked out by hand from the specification, the random bits of XLA's
//! definition (blocks of the Random123 library placed by hand), and plain loops.

use tpusim_backend::eval::{EvalOptions, Grid, Tensor, Value, eval_module, eval_mpmd};
use tpusim_backend::front::parse_text;
use tpusim_backend::hlo::{Module, Verified, verify};
use tpusim_isa::num::DType;

fn module(text: &str) -> Result<Verified<Module>, String> {
    let module = parse_text(text, "test.mlir").map_err(|e| e.to_string())?;
    verify(module).map_err(|e| e.iter().map(|e| format!("{e}\n")).collect())
}

/// Results of `main`, which takes nothing.
fn run(text: &str) -> Vec<Tensor> {
    eval_module(&module(text).unwrap(), &[]).unwrap_or_else(|e| panic!("{e}"))
}

/// What is wrong with `main`.
fn error(text: &str) -> String {
    match module(text) {
        Err(e) => e,
        Ok(m) => eval_module(&m, &[]).unwrap_err().to_string(),
    }
}

#[test]
fn random_bits_are_xlas() {
    let r = run(
        r#"func.func @main() -> (tensor<2xui64>, tensor<4xui32>, tensor<2x3xui32>, tensor<3xui8>, tensor<2xui64>,
                                          tensor<3xui64>, tensor<5xui32>, tensor<2xui64>, tensor<2xui64>) {
      %s = stablehlo.constant dense<[7, 40]> : tensor<2xui64>
      %a:2 = stablehlo.rng_bit_generator %s, algorithm = THREE_FRY : (tensor<2xui64>) -> (tensor<2xui64>, tensor<4xui32>)
      %b:2 = stablehlo.rng_bit_generator %s, algorithm = THREE_FRY : (tensor<2xui64>) -> (tensor<2xui64>, tensor<2x3xui32>)
      %c:2 = stablehlo.rng_bit_generator %s, algorithm = THREE_FRY : (tensor<2xui64>) -> (tensor<2xui64>, tensor<3xui8>)
      %t = stablehlo.constant dense<[7, 40, 2]> : tensor<3xui64>
      %d:2 = stablehlo.rng_bit_generator %t, algorithm = PHILOX : (tensor<3xui64>) -> (tensor<3xui64>, tensor<5xui32>)
      %e:2 = stablehlo.rng_bit_generator %s, algorithm = DEFAULT : (tensor<2xui64>) -> (tensor<2xui64>, tensor<2xui64>)
      return %a#0, %a#1, %b#1, %c#1, %c#0, %d#0, %d#1, %e#0, %e#1 : tensor<2xui64>, tensor<4xui32>, tensor<2x3xui32>,
        tensor<3xui8>, tensor<2xui64>, tensor<3xui64>, tensor<5xui32>, tensor<2xui64>, tensor<2xui64>
    }"#,
    );
    let words = |t: &Tensor| t.to_i64();
    // A vector of four words is two blocks, one behind another.
    assert_eq!(words(&r[0]), [7, 42]);
    let v = words(&r[1]);
    // In a 2x3 array the halves of a block lie above one another: block j is column j.
    let m = words(&r[2]);
    assert_eq!([m[0], m[3], m[1], m[4]], v[..], "blocks 40 and 41");
    // Bytes are the low ones of words that are used up like words.
    assert_eq!(words(&r[3]), v[..3].iter().map(|w| w & 0xff).collect::<Vec<_>>());
    assert_eq!(words(&r[4]), [7, 42]);
    assert_eq!(words(&r[5]), [7, 42, 2]);
    assert_eq!(words(&r[6]).len(), 5);
    // A state of two words has the key above the counter.
    assert_eq!(words(&r[7]), [7, 41]);
    let same = run(r#"func.func @main() -> tensor<2xui64> {
      %s = stablehlo.constant dense<[7, 40, 7]> : tensor<3xui64>
      %e:2 = stablehlo.rng_bit_generator %s, algorithm = PHILOX : (tensor<3xui64>) -> (tensor<3xui64>, tensor<2xui64>)
      return %e#1 : tensor<2xui64>
    }"#);
    assert_eq!(words(&r[8]), words(&same[0]));
}

#[test]
fn random_numbers_keep_their_range() {
    let r = run(r#"func.func @main() -> (tensor<1000xf32>, tensor<1000xi32>, tensor<1000xf32>) {
      %n = stablehlo.constant dense<1000> : tensor<1xi64>
      %a = stablehlo.constant dense<-1.0> : tensor<f32>
      %b = stablehlo.constant dense<3.0> : tensor<f32>
      %i = stablehlo.constant dense<-2> : tensor<i32>
      %j = stablehlo.constant dense<2> : tensor<i32>
      %0 = stablehlo.rng %a, %b, %n, distribution = UNIFORM : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<1000xf32>
      %1 = stablehlo.rng %i, %j, %n, distribution = UNIFORM : (tensor<i32>, tensor<i32>, tensor<1xi64>) -> tensor<1000xi32>
      %2 = stablehlo.rng %a, %b, %n, distribution = NORMAL : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<1000xf32>
      return %0, %1, %2 : tensor<1000xf32>, tensor<1000xi32>, tensor<1000xf32>
    }"#);
    let mean = |v: &[f32]| v.iter().map(|&x| f64::from(x)).sum::<f64>() / v.len() as f64;
    let (u, i, n) = (r[0].to_f32(), r[1].to_i64(), r[2].to_f32());
    // Means of 1000 are within 0.15 of 1 and within 0.4 of -1: four standard errors.
    assert!(u.iter().all(|x| (-1.0..3.0).contains(x)) && (mean(&u) - 1.0).abs() < 0.15);
    assert!((-2..2).all(|k| i.contains(&k)) && i.iter().all(|k| (-2..2).contains(k)));
    assert!((mean(&n) + 1.0).abs() < 0.4 && n.iter().any(|x| *x > 3.0) && n.iter().any(|x| *x < -5.0));
}

#[test]
fn products_by_letters() {
    let r = run(r#"func.func @main() -> (tensor<3x2xf32>, tensor<2xf32>, tensor<f32>, tensor<2x2x2xf32>) {
      %a = stablehlo.constant dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>
      %b = stablehlo.constant dense<[[1.0, 0.0, 2.0], [0.0, 1.0, 3.0]]> : tensor<2x3xf32>
      %0 = stablehlo.einsum %a, %b, config = "ij,jk->ki" : (tensor<2x2xf32>, tensor<2x3xf32>) -> tensor<3x2xf32>
      %1 = stablehlo.unary_einsum %a, config = "ii->i" : (tensor<2x2xf32>) -> tensor<2xf32>
      %2 = stablehlo.unary_einsum %a, config = "ij->" : (tensor<2x2xf32>) -> tensor<f32>
      %c = stablehlo.constant dense<[10.0, 100.0]> : tensor<2xf32>
      %3 = stablehlo.einsum %a, %c, config = "...j,k->k...j" : (tensor<2x2xf32>, tensor<2xf32>) -> tensor<2x2x2xf32>
      return %0, %1, %2, %3 : tensor<3x2xf32>, tensor<2xf32>, tensor<f32>, tensor<2x2x2xf32>
    }"#);
    assert_eq!(r[0].to_f32(), [1.0, 3.0, 2.0, 4.0, 8.0, 18.0]);
    assert_eq!(r[1].to_f32(), [1.0, 4.0]);
    assert_eq!(r[2].to_f32(), [10.0]);
    assert_eq!(r[3].to_f32(), [10.0, 20.0, 30.0, 40.0, 100.0, 200.0, 300.0, 400.0]);
    let bad = error(
        r#"func.func @main() -> tensor<2xf32> {
      %a = stablehlo.constant dense<1.0> : tensor<2x2xf32>
      %0 = stablehlo.unary_einsum %a, config = "ij->k" : (tensor<2x2xf32>) -> tensor<2xf32>
      return %0 : tensor<2xf32>
    }"#,
    );
    assert!(bad.contains("test.mlir:3: @main: stablehlo.unary_einsum"), "{bad}");
}

#[test]
fn ragged_products_of_every_mode() {
    let r = run(r#"func.func @main() -> (tensor<3x1xf32>, tensor<2x1x1xf32>) {
      %a = stablehlo.constant dense<[[1.0], [2.0], [3.0]]> : tensor<3x1xf32>
      %b = stablehlo.constant dense<[[[10.0]], [[0x7F800000]]]> : tensor<2x1x1xf32>
      %n = stablehlo.constant dense<[2, 0]> : tensor<2xi32>
      %0 = "chlo.ragged_dot"(%a, %b, %n) {ragged_dot_dimension_numbers = #chlo.ragged_dot<lhs_contracting_dimensions = [1],
        rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]>}
        : (tensor<3x1xf32>, tensor<2x1x1xf32>, tensor<2xi32>) -> tensor<3x1xf32>
      %c = stablehlo.constant dense<[[5.0], [7.0], [0x7F800000]]> : tensor<3x1xf32>
      %m = stablehlo.constant dense<[1, 1]> : tensor<2xi32>
      %1 = "chlo.ragged_dot"(%a, %c, %m) {ragged_dot_dimension_numbers = #chlo.ragged_dot<lhs_contracting_dimensions = [0],
        rhs_contracting_dimensions = [0], lhs_ragged_dimensions = [0]>}
        : (tensor<3x1xf32>, tensor<3x1xf32>, tensor<2xi32>) -> tensor<2x1x1xf32>
      return %0, %1 : tensor<3x1xf32>, tensor<2x1x1xf32>
    }"#);
    // The third row is in no group; infinities of other groups make no NaN.
    assert_eq!(r[0].to_f32(), [10.0, 20.0, 0.0]);
    assert_eq!(r[1].to_f32(), [5.0, 14.0]);
}

#[test]
fn shapes_that_are_computed() {
    let r = run(r#"func.func @main() -> (tensor<2xi32>, tensor<2x2xi32>, tensor<4xi32>) {
      %x = stablehlo.constant dense<[0, 1, 2, 3, 4, 5]> : tensor<6xi32>
      %s = stablehlo.constant dense<1> : tensor<1xi64>
      %l = stablehlo.constant dense<6> : tensor<1xi64>
      %t = stablehlo.constant dense<3> : tensor<1xi64>
      %0 = stablehlo.real_dynamic_slice %x, %s, %l, %t : (tensor<6xi32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<2xi32>
      %m = stablehlo.constant dense<[[1, 2], [3, 4], [5, 6]]> : tensor<3x2xi32>
      %i = stablehlo.constant dense<[2, -9]> : tensor<2xi32>
      %1 = "stablehlo.torch_index_select"(%m, %i) {dim = 0 : i64, batch_dims = 0 : i64} : (tensor<3x2xi32>, tensor<2xi32>) -> tensor<2x2xi32>
      %n = stablehlo.constant dense<4> : tensor<i32>
      %y = stablehlo.constant dense<[1, 2, 3, 4]> : tensor<4xi32>
      %2 = stablehlo.set_dimension_size %y, %n, dim = 0 : (tensor<4xi32>, tensor<i32>) -> tensor<4xi32>
      return %0, %1, %2 : tensor<2xi32>, tensor<2x2xi32>, tensor<4xi32>
    }"#);
    assert_eq!(r[0].to_i64(), [1, 4]);
    assert_eq!(r[1].to_i64(), [5, 6, 1, 2]);
    assert_eq!(r[2].to_i64(), [1, 2, 3, 4]);
}

#[test]
fn quantized_tensors_in_ops_with_regions_and_products() {
    let r = run(r#"func.func @main() -> (tensor<i8>, tensor<2x1xi8>, tensor<2x1xf32>) {
      %x = stablehlo.constant dense<[1.0, 2.0, 3.5]> : tensor<3xf32>
      %q = stablehlo.uniform_quantize %x : (tensor<3xf32>) -> tensor<3x!quant.uniform<i8:f32, 0.5:-7>>
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %i = stablehlo.uniform_quantize %z : (tensor<f32>) -> tensor<!quant.uniform<i8:f32, 0.5:-7>>
      %s = stablehlo.reduce(%q init: %i) applies stablehlo.add across dimensions = [0]
        : (tensor<3x!quant.uniform<i8:f32, 0.5:-7>>, tensor<!quant.uniform<i8:f32, 0.5:-7>>) -> tensor<!quant.uniform<i8:f32, 0.5:-7>>
      %0 = stablehlo.bitcast_convert %s : (tensor<!quant.uniform<i8:f32, 0.5:-7>>) -> tensor<i8>
      %a = stablehlo.constant dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>
      %b = stablehlo.constant dense<[[0.5], [1.0]]> : tensor<2x1xf32>
      %qa = stablehlo.uniform_quantize %a : (tensor<2x2xf32>) -> tensor<2x2x!quant.uniform<i8:f32, 0.25:3>>
      %qb = stablehlo.uniform_quantize %b : (tensor<2x1xf32>) -> tensor<2x1x!quant.uniform<i8:f32, 0.5>>
      %p = stablehlo.dot_general %qa, %qb, contracting_dims = [1] x [0]
        : (tensor<2x2x!quant.uniform<i8:f32, 0.25:3>>, tensor<2x1x!quant.uniform<i8:f32, 0.5>>) -> tensor<2x1x!quant.uniform<i8:f32, 0.5:1>>
      %1 = stablehlo.bitcast_convert %p : (tensor<2x1x!quant.uniform<i8:f32, 0.5:1>>) -> tensor<2x1xi8>
      %2 = stablehlo.dot_general %a, %qb, contracting_dims = [1] x [0]
        : (tensor<2x2xf32>, tensor<2x1x!quant.uniform<i8:f32, 0.5>>) -> tensor<2x1xf32>
      return %0, %1, %2 : tensor<i8>, tensor<2x1xi8>, tensor<2x1xf32>
    }"#);
    // 6.5 is 13 quanta above -7. Products are 2.5 and 5.5, stored 6 and 12.
    assert_eq!(r[0].to_i64(), [6]);
    assert_eq!(r[1].to_i64(), [6, 12]);
    assert_eq!(r[2].to_f32(), [2.5, 5.5]);
}

/// A tie goes to the even stored integer: 0.5 quanta beside a zero point of 1 are stored 2, not 1.
#[test]
fn quantization_adds_the_zero_point_first() {
    let r = run(r#"func.func @main() -> tensor<3xi8> {
      %x = stablehlo.constant dense<[0.5, 1.5, 0x7FC00000]> : tensor<3xf32>
      %q = stablehlo.uniform_quantize %x : (tensor<3xf32>) -> tensor<3x!quant.uniform<i8:f32, 1.0:1>>
      %0 = stablehlo.bitcast_convert %q : (tensor<3x!quant.uniform<i8:f32, 1.0:1>>) -> tensor<3xi8>
      return %0 : tensor<3xi8>
    }"#);
    assert_eq!(r[0].to_i64(), [2, 2, 0]);
}

#[test]
fn custom_calls_that_frameworks_write() {
    let r = run(r#"func.func @gt(%a: tensor<f32>, %b: tensor<f32>, %i: tensor<i32>, %j: tensor<i32>) -> tensor<i1> {
      %0 = stablehlo.compare GT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
      return %0 : tensor<i1>
    }
    func.func @main() -> (tensor<2xf32>, tensor<2xi32>, tensor<4xf32>, tensor<2xf32>, tensor<2xi32>, tensor<2x2xf32>, tensor<2xi32>, tensor<2xi32>) {
      %x = stablehlo.constant dense<[1.0, 9.0, 3.0, 9.0]> : tensor<4xf32>
      %0:2 = stablehlo.custom_call @mhlo.topk(%x) {mhlo.attributes = {k = 2 : i64, largest = true}, mhlo.version = 1 : i64}
        : (tensor<4xf32>) -> (tensor<2xf32>, tensor<2xi32>)
      %1 = stablehlo.custom_call @mhlo.erf(%x) {mhlo.attributes = {}, mhlo.version = 1 : i64} : (tensor<4xf32>) -> tensor<4xf32>
      %i = stablehlo.iota dim = 0 : tensor<4xi32>
      %v = stablehlo.constant dense<0xFF800000> : tensor<f32>
      %n = stablehlo.constant dense<-1> : tensor<i32>
      %2:2 = stablehlo.custom_call @ApproxTopK(%x, %i, %v, %n) {called_computations = [@gt],
        mhlo.backend_config = {aggregate_to_topk = true, recall_target = 0.95 : f32, reduction_dim = 0 : i64, top_k = 2 : i64}}
        : (tensor<4xf32>, tensor<4xi32>, tensor<f32>, tensor<i32>) -> (tensor<2xf32>, tensor<2xi32>)
      %m = stablehlo.constant dense<[[1.0, 2.0], [4.0, 6.0]]> : tensor<2x2xf32>
      %3:3 = stablehlo.custom_call @LuDecomposition(%m) : (tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2xi32>, tensor<2xi32>)
      return %0#0, %0#1, %1, %2#0, %2#1, %3#0, %3#1, %3#2 : tensor<2xf32>, tensor<2xi32>, tensor<4xf32>, tensor<2xf32>, tensor<2xi32>,
        tensor<2x2xf32>, tensor<2xi32>, tensor<2xi32>
    }"#);
    assert_eq!((r[0].to_f32(), r[1].to_i64()), (vec![9.0, 9.0], vec![1, 3]));
    assert_eq!(r[2].to_f32()[0], libm::erff(1.0));
    assert_eq!((r[3].to_f32(), r[4].to_i64()), (vec![9.0, 9.0], vec![1, 3]));
    // Rows exchanged: [4 6] and [1 2] - 1/4 [4 6].
    assert_eq!(r[5].to_f32(), [4.0, 6.0, 0.25, 0.5]);
    assert_eq!((r[6].to_i64(), r[7].to_i64()), (vec![1, 1], vec![1, 0]));
    let unknown = error(
        r#"func.func @main() -> tensor<2xf32> {
      %0 = stablehlo.custom_call @xla.gpu.magic() : () -> tensor<2xf32>
      return %0 : tensor<2xf32>
    }"#,
    );
    assert!(unknown.starts_with("test.mlir:2:") && unknown.contains("`xla.gpu.magic`"), "{unknown}");
}

#[test]
fn what_leaves_the_program_is_refused_at_its_line() {
    let e = error(
        r#"func.func @main() -> tensor<2xf32> {
      %t = stablehlo.create_token : !stablehlo.token
      %0:2 = "stablehlo.infeed"(%t) {infeed_config = "", layout = []} : (!stablehlo.token) -> (tensor<2xf32>, !stablehlo.token)
      return %0#0 : tensor<2xf32>
    }"#,
    );
    assert!(e.starts_with("test.mlir:3:") && e.contains("pass the data as inputs"), "{e}");
    let e = error(
        "func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {\n  %0 = stablehlo.abs %x : tensor<?xf32>\n  return %0 : tensor<?xf32>\n}",
    );
    let lines: Vec<&str> = e.lines().collect();
    assert!(lines[0].starts_with("test.mlir:1: @main: parameter 0 is tensor<?xf32>"), "{e}");
    assert!(
        lines[1].starts_with("test.mlir:2: @main: stablehlo.abs: gives tensor<?xf32>") && e.contains("export"),
        "{e}"
    );
}

/// Replicas and partitions at once: two of each. Device `2 r + p`; with a channel, groups of replicas span all partitions.
#[test]
fn replicas_and_partitions_are_told_apart() {
    let body = "({ ^bb0(%a: tensor<i32>, %b: tensor<i32>):\n %s = stablehlo.add %a, %b : tensor<i32>\n stablehlo.return %s : tensor<i32> })";
    let text = format!(
        r#"func.func @main(%x: tensor<1xi32>) -> (tensor<1xi32>, tensor<1xi32>, tensor<ui32>, tensor<ui32>) {{
      %0 = "stablehlo.all_reduce"(%x) {body} {{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}} : (tensor<1xi32>) -> tensor<1xi32>
      %1 = "stablehlo.all_reduce"(%x) {body} {{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>,
        channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>}} : (tensor<1xi32>) -> tensor<1xi32>
      %2 = stablehlo.replica_id : tensor<ui32>
      %3 = stablehlo.partition_id : tensor<ui32>
      return %0, %1, %2, %3 : tensor<1xi32>, tensor<1xi32>, tensor<ui32>, tensor<ui32>
    }}"#
    );
    let m = module(&text).unwrap();
    let inputs: Vec<Vec<Value>> =
        [1, 10, 100, 1000].map(|v| vec![Tensor::from_i64(&[1], DType::I32, &[v]).unwrap().into()]).to_vec();
    let grid = Grid { replicas: 2, partitions: 2 };
    let r = eval_mpmd(&m, grid, &["main"; 4], &inputs, &EvalOptions::default()).unwrap();
    let values = |i: usize| r.iter().map(|r| r[i].tensor().unwrap().to_i64()[0]).collect::<Vec<_>>();
    assert_eq!(values(0), [101, 1010, 101, 1010]);
    assert_eq!(values(1), [1111; 4]);
    assert_eq!((values(2), values(3)), (vec![0, 0, 1, 1], vec![0, 1, 0, 1]));
}
