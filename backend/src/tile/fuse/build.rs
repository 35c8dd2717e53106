//! One kernel: which producers it takes in, and its values over canonical dimensions.

use super::*;

pub(super) struct Build<'b, 'g> {
    pub(super) p: &'b Planner<'g>,
    pub(super) root: NodeId,
    pub(super) value: NodeId,
    pub(super) kept: &'b BTreeSet<NodeId>,
    pub(super) inside: BTreeSet<NodeId>,
    /// Those of `inside` that other kernels compute too.
    again: BTreeSet<NodeId>,
    pub(super) dims: Vec<u64>,
    pub(super) nodes: Vec<Node>,
    pub(super) memo: FxHashMap<(NodeId, DimMap), NodeIx>,
    pub(super) product: Option<Product>,
    pub(super) scalars: Vec<Scalar>,
    pub(super) scalar_memo: FxHashMap<NodeId, ScalarIx>,
    /// The ways loads are moved.
    pub(super) moved: Vec<Vec<Shift>>,
    pub(super) reads: BTreeSet<NodeId>,
    pub(super) sources: Vec<String>,
    pub(super) flops: u64,
    /// Canonical dimension that row reductions remove.
    pub(super) reduced: Option<usize>,
}

impl<'b, 'g> Build<'b, 'g> {
    pub(super) fn new(p: &'b Planner<'g>, root: NodeId, value: NodeId, kept: &'b BTreeSet<NodeId>) -> Self {
        Build {
            p,
            root,
            value,
            kept,
            inside: BTreeSet::new(),
            again: BTreeSet::new(),
            dims: Vec::new(),
            nodes: Vec::new(),
            memo: FxHashMap::default(),
            product: None,
            scalars: Vec::new(),
            scalar_memo: FxHashMap::default(),
            moved: Vec::new(),
            reads: BTreeSet::new(),
            sources: Vec::new(),
            flops: 0,
            reduced: None,
        }
    }

    /// Decides which nodes are inside: all users of a node come before it in descending order.
    fn collect(&mut self) {
        let g = self.p.g;
        let mut todo: BTreeSet<NodeId> = BTreeSet::from([self.value]);
        let mut product = None;
        let mut reduces = false;
        let columns = matches!(&g.node(self.value).op, NodeOp::Reduce(_, d) if d[..] != [g.node(g.node(self.value).args[0]).dims.len() - 1]);
        // Products that this kernel cannot take in.
        let mut others = Vec::new();
        while let Some(n) = todo.pop_last() {
            let is_root = n == self.value && (n == self.root || !self.p.stored.contains(&n));
            let node = g.node(n);
            if !is_root && (self.kept.contains(&n) || !self.p.fusable(n, &self.inside, &self.again)) {
                continue;
            }
            if self.inside.len() >= self.p.options.max_nodes {
                break;
            }
            let take = match &node.op {
                NodeOp::Map(_) | NodeOp::Broadcast(_) | NodeOp::Iota(_) | NodeOp::Counter(_) => true,
                NodeOp::Const(l) => l.is_splat(),
                NodeOp::Reduce(_, dims) => {
                    let row = dims[..] == [g.node(node.args[0]).dims.len() - 1];
                    let ok = n == self.value || row && product.is_none() && !columns;
                    reduces |= ok;
                    ok
                }
                NodeOp::Dot(_) | NodeOp::Conv(_) => {
                    let ok = product.is_none() && !reduces;
                    if ok {
                        product = Some(n);
                    } else {
                        others.push(n);
                    }
                    ok
                }
                // Data movement of something computed here; of stored arrays it is a load.
                NodeOp::Transpose(_) => {
                    let again =
                        if self.p.own(n, &self.inside, &self.again) || is_root { [].into() } else { [n].into() };
                    self.p.fusable(node.args[0], &[n].into(), &again) && !self.kept.contains(&node.args[0])
                }
                NodeOp::Reshape => {
                    let from = &g.node(node.args[0]).dims;
                    let again =
                        if self.p.own(n, &self.inside, &self.again) || is_root { [].into() } else { [n].into() };
                    squeeze(from) == squeeze(&node.dims) && self.p.fusable(node.args[0], &[n].into(), &again)
                }
                _ => false,
            };
            if take {
                if !is_root && !self.p.own(n, &self.inside, &self.again) {
                    self.again.insert(n);
                }
                self.inside.insert(n);
                let dear = |a: NodeId| {
                    // Small operands that are dear to compute are not computed again for every repetition.
                    matches!(node.op, NodeOp::Broadcast(_))
                        && (CHEAP + 1..1000).contains(&self.p.cost[a.ix()])
                        && g.node(a).elements() * 2 <= node.elements()
                };
                if !matches!(node.op, NodeOp::Dot(_) | NodeOp::Conv(_)) {
                    todo.extend(node.args.iter().filter(|&&a| !dear(a)));
                }
            }
        }
        for n in others {
            // It is stored anyway: better as the narrower type that it becomes.
            let [user] = self.p.users[n.ix()][..] else { continue };
            let narrows = matches!(g.node(user).op, NodeOp::Map(MapOp::Convert))
                && g.node(user).dtype.bits() < g.node(n).dtype.bits();
            if narrows && user != self.value {
                self.inside.remove(&user);
            }
        }
    }

    pub(super) fn run(&mut self, view: &View) -> Result<Fusion, NodeId> {
        self.collect();
        let g = self.p.g;
        let root = g.node(self.root);
        let value = g.node(self.value);
        let fills = value.dims.is_empty() && !root.dims.is_empty() && view.strides.len() == root.dims.len();
        let shape = if fills { root.dims.clone() } else { value.dims.clone() };
        // A reducing root iterates over its operand.
        let (map, ix);
        match &value.op {
            NodeOp::Reduce(how, dims) if self.inside.contains(&self.value) && !fills => {
                let operand = g.node(value.args[0]);
                self.dims = operand.dims.clone();
                let opmap: DimMap = (0..operand.dims.len()).map(|d| (operand.dims[d] > 1).then_some(d)).collect();
                map = (0..operand.dims.len()).filter(|d| !dims.contains(d)).map(|d| opmap[d]).collect::<DimMap>();
                let row = dims[..] == [operand.dims.len() - 1];
                if row {
                    self.reduced = Some(dims[0]);
                }
                let arg = self.pull(value.args[0], &opmap)?;
                let removed = dims.iter().fold(0u32, |m, &d| m | 1 << d);
                if self.nodes[arg].varies & removed != removed {
                    // What repeats along a reduced dimension is multiplied out first.
                    return Err(value.args[0]);
                }
                let kind = if row { Kind::RowReduce(*how) } else { Kind::ColReduce(*how, removed) };
                ix = self.reduce_node(kind, arg, value.dtype, removed);
                self.note(self.value);
            }
            _ => {
                self.dims = shape.clone();
                map = (0..shape.len()).map(|d| (shape[d] > 1).then_some(d)).collect();
                let own: DimMap = if fills { vec![] } else { map.clone() };
                ix = self.pull(self.value, &own)?;
            }
        }
        let bytes = root.dtype.bytes() as i64;
        let mut strides = vec![0i64; self.dims.len()];
        for (d, m) in map.iter().enumerate() {
            if let Some(c) = m {
                strides[*c] = view.strides[d] * bytes;
            }
        }
        if let Some(p) = &self.product
            && let Contraction::Conv(_) = p.spec
            && p.node != self.value
        {
            // A convolution's blocks have output features along lanes, and do not know where in the whole they are.
            let lanes = p.map.last().copied().flatten().is_none_or(|c| strides[c] == bytes);
            if !lanes || self.nodes.iter().any(|n| matches!(n.kind, Kind::Iota(_))) {
                return Err(p.node);
            }
        }
        let shifts = self.shifts(&view.shifts, bytes);
        let access = Access { buffer: self.root.ix(), offset: view.offset * bytes, strides, shifts };
        Ok(Fusion {
            roots: vec![self.root],
            dims: std::mem::take(&mut self.dims),
            nodes: std::mem::take(&mut self.nodes),
            stores: vec![(ix, access)],
            product: self.product.take(),
            scalars: std::mem::take(&mut self.scalars),
            updates: None,
            reads: self.reads.iter().copied().collect(),
            sources: std::mem::take(&mut self.sources),
            vector_flops: self.flops,
            in_place: false,
        })
    }

    pub(super) fn note(&mut self, n: NodeId) {
        let source = &self.p.g.node(n).source;
        if !source.is_empty() && !self.sources.contains(source) {
            self.sources.push(source.clone());
        }
    }

    pub(super) fn add(&mut self, node: Node) -> NodeIx {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    fn reduce_node(&mut self, kind: Kind, arg: NodeIx, dtype: DType, removed: u32) -> NodeIx {
        let varies = self.nodes[arg].varies & !removed;
        self.flops += self.size(self.nodes[arg].varies | removed);
        self.add(Node { kind, args: vec![arg], dtype, varies })
    }

    /// Elements of a value that varies over `mask`.
    fn size(&self, mask: u32) -> u64 {
        self.dims.iter().enumerate().filter(|(d, _)| mask >> d & 1 == 1).map(|(_, &s)| s).product()
    }

    /// The value of `n`, whose dimensions are canonical dimensions `map`. An error names a node that must be stored instead.
    pub(super) fn pull(&mut self, n: NodeId, map: &DimMap) -> Result<NodeIx, NodeId> {
        if let Some(&ix) = self.memo.get(&(n, map.clone())) {
            return Ok(ix);
        }
        let ix = if self.inside.contains(&n) { self.compute(n, map)? } else { self.load(n, map)? };
        self.memo.insert((n, map.clone()), ix);
        Ok(ix)
    }

    fn compute(&mut self, n: NodeId, map: &DimMap) -> Result<NodeIx, NodeId> {
        let g = self.p.g;
        let node = g.node(n);
        let used = map.iter().flatten().fold(0u32, |m, &d| m | 1 << d);
        match &node.op {
            NodeOp::Const(l) => {
                let bits = crate::graph::register_bits(l.element(0), node.dtype);
                Ok(self.add(Node { kind: Kind::Splat(bits), args: vec![], dtype: node.dtype, varies: 0 }))
            }
            NodeOp::Counter(c) => {
                Ok(self.add(Node { kind: Kind::Counter(*c), args: vec![], dtype: node.dtype, varies: 0 }))
            }
            NodeOp::Iota(d) => Ok(match map[*d] {
                Some(c) => self.add(Node { kind: Kind::Iota(c), args: vec![], dtype: node.dtype, varies: 1 << c }),
                None => self.add(Node { kind: Kind::Splat(0), args: vec![], dtype: node.dtype, varies: 0 }),
            }),
            NodeOp::Map(op) => {
                let mut args = Vec::new();
                for &a in &node.args {
                    args.push(self.pull(a, map)?);
                }
                let varies = args.iter().fold(0, |m, &a| m | self.nodes[a].varies);
                let operand = if *op == MapOp::Select { 1 } else { 0 };
                let operand = g.node(node.args[operand]).dtype;
                self.note(n);
                self.flops += self.size(varies);
                Ok(self.add(Node { kind: Kind::Map(*op, operand), args, dtype: node.dtype, varies }))
            }
            NodeOp::Broadcast(to) => {
                let operand = g.node(node.args[0]);
                let inner =
                    to.iter().enumerate().map(|(i, &d)| if operand.dims[i] == 1 { None } else { map[d] }).collect();
                self.pull(node.args[0], &inner)
            }
            NodeOp::Transpose(perm) => {
                let mut inner = vec![None; perm.len()];
                for (i, &p) in perm.iter().enumerate() {
                    inner[p] = map[i];
                }
                self.note(n);
                self.pull(node.args[0], &inner)
            }
            NodeOp::Reshape => {
                let mut full = map.iter().zip(&node.dims).filter(|(_, d)| **d > 1).map(|(m, _)| *m);
                let operand = g.node(node.args[0]);
                let inner = operand.dims.iter().map(|&d| if d > 1 { full.next().flatten() } else { None }).collect();
                self.pull(node.args[0], &inner)
            }
            NodeOp::Reduce(how, _) => self.row_reduce(n, *how, map, used),
            NodeOp::Dot(spec) => self.product(n, map, used, Contraction::Dot(spec.clone())),
            NodeOp::Conv(spec) => self.product(n, map, used, Contraction::Conv(spec.clone())),
            _ => Err(n),
        }
    }

    /// The matrix product or convolution `n`.
    fn product(&mut self, n: NodeId, map: &DimMap, used: u32, spec: Contraction) -> Result<NodeIx, NodeId> {
        let node = self.p.g.node(n);
        // It must cover the whole kernel, each dimension once.
        let all = self.dims.iter().enumerate().filter(|(_, d)| **d > 1).fold(0u32, |m, (d, _)| m | 1 << d);
        if used != all || self.product.is_some() || used.count_ones() as usize != map.iter().flatten().count() {
            return Err(n);
        }
        let operands = [node.args[0], node.args[1]].map(|a| self.base(a));
        if let Contraction::Conv(spec) = &spec {
            // An operand that cannot be read as it lies is stored in order first.
            let unfit = crate::tile::conv::unfit(self.p.g, n, spec, &operands).map(|side| node.args[side]);
            if let Some(arg) = unfit.filter(|a| !self.is_stored(*a)) {
                return Err(arg);
            }
        }
        self.reads.extend(operands.iter().map(|(b, _)| *b));
        let side = |b: &mut Self, i: usize| {
            let bytes = b.p.g.node(node.args[i]).dtype.bytes() as i64;
            b.shifts(&operands[i].1.shifts, bytes)
        };
        let shifts = [side(self, 0), side(self, 1)];
        self.product = Some(Product { node: n, spec, map: map.clone(), operands, shifts });
        self.note(n);
        Ok(self.add(Node { kind: Kind::Product, args: vec![], dtype: node.dtype, varies: used }))
    }

    /// A reduction over the last dimension of its operand: that dimension becomes the kernel's columns.
    fn row_reduce(&mut self, n: NodeId, how: Combine, map: &DimMap, used: u32) -> Result<NodeIx, NodeId> {
        let g = self.p.g;
        let node = g.node(n);
        let operand = g.node(node.args[0]);
        let Some(&size) = operand.dims.last() else { return Err(n) };
        let all = self.dims.iter().enumerate().filter(|(_, d)| **d > 1).fold(0u32, |m, (d, _)| m | 1 << d);
        let column = match self.reduced {
            Some(c) => c,
            // Nothing here has columns yet: the reduced dimension becomes them.
            None if used == all => {
                self.dims.push(size);
                self.extend_strides();
                self.dims.len() - 1
            }
            None => match (0..self.dims.len()).rev().find(|&d| self.dims[d] > 1) {
                Some(d) => d,
                None => return Err(n),
            },
        };
        if self.dims[column] != size || used >> column & 1 == 1 {
            return Err(n);
        }
        self.reduced = Some(column);
        let mut inner = map.clone();
        inner.push(Some(column));
        let arg = self.pull(node.args[0], &inner)?;
        if self.nodes[arg].varies >> column & 1 == 0 {
            // The operand repeats along the columns; let a kernel of its own multiply it out.
            return Err(n);
        }
        self.note(n);
        Ok(self.reduce_node(Kind::RowReduce(how), arg, node.dtype, 1 << column))
    }

    /// Gives accesses made so far a stride along a dimension just added.
    fn extend_strides(&mut self) {
        for n in &mut self.nodes {
            if let Kind::Load(a) = &mut n.kind {
                a.strides.resize(self.dims.len(), 0);
            }
        }
    }

    fn load(&mut self, n: NodeId, map: &DimMap) -> Result<NodeIx, NodeId> {
        // What the kernel stores itself is read through what lies behind it.
        let (base, view) = if n == self.root {
            base_of(self.p.g, n, &|x| x != n && self.is_stored(x), &self.p.users)
        } else {
            self.base(n)
        };
        self.reads.insert(base);
        let node = self.p.g.node(n);
        let bytes = node.dtype.bytes() as i64;
        let mut strides = vec![0i64; self.dims.len()];
        let mut varies = 0;
        for (d, m) in map.iter().enumerate() {
            if let Some(c) = m
                && view.strides[d] != 0
            {
                strides[*c] += view.strides[d] * bytes;
                varies |= 1 << c;
            }
        }
        let shifts = self.shifts(&view.shifts, bytes);
        if !self.holds(&shifts) {
            return Err(n);
        }
        let access = Access { buffer: base.ix(), offset: view.offset * bytes, strides, shifts };
        Ok(self.add(Node { kind: Kind::Load(access), args: vec![], dtype: node.dtype, varies }))
    }

    pub(super) fn base(&self, n: NodeId) -> (NodeId, View) {
        base_of(self.p.g, n, &|x| self.is_stored(x), &self.p.users)
    }

    pub(super) fn is_stored(&self, n: NodeId) -> bool {
        self.p.stored.contains(&n) || self.kept.contains(&n)
    }
}
