//! The program of a command: a file, or a workload with its parameters.

use std::path::Path;

use clap::Args;
use tpusim_backend::front::parse_program;
use tpusim_backend::hlo::{Module, TensorType, Verified, verify};

use tpusim_workloads::Draw;
use tpusim_workloads::llm::Model;

use crate::chip::pair;
use crate::failure::Failure;
use crate::model;

/// What runs if nothing is named.
const DEFAULT: &str = "qwen3-block";

/// `[PROGRAM] [key=value ...]`.
#[derive(Args, Clone, Debug)]
pub struct ProgramArgs {
    /// A file of StableHLO, as text or bytecode, or the name of a workload (`tpusim workloads`) and its parameters as key=value, or that
    /// of a language model, e.g. qwen3-8b: a step of training or serving it, with the parameters of the workload `train`
    #[arg(value_name = "PROGRAM|WORKLOAD [KEY=VALUE]...")]
    program: Vec<String>,
}

/// A program that has been read and verified.
pub struct Loaded {
    /// The module.
    pub module: Verified<Module>,
    /// Names of the entry function's parameters, empty where the source gives none, and their types.
    pub params: Vec<(String, TensorType)>,
    /// How random values of each parameter are drawn, where the program says so.
    pub draws: Vec<Option<Draw>>,
}

impl Loaded {
    /// A program that was built here.
    pub fn new(module: Verified<Module>) -> Result<Loaded, Failure> {
        let (params, draws) = params(&module)?;
        Ok(Loaded { module, params, draws })
    }

    /// Devices that the program's shardings spread it over, if more than one.
    pub fn partitions(&self) -> Option<i64> {
        self.module.attrs.int("mhlo.num_partitions").filter(|n| *n > 1)
    }
}

impl ProgramArgs {
    /// Reads or builds the program and verifies it.
    pub fn load(&self) -> Result<Loaded, Failure> {
        let module = match self.program.split_first() {
            None => workload(DEFAULT, &[])?,
            // Parameters alone are those of the default workload.
            Some((first, _)) if first.contains('=') && !Path::new(first).exists() => workload(DEFAULT, &self.program)?,
            Some((first, rest)) if is_model(first) => {
                let given = pairs(rest, first)?;
                workload_of("train", &model::parameters(first, &given))?
            }
            Some((first, rest)) if is_name(first) && !Path::new(first).is_file() => workload(first, rest)?,
            Some((first, [])) => file(Path::new(first))?,
            Some((first, [extra, ..])) => {
                return Err(Failure::usage(format!(
                    "`{extra}`: a program file takes no parameters (`{first}` is a file; workloads are: {})",
                    names()
                )));
            }
        };
        Loaded::new(module)
    }

    /// The language model that is named, or the default one if nothing is and the run is on a pod, and its parameters.
    pub fn model(&self, on_pod: bool) -> Result<Option<(&str, Pairs)>, Failure> {
        let (name, rest) = match self.program.split_first() {
            None if on_pod => (model::DEFAULT, self.program.as_slice()),
            Some((first, _)) if on_pod && first.contains('=') && !Path::new(first).exists() => {
                (model::DEFAULT, self.program.as_slice())
            }
            Some((first, rest)) if is_model(first) => (first.as_str(), rest),
            _ => return Ok(None),
        };
        Ok(Some((name, pairs(rest, name)?)))
    }
}

/// Parameters by name.
type Pairs = Vec<(String, String)>;

fn is_model(text: &str) -> bool {
    Model::find(text).is_some() && !Path::new(text).is_file()
}

fn is_name(text: &str) -> bool {
    !text.contains(['/', '\\', '.'])
}

fn names() -> String {
    tpusim_workloads::ALL.iter().map(|w| w.name).collect::<Vec<_>>().join(", ")
}

fn workload(name: &str, params: &[String]) -> Result<Verified<Module>, Failure> {
    workload_of(name, &pairs(params, name)?)
}

fn workload_of(name: &str, params: &[(String, String)]) -> Result<Verified<Module>, Failure> {
    let Ok(found) = tpusim_workloads::find(name) else {
        return Err(Failure::usage(format!(
            "`{name}` is neither a file nor a workload nor a model; workloads are: {}; models are: {}",
            names(),
            model::names()
        )));
    };
    found.build(params).map_err(Failure::usage)
}

fn pairs(params: &[String], name: &str) -> Result<Vec<(String, String)>, Failure> {
    let one = |p: &String| pair(p).map_err(|e| Failure::usage(format!("`{p}`: {e}, a parameter of `{name}`")));
    params.iter().map(one).collect()
}

fn file(path: &Path) -> Result<Verified<Module>, Failure> {
    let bytes = std::fs::read(path).map_err(|e| Failure::usage(format!("cannot read `{}`: {e}", path.display())))?;
    let name = path.display().to_string();
    if bytes.starts_with(tpusim_isa::binary::MAGIC) {
        return Err(Failure::usage(format!("`{name}` is an assembled program; use `tpusim exec {name}`")));
    }
    let module = parse_program(&bytes, &name).map_err(Failure::program)?;
    verify(module).map_err(|errors| {
        const SHOWN: usize = 10;
        let mut lines: Vec<String> = errors.iter().take(SHOWN).map(|e| format!("{name}: {e}")).collect();
        if errors.len() > SHOWN {
            lines.push(format!("... and {} more errors", errors.len() - SHOWN));
        }
        Failure::program(lines.join("\n"))
    })
}

/// Names and types of the entry function's parameters, and how they are drawn.
type Params = (Vec<(String, TensorType)>, Vec<Option<Draw>>);

fn params(module: &Verified<Module>) -> Result<Params, Failure> {
    let main = match (module.func("main"), module.funcs.as_slice()) {
        (Some(f), _) | (None, [f]) => f,
        _ => return Err(Failure::program("the program has no function `main`")),
    };
    let mut params = Vec::with_capacity(main.params.len());
    for (i, p) in main.params.iter().enumerate() {
        let ty = main.ty(p.value);
        let Some(tensor) = ty.tensor().filter(|t| t.bytes().is_some()) else {
            return Err(Failure::program(format!("parameter {i} is {ty}; only arrays of fixed size can be passed")));
        };
        params.push((module.locs.name(p.loc).unwrap_or_default().to_owned(), tensor.clone()));
    }
    let draws = main.params.iter().map(|p| Draw::of(&p.attrs)).collect();
    Ok((params, draws))
}
