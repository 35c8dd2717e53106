//! The pretty forms of operations, one arm per assembly format.

use super::ops::Draft;
use super::parser::{Parsed, Parser};
use crate::hlo::{Attr, Opcode, TensorType, Type};
use tpusim_isa::num::DType;

fn i64_attr(v: i64) -> Attr {
    Attr::Int(v, Type::Scalar(DType::I64))
}

fn i32_attr(v: i64) -> Attr {
    Attr::Int(v, Type::Scalar(DType::I32))
}

impl Parser<'_> {
    /// What follows the name of an op that is not in quotes.
    pub(super) fn pretty_op(&mut self, d: &mut Draft) -> Parsed<()> {
        use Opcode::*;
        match d.opcode {
            Abs | Cbrt | Ceil | Convert | CountLeadingZeros | Cosine | Exponential | ExponentialMinusOne | Floor
            | Imag | Log | LogPlusOne | Logistic | Not | Negate | Popcnt | Real | RoundNearestAfz
            | RoundNearestEven | Rsqrt | Sign | Sine | Sqrt | Tan | Tanh | UniformQuantize | UniformDequantize => {
                self.operands(d, 1)?;
                self.dict_then_same(d)
            }
            Add | And | Atan2 | Divide | Maximum | Minimum | Multiply | Or | Power | Remainder | ShiftLeft
            | ShiftRightArithmetic | ShiftRightLogical | Subtract | Xor => {
                self.operands(d, 2)?;
                self.dict_then_same(d)
            }
            Clamp => {
                self.operands(d, 3)?;
                self.dict_then_same(d)
            }
            IsFinite | BitcastConvert | Reshape => {
                self.operands(d, 1)?;
                self.dict_then_signature(d)
            }
            DynamicReshape => {
                self.operands(d, 2)?;
                self.dict_then_signature(d)
            }
            RealDynamicSlice | DynamicPad | DynamicUpdateSlice | BatchNormTraining => {
                self.operand_list(d)?;
                self.dict_then_signature(d)
            }
            Complex => {
                self.operands(d, 2)?;
                self.opt_dict(d)?;
                self.expect(b':')?;
                self.complex_signature(d)
            }
            Select => {
                self.operands(d, 3)?;
                self.opt_dict(d)?;
                self.expect(b':')?;
                self.select_signature(d)
            }
            Compare => {
                let direction = self.word("a comparison direction")?;
                d.set("comparison_direction", Attr::Enum(direction.to_owned()));
                self.expect(b',')?;
                self.operands(d, 2)?;
                if self.eat(b',') {
                    let kind = self.word("a comparison type")?;
                    d.set("compare_type", Attr::Enum(kind.to_owned()));
                }
                self.dict_then_signature(d)
            }
            Constant | ChloConstant | SdyConstant => self.constant(d),
            Iota => {
                self.field_int(d, "dim", "iota_dimension")?;
                self.dict_then_results(d)
            }
            DynamicIota => {
                self.operands(d, 1)?;
                self.expect(b',')?;
                self.field_int(d, "dim", "iota_dimension")?;
                self.dict_then_signature(d)
            }
            CreateToken | ReplicaId | PartitionId => self.dict_then_results(d),
            AfterAll => {
                if !self.at(b':') && !self.at(b'{') {
                    self.operand_list(d)?;
                }
                self.dict_then_same(d)
            }
            GetTupleElement => {
                self.operands(d, 1)?;
                self.expect(b'[')?;
                let index = self.int()?;
                d.set("index", i32_attr(index));
                self.expect(b']')?;
                self.dict_then_signature(d)
            }
            Tuple => {
                if !self.at(b':') && !self.at(b'{') {
                    self.operand_list(d)?;
                }
                self.opt_dict(d)?;
                self.expect(b':')?;
                let start = self.tok.start;
                let ty = self.ty()?;
                let Type::Tuple(types) = &ty else {
                    return Err(self.error(self.since(start), format!("expected a tuple type, found `{ty}`")));
                };
                self.check_operands(d, types, start)?;
                d.results = vec![ty];
                Ok(())
            }
            Slice => {
                self.operands(d, 1)?;
                self.slice_ranges(d)?;
                self.dict_then_signature(d)
            }
            DynamicSlice => {
                self.operands(d, 1)?;
                self.expect(b',')?;
                self.trailing_operands(d)?;
                self.field_ints(d, "sizes", "slice_sizes")?;
                self.dict_then_signature(d)
            }
            Broadcast => {
                self.operands(d, 1)?;
                self.expect(b',')?;
                self.field_ints(d, "sizes", "broadcast_sizes")?;
                self.dict_then_signature(d)
            }
            BroadcastInDim => {
                self.operands(d, 1)?;
                self.expect(b',')?;
                self.field_ints(d, "dims", "broadcast_dimensions")?;
                self.dict_then_signature(d)
            }
            DynamicBroadcastInDim => {
                self.operands(d, 2)?;
                self.expect(b',')?;
                self.field_ints(d, "dims", "broadcast_dimensions")?;
                self.dict_then_signature(d)
            }
            Cholesky => {
                self.operands(d, 1)?;
                if self.eat(b',') {
                    self.expect_field("lower")?;
                    let lower = self.boolean()?;
                    d.set("lower", Attr::Bool(lower));
                }
                self.dict_then_same(d)
            }
            Concatenate => {
                self.trailing_operands(d)?;
                self.field_int(d, "dim", "dimension")?;
                self.dict_then_signature(d)
            }
            Reverse => {
                self.operands(d, 1)?;
                self.expect(b',')?;
                self.field_ints(d, "dims", "dimensions")?;
                self.dict_then_same(d)
            }
            Transpose => {
                self.operands(d, 1)?;
                self.expect(b',')?;
                self.field_ints(d, "dims", "permutation")?;
                self.dict_then_signature(d)
            }
            Pad => {
                self.operands(d, 2)?;
                for (word, name) in
                    [("low", "edge_padding_low"), ("high", "edge_padding_high"), ("interior", "interior_padding")]
                {
                    self.expect(b',')?;
                    self.field_ints(d, word, name)?;
                }
                self.dict_then_signature(d)
            }
            Convolution => self.convolution(d),
            Dot => {
                self.operands(d, 2)?;
                if self.eat(b',') {
                    self.precision(d)?;
                }
                self.dict_then_signature(d)
            }
            DotGeneral => self.dot_general(d),
            Einsum | UnaryEinsum => {
                self.operands(d, if d.opcode == Einsum { 2 } else { 1 })?;
                self.expect(b',')?;
                self.expect_field("config")?;
                let config = self.string()?;
                d.set("einsum_config", Attr::Str(config));
                self.dict_then_signature(d)
            }
            Fft => {
                self.operands(d, 1)?;
                self.expect(b',')?;
                self.field_enum(d, "type", "fft_type")?;
                self.expect(b',')?;
                self.field_ints(d, "length", "fft_length")?;
                self.dict_then_signature(d)
            }
            GetDimensionSize | SetDimensionSize => {
                self.operands(d, if d.opcode == GetDimensionSize { 1 } else { 2 })?;
                self.expect(b',')?;
                self.field_int(d, "dim", "dimension")?;
                self.dict_then_signature(d)
            }
            OptimizationBarrier => {
                self.opt_dict(d)?;
                if self.eat(b'(') {
                    return self.expect(b')');
                }
                self.operand_list(d)?;
                self.expect(b':')?;
                let start = self.tok.start;
                d.results = self.type_list()?;
                let types = d.results.clone();
                self.check_operands(d, &types, start)
            }
            Rng => {
                self.operands(d, 3)?;
                self.expect(b',')?;
                self.field_enum(d, "distribution", "rng_distribution")?;
                self.dict_then_signature(d)
            }
            RngBitGenerator => {
                self.operands(d, 1)?;
                self.expect(b',')?;
                self.field_enum(d, "algorithm", "rng_algorithm")?;
                self.dict_then_signature(d)
            }
            ReducePrecision => {
                self.operands(d, 1)?;
                self.expect(b',')?;
                self.expect_field("format")?;
                self.exponent_mantissa(d)?;
                self.dict_then_same(d)
            }
            CustomCall => {
                let target = self.symbol()?;
                d.set("call_target_name", Attr::Str(target));
                d.operands = self.list(b'(', b')', Self::operand)?;
                self.dict_then_signature(d)
            }
            Composite => self.composite(d),
            Call => {
                let callee = self.symbol()?;
                d.set("callee", Attr::Symbol(callee));
                d.operands = self.list(b'(', b')', Self::operand)?;
                self.dict_then_signature(d)
            }
            Return => self.return_op(d),
            Reduce => self.reduce(d),
            While => self.while_op(d),
            _ if d.opcode.name().starts_with("chlo.") => self.chlo_op(d),
            _ if d.opcode.name().starts_with("sdy.") => self.sdy_op(d),
            other => {
                let message = format!("`{other}` has no pretty form");
                Err(self.error_help(d.name.clone(), message, format!("write it as `\"{other}\"(...) : (...) -> ...`")))
            }
        }
    }

    // Operands.

    /// `n` operands separated by commas.
    pub(super) fn operands(&mut self, d: &mut Draft, n: usize) -> Parsed<()> {
        for i in 0..n {
            if i > 0 {
                self.expect(b',')?;
            }
            d.operands.push(self.operand()?);
        }
        Ok(())
    }

    /// At least one operand.
    pub(super) fn operand_list(&mut self, d: &mut Draft) -> Parsed<()> {
        loop {
            d.operands.push(self.operand()?);
            if !self.eat(b',') {
                return Ok(());
            }
        }
    }

    /// Operands each followed by a comma.
    fn trailing_operands(&mut self, d: &mut Draft) -> Parsed<()> {
        while self.tok.kind == super::lexer::Kind::Percent {
            d.operands.push(self.operand()?);
            self.expect(b',')?;
        }
        Ok(())
    }

    // Fields.

    fn field_int(&mut self, d: &mut Draft, word: &str, name: &str) -> Parsed<()> {
        self.expect_field(word)?;
        let v = self.int()?;
        d.set(name, i64_attr(v));
        Ok(())
    }

    fn field_ints(&mut self, d: &mut Draft, word: &str, name: &str) -> Parsed<()> {
        self.expect_field(word)?;
        let v = self.ints()?;
        d.set(name, Attr::Ints(v));
        Ok(())
    }

    fn field_enum(&mut self, d: &mut Draft, word: &str, name: &str) -> Parsed<()> {
        self.expect_field(word)?;
        let v = self.word("a value of the enum")?;
        d.set(name, Attr::Enum(v.to_owned()));
        Ok(())
    }

    /// `[0:12, 1:9:2]`.
    fn slice_ranges(&mut self, d: &mut Draft) -> Parsed<()> {
        let ranges = self.list(b'[', b']', |p| {
            let start = p.int()?;
            p.expect(b':')?;
            let limit = p.int()?;
            let stride = if p.eat(b':') { p.int()? } else { 1 };
            Ok((start, limit, stride))
        })?;
        d.set("start_indices", Attr::Ints(ranges.iter().map(|r| r.0).collect()));
        d.set("limit_indices", Attr::Ints(ranges.iter().map(|r| r.1).collect()));
        d.set("strides", Attr::Ints(ranges.iter().map(|r| r.2).collect()));
        Ok(())
    }

    /// `e8m10`.
    fn exponent_mantissa(&mut self, d: &mut Draft) -> Parsed<()> {
        let span = self.span();
        let word = self.word("a format such as `e8m10`")?;
        let parts = word.strip_prefix('e').and_then(|w| w.split_once('m'));
        match parts.map(|(e, m)| (e.parse::<u16>(), m.parse::<u16>())) {
            Some((Ok(e), Ok(m))) => {
                d.set("exponent_bits", i32_attr(i64::from(e)));
                d.set("mantissa_bits", i32_attr(i64::from(m)));
                Ok(())
            }
            _ => Err(self.error(span, format!("expected a format such as `e8m10`, found `{word}`"))),
        }
    }

    // Ends.

    /// `{...} : type`, one type for operands and result, or a signature.
    pub(super) fn dict_then_same(&mut self, d: &mut Draft) -> Parsed<()> {
        self.opt_dict(d)?;
        self.expect(b':')?;
        let start = self.tok.start;
        match self.ty()? {
            Type::Func(t) => {
                self.check_operands(d, &t.inputs, start)?;
                d.results = t.outputs;
            }
            ty => {
                for (v, span) in &d.operands {
                    let actual = &self.names.values[*v].ty;
                    if *actual != ty {
                        let text = self.slice(span.clone());
                        let message = format!("`{text}` has type `{actual}`, the signature says `{ty}`");
                        return Err(self.error(span.clone(), message));
                    }
                }
                d.results = vec![ty];
            }
        }
        Ok(())
    }

    /// `{...} : (...) -> ...`.
    pub(super) fn dict_then_signature(&mut self, d: &mut Draft) -> Parsed<()> {
        self.opt_dict(d)?;
        self.expect(b':')?;
        self.func_signature(d)
    }

    /// `{...} : type` of the result.
    fn dict_then_results(&mut self, d: &mut Draft) -> Parsed<()> {
        self.opt_dict(d)?;
        self.expect(b':')?;
        let start = self.tok.start;
        match self.ty()? {
            Type::Func(t) => {
                self.check_operands(d, &t.inputs, start)?;
                d.results = t.outputs;
            }
            ty => d.results = vec![ty],
        }
        Ok(())
    }

    /// The complex result type alone, or a signature.
    fn complex_signature(&mut self, d: &mut Draft) -> Parsed<()> {
        let start = self.tok.start;
        if self.at(b'(') {
            return self.func_signature(d);
        }
        let t = self.tensor_type()?;
        let part = match t.dtype {
            DType::C64 => DType::F32,
            DType::C128 => DType::F64,
            _ => return Err(self.error(self.since(start), format!("expected complex elements, found `{t}`"))),
        };
        let operand = Type::Tensor(TensorType::new(t.dims.clone(), part));
        self.check_operands(d, &[operand.clone(), operand], start)?;
        d.results = vec![Type::Tensor(t)];
        Ok(())
    }

    /// `predicate type, result type`, or a signature.
    fn select_signature(&mut self, d: &mut Draft) -> Parsed<()> {
        let start = self.tok.start;
        if self.at(b'(') {
            return self.func_signature(d);
        }
        let types = self.type_list()?;
        let [pred, result] = types.as_slice() else {
            return Err(self.error(self.since(start), "expected the types of the predicate and of the result"));
        };
        self.check_operands(d, &[pred.clone(), result.clone(), result.clone()], start)?;
        d.results = vec![result.clone()];
        Ok(())
    }
}
