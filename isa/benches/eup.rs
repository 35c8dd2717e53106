//! The EUP's functions over one vector register.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tpusim_isa::num::eup;

fn register(c: &mut Criterion) {
    let mut group = c.benchmark_group("eup");
    group.throughput(Throughput::Elements(1024));
    let x: Vec<f32> = (0..1024).map(|i| 0.01 + i as f32 / 128.0).collect();
    let mut y = vec![0.0f32; 1024];
    macro_rules! bench {
        ($($f:ident)*) => {
            $(group.bench_function(stringify!($f), |b| {
                b.iter(|| {
                    for (y, x) in black_box(&mut y).iter_mut().zip(black_box(&x)) {
                        *y = eup::$f(*x);
                    }
                });
            });)*
        };
    }
    bench!(pow2 log2 rcp rsqrt tanh);
    group.finish();
}

criterion_group!(benches, register);
criterion_main!(benches);
