//! Training steps on simulated slices of 64 chips, where one device stands for others. Oracle: the run of every device.

use tpusim_driver::{Mode, PodExecutable};
use tpusim_isa::chip::ChipSpec;
use tpusim_isa::topology::{ChipId, Direction, Topology};
use tpusim_sim::network::Cluster;
use tpusim_sim::pod::PodOptions;
use tpusim_workloads::llm::{Mesh, Model, Options, train_step};

// Oracle: every device and every layer run by itself, to the picosecond, whatever the threads; a link that fails costs time.
#[test]
fn folded_steps_take_the_time_of_unfolded_ones() {
    let model = Model {
        layers: 9,
        d: 256,
        ff: 512,
        heads: 8,
        kv_heads: 4,
        dim: 32,
        vocab: 1024,
        ..*Model::find("qwen3-8b").unwrap()
    };
    for (name, shape, mesh) in [
        ("v5p", "4x4x4", Mesh { fsdp: 16, tensor: 4, ..Mesh::ONE }),
        ("v5e", "8x8", Mesh { data: 2, fsdp: 32, ..Mesh::ONE }),
    ] {
        let module = train_step(&model, &Options { batch: 64, seq: 128, mesh, ..Options::default() }).unwrap();
        let chip = ChipSpec::load(name).unwrap();
        let cluster = Cluster { slice: Topology::parse(&chip, shape).unwrap(), slices: 1 };
        let pod = PodExecutable::new(&module, &chip, &cluster).unwrap_or_else(|e| panic!("{name}: {e}"));
        let time = |options: PodOptions| pod.run(Mode::Time, &[], &options).unwrap().profile;
        let broken = || vec![(ChipId(0), Direction::ALL[0])];
        let mut ends = Vec::new();
        for failed in [Vec::new(), broken()] {
            let folded = time(PodOptions { failed: failed.clone(), ..PodOptions::default() });
            let mut every = PodOptions { fold: false, failed, ..PodOptions::default() };
            every.run.threads = 2;
            let layers_folded = time(every.clone());
            every.run.fold = false;
            let unfolded = time(every);
            assert_eq!(unfolded.devices.len(), 64, "{name}");
            // Totals and lists of runs, too.
            assert_eq!(layers_folded, unfolded, "{name}");
            assert_eq!(folded.end, unfolded.end, "{name}");
            for d in &folded.devices {
                let own = &unfolded.devices[d.device.0 as usize];
                assert_eq!((&d.ops, &d.transfer_totals), (&own.ops, &own.transfer_totals), "{name}");
            }
            ends.push((folded.end, folded.devices.len()));
        }
        assert!(ends[0].0 < ends[1].0, "{name}: {ends:?}");
        // A torus is the same everywhere, a mesh is not.
        let whole = if name == "v5p" { 1..=16 } else { 1..=64 };
        assert!(whole.contains(&ends[0].1) && ends[0].1 <= ends[1].1, "{name}: {ends:?}");
    }
}
