//! What fills HBM at the worst moment, for people.
//!
//! The plan's end is where some array ends, so the worst moment is one of that array's steps: the one at which most is alive. A loop or a
//! branch is one array of the plan around it; what it holds is listed instead, at its own worst moment.

use tpusim_isa::program::Resident;

use super::fuse::{Plan, Step};
use super::memory::{MemoryPlan, Placed};
use crate::graph::{Graph, Node, NodeId, NodeOp};

/// How many are listed.
const LISTED: usize = 64;

/// The largest of what lies in HBM at the worst moment, largest first.
pub fn residents(g: &Graph, plan: &Plan, mem: &MemoryPlan) -> Vec<Resident> {
    let mut all = Vec::new();
    for (i, p) in g.params.iter().enumerate() {
        all.push(resident(g.node(*p), format!("parameter {i}")));
    }
    for (i, o) in g.outputs.iter().enumerate() {
        // Others lie in the array of a parameter.
        let own = mem.address[o.ix()].is_some_and(|at| g.params.iter().all(|p| mem.address[p.ix()] != Some(at)));
        if own {
            all.push(resident(g.node(*o), format!("result {i}")));
        }
    }
    for n in &g.nodes {
        if matches!(&n.op, NodeOp::Const(l) if !l.is_splat()) {
            all.push(resident(n, "constant".to_owned()));
        }
    }
    inside(g, plan, &mem.placed, "", &mut all);
    all.retain(|r| r.bytes > 0);
    // Equal ones keep their order.
    all.sort_by_key(|r| std::cmp::Reverse(r.bytes));
    all.truncate(LISTED);
    all
}

fn resident(n: &Node, name: String) -> Resident {
    let dims: Vec<String> = n.dims.iter().map(u64::to_string).collect();
    let array = format!("{}[{}]", n.dtype, dims.join(","));
    Resident { bytes: n.bytes(), array, name, source: n.source.clone(), location: n.location.clone() }
}

/// Adds what `placed` arrays of a graph hold at their worst moment. Names start with `path`.
fn inside(g: &Graph, plan: &Plan, placed: &[Placed], path: &str, all: &mut Vec<Resident>) {
    let Some(step) = worst(placed) else { return };
    for p in placed.iter().filter(|p| (p.live.0..=p.live.1).contains(&step)) {
        let n = g.node(p.node);
        if !p.scratch {
            all.push(resident(n, format!("{path}{}", maker(g, p.node))));
            continue;
        }
        let of = plan
            .steps
            .iter()
            .find_map(|s| if let Step::Special(s) = s { (s.node == p.node).then_some(s) } else { None });
        let region = of.and_then(|s| s.regions.iter().find(|r| r.layout.bytes == p.bytes));
        let path = format!("{path}{}", n.name);
        match region {
            Some(r) => inside(&r.graph, &r.plan, &r.layout.placed, &format!("{path}/"), all),
            None => {
                let work = Resident {
                    bytes: p.bytes,
                    array: String::new(),
                    name: format!("{path} in flight"),
                    ..resident(n, path)
                };
                all.push(work);
            }
        }
    }
}

/// The name of the operation that makes a node.
fn maker(g: &Graph, n: NodeId) -> &'static str {
    match (&g.node(n).op, &g.node(n).args[..]) {
        (NodeOp::Result(_), [special, ..]) => g.node(*special).name,
        _ => g.node(n).name,
    }
}

/// The step at which the array that reaches furthest is alive, and most else.
fn worst(placed: &[Placed]) -> Option<u32> {
    let top = placed.iter().max_by_key(|p| p.end)?;
    let live =
        |step: u32| -> u64 { placed.iter().filter(|p| (p.live.0..=p.live.1).contains(&step)).map(|p| p.bytes).sum() };
    // What is alive grows only where something starts.
    let starts = placed.iter().map(|p| p.live.0).filter(|s| (top.live.0..=top.live.1).contains(s));
    starts.max_by_key(|s| (live(*s), std::cmp::Reverse(*s)))
}
