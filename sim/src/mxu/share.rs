//! Shares the products that wait at the MXUs of a core among host threads.

use std::sync::{Mutex, PoisonError};

use rayon::{ThreadPool, ThreadPoolBuilder};

use super::exact::MxuData;

/// Most host threads, whatever is asked for.
const MAX_THREADS: usize = 256;
/// Fewer products than this for each thread are not worth waking it.
const LEAST: usize = 4;

/// The threads of one core's MXUs.
#[derive(Debug)]
pub(crate) struct Share {
    threads: usize,
    /// The helpers of the thread that runs the engine; made when there is first something to share.
    pool: Option<ThreadPool>,
}

impl Share {
    /// `threads` of the host, the caller's among them.
    pub fn new(threads: usize) -> Share {
        Share { threads: threads.clamp(1, MAX_THREADS), pool: None }
    }

    /// Computes all products that wait at `mxus` and hands on their results.
    pub fn run(&mut self, mxus: &mut [MxuData]) {
        let waiting: usize = mxus.iter().map(MxuData::waiting).sum();
        let parts = self.threads.min(waiting / LEAST).max(1);
        let jobs = mxus.iter_mut().flat_map(MxuData::jobs);
        match self.helpers(parts) {
            Some(pool) => {
                // Each thread takes the next job when it is free: a host that is busy with other things gives unequal time.
                let jobs = Mutex::new(jobs);
                let work = || {
                    while let Some((job, weights, dim)) = next(&jobs) {
                        job.run(weights, dim);
                    }
                };
                pool.in_place_scope(|scope| {
                    (1..parts).for_each(|_| scope.spawn(|_| work()));
                    work();
                });
            }
            None => jobs.for_each(|(job, weights, dim)| job.run(weights, dim)),
        }
        mxus.iter_mut().for_each(MxuData::finish);
    }

    /// The helping threads, where there are to be any. A host that gives none does the work alone.
    fn helpers(&mut self, parts: usize) -> Option<&ThreadPool> {
        if parts > 1 && self.pool.is_none() {
            match ThreadPoolBuilder::new().num_threads(self.threads - 1).build() {
                Ok(pool) => self.pool = Some(pool),
                Err(_) => self.threads = 1,
            }
        }
        self.pool.as_ref().filter(|_| parts > 1)
    }
}

fn next<T>(jobs: &Mutex<impl Iterator<Item = T>>) -> Option<T> {
    jobs.lock().unwrap_or_else(PoisonError::into_inner).next()
}
