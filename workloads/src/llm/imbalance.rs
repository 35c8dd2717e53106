//! Experts that are not liked equally: how often each is chosen, drawn from a distribution, and the room that takes.
//!
//! Code does not run longer for data, and all devices run the same: experts have room for a number of rows, and what is beyond it is
//! dropped. So the expert that the most tokens visit sets the room that it takes to drop nothing, and with it the time of all devices, as
//! waiting for the device with the most work would.

use std::str::FromStr;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::WorkloadError;

/// How unequal experts are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Skew {
    /// The chance of the expert of rank `r` goes with `r^-s`.
    Zipf(f64),
    /// Chances are drawn from a symmetric Dirichlet distribution of this concentration: large is equal, small is a few for all.
    Dirichlet(f64),
}

/// A distribution of tokens over experts, the same for all layers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Imbalance {
    /// How unequal experts are.
    pub skew: Skew,
    /// What the choices are drawn with.
    pub seed: u64,
}

/// What the experts of a layer get.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loads {
    /// Rows of the expert that gets the most in a group of tokens that is routed by itself, over an even share.
    pub hottest: f64,
    /// Rows that an expert has room for, over an even share.
    pub room: f64,
    /// Share of the choices that do not fit the room of their expert.
    pub dropped: f64,
    /// Share of the room of all experts that is taken.
    pub taken: f64,
}

/// Groups that are drawn at most; others are as likely the same.
const GROUPS: u64 = 64;
/// Choices in a row that may be of experts a token visits already, before the others are gone through.
const TRIES: u32 = 32;
/// Least chance of an expert, so that a token finds as many as it visits.
const LEAST: f64 = 1e-12;

impl std::fmt::Display for Imbalance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.skew {
            Skew::Zipf(s) => write!(f, "zipf={s},seed={}", self.seed),
            Skew::Dirichlet(a) => write!(f, "dirichlet={a},seed={}", self.seed),
        }
    }
}

impl FromStr for Imbalance {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Self, WorkloadError> {
        let wrong = |expected: &str| WorkloadError::Value {
            name: "imbalance".into(),
            value: text.into(),
            expected: expected.into(),
        };
        let (mut skew, mut seed) = (None, None);
        for part in text.split(',') {
            let (name, value) = part.split_once('=').ok_or_else(|| wrong("zipf=S or dirichlet=A, and seed=N"))?;
            let number = |most: f64| value.parse::<f64>().ok().filter(|v| *v > 0.0 && *v <= most);
            match name.trim() {
                "zipf" if skew.is_none() => {
                    skew = Some(Skew::Zipf(number(8.0).ok_or_else(|| wrong("an exponent above 0, at most 8"))?));
                }
                "dirichlet" if skew.is_none() => {
                    let a = number(1e6).filter(|a| *a >= 1e-3);
                    skew = Some(Skew::Dirichlet(a.ok_or_else(|| wrong("a concentration from 0.001 to 1e6"))?));
                }
                "seed" if seed.is_none() => {
                    seed = Some(value.parse().map_err(|_| wrong("a whole number as seed"))?);
                }
                _ => return Err(wrong("zipf=S or dirichlet=A, and seed=N, each once")),
            }
        }
        let skew = skew.ok_or_else(|| wrong("zipf=S or dirichlet=A"))?;
        Ok(Imbalance { skew, seed: seed.unwrap_or(0) })
    }
}

/// From 0 to below 1.
fn uniform(rng: &mut ChaCha8Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// A number of mean zero and variance one (Box and Muller).
fn normal(rng: &mut ChaCha8Rng) -> f64 {
    let (a, b) = (1.0 - uniform(rng), uniform(rng));
    (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
}

/// A number of the gamma distribution of shape `a` (Marsaglia and Tsang 2000).
fn gamma(rng: &mut ChaCha8Rng, a: f64) -> f64 {
    if a < 1.0 {
        let u = 1.0 - uniform(rng);
        return gamma(rng, a + 1.0) * u.powf(1.0 / a);
    }
    let d = a - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = normal(rng);
        let v = (1.0 + c * x).powi(3);
        if v > 0.0 && (1.0 - uniform(rng)).ln() < 0.5 * x * x + d - d * v + d * v.ln() {
            return d * v;
        }
    }
}

impl Imbalance {
    fn rng(&self, stream: u64) -> ChaCha8Rng {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(stream);
        rng
    }

    /// The chance of each of `experts` to be chosen first, which add up to one. Which one is hot is drawn too.
    pub fn chances(&self, experts: usize) -> Vec<f64> {
        let mut rng = self.rng(0);
        let mut weights: Vec<f64> = match self.skew {
            Skew::Zipf(s) => (1..=experts).map(|r| (r as f64).powf(-s)).collect(),
            Skew::Dirichlet(a) => (0..experts).map(|_| gamma(&mut rng, a)).collect(),
        };
        let sum: f64 = weights.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        weights.iter_mut().for_each(|w| *w = (*w / sum).max(LEAST));
        for i in (1..experts).rev() {
            weights.swap(i, (rng.next_u64() % (i as u64 + 1)) as usize);
        }
        let sum: f64 = weights.iter().sum();
        weights.iter().map(|w| w / sum).collect()
    }

    /// Rows that each of `experts` gets of the tokens of a group, each of which visits `active` different ones.
    pub fn rows(&self, experts: usize, active: usize, tokens: u64, group: u64) -> Vec<u64> {
        let chances = self.chances(experts);
        let mut rng = self.rng(1 + group);
        let sums: Vec<f64> = chances
            .iter()
            .scan(0.0, |sum, p| {
                *sum += p;
                Some(*sum)
            })
            .collect();
        let mut rows = vec![0; experts];
        let mut chosen: Vec<usize> = Vec::new();
        for _ in 0..tokens {
            chosen.clear();
            while chosen.len() < active.min(experts) {
                let mut pick = None;
                for _ in 0..TRIES {
                    let u = uniform(&mut rng);
                    let e = sums.partition_point(|s| *s <= u).min(experts - 1);
                    if !chosen.contains(&e) {
                        pick = Some(e);
                        break;
                    }
                }
                chosen.push(pick.unwrap_or_else(|| among_others(&mut rng, &chances, &chosen)));
            }
            chosen.iter().for_each(|e| rows[*e] += 1);
        }
        rows
    }

    /// What experts get of `groups` groups of tokens, if each has room for `room` rows of a group, or for as many as come if none is given.
    pub fn loads(&self, [experts, active]: [i64; 2], [groups, tokens]: [i64; 2], room: Option<i64>) -> Loads {
        let [experts, active] = [experts, active].map(|n| n.max(1) as usize);
        let [groups, tokens] = [groups, tokens].map(|n| n.max(1) as u64);
        let all: Vec<Vec<u64>> = (0..groups.min(GROUPS)).map(|g| self.rows(experts, active, tokens, g)).collect();
        let rows = || all.iter().flatten().copied();
        let (total, most) = (rows().sum::<u64>().max(1), rows().max().unwrap_or(0));
        let room = room.map_or(most, |r| r.unsigned_abs()).max(1);
        let fitting: u64 = rows().map(|r| r.min(room)).sum();
        let fair = (tokens * active as u64) as f64 / experts as f64;
        Loads {
            hottest: most as f64 / fair,
            room: room as f64 / fair,
            dropped: 1.0 - fitting as f64 / total as f64,
            taken: fitting as f64 / (room * (experts * all.len()) as u64) as f64,
        }
    }
}

/// One of the experts that are not chosen yet, by their chances.
fn among_others(rng: &mut ChaCha8Rng, chances: &[f64], chosen: &[usize]) -> usize {
    let free = || (0..chances.len()).filter(|e| !chosen.contains(e));
    let mut left = uniform(rng) * free().map(|e| chances[e]).sum::<f64>();
    for e in free() {
        left -= chances[e];
        if left < 0.0 {
            return e;
        }
    }
    free().next_back().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Oracle: by hand.
    #[test]
    fn texts_are_read() {
        let read = |t: &str| t.parse::<Imbalance>().map(|i| i.to_string()).map_err(|e| e.to_string());
        assert_eq!(read("zipf=0.8").unwrap(), "zipf=0.8,seed=0");
        assert_eq!(read("seed=7,dirichlet=0.3").unwrap(), "dirichlet=0.3,seed=7");
        for wrong in ["", "zipf", "zipf=0", "zipf=1,zipf=1", "seed=1", "zipf=1,seed=x", "zipf=nan", "pareto=1"] {
            assert!(read(wrong).unwrap_err().contains("expected"), "{wrong}");
        }
    }

    // Oracle: the formulas of the distributions: ratios of ranks, and the variance of a symmetric Dirichlet distribution,
    // `(1/n) (1 - 1/n) / (n a + 1)`, from many draws.
    #[test]
    fn chances_follow_their_distribution() {
        let mut zipf = Imbalance { skew: Skew::Zipf(1.5), seed: 3 }.chances(8);
        zipf.sort_by(|a, b| b.total_cmp(a));
        assert!((zipf[0] / zipf[3] - 8.0).abs() < 1e-9 && (zipf.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        for a in [0.2, 3.0] {
            let n = 16.0;
            let mut squares = 0.0;
            for seed in 0..2000 {
                let p = Imbalance { skew: Skew::Dirichlet(a), seed }.chances(16);
                squares += p.iter().map(|p| (p - 1.0 / n).powi(2)).sum::<f64>() / n / 2000.0;
            }
            let want = (1.0 / n) * (1.0 - 1.0 / n) / (n * a + 1.0);
            assert!((squares / want - 1.0).abs() < 0.05, "{a}: {squares} for {want}");
        }
    }

    // Oracle: chances where a token visits one expert; otherwise that every choice is counted and nobody is visited twice.
    #[test]
    fn rows_follow_chances() {
        let i = Imbalance { skew: Skew::Zipf(1.0), seed: 1 };
        let (chances, rows) = (i.chances(8), i.rows(8, 1, 100_000, 0));
        for (p, n) in chances.iter().zip(&rows) {
            let deviation = (p * (1.0 - p) * 1e5).sqrt();
            assert!((*n as f64 - p * 1e5).abs() < 5.0 * deviation, "{n} for {p}");
        }
        let steep = Imbalance { skew: Skew::Zipf(8.0), seed: 1 };
        let rows = steep.rows(8, 3, 1000, 5);
        assert_eq!((rows.iter().sum::<u64>(), *rows.iter().max().unwrap()), (3000, 1000));
        assert_eq!(rows, steep.rows(8, 3, 1000, 5));
        assert_ne!(i.rows(8, 2, 1000, 0), i.rows(8, 2, 1000, 1));
        assert_ne!(i.rows(8, 2, 1000, 0), Imbalance { seed: 2, ..i }.rows(8, 2, 1000, 0));
    }

    // Oracle: by hand: all tokens visit the same two of four experts.
    #[test]
    fn loads_say_what_room_costs() {
        let steep = Imbalance { skew: Skew::Zipf(8.0), seed: 0 };
        let all = steep.loads([4, 1], [2, 1000], None);
        assert!((all.hottest - 4.0).abs() < 0.1 && all.dropped == 0.0 && (all.taken - 0.25).abs() < 0.01, "{all:?}");
        assert_eq!(all.room, all.hottest);
        let some = steep.loads([4, 1], [2, 1000], Some(250));
        assert!((some.dropped - 0.745).abs() < 0.01 && (some.taken - 0.255).abs() < 0.01, "{some:?}");
        assert_eq!((some.room, some.hottest), (1.0, all.hottest));
    }
}
