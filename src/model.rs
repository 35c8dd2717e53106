//! Language models as programs: a training step of one, written for the devices there are.

use clap::Args;
use tpusim_backend::compile::HbmLimit;
use tpusim_driver::{DriverError, PodExecutable};
use tpusim_isa::chip::ChipSpec;
use tpusim_isa::num::DType;
use tpusim_isa::topology::Topology;
use tpusim_sim::network::Cluster;
use tpusim_traces::training::{Pipeline, Training};
use tpusim_traces::units::memory;
use tpusim_workloads::llm::{
    Axis, MeshRequest, Model, Options, Products, check_batch, configure, default_batch, train_step,
};

use crate::failure::Failure;
use crate::program::Loaded;
use crate::progress::Progress;

/// The model that runs on a pod if nothing is named.
pub const DEFAULT: &str = "qwen3-8b";
/// The chip of models on pods if none is named: no other has slices as large for so long.
pub const DEFAULT_CHIP: &str = "v5p";
/// Tokens of a sequence if nobody says.
const SEQ: i64 = 4096;

/// What a model's training step is, beside the parameters of the workload `train`.
#[derive(Args, Clone, Debug)]
pub struct ModelArgs {
    /// Sizes of the mesh's axes data, pipeline, fsdp, context, expert and tensor, e.g. data=2,fsdp=64,tensor=4 [default: fsdp over the
    /// devices of a slice, data over slices]. Where a
    /// chip is two devices, a mesh of as many places as there are chips has the two share tensors
    #[arg(long, value_name = "AXIS=N,...", help_heading = "Model")]
    mesh: Option<MeshRequest>,
    /// Sequences of the whole batch [default: 8192 tokens for each device with a part of its own, at least one sequence]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..), help_heading = "Model")]
    batch: Option<i64>,
    /// Tokens of a sequence [default: 4096, or as many as the model has positions]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..), help_heading = "Model")]
    seq: Option<i64>,
    /// Time the step though it needs more HBM than the devices have
    #[arg(long, help_heading = "Model")]
    ignore_hbm_limit: bool,
}

impl ModelArgs {
    /// The batch that is asked for.
    pub fn batch(&self) -> Option<i64> {
        self.batch
    }

    /// Refuses flags that only models take.
    pub fn unused(&self) -> Result<(), Failure> {
        let given = [
            ("--mesh", self.mesh.is_some()),
            ("--batch", self.batch.is_some()),
            ("--seq", self.seq.is_some()),
            ("--ignore-hbm-limit", self.ignore_hbm_limit),
        ];
        match given.into_iter().find(|g| g.1) {
            Some((flag, _)) => {
                Err(Failure::usage(format!("{flag} is for the training step of a model; name one of: {}", names())))
            }
            None => Ok(()),
        }
    }
}

/// Names of the models.
pub fn names() -> String {
    tpusim_workloads::llm::MODELS.iter().map(|m| m.name).collect::<Vec<_>>().join(", ")
}

/// Parameters of the workload `train` for the model called `name`, as sequences of [`SEQ`] tokens if they say nothing.
pub fn parameters(name: &str, given: &[(String, String)]) -> Vec<(String, String)> {
    let mut all = vec![("model".to_owned(), name.to_owned())];
    if !given.iter().any(|(k, _)| k == "seq") {
        let context = Model::find(name).filter(|m| m.rope_base.is_none()).map_or(SEQ, |m| m.context);
        all.push(("seq".to_owned(), SEQ.min(context).to_string()));
    }
    all.extend(given.iter().cloned());
    all
}

/// A training step on a pod.
#[derive(Clone, Debug)]
pub struct Step {
    /// The model.
    pub model: Model,
    /// How the step is written.
    pub options: Options,
    asked: MeshRequest,
    /// Copies of the model take the devices that the mesh leaves.
    copies: bool,
    ignore_hbm_limit: bool,
}

impl Step {
    /// The step of the model called `name` with parameters `given` on `cluster`.
    pub fn new(name: &str, given: &[(String, String)], args: &ModelArgs, cluster: &Cluster) -> Result<Step, Failure> {
        Step::first(name, given, args, cluster, false)
    }

    /// As [`Step::new`], to be moved to other clusters: copies of the model take the devices that a mesh with `fsdp` leaves.
    pub fn scaled(
        name: &str,
        given: &[(String, String)],
        args: &ModelArgs,
        cluster: &Cluster,
    ) -> Result<Step, Failure> {
        Step::first(name, given, args, cluster, true)
    }

    fn first(
        name: &str,
        given: &[(String, String)],
        args: &ModelArgs,
        cluster: &Cluster,
        copies: bool,
    ) -> Result<Step, Failure> {
        let mut given = given.to_vec();
        for (key, value) in [("batch", args.batch), ("seq", args.seq)] {
            let Some(n) = value else { continue };
            if given.iter().any(|(k, _)| k == key) {
                return Err(Failure::usage(format!("--{key} and {key}= are both given")));
            }
            given.push((key.to_owned(), n.to_string()));
        }
        let batch = given.iter().any(|(k, _)| k == "batch");
        let (model, options) = configure(&parameters(name, &given)).map_err(Failure::usage)?;
        let asked = args.mesh.clone().unwrap_or_default();
        let step = Step { model, options, asked, copies, ignore_hbm_limit: args.ignore_hbm_limit };
        step.on(cluster, batch.then_some(options.batch)).map_err(Failure::usage)
    }

    /// The same step on `cluster`, with a batch of its own or the default one.
    pub fn on(&self, cluster: &Cluster, batch: Option<i64>) -> Result<Step, tpusim_workloads::WorkloadError> {
        let (slices, devices) = (i64::from(cluster.slices), i64::from(cluster.slice.devices()));
        let mut asked = self.asked.clone();
        let chips = slices * i64::from(cluster.slice.chips());
        let named = |a: &MeshRequest| Axis::ALL.into_iter().filter_map(|x| a.get(x)).product::<i64>();
        // A mesh of chips: the devices of a chip share its part of each tensor.
        if devices * slices > chips && named(&asked) == chips && asked.get(Axis::Tensor).is_none() {
            asked = asked.with(Axis::Tensor, slices * devices / chips);
        }
        if self.copies && asked.get(Axis::Fsdp).is_some() && asked.get(Axis::Data).is_none() {
            asked = asked.with(Axis::Data, (slices * devices / named(&asked).max(1)).max(1));
        }
        let mesh = asked.resolve(&self.model, slices, devices)?;
        let batch = batch.unwrap_or_else(|| default_batch(&mesh, self.options.seq));
        check_batch(&mesh, batch)?;
        Ok(Step { options: Options { mesh, batch, ..self.options }, ..self.clone() })
    }

    /// The program.
    pub fn load(&self) -> Result<Loaded, Failure> {
        Loaded::new(train_step(&self.model, &self.options).map_err(Failure::usage)?)
    }

    /// What it trains, for reports.
    pub fn training(&self) -> Training {
        training(&self.model, &self.options)
    }

    /// Compiles the step, on devices with as much HBM as it needs if that limit is to be ignored.
    pub fn compile(&self, loaded: &Loaded, chip: &ChipSpec, cluster: &Cluster) -> Result<PodExecutable, DriverError> {
        PodExecutable::within(&loaded.module, chip, cluster, HbmLimit::Ignored)
    }

    /// Refuses a program that does not fit the devices, and says what would.
    pub fn check_memory(
        &self,
        pod: &PodExecutable,
        chip: &ChipSpec,
        cluster: &Cluster,
        progress: &Progress,
    ) -> Result<(), Failure> {
        let (needed, has) = (pod.program.hbm_peak_bytes, *chip.hbm.usable_bytes_device);
        if needed <= has {
            return Ok(());
        }
        let wrong =
            format!("the step needs {} of HBM on each device, {} has {}", memory(needed), chip.name, memory(has));
        if self.ignore_hbm_limit {
            crate::out::note(&wrong);
            return Ok(());
        }
        progress.next("looking for what would fit");
        let fits = self.fitting(chip, cluster);
        let advice = if fits.is_empty() { String::new() } else { format!("; these would fit: {}", fits.join(" or ")) };
        let go_on = "--ignore-hbm-limit times it all the same";
        Err(Failure::usage(format!("{wrong}{advice}; {go_on}")))
    }

    /// Smaller batches and larger slices that fit, as flags.
    fn fitting(&self, chip: &ChipSpec, cluster: &Cluster) -> Vec<String> {
        let fits = |step: &Step, cluster: &Cluster| {
            let Ok(loaded) = step.load() else { return false };
            PodExecutable::new(&loaded.module, chip, cluster).is_ok()
        };
        let mut found = Vec::new();
        let mut batch = self.options.batch / 2;
        while let Ok(step) = self.on(cluster, Some(batch).filter(|n| *n > 0).or(Some(1))) {
            if fits(&step, cluster) {
                found.push(format!("--batch {batch}"));
                break;
            }
            if batch <= 1 {
                break;
            }
            batch /= 2;
        }
        // More devices hold the same weights; each keeps its part of the batch.
        let mut chips = cluster.slice.chips();
        while found.len() < 2 {
            chips = chips.saturating_mul(2);
            let Ok(slice) = Topology::of_size(chip, chips) else { break };
            let larger = Cluster { slice, slices: cluster.slices };
            let free = Step { asked: MeshRequest::default(), ..self.clone() };
            let scaled = self.options.batch.saturating_mul(i64::from(chips / cluster.slice.chips()));
            let step = self.on(&larger, Some(scaled)).or_else(|_| free.on(&larger, Some(scaled)));
            let Ok(step) = step else { break };
            if fits(&step, &larger) {
                found.push(format!("--chips {chips} --batch {scaled}"));
                break;
            }
        }
        found
    }
}

/// What a step trains, for reports.
pub fn training(model: &Model, o: &Options) -> Training {
    let flops = model.useful_flops(o.batch, o.seq);
    Training {
        model: model.name.to_owned(),
        mesh: o.mesh.to_string(),
        batch: o.batch,
        seq: o.seq,
        dtype: if o.products == Products::Fp8 { DType::F8E4M3FN } else { o.dtype },
        weight_flops: flops.weights,
        attention_flops: flops.attention,
        pipeline: o.schedule().map(|s| Pipeline {
            stages: s.stages,
            microbatches: s.microbatches,
            iterations: s.iterations,
            idle: s.idle,
            sources: s.places.map(str::to_owned).to_vec(),
        }),
    }
}
