//! What experts get of the tokens, for reports.

use serde::Serialize;

use crate::units::percent;

/// How full experts are if they are not liked equally, by draws from a distribution.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Experts {
    /// The distribution and its seed, e.g. `zipf=0.8,seed=0`.
    pub imbalance: String,
    /// Rows of the expert that gets the most, over an even share.
    pub hottest: f64,
    /// Rows that an expert has room for, over an even share: what the time of all devices follows.
    pub room: f64,
    /// Share of the choices that are dropped for want of room.
    pub dropped: f64,
    /// Share of the room that is taken; the rest is computed for nobody.
    pub taken: f64,
}

impl Experts {
    /// As a line of a text report.
    pub(crate) fn text(&self) -> String {
        format!(
            "{}: the hottest is due {:.2} times an even share, each has room for {:.2}; {} dropped, {} of the room taken",
            self.imbalance,
            self.hottest,
            self.room,
            percent(self.dropped),
            percent(self.taken)
        )
    }
}
