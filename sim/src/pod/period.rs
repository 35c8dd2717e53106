//! Folding of loops in pods: when the first device begins an iteration and the whole pod is in a state it has been in before, seen
//! relative to now, everything in between repeats, and whole periods can be skipped. Time is integer, so "the same" is exact.
//!
//! The state is everything that decides what happens next: where all threads of control are, signals and transfers nobody has waited
//! for, messages on their way, and how long ports are taken. Iterations count from that of the first device. What may differ are the
//! scalar registers of main code, since they hold the loop's counter: they decide nothing but branches, so that code is run ahead
//! without time, and as many periods are skipped as take the same branches on every device.

use tpusim_isa::program::Node;
use tpusim_isa::time::Picos;

use super::control::Control;
use super::data::Data;
use super::device::Device;
use super::shards::Shard;
use super::site::{Dry, Site};
use super::world::World;
use crate::fault::FaultKind;
use crate::network::{PORTS, Usage};

/// Iterations that have to be left for a look at the state to be worth its while.
const WORTH: u32 = 2;

/// What a device had done at an earlier state.
struct Before<'a> {
    main: Control<'a>,
    runs: (usize, usize),
    ops: Vec<(u64, Picos)>,
    transfers: Vec<(u64, Picos, Picos)>,
}

/// The pod at an earlier moment.
struct Earlier<'a> {
    now: Picos,
    /// Iteration of the first device.
    iteration: u32,
    state: Vec<u64>,
    /// Messages that the first device's threads had sent.
    sends: Vec<u64>,
    devices: Vec<Before<'a>>,
    ports: Vec<[Usage; PORTS]>,
    messages: Vec<u64>,
}

/// What is remembered of one loop.
struct Loop<'a> {
    body: &'a [Node],
    /// Iterations seen in this run of the loop.
    seen: u32,
    last: u32,
    /// An earlier state: the first, second, fourth, eighth ... that was seen, so that any period is found.
    earlier: Option<Earlier<'a>>,
}

/// Loops that the first device has been in.
#[derive(Default)]
pub(super) struct Periods<'a> {
    loops: Vec<Loop<'a>>,
}

impl<'a> Periods<'a> {
    /// The first device has begun an iteration of the loop with this body, and all that happens before `now` has happened. Skips what
    /// repeats.
    ///
    /// # Errors
    /// What goes wrong in control code.
    pub fn visit<D: Data>(
        &mut self,
        world: &World<'a>,
        shards: &mut [Shard<'a, D>],
        (body, now): (&'a [Node], Picos),
    ) -> Result<(), FaultKind> {
        let Some(first) = shards.first().and_then(|s| s.sites.first()).and_then(|s| s.devices.first()) else {
            return Ok(());
        };
        let Some((i, trip)) = first.threads[0].control.iteration_of(body) else { return Ok(()) };
        let k = match self.loops.iter().position(|l| std::ptr::eq(l.body, body)) {
            Some(k) => k,
            None => {
                self.loops.push(Loop { body, seen: 0, last: 0, earlier: None });
                self.loops.len() - 1
            }
        };
        let l = &mut self.loops[k];
        if i < l.last {
            (l.seen, l.earlier) = (0, None);
        }
        l.last = i;
        if i + WORTH > trip {
            return Ok(());
        }
        l.seen += 1;
        let state = state(shards, now, body);
        if let Some(e) = l.earlier.as_ref().filter(|e| e.state == state) {
            let times = repeats(world, shards, e, body, i - e.iteration)?;
            if times > 0 {
                jump(world, shards, e, body, (i - e.iteration, times), now)?;
                l.last = i + (i - e.iteration) * times as u32;
                (l.seen, l.earlier) = (0, None);
            }
        } else if l.seen.is_power_of_two() {
            l.earlier = Some(remember(shards, now, i, state));
        }
        Ok(())
    }
}

fn sites<'s, 'a, D: Data>(shards: &'s [Shard<'a, D>]) -> impl Iterator<Item = &'s Site<'a, D::Mail>> {
    shards.iter().flat_map(|s| &s.sites)
}

fn sends(shards: &[Shard<'_, impl Data>]) -> Vec<u64> {
    let first = sites(shards).next().and_then(|s| s.devices.first());
    first.map_or_else(Vec::new, |d| d.threads.iter().map(|t| t.sends).collect())
}

fn remember<'a, D: Data>(shards: &[Shard<'a, D>], now: Picos, iteration: u32, state: Vec<u64>) -> Earlier<'a> {
    let before = |d: &Device<'a>| Before {
        main: d.threads[0].control.clone(),
        runs: (d.profile.ops.len(), d.profile.transfers.len()),
        ops: d.profile.op_totals.clone(),
        transfers: d.profile.transfer_totals.clone(),
    };
    Earlier {
        now,
        iteration,
        state,
        sends: sends(shards),
        devices: sites(shards).flat_map(|s| &s.devices).map(before).collect(),
        ports: sites(shards).map(|s| *s.ports.usage()).collect(),
        messages: sites(shards).map(|s| s.messages).collect(),
    }
}

/// Everything that decides what happens next, relative to `now` and to the first device's iteration of the loop with body `folded`.
fn state<D: Data>(shards: &[Shard<'_, D>], now: Picos, folded: &[Node]) -> Vec<u64> {
    let sent = sends(shards);
    let first = sites(shards).next().and_then(|s| s.devices.first());
    let from = first.and_then(|d| d.threads[0].control.iteration_of(folded)).map_or(0, |(i, _)| i);
    let mut out = Vec::new();
    for site in sites(shards) {
        out.extend(site.ports.taken(now));
        for e in site.events.sorted() {
            let sent = if e.wakes() { 0 } else { sent[e.thread() as usize] };
            out.extend([e.at.0 - now.0, e.kind(), e.sequence().wrapping_sub(sent), u64::from(e.desc)]);
            out.extend([e.route, e.from, e.to, e.transfer, u32::from(e.core)].map(u64::from));
        }
        for d in &site.devices {
            device(d, now, folded, from, &sent, &mut out);
        }
    }
    out
}

fn device(d: &Device<'_>, now: Picos, folded: &[Node], from: u32, sent: &[u64], out: &mut Vec<u64>) {
    use super::control::Stop;
    out.push(d.combined.0.saturating_sub(now.0));
    for (i, n) in d.flags.iter().enumerate().filter(|(_, n)| **n > 0) {
        out.extend([i as u64, u64::from(*n)]);
    }
    // A word that no flag, and no transfer has.
    out.push(u64::MAX);
    for (i, ends) in d.finished.iter().enumerate().filter(|(_, ends)| !ends.is_empty()) {
        out.extend([i as u64, ends.len() as u64]);
        out.extend(ends.iter().map(|e| e.0.saturating_sub(now.0)));
    }
    out.push(u64::MAX);
    for (k, t) in d.threads.iter().enumerate() {
        out.extend([t.free.0.saturating_sub(now.0), t.sends.wrapping_sub(sent[k]), t.waiting.len() as u64]);
        for w in &t.waiting {
            let code = w.body.as_ptr().addr() as u64;
            out.extend([u64::from(w.transfer), code, w.at.0.saturating_sub(now.0)]);
        }
        out.push(u64::from(t.running));
        if !t.running {
            continue;
        }
        match t.stop {
            Stop::End => out.push(0),
            Stop::Flag { flag, n } => out.extend([1, u64::from(flag), u64::from(n)]),
            Stop::Transfer(t) => out.extend([2, u64::from(t)]),
        }
        let (transfer, since) = t.transfer.map_or((0, 0), |(t, s)| (u64::from(t), s.0.wrapping_sub(now.0)));
        out.extend([transfer, since, t.control.time.0.wrapping_sub(now.0)]);
        t.control.position(folded, from, out);
        if k > 0 {
            out.extend(t.control.scalars().iter().map(|s| u64::from(*s)));
        }
    }
}

/// How many more periods take the branches of the last one on every device.
fn repeats<'a, D: Data>(
    world: &World<'a>,
    shards: &[Shard<'a, D>],
    earlier: &Earlier<'a>,
    body: &'a [Node],
    iterations: u32,
) -> Result<u64, FaultKind> {
    let mut most = u64::MAX;
    for (d, before) in sites(shards).flat_map(|s| &s.devices).zip(&earlier.devices) {
        let control = &d.threads[0].control;
        let Some((i, trip)) = control.iteration_of(body) else { return Ok(0) };
        most = most.min(u64::from((trip - 1 - i) / iterations));
        let mut dry = Dry { world, device: d.id, taken: Vec::new() };
        if !dry.advance(&mut before.main.clone(), body, iterations)? {
            return Ok(0);
        }
        let want = std::mem::take(&mut dry.taken);
        let mut ahead = control.clone();
        let mut times = 0;
        while times < most && dry.advance(&mut ahead, body, iterations)? && dry.taken == want {
            dry.taken.clear();
            times += 1;
        }
        most = most.min(times);
        if most == 0 {
            break;
        }
    }
    Ok(if most == u64::MAX { 0 } else { most })
}

/// Lets the last period happen `times` times more.
fn jump<'a, D: Data>(
    world: &World<'a>,
    shards: &mut [Shard<'a, D>],
    earlier: &Earlier<'a>,
    body: &'a [Node],
    (iterations, times): (u32, u64),
    now: Picos,
) -> Result<(), FaultKind> {
    let period = now - earlier.now;
    let shift = Picos(period.0.checked_mul(times).ok_or(FaultKind::TimeOverflow)?);
    let sent: Vec<u64> = sends(shards).iter().zip(&earlier.sends).map(|(now, then)| (now - then) * times).collect();
    let mut before = earlier.devices.iter();
    let mut chips = earlier.ports.iter().zip(&earlier.messages);
    for shard in shards {
        for site in &mut shard.sites {
            if let Some((usage, messages)) = chips.next() {
                site.ports.jump(shift, times, usage);
                site.messages += (site.messages - messages) * times;
            }
            site.events.jump(shift, &sent);
            for d in &mut site.devices {
                let Some(b) = before.next() else { continue };
                let mut dry = Dry { world, device: d.id, taken: Vec::new() };
                for _ in 0..times {
                    dry.advance(&mut d.threads[0].control, body, iterations)?;
                    dry.taken.clear();
                }
                d.repeat_runs(b.runs, times, period);
                later(d, b, times, shift, &sent);
            }
        }
        shard.look();
    }
    Ok(())
}

/// Moves everything that a device knows of time, and adds to its totals what a period adds.
fn later(d: &mut Device<'_>, before: &Before<'_>, times: u64, shift: Picos, sent: &[u64]) {
    d.combined += shift;
    d.finished.iter_mut().flatten().for_each(|end| *end += shift);
    for (t, sent) in d.threads.iter_mut().zip(sent) {
        t.free += shift;
        t.sends += sent;
        t.control.time += shift;
        t.waiting.iter_mut().for_each(|w| w.at += shift);
        if let Some((_, since)) = &mut t.transfer {
            *since += shift;
        }
    }
    for (total, old) in d.profile.op_totals.iter_mut().zip(&before.ops) {
        total.0 += (total.0 - old.0) * times;
        total.1 += Picos((total.1 - old.1).0 * times);
    }
    for (total, old) in d.profile.transfer_totals.iter_mut().zip(&before.transfers) {
        total.0 += (total.0 - old.0) * times;
        total.1 += Picos((total.1 - old.1).0 * times);
        total.2 += Picos((total.2 - old.2).0 * times);
    }
}
