//! A run of a pod, from its devices' first instruction to the last one's end.

use tpusim_isa::program::{Node, Program};
use tpusim_isa::time::Picos;

use super::control::Stop;
use super::data::Data;
use super::device::Device;
use super::period::Periods;
use super::profile::{DeviceProfile, PodProfile};
use super::shards::{Outcome, Shard, run};
use super::site::Site;
use super::world::World;
use crate::fault::{Fault, FaultKind};
use crate::network::{PORTS, Usage};

/// The chips that run, at the start of the program. The devices of one that others have folded into stand for those as well.
pub(super) fn sites<'a, M: Default>(world: &World<'a>) -> Vec<Site<'a, M>> {
    let mut members = vec![0u32; world.classes.device.len()];
    world.classes.device.iter().for_each(|d| members[d.0 as usize] += 1);
    let per_chip = world.per_chip as usize;
    let own = |chip: usize| &members[chip * per_chip..(chip + 1) * per_chip];
    (0u32..).zip(&world.chips).map(|(k, chip)| Site::new(world, k, own(chip.0 as usize))).collect()
}

/// Runs until nothing happens any more. Without data, and if `skip`, iterations that repeat are skipped.
///
/// # Errors
/// What goes wrong on a device, with its number; and devices that wait for ever.
pub(super) fn complete<'a, D: Data + Send>(
    world: &World<'a>,
    shards: &mut [Shard<'a, D>],
    skip: bool,
) -> Result<(), Fault> {
    let fault = |at: Picos, kind: FaultKind| Fault {
        pc: Vec::new(),
        op: None,
        cycle: at.cycles(*world.chip.clock_hz).0,
        kind: Box::new(kind),
    };
    let mut periods = Periods::default();
    let (skip, watch) = (skip && !D::DATA, &world.opts.watch);
    let all = if watch.is_some() { operations(&world.program.body) } else { 0 };
    let stops = skip || watch.is_some();
    while let Outcome::Iteration(body, now) = run(world, shards, stops).map_err(|(at, kind)| fault(at, kind))? {
        if skip {
            periods.visit(world, shards, (body, now)).map_err(|kind| fault(now, kind))?;
        }
        let first = shards.first().and_then(|s| s.sites.first()).and_then(|s| s.devices.first());
        if let (Some(watch), Some(d)) = (watch, first) {
            watch.set(d.profile.op_totals.iter().map(|(n, _)| n).sum(), all);
        }
    }
    let mut devices = shards.iter().flat_map(|s| &s.sites).flat_map(|s| &s.devices);
    devices.find_map(|d| stuck(world.program, d)).map_or(Ok(()), |kind| Err(fault(Picos(0), kind)))
}

/// Operations that main code runs, where data decides once or as many as there may be.
fn operations(nodes: &[Node]) -> u64 {
    let of = |n: &Node| match n {
        Node::Bundle(_) | Node::Done { .. } | Node::Start { .. } => 0,
        Node::Op { .. } => 1,
        Node::Loop { trip, body, .. } => operations(body).saturating_mul(u64::from(*trip)),
        Node::While { body, .. } => operations(body),
        Node::Case { branches, .. } => branches.iter().map(|b| operations(b)).max().unwrap_or(0),
    };
    nodes.iter().map(of).fold(0, u64::saturating_add)
}

/// What a device waits for that has not come to its end.
fn stuck(program: &Program, d: &Device<'_>) -> Option<FaultKind> {
    let name = |t: u32| program.transfers.get(t as usize).map_or("a transfer", |t| t.name.as_str());
    let t = d.threads.iter().rev().find(|t| t.running)?;
    let what = match (t.stop, t.transfer) {
        (Stop::Flag { flag, n }, Some((transfer, _))) => {
            format!("`{}` waits for {n} signals on its flag {flag} that nobody sends", name(transfer))
        }
        (Stop::Transfer(t), _) => format!("it waits for `{}`, which does not end", name(t)),
        _ => "it waits for nothing that could come".to_owned(),
    };
    Some(FaultKind::Malformed(format!("device {} is stuck: {what}", d.id.0)))
}

/// How the run went.
pub(super) fn profile<'a, D: Data>(world: World<'a>, shards: Vec<Shard<'a, D>>) -> (Vec<D>, PodProfile) {
    let mut usage: Vec<[Usage; PORTS]> = vec![Default::default(); world.classes.chip.len()];
    let (mut devices, mut data, mut messages): (Vec<DeviceProfile>, Vec<D>, u64) = (Vec::new(), Vec::new(), 0);
    for shard in shards {
        for site in shard.sites {
            usage[world.chips[site.number as usize].0 as usize] = *site.ports.usage();
            messages += site.messages;
            devices.extend(site.devices.into_iter().map(|d| d.profile));
        }
        data.push(shard.data);
    }
    let ports = world.classes.chip.iter().map(|of| usage[of.0 as usize]).collect();
    let profile = PodProfile {
        end: devices.iter().map(|d| d.end).max().unwrap_or_default(),
        devices,
        class: world.classes.device,
        chip_class: world.classes.chip,
        ports,
        ops: world.times.finish(),
        messages,
        assumed: Vec::new(),
    };
    (data, profile)
}
