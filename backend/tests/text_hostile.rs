//! Programs made to be slow or large: the text front end stays within time in proportion to their length.

use std::time::{Duration, Instant};

use tpusim_backend::front::parse_text;

/// `n` pieces of text, in an order that is not sorted.
fn many(n: usize, piece: impl Fn(usize) -> String) -> String {
    (0..n).map(|i| piece(i * 7919 % n)).collect()
}

/// Oracle: time. A quadratic step over 30,000 items takes longer than this allows by a factor of ten or more.
fn within(text: &str, limit: Duration) {
    let start = Instant::now();
    match parse_text(text, "hostile.mlir") {
        Ok(m) => drop(m.to_text(true)),
        Err(e) => drop(e.to_string()),
    }
    assert!(
        start.elapsed() < limit,
        "{:?} for {} bytes: {}",
        start.elapsed(),
        text.len(),
        &text[..text.len().min(120)]
    );
}

#[test]
fn long_programs() {
    const N: usize = 30_000;
    let dict = many(N, |i| format!("a{i} = {i}, ")) + "z";
    let one_function = |body: &str| format!("func.func @f(%x: tensor<f32>) {{ {body} return }}");
    let programs = [
        format!("module attributes {{{dict}}} {{ func.func @f() {{ return }} }}"),
        one_function(&format!(
            "\"stablehlo.optimization_barrier\"() <{{{dict}}}> {{{}}} : () -> ()",
            dict.replace('a', "b")
        )),
        many(N, |i| format!("func.func @f{i}() {{ return }}\n")),
        many(N, |i| format!("sdy.mesh @m{i} = <[]>\n")) + "func.func @f() { return }",
        one_function(&many(N, |i| format!("%v{i} = stablehlo.negate %x : tensor<f32>\n"))),
        one_function(&many(N, |i| format!("%v{i} = stablehlo.negate %y : tensor<f32>\n"))),
        one_function(&format!(
            "%0 = stablehlo.create_token : !stablehlo.token %1 = stablehlo.after_all {}%0 : tuple<{}i1>",
            "%0, ".repeat(N),
            "i1, ".repeat(N)
        )),
        one_function(&format!("%0 = stablehlo.constant dense<[{}1.0]> : tensor<{}xf32>", "1.5, ".repeat(N), N + 1)),
        one_function(&format!("%0 = stablehlo.constant dense<\"0x{}\"> : tensor<{N}xf32>", "0000803F".repeat(N))),
        one_function(&format!("%0 = stablehlo.negate %x : tensor<{}f32>", "1x".repeat(N))),
        format!(
            "#a = dense<0> : tensor<250xi64>\n{}",
            one_function(&many(2000, |_| {
                "%0 = \"stablehlo.transpose\"(%x) {permutation = #a} : (tensor<f32>) -> tensor<f32>\n".to_owned()
            }))
        ),
        format!(
            "!t = tuple<{}i1>\n{}",
            "i1, ".repeat(N),
            one_function(&many(N, |_| "%0 = stablehlo.custom_call @f() : () -> !t\n".into()))
        ),
        "\"".repeat(N),
        "#a = ".repeat(N),
        "{-#".repeat(N),
        "module {".repeat(N),
        many(N, |i| format!("#loc{i} = loc(#loc{})\n", (i + 1) % N)),
    ];
    for text in &programs {
        within(text, Duration::from_secs(5));
    }
}
