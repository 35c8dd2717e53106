// An alias that stands for itself.
#a = [#b]
#b = [#a]
module attributes {x = #a} {
  func.func @main() {
    return
  }
}
