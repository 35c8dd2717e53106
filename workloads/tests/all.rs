//! Every workload: listed, documented, buildable, and what it should compute.

use tpusim_backend::eval::{Tensor, eval_module};
use tpusim_backend::hlo::{Module, Verified};
use tpusim_workloads::{ALL, Draw, Workload, WorkloadError, find};

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

// Oracle: the workload's own type parameters.
#[test]
fn types_reach_every_array() {
    for w in ALL {
        let types = w.params.iter().filter(|p| matches!(p.default, tpusim_workloads::ParamValue::Float(_)));
        let given: Vec<_> = types.map(|p| (p.name.to_owned(), "f16".to_owned())).collect();
        let module = w.build(&given).unwrap();
        let main = module.func("main").unwrap();
        // Tokens are numbers of rows, whatever the type of the weights.
        let floats = main.params.iter().map(|p| main.ty(p.value).to_string()).filter(|t| !t.ends_with("i32>"));
        assert!(floats.clone().count() > 0 && floats.into_iter().all(|t| t.ends_with("xf16>")), "{}", w.name);
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

/// `x / sqrt(mean(x^2) + 1e-6) * w` for each row as wide as `w`.
fn rms_norm(x: &[f64], w: &[f64]) -> Vec<f64> {
    let width = w.len();
    let scale = |r: &[f64]| (r.iter().map(|v| v * v).sum::<f64>() / width as f64 + 1e-6).sqrt();
    x.chunks(width).flat_map(|r| r.iter().zip(w).map(|(a, b)| a / scale(r) * b).collect::<Vec<_>>()).collect()
}

fn matmul(x: &[f64], w: &[f64], k: usize) -> Vec<f64> {
    let n = w.len() / k;
    x.chunks(k).flat_map(|r| (0..n).map(|j| (0..k).map(|i| r[i] * w[i * n + j]).sum()).collect::<Vec<f64>>()).collect()
}

/// A decoder block in plain loops: norms, rotation of halves, attention, gated MLP, two residuals. `p` are its weights in order; `d` is
/// the model's width, the other sizes are query heads, key and value heads, and a head's size.
fn decoder_block(x: &[f64], p: &[Vec<f64>], d: usize, [h, kv, dim]: [usize; 3]) -> Vec<f64> {
    let t = x.len() / d;
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
    let a = rms_norm(x, &p[0]);
    let q = rope(&heads_first(&rms_norm(&matmul(&a, &p[1], d), &p[4]), h));
    let k = rope(&heads_first(&rms_norm(&matmul(&a, &p[2], d), &p[5]), kv));
    let v = heads_first(&matmul(&a, &p[3], d), kv);
    let o = attention(&q, &k, &v, [h, kv, t, t, dim]);
    let o: Vec<f64> = (0..o.len()).map(|i| o[((i / dim % h) * t + i / (h * dim)) * dim + i % dim]).collect();
    let x: Vec<f64> = matmul(&o, &p[6], h * dim).iter().zip(x).map(|(a, b)| a + b).collect();
    let m = rms_norm(&x, &p[7]);
    let (g, u) = (matmul(&m, &p[8], d), matmul(&m, &p[9], d));
    let hidden: Vec<f64> = g.iter().zip(&u).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
    matmul(&hidden, &p[10], hidden.len() / t).iter().zip(&x).map(|(a, b)| a + b).collect()
}

// Oracle: the block in plain loops.
#[test]
fn qwen3_block_is_a_decoder_block() {
    let (inputs, y) = run(&build("qwen3-block", "tokens=3 d=6 heads=4 kv_heads=2 dim=4 ff=5 dtype=f32"));
    let p: Vec<Vec<f64>> = inputs.iter().map(Tensor::to_f64).collect();
    close(&y, &decoder_block(&p[0], &p[1..], 6, [4, 2, 4]));
}

// Oracle: rows of the table, blocks in plain loops one after the other, a norm, and products with the table's rows or the head's.
#[test]
fn qwen3_goes_from_tokens_to_logits() {
    for (model, head) in [("0.6b", false), ("8b", true)] {
        let sizes = "seq=3 layers=2 d=6 heads=4 kv_heads=2 dim=4 ff=5 vocab=9 dtype=f32";
        let module = build("qwen3", &format!("model={model} {sizes}"));
        let main = module.func("main").unwrap();
        assert_eq!(main.params.len(), 2 + 2 * 11 + 1 + usize::from(head));
        let mut inputs: Vec<Tensor> = (1..main.params.len()).map(|i| input(&module, i)).collect();
        let tokens = [7, 0, 4];
        inputs.insert(0, Tensor::from_i64(&[3], tpusim_isa::num::DType::I32, &tokens).unwrap());
        let y = eval_module(&module, &inputs).unwrap()[0].to_f32();
        let p: Vec<Vec<f64>> = inputs.iter().map(Tensor::to_f64).collect();
        let mut x: Vec<f64> = tokens.iter().flat_map(|&t| p[1][t as usize * 6..][..6].to_vec()).collect();
        for layer in 0..2 {
            x = decoder_block(&x, &p[2 + layer * 11..][..11], 6, [4, 2, 4]);
        }
        let h = rms_norm(&x, &p[24]);
        let rows = if head { &p[25] } else { &p[1] };
        let logit = |t: usize, v: usize| (0..6).map(|i| h[t * 6 + i] * rows[v * 6 + i]).sum::<f64>();
        let expected: Vec<f64> = (0..27).map(|i| logit(i / 9, i % 9)).collect();
        close(&y, &expected);
    }
    let wrong = |text: &str| find("qwen3").unwrap().build(&pairs(text)).unwrap_err().to_string();
    assert!(wrong("model=7b").contains("0.6b, 1.7b, 4b, 8b"));
    assert!(wrong("layers=100000").contains("at most"));
    assert!(wrong("kv_heads=3").contains("does not divide"));
}

/// An image batch in plain loops: `dims` are batch, height, width, channels.
#[derive(Clone)]
struct Images {
    dims: [usize; 4],
    data: Vec<f64>,
}

impl Images {
    fn at(&self, n: usize, i: usize, j: usize, c: usize) -> f64 {
        self.data[((n * self.dims[1] + i) * self.dims[2] + j) * self.dims[3] + c]
    }

    /// What `f` makes of each window of `k` x `k` points, `pad` points of zeros or nothing around.
    fn windows(
        &self,
        k: usize,
        stride: usize,
        out: usize,
        f: impl Fn(&[(usize, usize, usize)], usize, usize) -> f64,
    ) -> Images {
        let [n, h, w, _] = self.dims;
        let pad = k / 2;
        let len = |x: usize| (x + 2 * pad - k) / stride + 1;
        let dims = [n, len(h), len(w), out];
        let mut data = Vec::new();
        for at in 0..dims.iter().product() {
            let (o, j, i, b) =
                (at % out, at / out % dims[2], at / out / dims[2] % dims[1], at / out / dims[2] / dims[1]);
            let mut seen = Vec::new();
            for d in 0..k * k {
                let (y, x) = (i * stride + d / k, j * stride + d % k);
                if (pad..pad + h).contains(&y) && (pad..pad + w).contains(&x) {
                    seen.push((d, y - pad, x - pad));
                }
            }
            data.push(f(&seen, b, o));
        }
        Images { dims, data }
    }

    fn map(mut self, f: impl Fn(f64, usize) -> f64) -> Images {
        let channels = self.dims[3];
        self.data.iter_mut().enumerate().for_each(|(i, v)| *v = f(*v, i % channels));
        self
    }
}

/// ResNet-50 in plain loops, taking weights as it goes.
struct ResNet<'a> {
    weights: std::slice::Iter<'a, Vec<f64>>,
    folded: bool,
}

impl ResNet<'_> {
    fn conv(&mut self, x: &Images, k: usize, stride: usize) -> Images {
        let w = self.weights.next().unwrap();
        let c = x.dims[3];
        let out = w.len() / (k * k * c);
        let y = x.windows(k, stride, out, |seen, b, o| {
            let term = |&(d, i, j): &(usize, usize, usize)| -> f64 {
                (0..c).map(|f| x.at(b, i, j, f) * w[(d * c + f) * out + o]).sum()
            };
            seen.iter().map(term).sum()
        });
        let mut next = || self.weights.next().unwrap();
        if self.folded {
            let b = next();
            return y.map(|v, c| v + b[c]);
        }
        let (gamma, beta, mean, variance) = (next(), next(), next(), next());
        y.map(|v, c| (v - mean[c]) / (variance[c] + 1e-5).sqrt() * gamma[c] + beta[c])
    }

    fn block(&mut self, x: &Images, stride: usize, shortcut: bool) -> Images {
        let relu = |v: f64, _| v.max(0.0);
        let y = self.conv(x, 1, 1).map(relu);
        let y = self.conv(&y, 3, stride).map(relu);
        let y = self.conv(&y, 1, 1);
        let short = if shortcut { self.conv(x, 1, stride) } else { x.clone() };
        let data = y.data.iter().zip(&short.data).map(|(a, b)| (a + b).max(0.0)).collect();
        Images { dims: y.dims, data }
    }
}

// Oracle: the network in plain loops: a stem, a pool of maxima, bottlenecks, a mean and a classifier.
#[test]
fn resnet50_is_fifty_layers_of_convolutions() {
    for folded in [true, false] {
        let module = build("resnet50", &format!("batch=2 size=33 width=2 classes=5 folded={folded} dtype=f32"));
        let count = module.func("main").unwrap().params.len();
        assert_eq!(count, 1 + 53 * if folded { 2 } else { 5 } + 2);
        let mut inputs: Vec<Tensor> = (0..count).map(|i| input(&module, i)).collect();
        if !folded {
            // Variances are positive.
            for i in (0..53).map(|conv| 1 + conv * 5 + 4) {
                let positive: Vec<f32> = inputs[i].to_f32().iter().map(|v| v.abs() + 0.5).collect();
                inputs[i] = Tensor::from_f32(inputs[i].dims(), inputs[i].dtype(), &positive).unwrap();
            }
        } else {
            // Small enough weights that magnitudes stay moderate without norms.
            for i in (0..53).map(|conv| 1 + conv * 2) {
                let fan_in = inputs[i].dims()[..3].iter().product::<i64>() as f32;
                let small: Vec<f32> = inputs[i].to_f32().iter().map(|v| v / fan_in.sqrt()).collect();
                inputs[i] = Tensor::from_f32(inputs[i].dims(), inputs[i].dtype(), &small).unwrap();
            }
        }
        let y = eval_module(&module, &inputs).unwrap()[0].to_f32();
        let p: Vec<Vec<f64>> = inputs.iter().map(Tensor::to_f64).collect();
        let x = Images { dims: [2, 33, 33, 3], data: p[0].clone() };
        let mut net = ResNet { weights: p[1..].iter(), folded };
        let x = net.conv(&x, 7, 2).map(|v, _| v.max(0.0));
        let channels = x.dims[3];
        let mut x = x.windows(3, 2, channels, |seen, b, c| {
            seen.iter().map(|&(_, i, j)| x.at(b, i, j, c)).fold(f64::NEG_INFINITY, f64::max)
        });
        for (stage, blocks) in [3, 4, 6, 3].into_iter().enumerate() {
            for b in 0..blocks {
                x = net.block(&x, if stage > 0 && b == 0 { 2 } else { 1 }, b == 0);
            }
        }
        let [n, h, w, c] = x.dims;
        let mean: Vec<f64> = (0..n * c)
            .map(|i| (0..h * w).map(|at| x.at(i / c, at / w, at % w, i % c)).sum::<f64>() / (h * w) as f64)
            .collect();
        let (dense, bias) = (net.weights.next().unwrap(), net.weights.next().unwrap());
        let expected: Vec<f64> = matmul(&mean, dense, c).iter().enumerate().map(|(i, v)| v + bias[i % 5]).collect();
        close(&y, &expected);
    }
}

// Oracle: the attributes' own meaning.
#[test]
fn weights_say_how_they_are_drawn() {
    let module = build("qwen3", "layers=1");
    let main = module.func("main").unwrap();
    let draw = |name: &str| {
        let p = main.params.iter().find(|p| module.locs.name(p.loc) == Some(name)).unwrap();
        Draw::of(&p.attrs)
    };
    assert_eq!(draw("tokens"), Some(Draw::Below(151_936)));
    assert_eq!(draw("layer0/down"), Some(Draw::Normal { mean: 0.0, deviation: 1.0 / 3072f64.sqrt() }));
    assert_eq!(draw("final_norm"), Some(Draw::Normal { mean: 1.0, deviation: 0.1 }));
    let plain = build("matmul", "");
    assert!(plain.func("main").unwrap().params.iter().all(|p| Draw::of(&p.attrs).is_none()));
}
