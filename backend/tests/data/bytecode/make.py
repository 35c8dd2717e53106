"""Writes small.*.mlirbc, one program in several versions of VHLO and of the container; sharded.mlirbc,
resource.mlirbc, attributes.mlirbc; plain.mlirbc is in StableHLO's own, unversioned encoding.

Needs JAX (`pip install jax`; written with 0.10.2).
"""

import pathlib

from jax._src.interpreters.mlir import make_ir_context
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo
from jaxlib.mlir.passmanager import PassManager

VERSIONS = ["0.9.0", "1.1.0", "1.5.0", "1.8.0", "1.17.0"]
# Serialization chooses among 0 (with VHLO 0.9.0), 1, 3, 4 and 6.
CONTAINERS = [2, 3, 4, 5]

SMALL = """
module @small attributes {mhlo.num_partitions = 1 : i32} {
  func.func public @main(%x: tensor<4x8xf32> {mhlo.sharding = "{replicated}"} loc("x"), %i: tensor<2x1xi32>)
      -> (tensor<2x8xf32> {jax.result_info = "result"}, tensor<4xf32>) {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %mask = stablehlo.constant dense<[true, false, true, true, false, true, true, false, true]> : tensor<9xi1>
    %small = stablehlo.constant dense<[-8, 7, 1]> : tensor<3xi4>
    %w = stablehlo.constant dense<5.000000e-01> : tensor<8x8xf32>
    %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0], precision = [HIGHEST, DEFAULT]
        : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32> loc("dot"("model.py":3:4))
    %1 = stablehlo.exponential %0 : tensor<4x8xf32> loc(callsite("exp"("model.py":5:1) at "main"("model.py":9:2)))
    %2 = "stablehlo.gather"(%1, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1],
        collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 8>}>
        : (tensor<4x8xf32>, tensor<2x1xi32>) -> tensor<2x8xf32>
    %3 = stablehlo.reduce(%1 init: %zero) applies stablehlo.add across dimensions = [1]
        : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32> loc(fused["a", "model.py":7:3])
    %4 = stablehlo.compare LT, %3, %3, FLOAT : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
    %5 = stablehlo.select %4, %3, %3 : tensor<4xi1>, tensor<4xf32>
    %6 = stablehlo.custom_call @target(%5) {backend_config = "opaque", api_version = 2 : i32,
        operand_layouts = [dense<[0]> : tensor<1xindex>], result_layouts = [dense<[0]> : tensor<1xindex>],
        mhlo.frontend_attributes = {key = "value"}} : (tensor<4xf32>) -> tensor<4xf32>
    %7 = call @inner(%6) : (tensor<4xf32>) -> tensor<4xf32>
    return %2, %7 : tensor<2x8xf32>, tensor<4xf32>
  }
  func.func private @inner(%x: tensor<4xf32>) -> tensor<4xf32> {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %ten = stablehlo.constant dense<10> : tensor<i32>
    %0:2 = stablehlo.while(%a = %x, %n = %zero) : tensor<4xf32>, tensor<i32>
    cond {
      %1 = stablehlo.compare LT, %n, %ten, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %1 = stablehlo.add %a, %x : tensor<4xf32>
      %2 = stablehlo.add %n, %n : tensor<i32>
      stablehlo.return %1, %2 : tensor<4xf32>, tensor<i32>
    }
    return %0#0 : tensor<4xf32>
  }
}
"""

SHARDED = """
module @sharded {
  sdy.mesh @mesh = <["x"=4, "y"=4], device_ids=[15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0]>
  func.func public @main(%a: tensor<64x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", ?}p1, {"y":(1)2}]>},
      %q: tensor<64x16xf8E4M3FN>)
      -> (tensor<64x16xf32> {sdy.sharding = #sdy.sharding<mesh<["z"=2]>, [{"z"}, {?}]>}) {
    %0 = sdy.manual_computation(%a, %q)
        in_shardings=[<@mesh, [{"x"}, {}]>, <@mesh, [{"x"}, {}]>] out_shardings=[<@mesh, [{"x"}, {}], replicated={"y"}>]
        manual_axes={"x"} (%b: tensor<16x16xf32>, %c: tensor<16x16xf8E4M3FN>) {
      %1 = "stablehlo.all_reduce"(%b) <{channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>,
          replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, use_global_device_ids}> ({
      ^bb0(%l: tensor<f32>, %r: tensor<f32>):
        %s = stablehlo.add %l, %r : tensor<f32>
        stablehlo.return %s : tensor<f32>
      }) : (tensor<16x16xf32>) -> tensor<16x16xf32>
      sdy.return %1 : tensor<16x16xf32>
    } : (tensor<64x16xf32>, tensor<64x16xf8E4M3FN>) -> tensor<64x16xf32>
    %2 = sdy.sharding_constraint %0 <@mesh, [{}, {"x"}]> : tensor<64x16xf32>
    return %2 : tensor<64x16xf32>
  }
}
"""

# Serialization leaves the attributes of the module alone.
ATTRIBUTES = """
module @attributes attributes {
    a.array = array<i64: 1, -2>, a.array8 = array<i8: 1, -2>, a.arrayb = array<i1: true, false>, a.arrayf = array<f32: 0.5>,
    a.bool = true, a.dense = dense<[[1, -2]]> : tensor<1x2xi16>, a.denseb = dense<[true, false, true]> : tensor<3xi1>,
    a.f16 = 1.5 : f16, a.f64 = 0.1 : f64, a.function = (f32, tensor<?x2xf8E5M2>) -> tuple<i1, index>,
    a.i1 = -1 : i8, a.index = 7 : index, a.list = [1 : i32, "x", unit], a.splat = dense<true> : tensor<100xi1>,
    a.symbol = @x::@y, a.u8 = 255 : ui8, a.c = dense<(1.0, 2.0)> : tensor<2xcomplex<f32>>,
    a.strided = strided<[1, 2]>, a.map = affine_map<(d0) -> (d0)> } {
  func.func public @main() {
    return
  }
}
"""

# A constant kept in the resource section, on an attribute that serialization leaves alone.
RESOURCE = """
module @resource attributes {test.blob = dense_resource<blob> : tensor<3xi32>} {
  func.func public @main() {
    return
  }
}
{-#
  dialect_resources: { builtin: { blob: "0x08000000010000000200000003000000" } }
#-}
"""

here = pathlib.Path(__file__).parent
with make_ir_context():
    # Serialization changes the module, so each file starts from the text.
    for version in VERSIONS:
        artifact = stablehlo.serialize_portable_artifact(ir.Module.parse(SMALL), version)
        (here / f"small.{version}.mlirbc").write_bytes(artifact)
    for name, text in [("sharded", SHARDED), ("resource", RESOURCE), ("attributes", ATTRIBUTES)]:
        artifact = stablehlo.serialize_portable_artifact(ir.Module.parse(text), VERSIONS[-1], True)
        (here / f"{name}.mlirbc").write_bytes(artifact)
    module = ir.Module.parse(SMALL)
    with open(here / "plain.mlirbc", "wb") as file:
        module.operation.write_bytecode(file)
    stablehlo.register_stablehlo_passes()
    PassManager.parse("builtin.module(stablehlo-legalize-to-vhlo)").run(module.operation)
    for version in CONTAINERS:
        with open(here / f"small.container{version}.mlirbc", "wb") as file:
            module.operation.write_bytecode(file, desired_version=version)
