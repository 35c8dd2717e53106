//! Pretty forms with a syntax of their own: constants, contractions, reductions, loops, calls, CHLO and Shardy.

use super::lexer::Kind;
use super::ops::Draft;
use super::parser::{Parsed, Parser};
use crate::hlo::{Attr, AttrList, Block, DotDims, LocTable, Op, Opcode, Region, TensorType, Type};
use tpusim_isa::num::DType;

impl Parser<'_> {
    /// `{...} dense<...> : type`, or the rest of the generic form.
    pub(super) fn constant(&mut self, d: &mut Draft) -> Parsed<()> {
        if self.eat(b'(') {
            self.expect(b')')?;
            return self.generic_tail(d);
        }
        self.opt_dict(d)?;
        let span = self.span();
        match self.attr()? {
            Attr::Dense(lit) => {
                d.results = vec![Type::Tensor(lit.ty.clone())];
                d.set("value", Attr::Dense(lit));
                Ok(())
            }
            _ => Err(self.error(span, "expected `dense<...>`")),
        }
    }

    /// `precision = [HIGH, DEFAULT]`.
    pub(super) fn precision(&mut self, d: &mut Draft) -> Parsed<()> {
        self.expect_field("precision")?;
        let list = self.list(b'[', b']', |p| Ok(Attr::Enum(p.word("a precision")?.to_owned())))?;
        d.set("precision_config", Attr::Array(list));
        Ok(())
    }

    /// `[0] x [1]`.
    fn dim_pair(&mut self) -> Parsed<(Vec<i64>, Vec<i64>)> {
        let lhs = self.ints()?;
        self.expect_word("x")?;
        Ok((lhs, self.ints()?))
    }

    /// `%a, %b, batching_dims = .., contracting_dims = .., precision = .., algorithm = <..>`.
    pub(super) fn dot_general(&mut self, d: &mut Draft) -> Parsed<()> {
        self.operands(d, 2)?;
        self.expect(b',')?;
        let mut dims = DotDims::default();
        if self.at_word("batching_dims") {
            self.expect_field("batching_dims")?;
            (dims.lhs_batch, dims.rhs_batch) = self.dim_pair()?;
            self.expect(b',')?;
        }
        self.expect_field("contracting_dims")?;
        (dims.lhs_contract, dims.rhs_contract) = self.dim_pair()?;
        d.set("dot_dimension_numbers", Attr::Dot(dims));
        if self.eat(b',') {
            let mut algorithm = self.at_word("algorithm");
            if !algorithm {
                self.precision(d)?;
                algorithm = self.eat(b',');
            }
            if algorithm {
                self.expect_field("algorithm")?;
                let a = self.dot_algorithm()?;
                d.set("algorithm", Attr::DotAlgorithm(Box::new(a)));
            }
        }
        self.dict_then_signature(d)
    }

    /// `(%a, %b) dim_numbers = [..]x[..]->[..], window = {stride = [..], pad = [[..]], ..}`.
    pub(super) fn convolution(&mut self, d: &mut Draft) -> Parsed<()> {
        d.operands = self.list(b'(', b')', Self::operand)?;
        self.expect_field("dim_numbers")?;
        let dims = self.conv_dims()?;
        d.set("dimension_numbers", Attr::Conv(Box::new(dims)));
        self.expect(b',')?;
        self.expect_field("window")?;
        self.list(b'{', b'}', |p| {
            let span = p.span();
            let word = p.word("a property of the window")?;
            p.expect(b'=')?;
            let (name, attr) = match word {
                "stride" => ("window_strides", Attr::Ints(p.ints()?)),
                "lhs_dilate" => ("lhs_dilation", Attr::Ints(p.ints()?)),
                "rhs_dilate" => ("rhs_dilation", Attr::Ints(p.ints()?)),
                "pad" => ("padding", Attr::Pairs(p.list(b'[', b']', Self::pair)?)),
                "reverse" => {
                    let flag = |p: &mut Self| {
                        if p.tok.kind == Kind::Int { Ok(p.int()? != 0) } else { p.boolean() }
                    };
                    ("window_reversal", Attr::Bools(p.list(b'[', b']', flag)?))
                }
                _ => {
                    let message = format!("a window has no `{word}`");
                    let help = "it has stride, pad, lhs_dilate, rhs_dilate and reverse";
                    return Err(p.error_help(span, message, help));
                }
            };
            if d.attrs.iter().any(|(n, _)| n == name) {
                return Err(p.error(span, format!("`{word}` is given twice")));
            }
            d.set(name, attr);
            Ok(())
        })?;
        self.dict_then_signature(d)
    }

    fn pair(&mut self) -> Parsed<[i64; 2]> {
        let start = self.tok.start;
        match self.ints()?.as_slice() {
            &[a, b] => Ok([a, b]),
            other => Err(self.error(self.since(start), format!("expected two integers, found {}", other.len()))),
        }
    }

    /// `"name" %a, %b ({region}, ...) {...} : signature`.
    pub(super) fn composite(&mut self, d: &mut Draft) -> Parsed<()> {
        let name = self.string()?;
        d.set("name", Attr::Str(name));
        if self.tok.kind == Kind::Percent {
            self.operand_list(d)?;
        }
        if self.at(b'(') {
            d.regions = self.list(b'(', b')', |p| p.region(None, false, false))?;
        }
        self.dict_then_signature(d)
    }

    /// `return`, `return %a, %b : type, type`, with attributes on either side of the operands.
    pub(super) fn return_op(&mut self, d: &mut Draft) -> Parsed<()> {
        self.opt_dict(d)?;
        if self.tok.kind != Kind::Percent {
            return Ok(());
        }
        self.operand_list(d)?;
        self.opt_dict(d)?;
        self.expect(b':')?;
        let start = self.tok.start;
        let types = self.type_list()?;
        self.check_operands(d, &types, start)
    }

    /// `(%a init: %b), ... applies op across dimensions = [..] : signature`, or with a `reducer(...) {...}`.
    pub(super) fn reduce(&mut self, d: &mut Draft) -> Parsed<()> {
        let mut inits = Vec::new();
        loop {
            self.expect(b'(')?;
            d.operands.push(self.operand()?);
            self.expect_word("init")?;
            self.expect(b':')?;
            inits.push(self.operand()?);
            self.expect(b')')?;
            if !self.eat(b',') {
                break;
            }
        }
        d.operands.append(&mut inits);
        let mut inner = None;
        if self.eat_word("applies") {
            let span = self.span();
            let name = match self.tok.kind {
                Kind::Str => self.string()?,
                _ => self.word("an operation")?.to_owned(),
            };
            match Opcode::from_name(&name) {
                Some(op) if is_reducer(op) => inner = Some(op),
                _ => {
                    let message = format!("`{name}` cannot be applied by a reduction in short form");
                    return Err(self.error_help(span, message, "it takes a commutative operation of two operands"));
                }
            }
        }
        self.expect_word("across")?;
        self.expect_field("dimensions")?;
        let dims = self.ints()?;
        d.set("dimensions", Attr::Ints(dims));
        self.dict_then_signature(d)?;
        let Some(op) = inner else { return self.reducer(d) };
        d.loc = self.trailing_loc()?;
        self.short_reducer(d, op)
    }

    /// The region of a short reduction: two scalars, the op, return.
    fn short_reducer(&mut self, d: &mut Draft, opcode: Opcode) -> Parsed<()> {
        let first = d.operands.first().and_then(|(v, _)| self.names.values[*v].ty.tensor());
        let Some(t) = first else {
            return Err(self.error(d.name.clone(), "a reduction needs a tensor"));
        };
        let scalar = Type::Tensor(TensorType { dims: Vec::new(), dtype: t.dtype, quant: t.quant.clone() });
        let loc = d.loc.unwrap_or(LocTable::UNKNOWN);
        let mut value = || self.names.values.push(crate::hlo::Value { ty: scalar.clone() });
        let args = vec![value(), value()];
        let result = value();
        let op = |opcode, operands, results| Op {
            opcode,
            operands,
            results,
            attrs: AttrList::default(),
            regions: Vec::new(),
            loc,
        };
        let ops = vec![op(opcode, args.clone(), vec![result]), op(Opcode::Return, vec![result], Vec::new())];
        d.regions = vec![Region { block: Block { args, ops } }];
        Ok(())
    }

    /// `reducer(%a: t, %b: t) (%c: t, %d: t) {...}`: first the elements, then the accumulators, of every input.
    fn reducer(&mut self, d: &mut Draft) -> Parsed<()> {
        self.expect_word("reducer")?;
        let (mut args, mut accumulators) = (Vec::new(), Vec::new());
        while self.eat(b'(') {
            args.push(self.block_arg()?);
            self.expect(b',')?;
            accumulators.push(self.block_arg()?);
            self.expect(b')')?;
        }
        args.append(&mut accumulators);
        d.regions = vec![self.region(Some(args), false, false)?];
        Ok(())
    }

    /// `(%i = %a, ...) : types attributes {...} cond {...} do {...}`.
    pub(super) fn while_op(&mut self, d: &mut Draft) -> Parsed<()> {
        let iterated = self.list(b'(', b')', |p| {
            if p.tok.kind != Kind::Percent {
                return p.expected("the name of a loop variable");
            }
            let (name, span) = (&p.text()[1..], p.span());
            p.bump();
            p.expect(b'=')?;
            Ok((name, span, p.operand()?))
        })?;
        if !iterated.is_empty() {
            self.expect(b':')?;
            let start = self.tok.start;
            d.results = self.type_list()?;
            d.operands = iterated.iter().map(|(_, _, o)| o.clone()).collect();
            let types = d.results.clone();
            self.check_operands(d, &types, start)?;
        }
        if self.eat_word("attributes") {
            self.opt_dict(d)?;
        }
        let args: Vec<_> =
            iterated.into_iter().zip(&d.results).map(|((name, span, _), ty)| (name, span, ty.clone(), None)).collect();
        self.expect_word("cond")?;
        d.regions.push(self.region(Some(args.clone()), false, false)?);
        self.expect_word("do")?;
        d.regions.push(self.region(Some(args), false, false)?);
        Ok(())
    }

    /// CHLO's forms: operands, attributes, then types with or without parentheses.
    pub(super) fn chlo_op(&mut self, d: &mut Draft) -> Parsed<()> {
        match d.opcode {
            Opcode::ChloTopK => {
                self.expect(b'(')?;
                self.operands(d, 1)?;
                self.expect(b',')?;
                self.expect_field("k")?;
                let k = self.int()?;
                d.set("k", Attr::Int(k, Type::Scalar(DType::I64)));
                if self.eat(b',') {
                    self.expect_field("is_stable")?;
                    let stable = self.boolean()?;
                    d.set("is_stable", Attr::Bool(stable));
                }
                self.expect(b')')?;
            }
            Opcode::ChloScan => return self.chlo_scan(d),
            Opcode::ChloRaggedDot => {
                let help = "write it as `\"chlo.ragged_dot\"(...) : (...) -> ...`";
                return Err(self.error_help(d.name.clone(), "`chlo.ragged_dot` has no pretty form", help));
            }
            _ => self.operand_list(d)?,
        }
        self.opt_dict(d)?;
        self.expect(b':')?;
        let start = self.tok.start;
        let inputs = if self.at(b'(') { self.list(b'(', b')', Self::ty)? } else { self.type_list()? };
        self.expect_arrow()?;
        self.check_operands(d, &inputs, start)?;
        d.results = self.result_types()?;
        Ok(())
    }

    /// `(%a) inits (%b) dimension=0 attributes {...} {^bb0(...): ...} : signature`.
    fn chlo_scan(&mut self, d: &mut Draft) -> Parsed<()> {
        d.operands = self.list(b'(', b')', Self::operand)?;
        let inputs = d.operands.len() as i64;
        self.expect_word("inits")?;
        let mut inits = self.list(b'(', b')', Self::operand)?;
        let carries = inits.len() as i64;
        d.operands.append(&mut inits);
        self.expect_field("dimension")?;
        let dim = self.int()?;
        d.set("dimension", Attr::Int(dim, Type::Scalar(DType::I64)));
        if self.eat_word("attributes") {
            self.opt_dict(d)?;
        }
        d.regions = vec![self.region(None, true, false)?];
        self.expect(b':')?;
        self.func_signature(d)?;
        let outputs = d.results.len() as i64 - carries;
        if outputs < 0 {
            return Err(self.error(d.name.clone(), "fewer results than carries"));
        }
        d.set("operandSegmentSizes", Attr::Ints(vec![inputs, carries]));
        d.set("resultSegmentSizes", Attr::Ints(vec![outputs, carries]));
        Ok(())
    }

    /// Shardy's forms.
    pub(super) fn sdy_op(&mut self, d: &mut Draft) -> Parsed<()> {
        match d.opcode {
            Opcode::SdyShardingConstraint | Opcode::SdyReshard => {
                self.operands(d, 1)?;
                self.stripped(d, "sharding", "sdy.sharding")?;
                self.dict_then_same(d)
            }
            Opcode::SdyManualComputation => {
                d.operands = self.list(b'(', b')', Self::operand)?;
                self.shardings(d, "in_shardings")?;
                self.shardings(d, "out_shardings")?;
                self.expect_field("manual_axes")?;
                let start = self.tok.start;
                let axes = self.balanced(start)?;
                d.set("manual_axes", Attr::Opaque(format!("sdy<manual_axes{axes}>")));
                self.sdy_body(d)
            }
            Opcode::SdyNamedComputation => {
                self.expect(b'<')?;
                let name = self.string()?;
                d.set("name", Attr::Str(name));
                self.expect(b'>')?;
                d.operands = self.list(b'(', b')', Self::operand)?;
                for name in ["in_shardings", "out_shardings"] {
                    if self.at_word(name) {
                        self.shardings(d, name)?;
                    }
                }
                self.sdy_body(d)
            }
            Opcode::SdyShardingGroup => {
                self.operands(d, 1)?;
                self.expect_field("group_id")?;
                let id = self.int()?;
                d.set("group_id", Attr::Int(id, Type::Scalar(DType::I64)));
                self.dict_then_same(d)?;
                d.results.clear();
                Ok(())
            }
            Opcode::SdyDataFlowEdge | Opcode::SdyPropagationBarrier => {
                self.operands(d, 1)?;
                if self.at_word("sharding") {
                    self.expect_field("sharding")?;
                    self.stripped(d, "sharding", "sdy.sharding")?;
                }
                if self.at_word("allowed_direction") {
                    self.expect_field("allowed_direction")?;
                    let direction = self.word("a direction")?;
                    d.set("allowed_direction", Attr::Enum(direction.to_owned()));
                }
                self.dict_then_same(d)
            }
            _ => self.sdy_collective(d),
        }
    }

    /// `[axes] %a out_sharding=<...> : type`.
    fn sdy_collective(&mut self, d: &mut Draft) -> Parsed<()> {
        let (name, kind) = match d.opcode {
            Opcode::SdyAllGather => ("gathering_axes", "list_of_axis_ref_lists"),
            Opcode::SdyAllSlice => ("slicing_axes", "list_of_axis_ref_lists"),
            Opcode::SdyReduceScatter => ("reduce_scatter_axes", "list_of_axis_ref_lists"),
            Opcode::SdyAllReduce => ("reduction_axes", "axis_ref_list"),
            _ => ("params", "all_to_all_param_list"),
        };
        if matches!(d.opcode, Opcode::SdyAllReduce | Opcode::SdyReduceScatter) && self.tok.kind == Kind::Word {
            let op = self.word("a reduction")?;
            d.set("reduction_op", Attr::Enum(op.to_owned()));
        }
        if d.opcode != Opcode::SdyCollectivePermute {
            let start = self.tok.start;
            if !self.at(b'[') && !self.at(b'{') {
                return self.expected("a list of axes");
            }
            let axes = self.balanced(start)?;
            d.set(name, Attr::Opaque(format!("sdy<{kind}{axes}>")));
        }
        self.operands(d, 1)?;
        self.expect_field("out_sharding")?;
        self.stripped(d, "out_sharding", "sdy.sharding")?;
        self.dict_then_same(d)
    }

    /// An attribute written without its `#name`.
    fn stripped(&mut self, d: &mut Draft, name: &str, kind: &str) -> Parsed<()> {
        if !self.at(b'<') {
            return self.expected("`<`");
        }
        let body = self.balanced(self.tok.start)?;
        d.set(name, Attr::Opaque(format!("{kind}{body}")));
        Ok(())
    }

    /// `name=[<...>, <...>]`.
    fn shardings(&mut self, d: &mut Draft, name: &str) -> Parsed<()> {
        self.expect_field(name)?;
        if !self.at(b'[') {
            return self.expected("`[`");
        }
        let list = self.balanced(self.tok.start)?;
        d.set(name, Attr::Opaque(format!("sdy.sharding_per_value<{list}>")));
        Ok(())
    }

    /// `(%a: type, ...) {...} {attributes} : signature`.
    fn sdy_body(&mut self, d: &mut Draft) -> Parsed<()> {
        let args = self.list(b'(', b')', Self::block_arg)?;
        d.regions = vec![self.region(Some(args), true, true)?];
        self.dict_then_signature(d)
    }
}

/// Operations a reduction may apply in its short form: commutative, two operands of one type.
fn is_reducer(op: Opcode) -> bool {
    use Opcode::*;
    matches!(op, Add | And | Maximum | Minimum | Multiply | Or | Xor)
}
