// Updates of what the program computes: chains in one array, operands read before and after, updates made from what they overwrite.
module @dynamic_updates_of_results {
  func.func @main(%x: tensor<40x200xf32>, %u: tensor<3x200xf32>, %w: tensor<200x130xf32>, %i: tensor<i32>, %j: tensor<i32>) -> (tensor<40x200xf32>, tensor<40x200xf32>, tensor<40x200xf32>, tensor<40x200xf32>, tensor<f32>, tensor<40x130xf32>, tensor<8000xf32>, tensor<50x200xf32>, tensor<40x200xf32>, tensor<40x200xf32>) {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %zeros = stablehlo.constant dense<0.0> : tensor<40x200xf32>
    %c0 = stablehlo.constant dense<0> : tensor<i32>
    // A chain that starts at zeros.
    %0 = stablehlo.dynamic_update_slice %zeros, %u, %i, %c0 : (tensor<40x200xf32>, tensor<3x200xf32>, tensor<i32>, tensor<i32>) -> tensor<40x200xf32>
    %1 = stablehlo.add %u, %u : tensor<3x200xf32>
    %2 = stablehlo.dynamic_update_slice %0, %1, %j, %c0 : (tensor<40x200xf32>, tensor<3x200xf32>, tensor<i32>, tensor<i32>) -> tensor<40x200xf32>
    // The first result of a chain is wanted too.
    %two = stablehlo.constant dense<2.0> : tensor<40x200xf32>
    %3 = stablehlo.remainder %x, %two : tensor<40x200xf32>
    %4 = stablehlo.remainder %3, %two : tensor<40x200xf32>
    %5 = stablehlo.dynamic_update_slice %4, %u, %j, %j : (tensor<40x200xf32>, tensor<3x200xf32>, tensor<i32>, tensor<i32>) -> tensor<40x200xf32>
    %6 = stablehlo.dynamic_update_slice %5, %1, %i, %i : (tensor<40x200xf32>, tensor<3x200xf32>, tensor<i32>, tensor<i32>) -> tensor<40x200xf32>
    // The operand is read before it is updated, and after.
    %7 = stablehlo.reduce(%5 init: %zero) applies stablehlo.add across dimensions = [0, 1] : (tensor<40x200xf32>, tensor<f32>) -> tensor<f32>
    // A product and its update, in one array; the update is a product too.
    %8 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<40x200xf32>, tensor<200x130xf32>) -> tensor<40x130xf32>
    %9 = stablehlo.dot_general %u, %w, contracting_dims = [1] x [0] : (tensor<3x200xf32>, tensor<200x130xf32>) -> tensor<3x130xf32>
    %10 = stablehlo.dynamic_update_slice %8, %9, %i, %c0 : (tensor<40x130xf32>, tensor<3x130xf32>, tensor<i32>, tensor<i32>) -> tensor<40x130xf32>
    // Rows that are added to themselves, then moved elsewhere, in one array seen in two shapes.
    %c2 = stablehlo.constant dense<2> : tensor<i32>
    %11 = stablehlo.dynamic_update_slice %2, %u, %c2, %c0 : (tensor<40x200xf32>, tensor<3x200xf32>, tensor<i32>, tensor<i32>) -> tensor<40x200xf32>
    %12 = stablehlo.dynamic_slice %11, %i, %c0, sizes = [11, 200] : (tensor<40x200xf32>, tensor<i32>, tensor<i32>) -> tensor<11x200xf32>
    %13 = stablehlo.add %12, %12 : tensor<11x200xf32>
    %14 = stablehlo.dynamic_update_slice %11, %13, %i, %c0 : (tensor<40x200xf32>, tensor<11x200xf32>, tensor<i32>, tensor<i32>) -> tensor<40x200xf32>
    %15 = stablehlo.reshape %14 : (tensor<40x200xf32>) -> tensor<8000xf32>
    %16 = stablehlo.dynamic_slice %15, %c2, sizes = [4000] : (tensor<8000xf32>, tensor<i32>) -> tensor<4000xf32>
    %17 = stablehlo.dynamic_update_slice %15, %16, %i : (tensor<8000xf32>, tensor<4000xf32>, tensor<i32>) -> tensor<8000xf32>
    // Updates of a concatenation, a pad and a transpose.
    %18 = stablehlo.concatenate %x, %x, dim = 0 : (tensor<40x200xf32>, tensor<40x200xf32>) -> tensor<80x200xf32>
    %19 = stablehlo.slice %18 [20:70, 0:200] : (tensor<80x200xf32>) -> tensor<50x200xf32>
    %20 = stablehlo.dynamic_update_slice %19, %u, %j, %c0 : (tensor<50x200xf32>, tensor<3x200xf32>, tensor<i32>, tensor<i32>) -> tensor<50x200xf32>
    %21 = stablehlo.pad %u, %zero, low = [20, 0], high = [17, 0], interior = [0, 0] : (tensor<3x200xf32>, tensor<f32>) -> tensor<40x200xf32>
    %22 = stablehlo.dynamic_update_slice %21, %1, %j, %c0 : (tensor<40x200xf32>, tensor<3x200xf32>, tensor<i32>, tensor<i32>) -> tensor<40x200xf32>
    %23 = stablehlo.transpose %x, dims = [1, 0] : (tensor<40x200xf32>) -> tensor<200x40xf32>
    %24 = stablehlo.transpose %u, dims = [1, 0] : (tensor<3x200xf32>) -> tensor<200x3xf32>
    %25 = stablehlo.dynamic_update_slice %23, %24, %c0, %j : (tensor<200x40xf32>, tensor<200x3xf32>, tensor<i32>, tensor<i32>) -> tensor<200x40xf32>
    %26 = stablehlo.transpose %25, dims = [1, 0] : (tensor<200x40xf32>) -> tensor<40x200xf32>
    return %2, %6, %5, %4, %7, %10, %17, %20, %22, %26 : tensor<40x200xf32>, tensor<40x200xf32>, tensor<40x200xf32>, tensor<40x200xf32>, tensor<f32>, tensor<40x130xf32>, tensor<8000xf32>, tensor<50x200xf32>, tensor<40x200xf32>, tensor<40x200xf32>
  }
}
