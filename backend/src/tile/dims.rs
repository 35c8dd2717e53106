//! Canonical dimensions of vector kernels: which ones stay, in which order, and which of them are rows and columns.

use crate::lower::expr::{Access, Kind, Node};
use crate::lower::vector::{Store, VectorKernel, packing_of};

use super::fuse::Fusion;

/// A kernel's dimensions while they are rearranged.
struct Space {
    dims: Vec<u64>,
    nodes: Vec<Node>,
    stores: Vec<Store>,
}

impl Space {
    fn accesses(&self) -> impl Iterator<Item = &Access> {
        let loads = self.nodes.iter().filter_map(|n| if let Kind::Load(a) = &n.kind { Some(a) } else { None });
        loads.chain(self.stores.iter().map(|s| &s.access))
    }

    fn accesses_mut(&mut self) -> impl Iterator<Item = &mut Access> {
        let loads = self.nodes.iter_mut().filter_map(|n| if let Kind::Load(a) = &mut n.kind { Some(a) } else { None });
        loads.chain(self.stores.iter_mut().map(|s| &mut s.access))
    }

    /// New dimension `i` is old dimension `order[i]`.
    fn reorder(&mut self, order: &[usize]) {
        let bits = |mask: u32| order.iter().enumerate().fold(0u32, |m, (i, &d)| m | (mask >> d & 1) << i);
        self.dims = order.iter().map(|&d| self.dims[d]).collect();
        for n in &mut self.nodes {
            n.varies = bits(n.varies);
            match &mut n.kind {
                Kind::Iota(d) => *d = order.iter().position(|x| x == d).unwrap_or(0),
                Kind::ColReduce(_, mask) => *mask = bits(*mask),
                _ => {}
            }
        }
        for a in self.accesses_mut() {
            a.strides = order.iter().map(|&d| a.strides[d]).collect();
        }
    }

    fn insert_front(&mut self) {
        self.dims.insert(0, 1);
        for n in &mut self.nodes {
            n.varies <<= 1;
            match &mut n.kind {
                Kind::Iota(d) => *d += 1,
                Kind::ColReduce(_, mask) => *mask <<= 1,
                _ => {}
            }
        }
        for a in self.accesses_mut() {
            a.strides.insert(0, 0);
        }
    }

    fn reduced(&self) -> u32 {
        self.nodes.iter().fold(0, |m, n| if let Kind::ColReduce(_, r) = n.kind { m | r } else { m })
    }

    /// The dimension that row reductions remove.
    fn row_reduced(&self) -> Option<usize> {
        self.nodes.iter().find_map(|n| {
            let Kind::RowReduce(_) = n.kind else { return None };
            let gone = self.nodes[n.args[0]].varies & !n.varies;
            (gone != 0).then(|| gone.trailing_zeros() as usize)
        })
    }

    fn drop_ones(&mut self) {
        let order: Vec<usize> = (0..self.dims.len()).filter(|&d| self.dims[d] > 1).collect();
        // An index along a dimension of one is zero.
        let gone: Vec<bool> = self.dims.iter().map(|&d| d <= 1).collect();
        for n in &mut self.nodes {
            if matches!(n.kind, Kind::Iota(d) if gone[d]) {
                n.kind = Kind::Splat(0);
                n.varies = 0;
            }
        }
        self.reorder(&order);
    }

    /// Joins neighbours that every access walks as one.
    fn merge(&mut self) {
        let mut d = 0;
        while d + 1 < self.dims.len() {
            let size = self.dims[d + 1] as i64;
            let both = |mask: u32| mask >> d & 1 == mask >> (d + 1) & 1;
            let ok = self.accesses().all(|a| a.strides[d] == a.strides[d + 1] * size)
                && self.nodes.iter().all(|n| both(n.varies))
                && !self.nodes.iter().any(|n| matches!(n.kind, Kind::Iota(i) if i == d || i == d + 1))
                && both(self.reduced())
                && self.row_reduced().is_none_or(|r| r != d && r != d + 1)
                && self.dims[d] * self.dims[d + 1] <= i32::MAX as u64;
            if !ok {
                d += 1;
                continue;
            }
            let low = (1u32 << d) - 1;
            let squash = |mask: u32| mask & (low | 1 << d) | mask >> 1 & !(low | 1 << d);
            self.dims[d + 1] *= self.dims[d];
            self.dims.remove(d);
            for n in &mut self.nodes {
                n.varies = squash(n.varies);
                match &mut n.kind {
                    Kind::Iota(i) if *i > d => *i -= 1,
                    Kind::ColReduce(_, mask) => *mask = squash(*mask),
                    _ => {}
                }
            }
            for a in self.accesses_mut() {
                a.strides.remove(d);
            }
        }
    }

    /// Splits the only dimension into rows and columns that fill registers.
    fn split(&mut self) {
        let n = self.dims[0];
        let plain = self.reduced() == 0
            && self.row_reduced().is_none()
            && !self.nodes.iter().any(|n| matches!(n.kind, Kind::Iota(_)));
        if !plain || n < 256 {
            return;
        }
        let waste = |c: u64| {
            let rows = n / c;
            (rows.next_multiple_of(32) as f64 / rows as f64) * (c.next_multiple_of(128) as f64 / c as f64)
        };
        let best = (1..=4096u64.min(n))
            .filter(|&c| n.is_multiple_of(c) && (c >= 128 || c * 2 > n))
            .min_by(|&a, &b| waste(a).total_cmp(&waste(b)).then(b.cmp(&a)));
        let Some(cols) = best else { return };
        if waste(cols) >= waste(n.max(1)) && cols != n {
            return;
        }
        self.dims = vec![n / cols, cols];
        for a in self.accesses_mut() {
            let s = a.strides[0];
            a.strides = vec![s * cols as i64, s];
        }
        for node in &mut self.nodes {
            node.varies = if node.varies != 0 { 3 } else { 0 };
        }
    }

    /// Picks columns and rows and puts them last.
    fn order(&mut self) {
        let n = self.dims.len();
        let widths: Vec<i64> = self.widths();
        let reduced = self.reduced();
        // By the bytes that move: a vector along one dimension says little beside an array along another.
        let bytes = |a: &Access, width: i64| -> u64 {
            let moved = self.dims.iter().zip(&a.strides).filter(|(_, s)| **s != 0).map(|(d, _)| *d);
            moved.fold(width.unsigned_abs(), u64::saturating_mul)
        };
        let unit = |d: usize| -> u64 {
            let along = self.accesses().zip(&widths).filter(|(a, w)| a.strides[d] == **w);
            along.map(|(a, w)| bytes(a, *w)).fold(0, u64::saturating_add)
        };
        let cols = self.row_reduced().unwrap_or_else(|| {
            (0..n).filter(|&d| reduced >> d & 1 == 0).max_by_key(|&d| (unit(d), d)).unwrap_or(n - 1)
        });
        let group = 8 * self.nodes.iter().map(|x| packing_of(x.dtype)).max().unwrap_or(1) as u64;
        let crossed = |d: usize| {
            self.accesses()
                .zip(&widths)
                .any(|(a, w)| a.strides[d] == *w && a.strides[cols] != 0 && a.strides[cols] != *w)
        };
        let fill = |d: usize| self.dims[d] * 1000 / self.dims[d].next_multiple_of(group);
        let rows = (0..n)
            .filter(|&d| d != cols && (reduced == 0 || reduced >> d & 1 == 1))
            .max_by_key(|&d| (crossed(d), fill(d), d));
        let mut order: Vec<usize> = (0..n).filter(|&d| d != cols && Some(d) != rows).collect();
        order.extend(rows);
        order.push(cols);
        self.reorder(&order);
    }

    /// Bytes of an element of each access.
    fn widths(&self) -> Vec<i64> {
        let loads = self.nodes.iter().filter(|n| matches!(n.kind, Kind::Load(_))).map(|n| n.dtype);
        loads.chain(self.stores.iter().map(|s| self.nodes[s.node].dtype)).map(|t| t.bytes() as i64).collect()
    }
}

/// The vector kernel of a fusion without a product.
pub fn vector_kernel(f: &Fusion) -> VectorKernel {
    let stores = f.stores.iter().map(|(node, access)| Store { node: *node, access: access.clone() }).collect();
    let mut s = Space { dims: f.dims.clone(), nodes: f.nodes.clone(), stores };
    s.drop_ones();
    s.merge();
    if s.dims.len() == 1 {
        s.split();
    }
    if s.dims.len() >= 2 {
        s.order();
    }
    // A column reduction of a vector of columns one wide still needs rows to reduce.
    while s.dims.len() < 2 {
        s.insert_front();
    }
    VectorKernel { dims: s.dims, nodes: s.nodes, stores: s.stores, scalars: f.scalars.clone() }
}
