//! Cholesky factors and triangular solves, one column after the other.
//!
//! Each step takes one column's part off what is left of the matrix: an elementwise kernel over all matrices of the batch.

use super::super::{NodeId, NodeOp};
use super::*;
use crate::hlo::Op;
use crate::lower::math::{Direction, MapOp};

/// Largest matrix that is worked off column by column.
const LARGEST: u64 = 256;

/// Matrices of one shape, the last two dimensions being rows and columns.
struct Matrices<'a, 'm> {
    b: &'a mut Builder<'m>,
    dims: Vec<u64>,
    name: &'static str,
    site: (String, String),
}

impl Matrices<'_, '_> {
    fn rank(&self) -> usize {
        self.dims.len()
    }

    fn map(&mut self, m: MapOp, args: &[NodeId]) -> NodeId {
        let t = Shape { dims: self.dims.clone(), dtype: DType::F32 };
        self.b.map(m, args, &t, self.name, self.site.clone())
    }

    /// Column (or row) `at` of `x`, repeated along its dimension `d` for the shape at hand.
    fn line(&mut self, x: NodeId, d: usize, at: u64) -> NodeId {
        let one = self.b.cut(x, d, [at, 1, 1], self.name, &self.site);
        let map = (0..self.rank()).collect();
        let t = Shape { dims: self.dims.clone(), dtype: DType::F32 };
        self.b.broadcast(one, map, &t, self.name, self.site.clone())
    }

    /// Where the index along `d` compares with `at`.
    fn index(&mut self, d: usize, how: Direction, at: u64) -> NodeId {
        let ints = Shape { dims: self.dims.clone(), dtype: DType::I32 };
        let i = self.b.push(NodeOp::Iota(d), vec![], &ints, self.name, self.site.clone());
        let n = self.b.constant((at as i32).to_le_bytes().to_vec().into(), &ints, self.name, self.site.clone());
        let t = Shape { dims: self.dims.clone(), dtype: DType::I1 };
        self.b.map(MapOp::Compare(how, false), &[i, n], &t, self.name, self.site.clone())
    }

    fn and(&mut self, p: NodeId, q: NodeId) -> NodeId {
        let t = Shape { dims: self.dims.clone(), dtype: DType::I1 };
        self.b.map(MapOp::And, &[p, q], &t, self.name, self.site.clone())
    }

    /// The diagonal of square matrices `x`, as a column or a row (dimension `d` of size one), spread over the shape at hand.
    fn diagonal(&mut self, x: NodeId, along: usize) -> NodeId {
        let dims = self.b.node(x).dims.clone();
        let (r, n) = (dims.len(), dims[dims.len() - 1]);
        let flat = Shape { dims: [&dims[..r - 2], &[n * n]].concat(), dtype: DType::F32 };
        let v = self.b.reshape(x, &flat, self.name, self.site.clone());
        let v = self.b.cut(v, r - 2, [0, n + 1, n], self.name, &self.site);
        let map = (0..r - 2).chain([along]).collect();
        let t = Shape { dims: self.dims.clone(), dtype: DType::F32 };
        self.b.broadcast(v, map, &t, self.name, self.site.clone())
    }

    fn zero(&mut self) -> NodeId {
        let t = Shape { dims: self.dims.clone(), dtype: DType::F32 };
        self.b.constant(0f32.to_le_bytes().to_vec().into(), &t, self.name, self.site.clone())
    }
}

fn swapped(rank: usize) -> Vec<usize> {
    let mut p: Vec<usize> = (0..rank).collect();
    p.swap(rank - 2, rank - 1);
    p
}

impl Builder<'_> {
    /// `x` as f32, its last two dimensions swapped if `swap`.
    fn matrix(&mut self, x: NodeId, swap: bool, name: &'static str, site: &(String, String)) -> NodeId {
        let mut dims = self.node(x).dims.clone();
        let x = self.map(MapOp::Convert, &[x], &Shape { dims: dims.clone(), dtype: DType::F32 }, name, site.clone());
        if !swap {
            return x;
        }
        let r = dims.len();
        dims.swap(r - 2, r - 1);
        self.transpose(x, swapped(r), &Shape { dims, dtype: DType::F32 }, name, site.clone())
    }

    fn square(&self, op: &Op, a: NodeId) -> Result<u64, LowerError> {
        let n = self.node(a);
        let size = match n.dims[..] {
            [.., m, k] if m == k => m,
            _ => return Err(self.error(op.opcode.name(), op.loc, "needs square matrices")),
        };
        if size > LARGEST || !n.dtype.is_float() {
            let m = format!("of {} matrices of {size} rows is not lowered; floats up to {LARGEST} rows are", n.dtype);
            return Err(self.error(op.opcode.name(), op.loc, m));
        }
        Ok(size)
    }

    pub(super) fn cholesky(&mut self, op: &Op, a: NodeId, site: &(String, String)) -> Result<NodeId, LowerError> {
        let name = "cholesky";
        let n = self.square(op, a)?;
        let (dims, dtype) = (self.node(a).dims.clone(), self.node(a).dtype);
        if dims.contains(&0) {
            return Ok(a);
        }
        let lower = op.attrs.flag("lower");
        let mut x = self.matrix(a, !lower, name, site);
        let mut m = Matrices { b: self, dims: dims.clone(), name, site: site.clone() };
        let (row, col) = (dims.len() - 2, dims.len() - 1);
        for j in 0..n.saturating_sub(1) {
            // What rows below and columns right of `j` have of column `j`: only the lower triangle is read.
            let left = m.line(x, col, j);
            let column = m.b.cut(x, col, [j, 1, 1], name, site);
            let mut wide = dims.clone();
            (wide[row], wide[col]) = (1, n);
            let top = m.b.transpose(
                column,
                swapped(dims.len()),
                &Shape { dims: wide, dtype: DType::F32 },
                name,
                site.clone(),
            );
            let all = (0..dims.len()).collect();
            let full = Shape { dims: dims.clone(), dtype: DType::F32 };
            let top = m.b.broadcast(top, all, &full, name, site.clone());
            let pivot = m.b.cut(x, col, [j, 1, 1], name, site);
            let pivot = m.line(pivot, row, j);
            let ratio = m.map(MapOp::Div, &[left, pivot]);
            let part = m.map(MapOp::Mul, &[ratio, top]);
            let rest = m.map(MapOp::Sub, &[x, part]);
            let (below, right) = (m.index(row, Direction::Gt, j), m.index(col, Direction::Gt, j));
            let inside = m.and(below, right);
            x = m.map(MapOp::Select, &[inside, rest, x]);
        }
        let d = m.diagonal(x, col);
        let root = m.map(MapOp::Sqrt, &[d]);
        let scaled = m.map(MapOp::Div, &[x, root]);
        let ints = Shape { dims: dims.clone(), dtype: DType::I32 };
        let [i, j] = [row, col].map(|d| m.b.push(NodeOp::Iota(d), vec![], &ints, name, site.clone()));
        let flags = Shape { dims: dims.clone(), dtype: DType::I1 };
        let inside = m.b.map(MapOp::Compare(Direction::Ge, false), &[i, j], &flags, name, site.clone());
        let zero = m.zero();
        let y = m.map(MapOp::Select, &[inside, scaled, zero]);
        let y = self.matrix(y, !lower, name, site);
        Ok(self.map(MapOp::Convert, &[y], &Shape { dims, dtype }, name, site.clone()))
    }

    pub(super) fn triangular_solve(
        &mut self,
        op: &Op,
        a: NodeId,
        b: NodeId,
        site: &(String, String),
    ) -> Result<NodeId, LowerError> {
        let name = "triangular_solve";
        let n = self.square(op, a)?;
        let (dims, dtype) = (self.node(b).dims.clone(), self.node(b).dtype);
        if dims.contains(&0) {
            return Ok(b);
        }
        let left = op.attrs.flag("left_side");
        let unit = op.attrs.flag("unit_diagonal");
        let transposed = matches!(op.attrs.text("transpose_a"), Some("TRANSPOSE" | "ADJOINT"));
        // x op(a) = b is op(a)' x' = b'.
        let flip = transposed == left;
        let lower = op.attrs.flag("lower") != flip;
        let a = self.matrix(a, flip, name, site);
        let mut x = self.matrix(b, !left, name, site);
        let shape = self.node(x).dims.clone();
        let mut m = Matrices { b: self, dims: shape.clone(), name, site: site.clone() };
        let (row, col) = (shape.len() - 2, shape.len() - 1);
        for k in 0..n.saturating_sub(1) {
            let j = if lower { k } else { n - 1 - k };
            let known = m.line(x, row, j);
            let factor = m.line(a, col, j);
            let mut part = m.map(MapOp::Mul, &[factor, known]);
            if !unit {
                let pivot = m.b.cut(a, col, [j, 1, 1], name, site);
                let pivot = m.line(pivot, row, j);
                part = m.map(MapOp::Div, &[part, pivot]);
            }
            let rest = m.map(MapOp::Sub, &[x, part]);
            let open = m.index(row, if lower { Direction::Gt } else { Direction::Lt }, j);
            x = m.map(MapOp::Select, &[open, rest, x]);
        }
        if !unit {
            let d = m.diagonal(a, row);
            x = m.map(MapOp::Div, &[x, d]);
        }
        let y = self.matrix(x, !left, name, site);
        Ok(self.map(MapOp::Convert, &[y], &Shape { dims, dtype }, name, site.clone()))
    }
}
