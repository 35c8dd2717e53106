//! Times every program of a list on a chip: lines `path chip [key=value..]` on stdin.
use std::io::BufRead;
use tpusim_backend::{compile::compile, front::parse_program, hlo::verify};
use tpusim_isa::chip::ChipSpec;

fn main() {
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let w: Vec<&str> = line.split_whitespace().collect();
        let sets: Vec<(String, String)> =
            w[2..].iter().map(|s| s.split_once('=').unwrap()).map(|(a, b)| (a.into(), b.into())).collect();
        let chip = ChipSpec::load_with(w[1], &sets).unwrap();
        let text = std::fs::read(w[0]).unwrap();
        let module = match parse_program(&text, w[0]) {
            Ok(m) => verify(m).unwrap(),
            Err(e) => {
                println!("{} {} parse {e}", w[0], w[1]);
                continue;
            }
        };
        let t0 = std::time::Instant::now();
        let r = compile(&module, &chip).map_err(|e| e.to_string());
        let t1 = t0.elapsed();
        let r =
            r.and_then(|p| tpusim_sim::time(&p, &chip, &Default::default()).map(|x| (p, x)).map_err(|e| e.to_string()));
        match r {
            Ok((p, x)) => {
                let i = |u: tpusim_sim::profile::Unit| {
                    x.ops.iter().map(|o| o.busy[u as usize]).sum::<u64>() as f64
                        / x.cycles as f64
                        / x.instances[u as usize] as f64
                };
                use tpusim_sim::profile::Unit::*;
                if std::env::var("STALLS").is_ok() {
                    for o in &x.ops {
                        println!(
                            "   {} bundles {} stalls {:?} of {}",
                            p.ops[o.op as usize].name,
                            o.bundles,
                            tpusim_sim::profile::Stall::ALL
                                .iter()
                                .zip(o.stalls)
                                .map(|(a, b)| format!("{} {}", a.name(), b))
                                .collect::<Vec<_>>(),
                            o.end - o.start
                        );
                    }
                }
                println!(
                    "{} {} {} ops={} mxu={:.2} hbm={:.2} compile={:?} sim={:?}",
                    w[0].rsplit('/').next().unwrap(),
                    w[1],
                    x.cycles,
                    p.ops.len(),
                    i(Mxu),
                    i(Hbm),
                    t1,
                    t0.elapsed() - t1
                )
            }
            Err(e) => println!(
                "{} {} error {}",
                w[0].rsplit('/').next().unwrap(),
                w[1],
                e.chars().take(200).collect::<String>()
            ),
        }
    }
}
