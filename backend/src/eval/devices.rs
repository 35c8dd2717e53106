//! Several devices running one program, each on a thread of its own, meeting in collectives.
//!
//! A collective posts its operands, waits for those of its group, and computes its own result from them in the order of the
//! group, so that results do not depend on the threads. Devices that wait for one another in a circle are an error.

use std::cell::{Cell, RefCell};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

use super::{EvalError, EvalOptions, Fault, Tensor, Value};
use crate::hlo::Op;

/// How devices are numbered: device `r * partitions + p` runs replica `r` of partition `p`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Number of replicas.
    pub replicas: usize,
    /// Number of partitions.
    pub partitions: usize,
}

impl Grid {
    /// Number of devices.
    pub fn devices(self) -> usize {
        self.replicas.saturating_mul(self.partitions)
    }
}

/// Most devices that the evaluator runs: each is a thread.
pub const MAX_DEVICES: usize = 64;

/// What the activations on one device share.
pub(crate) struct Shared<'e> {
    pub(super) ops_left: Cell<u64>,
    pub(super) depth: Cell<u32>,
    device: Option<(usize, &'e Exchange)>,
    /// How often this device came to each collective, by address.
    visits: RefCell<FxHashMap<usize, u64>>,
}

impl<'e> Shared<'e> {
    pub(super) fn new(options: &EvalOptions, device: Option<(usize, &'e Exchange)>) -> Shared<'e> {
        Shared { ops_left: Cell::new(options.max_ops), depth: Cell::new(0), device, visits: RefCell::default() }
    }

    /// Which device this is; `None` where a program runs on all of them as one.
    pub(crate) fn device(&self) -> Option<usize> {
        self.device.map(|(id, _)| id)
    }

    /// The devices there are.
    pub(crate) fn grid(&self) -> Grid {
        self.device.map_or(Grid { replicas: 1, partitions: 1 }, |(_, e)| e.grid)
    }

    /// Gives `tensors` to the devices of `group`, this one among them, and returns what they gave, in the order of the group.
    pub(crate) fn exchange(&self, op: &Op, group: &[usize], tensors: Vec<Tensor>) -> Result<Vec<Vec<Tensor>>, Fault> {
        let Some((id, exchange)) = self.device else { return Err(Fault::Unsupported(" outside of a device".into())) };
        let address = std::ptr::from_ref(op).addr();
        let mut visits = self.visits.borrow_mut();
        let visit = visits.entry(address).or_default();
        *visit += 1;
        exchange.meet(id, (address, *visit), group, tensors)
    }
}

type Key = (usize, u64);

#[derive(Default)]
struct State {
    /// Operands posted at a collective by a device, and how many devices have yet to read them.
    posted: FxHashMap<(Key, usize), (Vec<Tensor>, usize)>,
    waiting: FxHashMap<usize, (Key, Vec<usize>)>,
    running: usize,
    failed: bool,
}

impl State {
    fn complete(&self, key: Key, group: &[usize]) -> bool {
        group.iter().all(|&g| self.posted.contains_key(&(key, g)))
    }

    /// Whether every device that still runs waits for something that nobody will give it.
    fn stuck(&self) -> bool {
        self.waiting.len() == self.running && !self.waiting.values().any(|(k, g)| self.complete(*k, g))
    }
}

/// Where devices meet.
pub(crate) struct Exchange {
    grid: Grid,
    state: Mutex<State>,
    changed: Condvar,
}

impl Exchange {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn meet(&self, id: usize, key: Key, group: &[usize], tensors: Vec<Tensor>) -> Result<Vec<Vec<Tensor>>, Fault> {
        let mut s = self.lock();
        s.posted.insert((key, id), (tensors, group.len()));
        self.changed.notify_all();
        while !s.complete(key, group) {
            if s.failed {
                return Err(Fault::invalid("another device failed, or left without taking part"));
            }
            s.waiting.insert(id, (key, group.to_vec()));
            if s.stuck() {
                s.failed = true;
                self.changed.notify_all();
                continue;
            }
            s = self.changed.wait(s).unwrap_or_else(PoisonError::into_inner);
        }
        s.waiting.remove(&id);
        let mut out = Vec::with_capacity(group.len());
        for &g in group {
            let Some((tensors, readers)) = s.posted.get_mut(&(key, g)) else { continue };
            out.push(tensors.clone());
            *readers -= 1;
            if *readers == 0 {
                s.posted.remove(&(key, g));
            }
        }
        Ok(out)
    }

    /// A device is done, well or badly.
    fn leave(&self, ok: bool) {
        let mut s = self.lock();
        s.running -= 1;
        s.failed |= !ok || (s.running > 0 && s.stuck());
        self.changed.notify_all();
    }
}

/// Runs `f` on the devices of `grid`; the results in the order of the devices.
pub(crate) fn run_devices(
    grid: Grid,
    options: &EvalOptions,
    f: impl Fn(&Shared<'_>, usize) -> Result<Vec<Value>, EvalError> + Sync,
) -> Result<Vec<Vec<Value>>, EvalError> {
    let n = grid.devices();
    if n > MAX_DEVICES {
        return Err(EvalError::TooManyDevices { devices: n, limit: MAX_DEVICES });
    }
    let state = State { running: n, ..State::default() };
    let exchange = Exchange { grid, state: Mutex::new(state), changed: Condvar::new() };
    // Which error came first, not which device is first: the others only report that one of them failed.
    let first: Mutex<Option<EvalError>> = Mutex::new(None);
    let run = |id: usize| {
        let shared = Shared::new(options, Some((id, &exchange)));
        let r = f(&shared, id);
        // Recorded before the others hear of it and fail in turn.
        if let Err(e) = &r {
            first.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e.clone());
        }
        exchange.leave(r.is_ok());
        r.ok()
    };
    let run = &run;
    let results: Vec<Option<Vec<Value>>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..n).map(|id| scope.spawn(move || run(id))).collect();
        threads.into_iter().map(|t| t.join().ok().flatten()).collect()
    });
    if let Some(e) = first.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(e);
    }
    results.into_iter().collect::<Option<Vec<_>>>().ok_or(EvalError::DeviceLost)
}
