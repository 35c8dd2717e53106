//! Quantized tensors: arrays of their stored integers.
//!
//! What only moves elements, and the order of elements, works on stored integers as they are. Any other operation works on the numbers
//! that they stand for, in the expressed type, and its result is quantized again. Products of stored bytes less their zero points are
//! exact, since those differences are bf16 numbers: they are multiplied first and scaled after.

use super::super::NodeId;
use super::contract::{bits_to_bytes, dot_spec};
use super::special::Chain;
use super::wide::Value;
use super::*;
use crate::hlo::{Attr, Op, Opcode, Quant};
use crate::lower::math::{MapOp, WideOp};
use crate::ops;

/// The parameters of a value's type, if it is quantized.
fn quant_of(f: &Func, v: ValueId) -> Option<&Quant> {
    f.ty(v).tensor().and_then(|t| t.quant.as_deref())
}

/// Whether stored integers are treated as the numbers they stand for would be.
fn keeps_stored(op: &Op) -> bool {
    use Opcode as O;
    let known = ops::lookup(op.opcode).is_some_and(|d| d.quantized);
    known && !matches!(op.opcode, O::UniformQuantize | O::UniformDequantize | O::Scatter | O::SelectAndScatter)
}

impl Chain<'_, '_> {
    /// One number of `dtype` for each parameter of `q`, along its axis.
    fn parameters(&mut self, q: &Quant, values: &[f64], dtype: DType) -> NodeId {
        let element = |v: &f64| match dtype.is_float() {
            true => bits_to_bytes((*v as f32).to_bits() as i32, dtype),
            false => bits_to_bytes(*v as i32, dtype),
        };
        let same = values.iter().all(|v| *v == values[0]);
        let full = Shape { dims: self.dims.clone(), dtype };
        match q.axis {
            Some(axis) if !same => {
                let bytes: Vec<u8> = values.iter().flat_map(|v| element(v).to_vec()).collect();
                let row = Shape { dims: vec![values.len() as u64], dtype };
                let row = self.b.constant(bytes.into(), &row, self.name, self.site.clone());
                self.b.broadcast(row, vec![axis], &full, self.name, self.site.clone())
            }
            _ => {
                let bytes = values.first().map_or_else(|| bits_to_bytes(0, dtype), element);
                self.b.constant(bytes, &full, self.name, self.site.clone())
            }
        }
    }

    /// Stored integers less their zero points, as `dtype`.
    fn centred(&mut self, x: NodeId, q: &Quant, dtype: DType) -> NodeId {
        if q.zero_points.iter().all(|&z| z == 0) {
            return self.typed(MapOp::Convert, &[x], dtype);
        }
        let zeros: Vec<f64> = q.zero_points.iter().map(|&z| z as f64).collect();
        // Differences of narrow integers do not overflow, those of 32 bits would.
        let between = if q.storage.bits() < 32 { DType::I32 } else { DType::F32 };
        let x = self.typed(MapOp::Convert, &[x], between);
        let z = self.parameters(q, &zeros, between);
        let d = self.typed(MapOp::Sub, &[x, z], between);
        self.typed(MapOp::Convert, &[d], dtype)
    }

    /// The numbers that stored integers stand for.
    fn dequantized(&mut self, x: NodeId, q: &Quant) -> NodeId {
        let offset = self.centred(x, q, q.expressed);
        let scale = self.parameters(q, &q.scales, q.expressed);
        self.typed(MapOp::Mul, &[offset, scale], q.expressed)
    }

    /// Numbers as stored integers: the zero point is added before rounding, so that ties go to the even stored integer.
    fn quantized(&mut self, x: NodeId, q: &Quant) -> NodeId {
        let dtype = q.expressed;
        let scale = self.parameters(q, &q.scales, dtype);
        let mut y = if dtype == DType::F32 {
            // A quotient that is one ulp off a tie would be a whole step off.
            let zero = self.value(0.0);
            self.map(MapOp::Wide(WideOp::Div, 0), &[x, zero, scale, zero])
        } else {
            self.typed(MapOp::Div, &[x, scale], dtype)
        };
        if q.zero_points.iter().any(|&z| z != 0) {
            let zeros: Vec<f64> = q.zero_points.iter().map(|&z| z as f64).collect();
            let zeros = self.parameters(q, &zeros, dtype);
            y = self.typed(MapOp::Add, &[y, zeros], dtype);
        }
        for (m, limit) in [(MapOp::Max, q.storage_min), (MapOp::Min, q.storage_max)] {
            let limit = self.parameters(q, &[limit as f64], dtype);
            y = self.typed(m, &[y, limit], dtype);
        }
        let y = self.typed(MapOp::RoundEven, &[y], dtype);
        self.typed(MapOp::Convert, &[y], q.storage)
    }
}

impl Builder<'_> {
    /// An operation on quantized tensors; `None` if there are none, or if it works on stored integers.
    pub(super) fn with_quantized(
        &mut self,
        f: &Func,
        op: &Op,
        args: &[Value],
        outer: Option<&(String, String)>,
    ) -> Option<Result<Vec<Value>, LowerError>> {
        let mut quants = op.operands.iter().chain(&op.results).filter_map(|&v| quant_of(f, v)).peekable();
        quants.peek()?;
        if keeps_stored(op) {
            return None;
        }
        if let Some(q) = quants.find(|q| q.expressed.bits() > 32 || q.storage.bits() > 32) {
            return Some(Err(self.error(
                op.opcode.name(),
                op.loc,
                format!("on {q} is not lowered; up to 32 bits are"),
            )));
        }
        Some(self.on_quantized(f, op, args, outer))
    }

    fn on_quantized(
        &mut self,
        f: &Func,
        op: &Op,
        args: &[Value],
        outer: Option<&(String, String)>,
    ) -> Result<Vec<Value>, LowerError> {
        let refused = |b: &Self, m: &str| b.error(op.opcode.name(), op.loc, m);
        let single: Option<Vec<NodeId>> = args.iter().map(|v| v.one()).collect();
        let (Some(own), &[result]) = (single, &op.results[..]) else {
            return Err(refused(
                self,
                "on quantized tensors needs one result and no operands of 64 bits to be lowered",
            ));
        };
        if !op.regions.is_empty() {
            return Err(refused(self, "on quantized tensors is not lowered; on their dequantized values it is"));
        }
        let site = self.site(op, outer);
        let name = op.opcode.name().rsplit('.').next().unwrap_or("op");
        let stored = self.tensor(f, result, op.opcode.name(), op.loc)?;
        let to = quant_of(f, result);
        let t = Shape { dims: stored.dims.clone(), dtype: to.map_or(stored.dtype, |q| q.expressed) };
        let quants: Vec<Option<&Quant>> = op.operands.iter().map(|&v| quant_of(f, v)).collect();
        let product = matches!(op.opcode, Opcode::Dot | Opcode::DotGeneral | Opcode::Convolution);
        let value = match (&own[..], &quants[..]) {
            (&[a, b], &[Some(p), Some(q)]) if product && p.storage.bits() <= 8 && q.storage.bits() <= 8 => {
                self.quantized_product(op, [a, b], [p, q], &t, name, &site)?
            }
            _ => {
                let real: Vec<NodeId> = own
                    .iter()
                    .zip(&quants)
                    .map(|(&x, q)| match q {
                        None => x,
                        Some(q) => {
                            let dims = self.node(x).dims.clone();
                            Chain { b: self, dims, name, site: site.clone() }.dequantized(x, q)
                        }
                    })
                    .collect();
                match op.opcode {
                    Opcode::UniformQuantize | Opcode::UniformDequantize => {
                        self.map(MapOp::Convert, &real, &t, name, site.clone())
                    }
                    _ => self.single(op, &real, &t, site.clone())?,
                }
            }
        };
        let mut c = Chain { b: self, dims: t.dims, name, site };
        let value = to.map_or(value, |q| c.quantized(value, q));
        Ok(vec![Value::One(value)])
    }

    /// A product of stored bytes, scaled after.
    fn quantized_product(
        &mut self,
        op: &Op,
        x: [NodeId; 2],
        q: [&Quant; 2],
        t: &Shape,
        name: &'static str,
        site: &(String, String),
    ) -> Result<NodeId, LowerError> {
        let ranks = x.map(|x| self.node(x).dims.len());
        let axis = [0, 1].map(|side| q[side].axis.map(|d| result_axis(op, side, d, ranks)));
        if axis.contains(&Some(None)) {
            let m = "with scales along a dimension that the result does not have is not lowered";
            return Err(self.error(op.opcode.name(), op.loc, m));
        }
        let bytes = |q: &Quant| q.storage.bits() == 8 && q.zero_points.iter().all(|&z| z == 0);
        let mut c = Chain { b: self, dims: t.dims.clone(), name, site: site.clone() };
        let sum = if q.into_iter().all(bytes) {
            let sum = c.b.single(op, &x, &Shape { dims: t.dims.clone(), dtype: DType::I32 }, site.clone())?;
            c.map(MapOp::Convert, &[sum])
        } else {
            let own = [0, 1].map(|side| {
                let dims = c.b.node(x[side]).dims.clone();
                Chain { b: c.b, dims, name, site: site.clone() }.centred(x[side], q[side], DType::BF16)
            });
            c.b.single(op, &own, &Shape { dims: t.dims.clone(), dtype: DType::F32 }, site.clone())?
        };
        let scales = [0, 1].map(|side| {
            let moved = Quant { axis: axis[side].flatten(), ..q[side].clone() };
            c.parameters(&moved, &moved.scales, DType::F32)
        });
        let scale = match q {
            [p, q] if p.axis.is_none() && q.axis.is_none() => {
                let both: Vec<f64> =
                    p.scales.iter().zip(&q.scales).map(|(&a, &b)| f64::from(a as f32) * f64::from(b as f32)).collect();
                c.parameters(p, &both, DType::F32)
            }
            _ => c.map(MapOp::Mul, &scales),
        };
        let y = c.map(MapOp::Mul, &[sum, scale]);
        Ok(c.typed(MapOp::Convert, &[y], t.dtype))
    }
}

/// Where dimension `d` of operand `side` of a product is in its result.
fn result_axis(op: &Op, side: usize, d: usize, ranks: [usize; 2]) -> Option<usize> {
    if let Some(Attr::Conv(dims)) = op.attrs.get("dimension_numbers") {
        let dims: &crate::hlo::ConvDims = dims;
        let of = |v: i64| usize::try_from(v).ok();
        return (side == 1 && of(dims.kernel_output_feature) == Some(d)).then(|| of(dims.output_feature)).flatten();
    }
    let spec = dot_spec(op, ranks[0]);
    if let Some(i) = spec.batch[side].iter().position(|&b| b == d) {
        return Some(i);
    }
    let before = spec.batch[0].len() + if side == 1 { spec.free(0, ranks[0]).len() } else { 0 };
    spec.free(side, ranks[side]).iter().position(|&b| b == d).map(|i| before + i)
}
