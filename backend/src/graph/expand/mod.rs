//! Operations that become several others before the graph is built.
//!
//! A `complex<f64>` value becomes its real and its imaginary part, two `f64` values: what moves elements, and what has regions or calls,
//! does so for both, and functions become formulas of their parts. In memory such an array is the same bytes as one of `f64` with a
//! last dimension of two, which is what parameters and results of the entry function become. Functions of `complex<f32>` and of
//! `f64` that only exist in CHLO become formulas too.

mod arith;
mod formulas;
mod fourier;

use rustc_hash::FxHashMap;
use tpusim_isa::num::DType;

use super::build::LowerError;
use crate::hlo::{
    Attr, AttrList, Block, Func, Literal, LocId, Module, Op, Opcode, Param, Region, ResultInfo, TensorType, Type,
    ValueId,
};

use arith::Formula;

/// Whether a type is `complex<f64>`.
fn is_wide(t: &Type) -> bool {
    t.tensor().is_some_and(|t| t.dtype == DType::C128 && t.quant.is_none())
}

/// The module with such operations expanded; `None` if it has none.
///
/// # Errors
/// Names an operation on `complex<f64>` that has no expansion.
pub(super) fn expand(module: &Module, entry: &str) -> Result<Option<Module>, LowerError> {
    let needed = |f: &Func| f.values.iter().any(|(_, v)| is_wide(&v.ty)) || holds_formula(f, &f.body);
    if !module.funcs.iter().any(needed) {
        return Ok(None);
    }
    let mut out = Module { funcs: Vec::new(), ..module.clone() };
    for f in &module.funcs {
        let e = Expander {
            module,
            func: f.clone(),
            parts: FxHashMap::default(),
            tuples: FxHashMap::default(),
            same: FxHashMap::default(),
            out: Vec::new(),
            loc: f.loc,
        };
        out.funcs.push(e.function(f, f.name == entry)?);
    }
    Ok(Some(out))
}

fn holds_formula(f: &Func, block: &Block) -> bool {
    let own = |op: &Op| {
        let t = op.results.first().and_then(|&r| f.ty(r).tensor());
        t.is_some_and(|t| formulas::has(op.opcode, t.dtype))
            || op.opcode == Opcode::Tuple
            || op.regions.iter().any(|r| holds_formula(f, &r.block))
    };
    block.ops.iter().any(own)
}

struct Expander<'m> {
    module: &'m Module,
    func: Func,
    /// Real and imaginary part of each `complex<f64>` value.
    parts: FxHashMap<ValueId, [ValueId; 2]>,
    /// Elements of tuples.
    tuples: FxHashMap<ValueId, Vec<ValueId>>,
    /// Values that are others by now.
    same: FxHashMap<ValueId, ValueId>,
    /// Operations of the block that is being written.
    out: Vec<Op>,
    loc: LocId,
}

/// A tensor of `f64` in place of one of `complex<f64>`.
fn part_type(t: &Type) -> TensorType {
    let dims = t.tensor().map(|t| t.dims.clone()).unwrap_or_default();
    TensorType::new(dims, DType::F64)
}

fn ints(v: Vec<i64>) -> Attr {
    Attr::Ints(v)
}

impl Expander<'_> {
    fn error(&self, op: &Op, message: &str) -> LowerError {
        let place = match self.module.locs.file_line(op.loc) {
            Some((f, l)) => format!("{f}:{l}"),
            None => self.module.locs.name(op.loc).unwrap_or("unknown location").to_owned(),
        };
        LowerError { op: op.opcode.name().to_owned(), place, message: message.to_owned() }
    }

    fn value(&mut self, ty: TensorType) -> ValueId {
        self.func.new_value(Type::Tensor(ty))
    }

    /// Adds an operation with one result.
    fn emit(&mut self, opcode: Opcode, operands: &[ValueId], ty: TensorType, attrs: &[(&str, Attr)]) -> ValueId {
        let mut list = AttrList::default();
        attrs.iter().for_each(|(n, a)| list.set(*n, a.clone()));
        self.emit_with(opcode, operands, ty, list)
    }

    fn emit_with(&mut self, opcode: Opcode, operands: &[ValueId], ty: TensorType, attrs: AttrList) -> ValueId {
        let r = self.value(ty);
        let (operands, loc) = (operands.to_vec(), self.loc);
        self.out.push(Op { opcode, operands, results: vec![r], attrs, regions: Vec::new(), loc });
        r
    }

    fn ty(&self, v: ValueId) -> TensorType {
        self.func.ty(v).tensor().cloned().unwrap_or_else(|| TensorType::new([0], DType::F32))
    }

    /// Both parts of a value as new values.
    fn split(&mut self, v: ValueId) -> [ValueId; 2] {
        let ty = part_type(self.func.ty(v));
        let parts = [self.value(ty.clone()), self.value(ty)];
        self.parts.insert(v, parts);
        parts
    }

    /// The values that stand for `v` by now.
    fn now(&self, v: ValueId) -> Vec<ValueId> {
        match self.parts.get(&v) {
            Some(p) => p.to_vec(),
            None => vec![self.same.get(&v).copied().unwrap_or(v)],
        }
    }

    fn flat(&self, all: &[ValueId]) -> Vec<ValueId> {
        all.iter().flat_map(|&v| self.now(v)).collect()
    }

    /// New values where these are `complex<f64>`.
    fn defined(&mut self, all: &[ValueId]) -> Vec<ValueId> {
        all.iter()
            .flat_map(|&v| match is_wide(self.func.ty(v)) {
                true => self.split(v).to_vec(),
                false => vec![v],
            })
            .collect()
    }

    fn function(mut self, f: &Func, entry: bool) -> Result<Func, LowerError> {
        let mut params = Vec::new();
        for p in &f.params {
            if !is_wide(f.ty(p.value)) {
                params.push(p.clone());
                continue;
            }
            let ty = part_type(f.ty(p.value));
            if entry {
                let both = TensorType::new([&ty.dims[..], &[2]].concat(), DType::F64);
                let value = self.value(both.clone());
                params.push(Param { value, ..p.clone() });
                let parts = [0, 1].map(|i| {
                    let rank = ty.dims.len();
                    let (mut start, mut limit) = (vec![0; rank], ty.dims.clone());
                    start.push(i);
                    limit.push(i + 1);
                    let column = TensorType::new([&ty.dims[..], &[1]].concat(), DType::F64);
                    let attrs = [
                        ("start_indices", ints(start)),
                        ("limit_indices", ints(limit)),
                        ("strides", ints(vec![1; rank + 1])),
                    ];
                    let x = self.emit(Opcode::Slice, &[value], column, &attrs);
                    self.emit(Opcode::Reshape, &[x], ty.clone(), &[])
                });
                self.parts.insert(p.value, parts);
            } else {
                let parts = self.split(p.value);
                params.extend(parts.map(|value| Param { value, ..p.clone() }));
            }
        }
        let mut body = self.body(&f.body, entry)?;
        body.args.clear();
        let results = match body.ops.last() {
            Some(r) => r.operands.iter().map(|&v| self.func.ty(v).clone()).collect(),
            None => Vec::new(),
        };
        let kept = f.results.len() == results.len();
        let info = |(i, ty): (usize, Type)| ResultInfo {
            ty,
            attrs: if kept { f.results[i].attrs.clone() } else { AttrList::default() },
        };
        let results = results.into_iter().enumerate().map(info).collect();
        Ok(Func { params, results, body, ..self.func })
    }

    /// A block; what was written so far of it comes first.
    fn body(&mut self, block: &Block, entry: bool) -> Result<Block, LowerError> {
        for op in &block.ops {
            self.loc = op.loc;
            if op.opcode == Opcode::Return && entry {
                let values = op.operands.iter().map(|&v| self.joined(v)).collect();
                self.out.push(Op { operands: values, ..op.clone() });
            } else {
                self.op(op)?;
            }
        }
        Ok(Block { args: block.args.clone(), ops: std::mem::take(&mut self.out) })
    }

    /// The array that is stored for a value.
    fn joined(&mut self, v: ValueId) -> ValueId {
        let Some(&parts) = self.parts.get(&v) else { return self.now(v)[0] };
        let ty = self.ty(parts[0]);
        let rank = ty.dims.len() as i64;
        let shape = |n: i64| TensorType::new([&ty.dims[..], &[n]].concat(), DType::F64);
        let columns = parts.map(|p| self.emit(Opcode::Reshape, &[p], shape(1), &[]));
        let dimension = Attr::Int(rank, Type::Scalar(DType::I64));
        self.emit(Opcode::Concatenate, &columns, shape(2), &[("dimension", dimension)])
    }

    /// The operation with both parts in place of each value, in its regions too.
    fn flattened(&mut self, op: &Op) -> Result<(), LowerError> {
        let operands = self.flat(&op.operands);
        let mut regions = Vec::new();
        for r in &op.regions {
            let around = std::mem::take(&mut self.out);
            let args = if op.opcode == Opcode::Sort {
                // Both elements of each operand next to one another.
                let pairs = r.block.args.chunks(2).flat_map(|pair| {
                    let halves: Vec<Vec<ValueId>> = pair.iter().map(|&v| self.defined(&[v])).collect();
                    (0..2)
                        .flat_map(|k| halves.iter().filter_map(|h| h.get(k).copied()).collect::<Vec<_>>())
                        .collect::<Vec<_>>()
                });
                pairs.collect()
            } else {
                self.defined(&r.block.args)
            };
            let block = self.body(&r.block, false)?;
            self.out = around;
            regions.push(Region { block: Block { args, ..block } });
        }
        self.loc = op.loc;
        let results = self.defined(&op.results);
        self.out.push(Op { operands, results, regions, ..op.clone() });
        Ok(())
    }

    fn op(&mut self, op: &Op) -> Result<(), LowerError> {
        use Opcode as O;
        match (op.opcode, &op.results[..], &op.operands[..]) {
            (O::Tuple, &[r], elements) => {
                self.tuples.insert(r, elements.to_vec());
                return Ok(());
            }
            (O::GetTupleElement, &[r], &[t]) if self.tuples.contains_key(&t) => {
                let index = op.attrs.int("index").and_then(|i| usize::try_from(i).ok());
                let Some(&v) = index.and_then(|i| self.tuples[&t].get(i)) else {
                    return Err(self.error(op, "has an index beyond its tuple"));
                };
                if let Some(inner) = self.tuples.get(&v).cloned() {
                    self.tuples.insert(r, inner);
                } else if let Some(&parts) = self.parts.get(&v) {
                    self.parts.insert(r, parts);
                } else {
                    self.same.insert(r, self.now(v)[0]);
                }
                return Ok(());
            }
            _ => {}
        }
        let wide = op.operands.iter().chain(&op.results).any(|&v| is_wide(self.func.ty(v)));
        let formula = op.results.first().map(|&r| self.ty(r)).is_some_and(|t| formulas::has(op.opcode, t.dtype));
        if !wide && !formula {
            return self.flattened(op);
        }
        match op.opcode {
            O::Sort
            | O::Call
            | O::Composite
            | O::Return
            | O::While
            | O::If
            | O::Case
            | O::OptimizationBarrier
            | O::Map => {
                return self.flattened(op);
            }
            O::Reduce | O::ReduceWindow | O::Scatter if !adds(op) => return self.flattened(op),
            _ => {}
        }
        let [r] = op.results[..] else { return Err(self.error(op, "on complex<f64> is not lowered")) };
        if twice(op) {
            let ty = part_type(self.func.ty(r));
            let parts = [0, 1].map(|k| {
                let own: Vec<ValueId> =
                    op.operands.iter().map(|&v| self.parts.get(&v).map_or_else(|| self.now(v)[0], |p| p[k])).collect();
                let result = self.value(ty.clone());
                let regions = op.regions.iter().map(|_| self.real_region(op.loc)).collect();
                self.out.push(Op { operands: own, results: vec![result], regions, ..op.clone() });
                result
            });
            self.parts.insert(r, parts);
            return Ok(());
        }
        let operands: Vec<Vec<ValueId>> = op.operands.iter().map(|&v| self.now(v)).collect();
        match (op.opcode, &operands[..]) {
            (O::Constant, _) => {
                let Some(Attr::Dense(l)) = op.attrs.get("value") else {
                    return Err(self.error(op, "constant without a dense value"));
                };
                let ty = part_type(self.func.ty(r));
                let parts = [0, 8].map(|at| {
                    let bytes: Vec<u8> = l.bytes.chunks_exact(16).flat_map(|c| c[at..at + 8].to_vec()).collect();
                    let value = Attr::Dense(Literal::new(ty.clone(), bytes).into());
                    self.emit(O::Constant, &[], ty.clone(), &[("value", value)])
                });
                self.parts.insert(r, parts);
            }
            (O::Complex, [re, im]) => {
                let parts = [re[0], im[0]];
                self.parts.insert(r, parts);
            }
            (O::Real, [x]) if x.len() == 2 => {
                self.same.insert(r, x[0]);
            }
            (O::Imag, [x]) if x.len() == 2 => {
                self.same.insert(r, x[1]);
            }
            (O::Iota, _) => {
                let ty = part_type(self.func.ty(r));
                let re = self.emit_with(O::Iota, &[], ty, op.attrs.clone());
                let im = Formula { e: self, like: re }.number(0.0);
                self.parts.insert(r, [re, im]);
            }
            (O::BitcastConvert, [x]) if is_wide(self.func.ty(op.operands[0])) && is_wide(self.func.ty(r)) => {
                let parts = [x[0], x[x.len() - 1]];
                self.parts.insert(r, parts);
            }
            (O::Fft, [x]) => return self.fourier(op, &x.clone(), r),
            (O::Convert, [x]) => self.convert(op.operands[0], x.clone(), r),
            (O::Dot | O::DotGeneral, [a, b]) if a.len() == 2 && b.len() == 2 => {
                let ty = part_type(self.func.ty(r));
                let products = [[0, 0], [1, 1], [0, 1], [1, 0]]
                    .map(|[i, j]| self.emit_with(op.opcode, &[a[i], b[j]], ty.clone(), op.attrs.clone()));
                let mut f = Formula { e: self, like: products[0] };
                let parts = [f.sub(products[0], products[1]), f.add(products[2], products[3])];
                self.parts.insert(r, parts);
            }
            _ => return self.formula(op, r, &operands),
        }
        Ok(())
    }

    /// A conversion from or to `complex<f64>`.
    fn convert(&mut self, from: ValueId, x: Vec<ValueId>, r: ValueId) {
        let to = self.ty(r);
        let source = self.ty(from).dtype;
        let part = |t: DType| TensorType::new(to.dims.clone(), t);
        if to.dtype != DType::C128 {
            // The real part alone, or both as a narrower number.
            let own = if to.dtype == DType::C64 { DType::F32 } else { to.dtype };
            let count = if to.dtype == DType::C64 { 2 } else { 1 };
            let parts: Vec<ValueId> =
                x.iter().take(count).map(|&p| self.emit(Opcode::Convert, &[p], part(own), &[])).collect();
            let y = if count == 2 { self.emit(Opcode::Complex, &parts, to.clone(), &[]) } else { parts[0] };
            self.same.insert(r, y);
            return;
        }
        let parts = match (source, &x[..]) {
            (DType::C128, &[re, im]) => [re, im],
            (DType::C64, &[x]) => [Opcode::Real, Opcode::Imag].map(|half| {
                let p = self.emit(half, &[x], part(DType::F32), &[]);
                self.emit(Opcode::Convert, &[p], part(DType::F64), &[])
            }),
            _ => {
                let re = self.emit(Opcode::Convert, &x[..1], part(DType::F64), &[]);
                let im = Formula { e: self, like: re }.number(0.0);
                [re, im]
            }
        };
        self.parts.insert(r, parts);
    }

    /// The region of a sum of `complex<f64>` as one of `f64`.
    fn real_region(&mut self, loc: LocId) -> Region {
        let scalar = || TensorType::new(Vec::new(), DType::F64);
        let args = [self.value(scalar()), self.value(scalar())];
        let sum = self.value(scalar());
        let op = |opcode, operands, results| Op {
            opcode,
            operands,
            results,
            attrs: AttrList::default(),
            regions: Vec::new(),
            loc,
        };
        let ops = vec![op(Opcode::Add, args.to_vec(), vec![sum]), op(Opcode::Return, vec![sum], Vec::new())];
        Region { block: Block { args: args.to_vec(), ops } }
    }
}

/// Whether the region of a reduction only adds.
fn adds(op: &Op) -> bool {
    let [region] = &op.regions[..] else { return false };
    let [body, ret] = &region.block.ops[..] else { return false };
    op.results.len() == 1 && body.opcode == Opcode::Add && ret.operands == body.results && region.block.args.len() == 2
}

/// Whether both parts are treated alike and by themselves.
fn twice(op: &Op) -> bool {
    use Opcode as O;
    match op.opcode {
        O::Reduce | O::ReduceWindow | O::Scatter => adds(op),
        O::Add | O::Subtract | O::Negate => true,
        O::BroadcastInDim
        | O::Broadcast
        | O::Reshape
        | O::Transpose
        | O::Slice
        | O::Reverse
        | O::Concatenate
        | O::Pad => true,
        O::Select | O::DynamicSlice | O::DynamicUpdateSlice | O::Gather => true,
        O::DynamicBroadcastInDim | O::DynamicReshape => true,
        _ => false,
    }
}
