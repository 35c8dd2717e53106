// The float next to another, the high half of products, bits of nibbles.
module {
  func.func @main(%x: tensor<9x7xf32>, %y: tensor<9x7xf32>, %b: tensor<9x7xbf16>, %c: tensor<9x7xbf16>, %i: tensor<9x7xi32>, %u: tensor<9x7xui32>, %s: tensor<9x7xi8>, %q: tensor<9x4xui4>) -> (tensor<9x7xf32>, tensor<9x7xbf16>, tensor<9x7xi32>, tensor<9x7xui32>, tensor<9x7xi8>, tensor<9x2xi8>) {
    %0 = chlo.next_after %x, %y : tensor<9x7xf32>, tensor<9x7xf32> -> tensor<9x7xf32>
    %1 = chlo.next_after %b, %c : tensor<9x7xbf16>, tensor<9x7xbf16> -> tensor<9x7xbf16>
    %k = stablehlo.constant dense<-1234567890> : tensor<9x7xi32>
    %p = stablehlo.multiply %i, %k : tensor<9x7xi32>
    %2 = chlo.mulhi %p, %k : tensor<9x7xi32>, tensor<9x7xi32> -> tensor<9x7xi32>
    %l = stablehlo.constant dense<3234567890> : tensor<9x7xui32>
    %3 = chlo.mulhi %u, %l : tensor<9x7xui32>, tensor<9x7xui32> -> tensor<9x7xui32>
    %m = stablehlo.constant dense<-77> : tensor<9x7xi8>
    %4 = chlo.mulhi %s, %m : tensor<9x7xi8>, tensor<9x7xi8> -> tensor<9x7xi8>
    %r = stablehlo.reshape %q : (tensor<9x4xui4>) -> tensor<9x2x2xui4>
    %5 = stablehlo.bitcast_convert %r : (tensor<9x2x2xui4>) -> tensor<9x2xi8>
    return %0, %1, %2, %3, %4, %5 : tensor<9x7xf32>, tensor<9x7xbf16>, tensor<9x7xi32>, tensor<9x7xui32>, tensor<9x7xi8>, tensor<9x2xi8>
  }
}
