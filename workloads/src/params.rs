//! Parameters of workloads: `key=value` texts against a list of what there is.

use tpusim_isa::num::DType;

use crate::{Workload, WorkloadError};

/// A parameter of a workload.
#[derive(Clone, Copy, Debug)]
pub struct ParamSpec {
    /// Its name.
    pub name: &'static str,
    /// Value if none is given, which also says what kind of value it takes.
    pub default: ParamValue,
    /// What it is, in a few words.
    pub about: &'static str,
}

/// A value of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamValue {
    /// A size, from 1 to [`MAX_SIZE`].
    Size(i64),
    /// A float type of at least 8 bits and at most 32.
    Float(DType),
    /// `true` or `false`.
    Bool(bool),
    /// A size that may be left to the model.
    OptionalSize(Option<i64>),
    /// One of several names.
    Choice(&'static str, &'static [&'static str]),
}

/// Largest size.
pub const MAX_SIZE: i64 = 1 << 24;

impl std::fmt::Display for ParamValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ParamValue::Size(n) => write!(f, "{n}"),
            ParamValue::Float(d) => write!(f, "{d}"),
            ParamValue::Bool(b) => write!(f, "{b}"),
            ParamValue::OptionalSize(Some(n)) => write!(f, "{n}"),
            ParamValue::OptionalSize(None) => f.write_str("model"),
            ParamValue::Choice(name, _) => f.write_str(name),
        }
    }
}

impl ParamValue {
    /// What such a parameter takes, for messages.
    pub fn expected(&self) -> String {
        match self {
            ParamValue::Size(_) => format!("a whole number from 1 to {MAX_SIZE}"),
            ParamValue::Float(_) => {
                format!("one of {}", float_types().map(DType::name).collect::<Vec<_>>().join(", "))
            }
            ParamValue::Bool(_) => "true or false".to_owned(),
            ParamValue::OptionalSize(_) => format!("a whole number from 1 to {MAX_SIZE}, or `model`"),
            ParamValue::Choice(_, names) => format!("one of {}", names.join(", ")),
        }
    }

    fn parse(&self, text: &str) -> Option<ParamValue> {
        match self {
            ParamValue::Size(_) => size(text).map(ParamValue::Size),
            ParamValue::OptionalSize(_) if text == "model" => Some(ParamValue::OptionalSize(None)),
            ParamValue::OptionalSize(_) => size(text).map(|n| ParamValue::OptionalSize(Some(n))),
            ParamValue::Choice(_, names) => names.iter().find(|n| **n == text).map(|n| ParamValue::Choice(n, names)),
            ParamValue::Float(_) => {
                let name = text.to_ascii_lowercase();
                float_types().find(|d| d.name().to_ascii_lowercase() == name).map(ParamValue::Float)
            }
            ParamValue::Bool(_) => text.parse().ok().map(ParamValue::Bool),
        }
    }
}

fn size(text: &str) -> Option<i64> {
    let n: i64 = text.replace('_', "").parse().ok()?;
    (1..=MAX_SIZE).contains(&n).then_some(n)
}

fn float_types() -> impl Iterator<Item = DType> {
    let usable = [DType::BF16, DType::F32, DType::F16, DType::F8E4M3FN, DType::F8E5M2];
    usable.into_iter()
}

/// The values of all parameters of a workload.
#[derive(Clone, Debug)]
pub struct Params {
    values: Vec<(&'static str, ParamValue)>,
}

impl Params {
    /// The defaults of `workload`, with what is given in their place.
    pub(crate) fn parse(workload: &Workload, given: &[(String, String)]) -> Result<Params, WorkloadError> {
        let mut values: Vec<(&'static str, ParamValue)> = workload.params.iter().map(|p| (p.name, p.default)).collect();
        for (i, (name, text)) in given.iter().enumerate() {
            if given.iter().take(i).any(|(n, _)| n == name) {
                return Err(WorkloadError::Twice { name: name.clone() });
            }
            let Some((_, value)) = values.iter_mut().find(|(n, _)| n == name) else {
                let known = workload.params.iter().map(|p| format!("{}={}", p.name, p.default));
                return Err(WorkloadError::UnknownParam {
                    workload: workload.name,
                    name: name.clone(),
                    known: known.collect::<Vec<_>>().join(", "),
                });
            };
            *value = value.parse(text).ok_or_else(|| WorkloadError::Value {
                name: name.clone(),
                value: text.clone(),
                expected: value.expected(),
            })?;
        }
        Ok(Params { values })
    }

    fn get(&self, name: &str) -> Option<ParamValue> {
        self.values.iter().find(|(n, _)| *n == name).map(|(_, v)| *v)
    }

    /// The size called `name`; 0, which no program takes, if the workload has none of that name.
    pub fn size(&self, name: &str) -> i64 {
        match self.get(name) {
            Some(ParamValue::Size(n)) => n,
            _ => 0,
        }
    }

    /// The size called `name`, or `model` where it is left to the model.
    pub fn size_or(&self, name: &str, model: i64) -> i64 {
        match self.get(name) {
            Some(ParamValue::OptionalSize(Some(n))) => n,
            _ => model,
        }
    }

    /// The name chosen for `name`; empty if the workload has no such parameter.
    pub fn choice(&self, name: &str) -> &'static str {
        match self.get(name) {
            Some(ParamValue::Choice(chosen, _)) => chosen,
            _ => "",
        }
    }

    /// The element type called `name`; f32 if the workload has none of that name.
    pub fn float(&self, name: &str) -> DType {
        match self.get(name) {
            Some(ParamValue::Float(d)) => d,
            _ => DType::F32,
        }
    }

    /// The switch called `name`; false if the workload has none of that name.
    pub fn flag(&self, name: &str) -> bool {
        matches!(self.get(name), Some(ParamValue::Bool(true)))
    }
}
