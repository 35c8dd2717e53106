//! Every workload: listed, documented, buildable, and what it should compute.

use tpusim_backend::eval::{Tensor, eval_module};
use tpusim_backend::hlo::{Module, Verified};
use tpusim_workloads::{ALL, Workload, WorkloadError, find};

fn pairs(text: &str) -> Vec<(String, String)> {
    text.split_whitespace().map(|p| p.split_once('=').unwrap()).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

fn build(name: &str, params: &str) -> Verified<Module> {
    find(name).unwrap().build(&pairs(params)).unwrap()
}

/// Numbers without a pattern that a mistake could keep.
fn input(module: &Module, index: usize) -> Tensor {
    let main = module.func("main").unwrap();
    let ty = main.ty(main.params[index].value).tensor().unwrap();
    let n = ty.elements().unwrap();
    let values: Vec<f32> = (0..n).map(|i| ((i * 37 + index as u64 * 11) % 101) as f32 / 50.0 - 1.0).collect();
    Tensor::from_f32(&ty.dims, ty.dtype, &values).unwrap()
}

fn run(module: &Verified<Module>) -> (Vec<Tensor>, Vec<f32>) {
    let inputs: Vec<Tensor> = (0..module.func("main").unwrap().params.len()).map(|i| input(module, i)).collect();
    let outputs = eval_module(module, &inputs).unwrap();
    assert_eq!(outputs.len(), 1);
    (inputs, outputs[0].to_f32())
}

fn close(found: &[f32], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (i, (a, b)) in found.iter().zip(expected).enumerate() {
        assert!((f64::from(*a) - b).abs() < 1e-4 * b.abs().max(1.0), "element {i}: {a} for {b}");
    }
}

// Oracle: names and texts a user sees; the file's own default must build.
#[test]
fn all_are_documented_and_build_by_default() {
    for (i, w) in ALL.iter().enumerate() {
        assert!(!w.about.is_empty() && !w.params.is_empty(), "{}", w.name);
        assert!(w.params.iter().all(|p| !p.about.is_empty()), "{}", w.name);
        assert!(ALL.iter().skip(i + 1).all(|o| o.name != w.name), "{} is listed twice", w.name);
        w.build(&[]).unwrap_or_else(|e| panic!("{}: {e}", w.name));
    }
}

// Oracle: the workload's own type parameter.
#[test]
fn types_reach_every_array() {
    for w in ALL {
        let module = w.build(&pairs("dtype=f16")).unwrap();
        let main = module.func("main").unwrap();
        assert!(main.params.iter().all(|p| main.ty(p.value).to_string().ends_with("xf16>")), "{}", w.name);
    }
}

// Oracle: sizes beyond any machine are errors, whatever the parameter.
#[test]
fn absurd_sizes_are_errors() {
    for w in ALL {
        for p in w.params.iter().filter(|p| matches!(p.default, tpusim_workloads::ParamValue::Size(_))) {
            for value in ["0", "-1", "16777217", "1e3", "", "99999999999999999999"] {
                let given = [(p.name.to_owned(), value.to_owned())];
                assert!(matches!(w.build(&given), Err(WorkloadError::Value { .. })), "{} {}={value}", w.name, p.name);
            }
        }
        let sizes = w.params.iter().filter(|p| matches!(p.default, tpusim_workloads::ParamValue::Size(_)));
        let largest: Vec<_> = sizes.map(|p| (p.name.to_owned(), "16777216".to_owned())).collect();
        assert!(matches!(w.build(&largest), Err(WorkloadError::TooLarge { .. })), "{}", w.name);
    }
    assert!(matches!(find("nothing"), Err(WorkloadError::Unknown { .. })));
    let unknown = Workload::build(find("matmul").unwrap(), &pairs("q=1"));
    assert!(unknown.unwrap_err().to_string().contains("m=1024, n=1024, k=1024, dtype=bf16"));
}

// Oracle: the sum of products.
#[test]
fn matmul_is_a_matrix_product() {
    let (inputs, y) = run(&build("matmul", "m=3 n=5 k=4 dtype=f32"));
    let (x, w) = (inputs[0].to_f64(), inputs[1].to_f64());
    let expected: Vec<f64> = (0..15).map(|i| (0..4).map(|k| x[i / 5 * 4 + k] * w[k * 5 + i % 5]).sum()).collect();
    close(&y, &expected);
}

// Oracle: the formula on its page.
#[test]
fn mlp_is_gated() {
    let (inputs, y) = run(&build("mlp", "tokens=2 d=3 ff=4 dtype=f32"));
    let [x, gate, up, down] = [0, 1, 2, 3].map(|i| inputs[i].to_f64());
    let dot = |t: usize, w: &[f64], j: usize| (0..3).map(|k| x[t * 3 + k] * w[k * 4 + j]).sum::<f64>();
    let hidden = |t: usize, j: usize| {
        let g = dot(t, &gate, j);
        g / (1.0 + (-g).exp()) * dot(t, &up, j)
    };
    let expected: Vec<f64> = (0..6).map(|i| (0..4).map(|j| hidden(i / 3, j) * down[j * 3 + i % 3]).sum()).collect();
    close(&y, &expected);
}

// Oracle: exponentials over their sum.
#[test]
fn softmax_is_a_distribution() {
    let (inputs, y) = run(&build("softmax", "rows=3 cols=7 dtype=f32"));
    let x = inputs[0].to_f64();
    let expected: Vec<f64> =
        (0..21).map(|i| x[i].exp() / x[i / 7 * 7..i / 7 * 7 + 7].iter().map(|v| v.exp()).sum::<f64>()).collect();
    close(&y, &expected);
}

// Oracle: the formula on its page.
#[test]
fn rmsnorm_is_a_norm() {
    let (inputs, y) = run(&build("rmsnorm", "rows=3 cols=8 dtype=f32"));
    let (x, w) = (inputs[0].to_f64(), inputs[1].to_f64());
    let scale = |r: usize| (x[r * 8..r * 8 + 8].iter().map(|v| v * v).sum::<f64>() / 8.0 + 1e-6).sqrt();
    let expected: Vec<f64> = (0..24).map(|i| x[i] / scale(i / 8) * w[i % 8]).collect();
    close(&y, &expected);
}

/// Attention in plain loops: `q` (heads, tokens, dim), `k` and `v` (kv_heads, context, dim), query `i` sees `context - tokens + i + 1` keys.
fn attention(q: &[f64], k: &[f64], v: &[f64], [heads, kv_heads, tokens, context, dim]: [usize; 5]) -> Vec<f64> {
    let mut out = Vec::new();
    for h in 0..heads {
        let kv = h / (heads / kv_heads) * context;
        for t in 0..tokens {
            let query = &q[(h * tokens + t) * dim..][..dim];
            let seen = context - tokens + t + 1;
            let row = |a: &[f64], c: usize| a[(kv + c) * dim..][..dim].to_vec();
            let score = |c: usize| row(k, c).iter().zip(query).map(|(a, b)| a * b).sum::<f64>() / (dim as f64).sqrt();
            let weights: Vec<f64> = (0..seen).map(|c| score(c).exp()).collect();
            let sum: f64 = weights.iter().sum();
            out.extend((0..dim).map(|d| (0..seen).map(|c| weights[c] / sum * row(v, c)[d]).sum::<f64>()));
        }
    }
    out
}

// Oracle: attention in plain loops, with shared keys and a context longer than the queries.
#[test]
fn attention_is_causal_and_grouped() {
    let (inputs, y) = run(&build("attention", "heads=4 kv_heads=2 tokens=3 context=5 dim=4 dtype=f32"));
    let [q, k, v] = [0, 1, 2].map(|i| inputs[i].to_f64());
    close(&y, &attention(&q, &k, &v, [4, 2, 3, 5, 4]));
    assert!(find("attention").unwrap().build(&pairs("tokens=8 context=4")).is_err());
    assert!(find("attention").unwrap().build(&pairs("tokens=8 context=4 causal=false")).is_ok());
}

// Oracle: the block in plain loops: norms, rotation of halves, attention, gated MLP, two residuals.
#[test]
fn qwen3_block_is_a_decoder_block() {
    let (t, d, h, kv, dim, ff) = (3, 6, 4, 2, 4, 5);
    let (inputs, y) = run(&build("qwen3-block", "tokens=3 d=6 heads=4 kv_heads=2 dim=4 ff=5 dtype=f32"));
    let p: Vec<Vec<f64>> = inputs.iter().map(Tensor::to_f64).collect();
    let norm = |x: &[f64], w: &[f64]| -> Vec<f64> {
        let width = w.len();
        x.chunks(width)
            .flat_map(|r| {
                let s = (r.iter().map(|v| v * v).sum::<f64>() / width as f64 + 1e-6).sqrt();
                r.iter().zip(w).map(move |(a, b)| a / s * b).collect::<Vec<_>>()
            })
            .collect()
    };
    let matmul = |x: &[f64], w: &[f64], k: usize| -> Vec<f64> {
        let n = w.len() / k;
        x.chunks(k)
            .flat_map(|r| (0..n).map(|j| (0..k).map(|i| r[i] * w[i * n + j]).sum()).collect::<Vec<f64>>())
            .collect()
    };
    // From (tokens, heads, dim) to (heads, tokens, dim).
    let heads_first = |x: &[f64], n: usize| -> Vec<f64> {
        (0..n * t * dim).map(|i| x[((i / dim % t) * n + i / (t * dim)) * dim + i % dim]).collect()
    };
    let rope = |x: &[f64]| -> Vec<f64> {
        (0..x.len())
            .map(|i| {
                let (pos, c) = (i / dim % t, i % dim);
                let half = dim / 2;
                let angle = pos as f64 * 1e6f64.powf(-2.0 * (c % half) as f64 / dim as f64);
                let partner = if c < half { -x[i + half] } else { x[i - half] };
                x[i] * angle.cos() + partner * angle.sin()
            })
            .collect()
    };
    let a = norm(&p[0], &p[1]);
    let q = rope(&heads_first(&norm(&matmul(&a, &p[2], d), &p[5]), h));
    let k = rope(&heads_first(&norm(&matmul(&a, &p[3], d), &p[6]), kv));
    let v = heads_first(&matmul(&a, &p[4], d), kv);
    let o = attention(&q, &k, &v, [h, kv, t, t, dim]);
    let o: Vec<f64> = (0..o.len()).map(|i| o[((i / dim % h) * t + i / (h * dim)) * dim + i % dim]).collect();
    let x: Vec<f64> = matmul(&o, &p[7], h * dim).iter().zip(&p[0]).map(|(a, b)| a + b).collect();
    let m = norm(&x, &p[8]);
    let (g, u) = (matmul(&m, &p[9], d), matmul(&m, &p[10], d));
    let hidden: Vec<f64> = g.iter().zip(&u).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
    let expected: Vec<f64> = matmul(&hidden, &p[11], ff).iter().zip(&x).map(|(a, b)| a + b).collect();
    close(&y, &expected);
}
