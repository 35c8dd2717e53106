// Branches with products and reductions of their own, on a predicate that is true; one that is false; and one known beforehand.
func.func @main(%x: tensor<40x136xf32>, %w: tensor<136x136xf32>) -> (tensor<40x136xf32>, tensor<40xf32>, tensor<40x136xf32>, tensor<40x136xf32>) {
  %none = stablehlo.constant dense<0.0> : tensor<f32>
  %low = stablehlo.constant dense<-1.0e9> : tensor<f32>
  %yes = stablehlo.constant dense<true> : tensor<i1>
  %s = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [0, 1] : (tensor<40x136xf32>, tensor<f32>) -> tensor<f32>
  %p = stablehlo.compare GT, %s, %none, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
  %q = stablehlo.compare LT, %s, %none, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
  %r:3 = "stablehlo.if"(%p) ({
    %d = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<40x136xf32>, tensor<136x136xf32>) -> tensor<40x136xf32>
    %e = stablehlo.reduce(%x init: %none) applies stablehlo.add across dimensions = [1] : (tensor<40x136xf32>, tensor<f32>) -> tensor<40xf32>
    stablehlo.return %d, %e, %w : tensor<40x136xf32>, tensor<40xf32>, tensor<136x136xf32>
  }, {
    %e = stablehlo.reduce(%x init: %none) applies stablehlo.minimum across dimensions = [1] : (tensor<40x136xf32>, tensor<f32>) -> tensor<40xf32>
    %z = stablehlo.constant dense<0.0> : tensor<136x136xf32>
    stablehlo.return %x, %e, %z : tensor<40x136xf32>, tensor<40xf32>, tensor<136x136xf32>
  }) : (tensor<i1>) -> (tensor<40x136xf32>, tensor<40xf32>, tensor<136x136xf32>)
  %t = "stablehlo.if"(%q) ({
    %d = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<40x136xf32>, tensor<136x136xf32>) -> tensor<40x136xf32>
    stablehlo.return %d : tensor<40x136xf32>
  }, {
    %d = stablehlo.add %x, %x : tensor<40x136xf32>
    stablehlo.return %d : tensor<40x136xf32>
  }) : (tensor<i1>) -> tensor<40x136xf32>
  %u = "stablehlo.if"(%yes) ({
    stablehlo.return %t : tensor<40x136xf32>
  }, {
    stablehlo.return %x : tensor<40x136xf32>
  }) : (tensor<i1>) -> tensor<40x136xf32>
  return %r#0, %r#1, %t, %u : tensor<40x136xf32>, tensor<40xf32>, tensor<40x136xf32>, tensor<40x136xf32>
}
