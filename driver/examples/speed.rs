//! Wall time of executing a program on random inputs.
use tpusim_backend::{compile::compile, front::parse_program, hlo::verify};
use tpusim_isa::chip::ChipSpec;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let chip = ChipSpec::load(&a[2]).unwrap();
    let module = verify(parse_program(&std::fs::read(&a[1]).unwrap(), &a[1]).unwrap()).unwrap();
    let p = compile(&module, &chip).unwrap();
    let main = module.func("main").unwrap();
    let inputs: Vec<Vec<u8>> = main
        .params
        .iter()
        .map(|x| {
            let t = main.ty(x.value).tensor().unwrap();
            (0..t.bytes().unwrap()).map(|i| if i % 2 == 1 { 0x3f } else { (i * 7) as u8 }).collect()
        })
        .collect();
    for _ in 0..3 {
        let t = std::time::Instant::now();
        let r = tpusim_sim::execute(&p, &chip, &inputs, &Default::default()).unwrap();
        let s = t.elapsed().as_secs_f64();
        let fl: u64 = p.ops.iter().map(|o| o.mxu_flops).sum();
        let by: u64 = inputs.iter().chain(&r.outputs).map(|x| x.len() as u64).sum();
        println!("{:.1} ms {:.1} GFLOP/s {:.2} GB/s", s * 1e3, fl as f64 / s / 1e9, by as f64 / s / 1e9);
    }
    let src = vec![1u8; 256 << 20];
    let mut dst = vec![0u8; 256 << 20];
    for _ in 0..3 {
        let t = std::time::Instant::now();
        dst.copy_from_slice(&src);
        println!("memcpy {:.2} GB/s copied", src.len() as f64 / t.elapsed().as_secs_f64() / 1e9);
        std::hint::black_box(&dst);
    }
}
