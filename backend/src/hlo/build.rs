//! Building modules from Rust.
//!
//! A [`ModuleBuilder`] collects functions; a [`FuncBuilder`] appends ops to one. Types of results are inferred by the ops' own
//! shape rules. Nothing here fails: a mistake gives an op that [`verify`](super::verify) refuses, with its name and place, so that
//! a whole program is written without `?` and checked once, in [`ModuleBuilder::finish`].
//!
//! ```
//! use tpusim_backend::hlo::{ModuleBuilder, Opcode, ReduceKind, TensorType};
//! use tpusim_isa::num::DType;
//!
//! let mut m = ModuleBuilder::new("softmax");
//! let mut f = m.func("main");
//! let x = f.param("x", TensorType::new([8, 128], DType::F32));
//! let max = f.reduce(ReduceKind::Max, x, &[1]);
//! let max = f.broadcast_along(max, &[0], &[8, 128]);
//! let shifted = f.binary(Opcode::Subtract, x, max);
//! let e = f.unary(Opcode::Exponential, shifted);
//! let sum = f.reduce(ReduceKind::Sum, e, &[1]);
//! let sum = f.broadcast_along(sum, &[0], &[8, 128]);
//! let y = f.binary(Opcode::Divide, e, sum);
//! f.ret(&[y]);
//! let module = m.finish().expect("a valid program");
//! assert_eq!(module.funcs.len(), 1);
//! ```

use tpusim_isa::num::DType;
use tpusim_isa::num::convert::{from_f64, int_range};

use super::{
    Attr, AttrList, Block, DotDims, Func, GatherDims, Literal, Loc, LocId, LocTable, Module, Op, Opcode, Param, Region,
    ResultInfo, TensorType, Type, ValueId, Verified, VerifyError, verify,
};
use crate::ops::{Rule, Site, lookup};

/// What a reduction does. Each has its neutral element as initial value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReduceKind {
    /// Sum, from 0.
    Sum,
    /// Product, from 1.
    Product,
    /// Maximum, from minus infinity or the least integer.
    Max,
    /// Minimum, from infinity or the largest integer.
    Min,
    /// Conjunction of `i1`, from true.
    And,
    /// Disjunction of `i1`, from false.
    Or,
}

impl ReduceKind {
    /// The op of the reducer.
    pub const fn opcode(self) -> Opcode {
        match self {
            ReduceKind::Sum => Opcode::Add,
            ReduceKind::Product => Opcode::Multiply,
            ReduceKind::Max => Opcode::Maximum,
            ReduceKind::Min => Opcode::Minimum,
            ReduceKind::And => Opcode::And,
            ReduceKind::Or => Opcode::Or,
        }
    }

    /// The neutral element for `dtype`.
    pub fn identity(self, dtype: DType) -> f64 {
        let extreme = |v: f64, least: bool| {
            if dtype.is_float() {
                v
            } else {
                let (lo, hi) = int_range(dtype);
                (if least { lo } else { hi }) as f64
            }
        };
        match self {
            ReduceKind::Sum | ReduceKind::Or => 0.0,
            ReduceKind::Product | ReduceKind::And => 1.0,
            ReduceKind::Max => extreme(f64::NEG_INFINITY, true),
            ReduceKind::Min => extreme(f64::INFINITY, false),
        }
    }
}

/// Builds a module, function by function.
pub struct ModuleBuilder {
    module: Module,
}

impl ModuleBuilder {
    /// An empty module called `name`.
    pub fn new(name: impl Into<String>) -> Self {
        ModuleBuilder { module: Module { name: name.into(), ..Module::default() } }
    }

    /// A builder that adds to `module`.
    pub(crate) fn over(module: Module) -> Self {
        ModuleBuilder { module }
    }

    /// The module as it is.
    pub(crate) fn unchecked(self) -> Module {
        self.module
    }

    /// Sets an attribute of the module, such as `mhlo.num_partitions`.
    pub fn attr(&mut self, name: &str, attr: Attr) {
        self.module.attrs.set(name, attr);
    }

    /// Adds the mesh `name`, an `sdy.mesh` attribute.
    pub fn mesh(&mut self, name: impl Into<String>, mesh: Attr) {
        self.module.meshes.push((name.into(), mesh));
    }

    /// Starts a function; [`FuncBuilder::ret`] adds it to the module. Functions that are called come before their callers.
    pub fn func(&mut self, name: impl Into<String>) -> FuncBuilder<'_> {
        let name = name.into();
        let func = Func {
            public: name == "main",
            name,
            params: Vec::new(),
            results: Vec::new(),
            values: super::IdVec::default(),
            body: Block::default(),
            attrs: AttrList::default(),
            loc: LocTable::UNKNOWN,
        };
        FuncBuilder { module: &mut self.module, func, blocks: vec![Vec::new()], loc: LocTable::UNKNOWN }
    }

    /// The module, checked.
    ///
    /// # Errors
    /// Whatever the verifier finds.
    pub fn finish(self) -> Result<Verified<Module>, Vec<VerifyError>> {
        verify(self.module)
    }
}

/// Appends ops to a function.
pub struct FuncBuilder<'m> {
    module: &'m mut Module,
    func: Func,
    blocks: Vec<Vec<Op>>,
    loc: LocId,
}

impl FuncBuilder<'_> {
    /// Names the ops that follow, as a framework's name stack does: `layers/attention/scores`.
    pub fn name(&mut self, name: impl Into<String>) {
        self.loc = self.module.locs.add(Loc::Name(name.into(), LocTable::UNKNOWN));
    }

    /// Adds a parameter.
    pub fn param(&mut self, name: &str, ty: TensorType) -> ValueId {
        self.param_with(name, ty, AttrList::default())
    }

    /// Adds a parameter with attributes, such as `sdy.sharding` or `jax.buffer_donor`.
    pub fn param_with(&mut self, name: &str, ty: TensorType, attrs: AttrList) -> ValueId {
        let value = self.func.new_value(Type::Tensor(ty));
        let loc = self.module.locs.add(Loc::Name(name.to_owned(), LocTable::UNKNOWN));
        self.func.params.push(Param { value, attrs, loc });
        value
    }

    /// Type of a value; an empty tensor for one that is no tensor.
    pub fn ty(&self, v: ValueId) -> TensorType {
        self.func.ty(v).tensor().cloned().unwrap_or_else(|| TensorType::new([0], DType::F32))
    }

    /// Sizes of a tensor's dimensions.
    pub fn dims(&self, v: ValueId) -> Vec<i64> {
        self.ty(v).dims
    }

    /// Ends the function and adds it to the module.
    pub fn ret(mut self, values: &[ValueId]) {
        for &v in values {
            self.func.results.push(ResultInfo { ty: self.func.ty(v).clone(), attrs: AttrList::default() });
        }
        self.push(Opcode::Return, values, &[], Vec::new(), Vec::new());
        self.func.body.ops = self.blocks.pop().unwrap_or_default();
        self.module.funcs.push(self.func);
    }

    fn push(
        &mut self,
        opcode: Opcode,
        operands: &[ValueId],
        attrs: &[(&str, Attr)],
        regions: Vec<Region>,
        results: Vec<Type>,
    ) -> Vec<ValueId> {
        let results: Vec<ValueId> = results.into_iter().map(|t| self.func.new_value(t)).collect();
        let attrs = attrs.iter().map(|(n, a)| ((*n).to_owned(), a.clone())).collect();
        let op = Op { opcode, operands: operands.to_vec(), results: results.clone(), attrs, regions, loc: self.loc };
        if let Some(block) = self.blocks.last_mut() {
            block.push(op);
        }
        results
    }

    /// Appends any op whose result types are given.
    pub fn op(
        &mut self,
        opcode: Opcode,
        operands: &[ValueId],
        attrs: &[(&str, Attr)],
        results: &[TensorType],
    ) -> Vec<ValueId> {
        self.push(opcode, operands, attrs, Vec::new(), results.iter().cloned().map(Type::Tensor).collect())
    }

    /// Appends an op with one result, whose type follows from its shape rule.
    pub fn infer(&mut self, opcode: Opcode, operands: &[ValueId], attrs: &[(&str, Attr)]) -> ValueId {
        let op = Op {
            opcode,
            operands: operands.to_vec(),
            results: Vec::new(),
            attrs: attrs.iter().map(|(n, a)| ((*n).to_owned(), a.clone())).collect(),
            regions: Vec::new(),
            loc: self.loc,
        };
        let site = Site { module: self.module, func: &self.func, op: &op };
        let def = lookup(opcode).filter(|d| d.operands.fits(operands.len()));
        let inferred = match def.map(|d| d.rule) {
            Some(Rule::Infer(rule)) => rule(&site).ok().and_then(|t| t.into_iter().next()),
            _ => None,
        };
        // Where the rule fails, so will the verifier.
        let ty = inferred.or_else(|| operands.first().map(|&v| self.func.ty(v).clone()));
        let ty = ty.unwrap_or(Type::Tensor(TensorType::new([], DType::F32)));
        self.one(opcode, operands, attrs, ty)
    }

    fn one(&mut self, opcode: Opcode, operands: &[ValueId], attrs: &[(&str, Attr)], ty: Type) -> ValueId {
        self.push(opcode, operands, attrs, Vec::new(), vec![ty])[0]
    }

    /// A constant tensor.
    pub fn literal(&mut self, literal: Literal) -> ValueId {
        let ty = Type::Tensor(literal.ty.clone());
        self.one(Opcode::Constant, &[], &[("value", Attr::Dense(literal.into()))], ty)
    }

    /// A tensor of one number, rounded to its element type.
    pub fn splat(&mut self, ty: TensorType, v: f64) -> ValueId {
        let bytes = from_f64(ty.dtype, v)[..ty.dtype.bytes()].to_vec();
        self.literal(Literal { ty, bytes: bytes.into() })
    }

    /// A scalar of type `dtype`.
    pub fn scalar(&mut self, dtype: DType, v: f64) -> ValueId {
        self.splat(TensorType::new([], dtype), v)
    }

    /// An `f32` scalar.
    pub fn constant_f32(&mut self, v: f32) -> ValueId {
        self.scalar(DType::F32, v.into())
    }

    /// An elementwise op of one operand.
    pub fn unary(&mut self, opcode: Opcode, a: ValueId) -> ValueId {
        self.infer(opcode, &[a], &[])
    }

    /// An elementwise op of two operands of one type.
    pub fn binary(&mut self, opcode: Opcode, a: ValueId, b: ValueId) -> ValueId {
        self.infer(opcode, &[a, b], &[])
    }

    /// `a op v` for a number `v`.
    pub fn binary_scalar(&mut self, opcode: Opcode, a: ValueId, v: f64) -> ValueId {
        let b = self.splat(self.ty(a), v);
        self.binary(opcode, a, b)
    }

    /// `a + b`.
    pub fn add(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.binary(Opcode::Add, a, b)
    }

    /// `a * b`.
    pub fn mul(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.binary(Opcode::Multiply, a, b)
    }

    /// Compares elements; `direction` is `EQ`, `NE`, `LT`, `LE`, `GT` or `GE`.
    pub fn compare(&mut self, direction: &str, a: ValueId, b: ValueId) -> ValueId {
        self.infer(Opcode::Compare, &[a, b], &[("comparison_direction", Attr::Enum(direction.to_owned()))])
    }

    /// Elements of `a` where `p`, else of `b`.
    pub fn select(&mut self, p: ValueId, a: ValueId, b: ValueId) -> ValueId {
        self.infer(Opcode::Select, &[p, a, b], &[])
    }

    /// `a` with elements converted to `dtype`; `a` itself if they are that already.
    pub fn convert(&mut self, a: ValueId, dtype: DType) -> ValueId {
        let ty = self.ty(a);
        if ty.dtype == dtype {
            return a;
        }
        self.one(Opcode::Convert, &[a], &[], Type::Tensor(TensorType::new(ty.dims, dtype)))
    }

    /// Indices along `dim`.
    pub fn iota(&mut self, ty: TensorType, dim: i64) -> ValueId {
        self.one(Opcode::Iota, &[], &[("iota_dimension", Attr::Int(dim, Type::Scalar(DType::I64)))], Type::Tensor(ty))
    }

    /// `a`, its dimensions placed at `dims`, broadcast to the shape `to`.
    pub fn broadcast_along(&mut self, a: ValueId, dims: &[i64], to: &[i64]) -> ValueId {
        let ty = Type::Tensor(TensorType::new(to, self.ty(a).dtype));
        self.one(Opcode::BroadcastInDim, &[a], &[("broadcast_dimensions", Attr::Ints(dims.to_vec()))], ty)
    }

    /// As [`Self::broadcast_along`], by the op's own name.
    pub fn broadcast_in_dim(&mut self, a: ValueId, to: &[i64], dims: &[i64]) -> ValueId {
        self.broadcast_along(a, dims, to)
    }

    /// `a` under another shape with as many elements.
    pub fn reshape(&mut self, a: ValueId, dims: &[i64]) -> ValueId {
        let ty = Type::Tensor(TensorType::new(dims, self.ty(a).dtype));
        self.one(Opcode::Reshape, &[a], &[], ty)
    }

    /// `a` with its dimensions in the order of `permutation`.
    pub fn transpose(&mut self, a: ValueId, permutation: &[i64]) -> ValueId {
        self.infer(Opcode::Transpose, &[a], &[("permutation", Attr::Ints(permutation.to_vec()))])
    }

    /// The elements from `start` up to `limit` of each dimension.
    pub fn slice(&mut self, a: ValueId, start: &[i64], limit: &[i64]) -> ValueId {
        let attrs = [("start_indices", Attr::Ints(start.to_vec())), ("limit_indices", Attr::Ints(limit.to_vec()))];
        self.infer(Opcode::Slice, &[a], &attrs)
    }

    /// Tensors joined along `dim`.
    pub fn concatenate(&mut self, parts: &[ValueId], dim: i64) -> ValueId {
        self.infer(Opcode::Concatenate, parts, &[("dimension", Attr::Int(dim, Type::Scalar(DType::I64)))])
    }

    /// `a` with `low` and `high` elements of value `v` around.
    pub fn pad(&mut self, a: ValueId, v: f64, low: &[i64], high: &[i64]) -> ValueId {
        let value = self.scalar(self.ty(a).dtype, v);
        let attrs = [
            ("edge_padding_low", Attr::Ints(low.to_vec())),
            ("edge_padding_high", Attr::Ints(high.to_vec())),
            ("interior_padding", Attr::Ints(vec![0; low.len()])),
        ];
        self.infer(Opcode::Pad, &[a, value], &attrs)
    }

    /// The part of shape `sizes` that begins at computed indices, one integer scalar a dimension.
    pub fn dynamic_slice(&mut self, a: ValueId, starts: &[ValueId], sizes: &[i64]) -> ValueId {
        self.infer(Opcode::DynamicSlice, &[&[a], starts].concat(), &[("slice_sizes", Attr::Ints(sizes.to_vec()))])
    }

    /// `a` with `update` written at computed indices.
    pub fn dynamic_update_slice(&mut self, a: ValueId, update: ValueId, starts: &[ValueId]) -> ValueId {
        self.infer(Opcode::DynamicUpdateSlice, &[&[a, update], starts].concat(), &[])
    }

    /// The contraction of two tensors, with elements of type `out`. Result dimensions: batching, free of `a`, free of `b`.
    pub fn dot_general(&mut self, a: ValueId, b: ValueId, dims: DotDims, out: DType) -> ValueId {
        let (ta, tb) = (self.ty(a), self.ty(b));
        let free = |t: &TensorType, batch: &[i64], contract: &[i64]| {
            let kept = (0..t.rank() as i64).filter(|d| !batch.contains(d) && !contract.contains(d));
            kept.map(|d| t.dims[d as usize]).collect::<Vec<_>>()
        };
        let batch: Vec<i64> =
            dims.lhs_batch.iter().filter_map(|&d| ta.dims.get(usize::try_from(d).ok()?).copied()).collect();
        let shape =
            [batch, free(&ta, &dims.lhs_batch, &dims.lhs_contract), free(&tb, &dims.rhs_batch, &dims.rhs_contract)]
                .concat();
        let ty = Type::Tensor(TensorType::new(shape, out));
        self.one(Opcode::DotGeneral, &[a, b], &[("dot_dimension_numbers", Attr::Dot(dims))], ty)
    }

    /// The last dimension of `a` contracted with the first of `b`: `x @ w`.
    pub fn matmul(&mut self, a: ValueId, b: ValueId, out: DType) -> ValueId {
        let dims =
            DotDims { lhs_contract: vec![self.ty(a).rank() as i64 - 1], rhs_contract: vec![0], ..DotDims::default() };
        self.dot_general(a, b, dims, out)
    }

    /// `x` reduced over `dims`, from the neutral element.
    pub fn reduce(&mut self, kind: ReduceKind, x: ValueId, dims: &[i64]) -> ValueId {
        let ty = self.ty(x);
        let scalar = TensorType::new([], ty.dtype);
        let init = self.scalar(ty.dtype, kind.identity(ty.dtype));
        let body = self.region(&[scalar.clone(), scalar], |f, args| vec![f.binary(kind.opcode(), args[0], args[1])]);
        let kept = (0..ty.rank()).filter(|&d| !dims.contains(&(d as i64))).map(|d| ty.dims[d]).collect::<Vec<_>>();
        let result = Type::Tensor(TensorType::new(kept, ty.dtype));
        self.push(Opcode::Reduce, &[x, init], &[("dimensions", Attr::Ints(dims.to_vec()))], vec![body], vec![result])[0]
    }

    /// A region that takes `args` and returns what `body` returns.
    pub fn region(&mut self, args: &[TensorType], body: impl FnOnce(&mut Self, &[ValueId]) -> Vec<ValueId>) -> Region {
        let args: Vec<ValueId> = args.iter().map(|t| self.func.new_value(Type::Tensor(t.clone()))).collect();
        self.blocks.push(Vec::new());
        let results = body(self, &args);
        self.push(Opcode::Return, &results, &[], Vec::new(), Vec::new());
        Region { block: Block { args, ops: self.blocks.pop().unwrap_or_default() } }
    }

    /// Appends any op with regions.
    pub fn op_with_regions(
        &mut self,
        opcode: Opcode,
        operands: &[ValueId],
        attrs: &[(&str, Attr)],
        regions: Vec<Region>,
        results: &[TensorType],
    ) -> Vec<ValueId> {
        self.push(opcode, operands, attrs, regions, results.iter().cloned().map(Type::Tensor).collect())
    }

    /// Runs `body` on the state while `cond` gives true; returns the last state.
    pub fn while_loop(
        &mut self,
        state: &[ValueId],
        cond: impl FnOnce(&mut Self, &[ValueId]) -> ValueId,
        body: impl FnOnce(&mut Self, &[ValueId]) -> Vec<ValueId>,
    ) -> Vec<ValueId> {
        let types: Vec<TensorType> = state.iter().map(|&v| self.ty(v)).collect();
        let regions = vec![self.region(&types, |f, args| vec![cond(f, args)]), self.region(&types, body)];
        self.op_with_regions(Opcode::While, state, &[], regions, &types)
    }

    /// Calls a function that is already in the module.
    pub fn call(&mut self, name: &str, args: &[ValueId]) -> Vec<ValueId> {
        let results = self.module.func(name).map(|f| f.results.iter().map(|r| r.ty.clone()).collect());
        self.push(
            Opcode::Call,
            args,
            &[("callee", Attr::Symbol(name.to_owned()))],
            Vec::new(),
            results.unwrap_or_default(),
        )
    }

    /// Rows of the matrix `table` (rows, width) at `indices`, any shape of integers: an embedding lookup.
    pub fn take_rows(&mut self, table: ValueId, indices: ValueId) -> ValueId {
        let (t, i) = (self.ty(table), self.ty(indices));
        let width = t.dims.last().copied().unwrap_or(0);
        let n = i.rank() as i64;
        let dims = GatherDims {
            offset_dims: vec![n],
            collapsed_slice_dims: vec![0],
            start_index_map: vec![0],
            index_vector_dim: n,
            ..GatherDims::default()
        };
        let attrs = [("dimension_numbers", Attr::Gather(Box::new(dims))), ("slice_sizes", Attr::Ints(vec![1, width]))];
        let ty = Type::Tensor(TensorType::new([i.dims.as_slice(), &[width]].concat(), t.dtype));
        self.one(Opcode::Gather, &[table, indices], &attrs, ty)
    }

    /// `x` with a Shardy sharding, e.g. `sdy.sharding<@mesh, [{"x"}, {}]>`.
    pub fn sharding_constraint(&mut self, x: ValueId, sharding: &str) -> ValueId {
        self.infer(Opcode::SdyShardingConstraint, &[x], &[("sharding", Attr::Opaque(sharding.to_owned()))])
    }
}
