//! Before and after: shardings that are not of one value become constraints; what nobody uses goes.

use rustc_hash::{FxHashMap, FxHashSet};

use super::PartitionError;
use crate::hlo::{Attr, AttrList, Block, Func, IdVec, Module, Op, Opcode, ValueId};
use crate::ops::attention::is_target;
use crate::ops::{Eval, lookup};

/// Makes constraints of the shardings of results and of the operands of manual computations.
pub(super) fn prepare(func: &mut Func) -> Result<(), PartitionError> {
    let mut body = std::mem::take(&mut func.body);
    block(func, &mut body)?;
    if let Some(mut ret) = body.ops.pop() {
        for (v, info) in ret.operands.iter_mut().zip(&func.results.clone()) {
            let mut attrs = AttrList::default();
            for (from, to) in [("sdy.sharding", "sharding"), ("mhlo.sharding", "mhlo.sharding")] {
                if let (Some(a), true) = (info.attrs.get(from), attrs.is_empty()) {
                    attrs.set(to, a.clone());
                }
            }
            if !attrs.is_empty() {
                *v = constrain(func, &mut body.ops, *v, attrs, ret.loc);
            }
        }
        body.ops.push(ret);
    }
    func.body = body;
    Ok(())
}

fn constrain(func: &mut Func, ops: &mut Vec<Op>, v: ValueId, attrs: AttrList, loc: crate::hlo::LocId) -> ValueId {
    let result = func.new_value(func.ty(v).clone());
    let opcode = Opcode::SdyShardingConstraint;
    ops.push(Op { opcode, operands: vec![v], results: vec![result], attrs, regions: Vec::new(), loc });
    result
}

fn block(func: &mut Func, b: &mut Block) -> Result<(), PartitionError> {
    let mut ops = Vec::with_capacity(b.ops.len());
    for mut op in std::mem::take(&mut b.ops) {
        for r in &mut op.regions {
            block(func, &mut r.block)?;
        }
        if op.opcode == Opcode::SdyManualComputation
            && let Some(Attr::Opaque(text)) = op.attrs.get("in_shardings")
        {
            for (i, one) in parts(text).into_iter().enumerate() {
                let Some(&v) = op.operands.get(i) else { break };
                let attrs = std::iter::once(("sharding".to_owned(), Attr::Opaque(format!("sdy.sharding{one}"))));
                op.operands[i] = constrain(func, &mut ops, v, attrs.collect(), op.loc);
            }
        }
        if op.opcode == Opcode::CustomCall {
            match op.attrs.text("call_target_name") {
                Some("Sharding") if op.operands.len() == 1 && op.results.len() == 1 => {
                    op.opcode = Opcode::SdyShardingConstraint;
                }
                Some(name @ ("SPMDFullToShardShape" | "SPMDShardToFullShape")) => {
                    return Err(PartitionError::program(format!(
                        "the custom call @{name} is not supported; export the program with Shardy (sdy.manual_computation)"
                    )));
                }
                _ => {}
            }
        }
        ops.push(op);
    }
    b.ops = ops;
    Ok(())
}

/// The shardings of `sdy.sharding_per_value<[<...>, <...>]>`, each with its brackets.
fn parts(text: &str) -> Vec<&str> {
    let Some((_, list)) = text.split_once('[') else { return Vec::new() };
    let (mut depth, mut start, mut out, mut quoted) = (0, 0, Vec::new(), false);
    for (i, c) in list.char_indices() {
        match c {
            '"' => quoted = !quoted,
            _ if quoted => {}
            '<' => {
                if depth == 0 {
                    start = i;
                }
                depth += 1;
            }
            '>' if depth > 0 => {
                depth -= 1;
                if depth == 0 {
                    out.push(&list[start..=i]);
                }
            }
            _ => {}
        }
    }
    out
}

/// The largest channel in use.
pub(super) fn last_channel(b: &Block) -> i64 {
    let own = |op: &Op| match op.attrs.get("channel_handle") {
        Some(Attr::Channel { handle, .. }) => *handle,
        _ => 0,
    };
    let inner = |op: &Op| op.regions.iter().map(|r| last_channel(&r.block)).max().unwrap_or(0);
    b.ops.iter().map(|op| own(op).max(inner(op))).max().unwrap_or(0)
}

/// The functions that ops of `func` name, such as the comparison of a custom call, and what those name: they work on scalars.
pub(super) fn named(module: &Module, func: &Func) -> Vec<Func> {
    let mut found: Vec<Func> = Vec::new();
    let mut names = Vec::new();
    symbols(&func.body, &mut names);
    while let Some(name) = names.pop() {
        if name == func.name || found.iter().any(|f| f.name == name) {
            continue;
        }
        if let Some(f) = module.func(&name) {
            symbols(&f.body, &mut names);
            found.push(f.clone());
        }
    }
    found.sort_by_key(|f| module.funcs.iter().position(|g| g.name == f.name));
    found
}

fn symbols(b: &Block, out: &mut Vec<String>) {
    fn of(a: &Attr, out: &mut Vec<String>) {
        match a {
            Attr::Symbol(s) => out.push(s.clone()),
            Attr::Array(all) => all.iter().for_each(|a| of(a, out)),
            Attr::Dict(d) => d.iter().for_each(|(_, a)| of(a, out)),
            _ => {}
        }
    }
    for op in &b.ops {
        op.attrs.iter().for_each(|(_, a)| of(a, out));
        op.regions.iter().for_each(|r| symbols(&r.block, out));
    }
}

/// Removes ops whose results nobody uses and which do nothing else.
pub(super) fn remove_unused(func: &mut Func) {
    let mut body = std::mem::take(&mut func.body);
    let mut used = FxHashSet::default();
    sweep(&mut body, &mut used);
    // Numbered in the order of the text.
    let mut values = IdVec::default();
    let mut map = FxHashMap::default();
    let old = std::mem::take(&mut func.values);
    let mut number = |v: &mut ValueId, defines: bool| {
        if defines {
            map.insert(*v, values.push(old[*v].clone()));
        }
        *v = map.get(v).copied().unwrap_or(*v);
    };
    func.params.iter_mut().for_each(|p| number(&mut p.value, true));
    renumber(&mut body, &mut number);
    func.values = values;
    func.body = body;
}

/// Calls `number` for every value of a block in order, and whether it is defined there.
fn renumber(b: &mut Block, number: &mut impl FnMut(&mut ValueId, bool)) {
    b.args.iter_mut().for_each(|v| number(v, true));
    for op in &mut b.ops {
        op.operands.iter_mut().for_each(|v| number(v, false));
        op.regions.iter_mut().for_each(|r| renumber(&mut r.block, number));
        op.results.iter_mut().for_each(|v| number(v, true));
    }
}

/// From the last op to the first: uses come after definitions. A region may use what comes before its op.
fn sweep(b: &mut Block, used: &mut FxHashSet<ValueId>) {
    let mut kept = Vec::with_capacity(b.ops.len());
    for mut op in std::mem::take(&mut b.ops).into_iter().rev() {
        if !op.results.iter().any(|r| used.contains(r)) && is_pure(&op) {
            continue;
        }
        for r in op.regions.iter_mut().rev() {
            sweep(&mut r.block, used);
        }
        used.extend(op.operands.iter().copied());
        kept.push(op);
    }
    kept.reverse();
    b.ops = kept;
}

/// Ops that may go when nobody uses their results. Collectives may: all devices run the same program.
fn is_pure(op: &Op) -> bool {
    use Opcode::*;
    match op.opcode {
        CustomCall => op.attrs.text("call_target_name").is_some_and(is_target),
        Return | Infeed | Outfeed | Send | Recv | RngBitGenerator | Rng | While | Case | If => false,
        o => lookup(o).is_some_and(|d| !matches!(d.eval, Eval::Unsupported)) && !op.results.is_empty(),
    }
}
