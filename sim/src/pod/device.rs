//! A device of a pod and its threads of control.

use std::collections::VecDeque;

use tpusim_isa::program::Node;
use tpusim_isa::time::Picos;
use tpusim_isa::topology::DeviceId;

use super::control::{Control, Stop};
use super::profile::{DeviceProfile, Run};
use super::world::World;

/// Most runs of operations and transfers that are listed for one device.
const MAX_RUNS: usize = 1 << 18;

/// Most runs that are listed in all, which matters where thousands of devices run.
const MAX_RUNS_OF_ALL: usize = 1 << 26;

/// A transfer that was handed to a queue: its code, and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting<'a> {
    pub transfer: u32,
    pub body: &'a [Node],
    pub at: Picos,
}

/// A thread of control of a device: the main one, or that of a transfer queue.
#[derive(Debug)]
pub(super) struct Thread<'a> {
    pub control: Control<'a>,
    /// Whether `control` has something to do.
    pub running: bool,
    pub stop: Stop,
    /// The transfer it runs, and since when. The main thread runs none.
    pub transfer: Option<(u32, Picos)>,
    pub waiting: VecDeque<Waiting<'a>>,
    /// When it is free again.
    pub free: Picos,
    pub sends: u64,
}

/// A device that runs, which may stand for others.
pub(super) struct Device<'a> {
    pub id: DeviceId,
    /// Clock.
    pub hz: u64,
    pub threads: Vec<Thread<'a>>,
    /// Signals that nobody has taken, by flag of all transfers.
    pub flags: Vec<u32>,
    /// Ends of transfers nobody has waited for.
    pub finished: Vec<VecDeque<Picos>>,
    /// When the operations of transfers so far are over.
    pub combined: Picos,
    pub profile: DeviceProfile,
    most_runs: usize,
}

impl<'a> Device<'a> {
    /// A device at the start of its program, which stands for `members` devices.
    pub fn new(world: &World<'a>, id: DeviceId, members: u32) -> Self {
        let idle = || Thread {
            control: Control::default(),
            running: false,
            stop: Stop::End,
            transfer: None,
            waiting: VecDeque::new(),
            free: Picos(0),
            sends: 0,
        };
        let mut threads: Vec<Thread<'a>> = (0..world.threads).map(|_| idle()).collect();
        threads[0].control.begin(&world.program.body, Picos(0), *world.chip.regs.scalar as usize);
        threads[0].running = true;
        let running = world.chips.len() * world.per_chip as usize;
        Device {
            id,
            hz: world.hz[id.0 as usize],
            threads,
            flags: vec![0; world.flags()],
            finished: vec![VecDeque::new(); world.program.transfers.len()],
            combined: Picos(0),
            profile: DeviceProfile {
                device: id,
                members,
                op_totals: vec![(0, Picos(0)); world.program.ops.len()],
                transfer_totals: vec![(0, Picos(0), Picos(0)); world.program.transfers.len()],
                ..DeviceProfile::default()
            },
            most_runs: MAX_RUNS.min(MAX_RUNS_OF_ALL / running.max(1)),
        }
    }

    /// Notes a run of an operation on the main thread.
    pub fn ran(&mut self, run: Run) {
        if self.profile.ops.len() < self.most_runs {
            self.profile.ops.push(run);
        }
        let total = &mut self.profile.op_totals[run.index as usize];
        *total = (total.0 + 1, total.1 + (run.end - run.start));
    }

    /// Notes a run of a transfer.
    pub fn transferred(&mut self, run: Run) {
        if self.profile.transfers.len() < self.most_runs {
            self.profile.transfers.push(run);
        }
        let total = &mut self.profile.transfer_totals[run.index as usize];
        (total.0, total.1) = (total.0 + 1, total.1 + (run.end - run.start));
    }

    /// Lists the runs since there were so many of operations and of transfers `times` times more, each time `period` later.
    pub fn repeat_runs(&mut self, since: (usize, usize), times: u64, period: Picos) {
        let most = self.most_runs;
        for (runs, first) in [(&mut self.profile.ops, since.0), (&mut self.profile.transfers, since.1)] {
            let last = runs.len();
            for k in 1..=times {
                let shift = Picos(period.0 * k);
                for i in first..last.min(first + most.saturating_sub(runs.len())) {
                    let Run { index, start, end } = runs[i];
                    runs.push(Run { index, start: start + shift, end: end + shift });
                }
            }
        }
    }
}
