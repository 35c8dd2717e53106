//! Code of loops whose steps work for several iterations: see [`crate::tile::pipeline`].
//!
//! A body's steps come in the order of the plan. Those ahead are left out in the last iteration, those behind in the first; what the
//! first iteration finds done already comes before the loop, what the last one leaves after it.

use tpusim_isa::op::{Instr, Op};
use tpusim_isa::program::{Bundle, FlowKind, Node as Code, SReg};

use super::transfer::Open;
use super::{Generator, Scope};
use crate::compile::CompileError;
use crate::graph::Node;
use crate::lower::emit::counter_register;
use crate::tile::fuse::{Plan, Step};
use crate::tile::pipeline::{Pipeline, Stage, shifted};

/// Queues of transfers that run beside other iterations: those that somebody waits for have one of their own, and what is needed next
/// does not stand behind what has time. They are among the [`MAIN_QUEUES`](tpusim_isa::pod::MAIN_QUEUES).
const AHEAD: u32 = 1;
const BEHIND: u32 = 2;
/// Register that says which of two branches to take. No operation leaves anything in it.
const CHOICE: SReg = SReg(2);

/// The code of one step, without what it waits for.
struct Segment {
    code: Vec<Code>,
    open: Option<Open>,
}

/// The iterations that run some code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Always,
    NotFirst,
    NotLast,
}

/// A transfer that runs.
#[derive(Clone, Copy)]
struct Running {
    step: usize,
    /// When it has to be waited for.
    when: When,
}

/// A pipelined loop under construction.
struct Pipelined<'a> {
    steps: &'a [Step],
    pipeline: &'a Pipeline,
    segments: Vec<Segment>,
}

/// Takes the transfers out that start at the end of some code and that it does not wait for: they have time.
fn started_last(code: &mut Vec<Code>) -> Vec<Code> {
    let tail = code.iter().rposition(|c| !matches!(c, Code::Start { .. } | Code::Done { .. })).map_or(0, |i| i + 1);
    let tail = code.split_off(tail);
    let ended: Vec<u32> =
        tail.iter().filter_map(|c| if let Code::Done { transfer } = c { Some(*transfer) } else { None }).collect();
    let later = |c: &Code| matches!(c, Code::Start { transfer, .. } if !ended.contains(transfer));
    let (later, rest) = tail.into_iter().partition(later);
    code.extend::<Vec<Code>>(rest);
    later
}

fn when(stage: Stage) -> When {
    match stage {
        Stage::Ahead => When::NotLast,
        Stage::Now => When::Always,
        Stage::Behind => When::NotFirst,
    }
}

impl Pipelined<'_> {
    /// How a transfer that crosses into the next iteration is waited for there.
    fn crossed(&self, step: usize) -> Running {
        let when = if self.pipeline.stages[step] == Stage::Ahead { When::Always } else { When::NotFirst };
        Running { step, when }
    }

    /// Runs the steps for which `runs` holds, with these transfers running before. What runs after.
    fn walk(
        &self,
        scope: &Scope<'_>,
        mut running: Vec<Running>,
        runs: impl Fn(usize) -> bool,
        out: &mut Vec<(When, Vec<Code>)>,
    ) -> Vec<Running> {
        for (k, step) in self.steps.iter().enumerate().filter(|(k, _)| runs(*k)) {
            let (busy, over): (Vec<Running>, Vec<Running>) = running.into_iter().partition(|r| {
                let crosses = self.pipeline.crossing.contains(&r.step);
                let Some(open) = &self.segments[r.step].open else { return false };
                r.step != k && !open.before(scope, step) && (crosses || k < open.until)
            });
            running = busy;
            over.into_iter().for_each(|r| self.done(r, out));
            let when = when(self.pipeline.stages[k]);
            out.push((when, self.segments[k].code.clone()));
            if self.segments[k].open.is_some() {
                running.push(Running { step: k, when });
            }
        }
        running
    }

    fn done(&self, r: Running, out: &mut Vec<(When, Vec<Code>)>) {
        if let Some(open) = &self.segments[r.step].open {
            out.push((r.when, vec![Code::Done { transfer: open.transfer }]));
        }
    }
}

impl Generator<'_> {
    /// The loop over the steps of a plan with stages, `trip` > 1 times.
    pub(super) fn pipelined_loop(
        &mut self,
        (scope, node): (&Scope<'_>, &Node),
        (plan, pipeline): (&Plan, &Pipeline),
        trip: u32,
        body: &mut Vec<Code>,
    ) -> Result<(), CompileError> {
        let level = self.depth;
        let counter = counter_register(self.chip, level);
        self.depth += 1;
        let segments = self.segments(scope, level, plan, pipeline);
        self.depth -= 1;
        let p = Pipelined { steps: &plan.steps, pipeline, segments: segments? };
        // What crosses is what is still on its way at the end of an iteration in which nothing else was at its start.
        let mut crossing: Vec<usize> = pipeline.crossing.iter().copied().collect();
        let (code, end) = loop {
            let mut code = Vec::new();
            let start = crossing.iter().map(|s| p.crossed(*s)).collect();
            let end = p.walk(scope, start, |_| true, &mut code);
            let kept = |s: &usize| pipeline.crossing.contains(s) && end.iter().any(|r| r.step == *s);
            let left: Vec<usize> = crossing.iter().copied().filter(kept).collect();
            if left.len() == crossing.len() {
                break (code, end);
            }
            crossing = left;
        };
        let mut code = code;
        end.iter().filter(|r| !crossing.contains(&r.step)).for_each(|r| p.done(*r, &mut code));
        // What the first iteration needs.
        let set =
            |value: i32| Code::Bundle(Bundle { instrs: vec![Instr::new(Op::SLi, &[i32::from(counter.0), value])] });
        let is = |stage: Stage| move |k: usize| pipeline.stages[k] == stage;
        let mut before = Vec::new();
        let end = p.walk(scope, Vec::new(), is(Stage::Ahead), &mut before);
        end.iter().filter(|r| !crossing.contains(&r.step)).for_each(|r| p.done(*r, &mut before));
        if !before.is_empty() {
            let later = started_last(body);
            body.push(set(-1));
            body.extend(before.into_iter().flat_map(|(_, c)| c));
            body.extend(later);
        }
        let code = self.chosen(node, counter, trip, code);
        body.push(Code::Loop { counter, trip, body: code });
        // What the last one leaves.
        let late = crossing.iter().filter(|s| pipeline.stages[**s] == Stage::Now).map(|s| p.crossed(*s)).collect();
        let mut after = Vec::new();
        let end = p.walk(scope, late, is(Stage::Behind), &mut after);
        end.into_iter().for_each(|r| p.done(r, &mut after));
        if !after.is_empty() {
            body.push(set(trip as i32));
            body.extend(after.into_iter().flat_map(|(_, c)| c));
        }
        Ok(())
    }

    /// The code of each step by itself.
    fn segments(
        &mut self,
        scope: &Scope<'_>,
        level: u32,
        plan: &Plan,
        pipeline: &Pipeline,
    ) -> Result<Vec<Segment>, CompileError> {
        let outside = self.enter(scope, plan);
        let mut segments = Vec::new();
        for (k, s) in plan.steps.iter().enumerate() {
            self.step = k;
            self.queue = match (pipeline.crossing.contains(&k), pipeline.stages[k]) {
                (false, _) => 0,
                (true, Stage::Ahead) => AHEAD,
                (true, _) => BEHIND,
            };
            let mut code = Vec::new();
            match (s, pipeline.stages[k]) {
                (Step::Kernel(f), Stage::Now) => self.fusion(scope, f, &mut code)?,
                (Step::Kernel(f), Stage::Ahead) => self.fusion(scope, &shifted(f, level, 1), &mut code)?,
                (Step::Kernel(f), Stage::Behind) => self.fusion(scope, &shifted(f, level, -1), &mut code)?,
                (Step::Special(s), _) => self.special(scope, s, &mut code)?,
            }
            segments.push(Segment { code, open: self.open.pop() });
        }
        self.leave(outside);
        Ok(segments)
    }

    /// Code that some iterations leave out.
    fn chosen(&mut self, node: &Node, counter: SReg, trip: u32, code: Vec<(When, Vec<Code>)>) -> Vec<Code> {
        let mut out = Vec::new();
        let mut code = code.into_iter().peekable();
        while let Some((when, mut inside)) = code.next() {
            while let Some((_, more)) = code.next_if(|(w, _)| *w == when) {
                inside.extend(more);
            }
            // The first branch where the counter is at least so much, the second where it is less.
            let (limit, branches) = match when {
                When::Always => {
                    out.extend(inside);
                    continue;
                }
                When::NotFirst => (1, vec![inside, Vec::new()]),
                When::NotLast => (trip as i32 - 1, vec![Vec::new(), inside]),
            };
            let less = Instr::new(Op::SLti, &[i32::from(CHOICE.0), i32::from(counter.0), limit]);
            out.push(Code::Bundle(Bundle { instrs: vec![less] }));
            let info = self.flow(node, FlowKind::Counted);
            out.push(Code::Case { info, selector: CHOICE, branches });
        }
        out
    }
}
