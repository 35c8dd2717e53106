//! What fills HBM at the worst moment of a program.

use serde::Serialize;
use tpusim_isa::program::{Program, Resident};

use crate::pod::table;
use crate::report::clip;
use crate::units::memory;

/// Share of HBM, as one over this, from which reports for people say what fills it.
const WORTH: u64 = 10;
/// Arrays shown at most.
const SHOWN: usize = 8;

/// Arrays that lie in HBM at the worst moment: those of one shape that one operation makes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HeldArrays {
    /// Type and sizes, e.g. `f32[8,2048]`; empty for memory that a transfer works in.
    pub array: String,
    /// How many of them.
    pub count: u64,
    /// Bytes of all of them.
    pub bytes: u64,
    /// `parameter 3`, `result 0`, or the operation that makes it, e.g. `while/dot_general`.
    pub name: String,
    /// Name of the source's operation, empty if unknown.
    pub source: String,
    /// `file:line`, empty if unknown.
    pub location: String,
}

impl HeldArrays {
    /// What the plan of `program` lists, largest first.
    pub fn of(program: &Program) -> Vec<HeldArrays> {
        let mut all: Vec<HeldArrays> = Vec::new();
        for r in &program.residents {
            match all.iter_mut().find(|h| h.holds(r)) {
                Some(h) => {
                    h.count += 1;
                    h.bytes = h.bytes.saturating_add(r.bytes);
                }
                None => all.push(HeldArrays {
                    array: r.array.clone(),
                    count: 1,
                    bytes: r.bytes,
                    name: r.name.clone(),
                    source: r.source.clone(),
                    location: r.location.clone(),
                }),
            }
        }
        // Equal ones keep their order.
        all.sort_by_key(|h| std::cmp::Reverse(h.bytes));
        all
    }

    fn holds(&self, r: &Resident) -> bool {
        (&self.array, &self.name, &self.source, &self.location) == (&r.array, &r.name, &r.source, &r.location)
    }
}

/// The part of a report that says what takes `peak` of `capacity` bytes; empty if that is little.
pub(crate) fn text(all: &[HeldArrays], peak: u64, capacity: u64) -> String {
    if all.is_empty() || peak < capacity / WORTH {
        return String::new();
    }
    let rows = all.iter().take(SHOWN).map(|h| {
        let source = if h.source.is_empty() { &h.location } else { &h.source };
        [memory(h.bytes), h.count.to_string(), h.array.clone(), clip(&h.name, 32), clip(source, 32)]
    });
    format!("\nwhat fills HBM at its peak\n{}", table(["memory", "arrays", "each", "made by", "source"], rows))
}
