mod common;
use tpusim_backend::eval::Tensor;
use tpusim_backend::front::parse_program;
use tpusim_backend::hlo::verify;
use tpusim_isa::num::DType;
#[test]
fn torch() {
    let list = std::fs::read_to_string("/tmp/w/list.txt").unwrap();
    for path in list.lines() {
        let text = std::fs::read(path).unwrap();
        let short = path.trim_start_matches("/work/shared/torchtpu_programs/");
        let module = match parse_program(&text, path) {
            Ok(m) => m,
            Err(e) => {
                println!("{short}: PARSE {e}");
                continue;
            }
        };
        let module = match verify(module) {
            Ok(m) => m,
            Err(_) => {
                println!("{short}: VERIFY");
                continue;
            }
        };
        let main = module.func("main").unwrap();
        let types: Vec<_> = main.params.iter().filter_map(|p| main.ty(p.value).tensor()).collect();
        let chip = common::chip("v5e");
        let program = match std::panic::catch_unwind(|| common::compiled(&module, &chip)) {
            Ok(Ok(p)) => p,
            Ok(Err(e)) => {
                println!("{short}: {}", e.chars().take(180).collect::<String>());
                continue;
            }
            Err(_) => {
                println!("{short}: PANIC");
                continue;
            }
        };
        let total: u64 = types.iter().filter_map(|t| t.bytes()).sum();
        if total > 300 << 20 {
            println!("{short}: COMPILED, too large to run here");
            continue;
        }
        let inputs: Vec<Tensor> = types
            .iter()
            .enumerate()
            .map(|(k, t)| {
                let n: i64 = t.dims.iter().product();
                let v = |i: i64| (i * 7 + i / 13 + k as i64).rem_euclid(17) - 8;
                if t.dtype.is_float() {
                    Tensor::from_f64(&t.dims, t.dtype, &(0..n).map(|i| v(i) as f64 / 8.0).collect::<Vec<_>>()).unwrap()
                } else {
                    Tensor::from_i64(
                        &t.dims,
                        t.dtype,
                        &(0..n).map(|i| if t.dtype == DType::I1 { v(i) & 1 } else { v(i).abs() }).collect::<Vec<_>>(),
                    )
                    .unwrap()
                }
            })
            .collect();
        let bytes: Vec<Vec<u8>> = inputs.iter().map(|t| t.bytes().to_vec()).collect();
        let run = tpusim_sim::execute(&program, &chip, &bytes, &tpusim_sim::RunOptions::default());
        let run = match run {
            Ok(r) => r,
            Err(e) => {
                println!("{short}: FAULT {e}");
                continue;
            }
        };
        let want = match tpusim_backend::eval::eval_module_with(
            &module,
            &inputs,
            &tpusim_backend::eval::EvalOptions { dot: tpusim_backend::eval::DotPrecision::Tpu, ..Default::default() },
        ) {
            Ok(w) => w,
            Err(e) => {
                println!("{short}: EVAL {e}");
                continue;
            }
        };
        let mut ok = true;
        for (g, w) in run.outputs.iter().zip(&want) {
            let rel = match w.dtype() {
                DType::BF16 => 2e-2,
                d if d.is_float() => 5e-3,
                _ => 0.0,
            };
            let scale = common::magnitude(&common::numbers(w.dtype(), w.bytes()));
            if let Some(e) = common::differs(w.dtype(), g, w.bytes(), rel * scale) {
                ok = false;
                println!("{short}: WRONG {e}");
            }
        }
        if ok {
            println!("{short}: OK");
        }
    }
}
