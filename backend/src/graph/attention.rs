//! Attention without a kernel: calls of it become calls of what they stand for.

use tpusim_isa::chip::ChipSpec;

use crate::hlo::{Attr, Block, Func, Module, ModuleBuilder, Op, Opcode};
use crate::lower::attention::AttentionKernel;
use crate::ops::attention::Attention;

/// What `op` of `f` computes, if it is attention.
pub(super) fn attention(f: &Func, op: &Op) -> Option<Attention> {
    let types = |v: &[crate::hlo::ValueId]| v.iter().map(|&v| f.ty(v).clone()).collect::<Vec<_>>();
    (op.opcode == Opcode::CustomCall).then(|| Attention::of(op, &types(&op.operands), &types(&op.results)))??.ok()
}

/// Which attentions are kernels.
#[derive(Clone, Copy, Debug)]
pub enum Fused<'c> {
    /// None.
    Never,
    /// All that there is code for.
    Always,
    /// Those that fit a chip, and parts of those that do not.
    On(&'c ChipSpec),
}

/// Positions of parts, where sequences are too long for a kernel.
const PARTS: [u64; 6] = [16384, 8192, 4096, 2048, 1024, 512];

impl Fused<'_> {
    fn form(self, a: &Attention) -> Form {
        let fits = |a: &Attention| match self {
            Fused::Never => false,
            Fused::Always => AttentionKernel::supports(a),
            Fused::On(chip) => AttentionKernel::supports(a) && !AttentionKernel::candidates(a, chip).is_empty(),
        };
        if fits(a) {
            return Form::Kernel;
        }
        let part = |n: &u64| a.divides(*n) && fits(&Attention { queries: *n, keys: *n, ..a.clone() });
        PARTS.into_iter().find(part).map_or(Form::Products, Form::Parts)
    }
}

/// What becomes of an attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// It is a kernel.
    Kernel,
    /// It is cut into parts of so many positions, which are kernels.
    Parts(u64),
    /// It is products and a softmax.
    Products,
}

/// The module without attentions that are no kernels; `None` if all are.
pub(super) fn decomposed(module: &Module, fused: Fused<'_>) -> Option<Module> {
    let mut wanted: Vec<(Attention, Form)> = Vec::new();
    let mut funcs = module.funcs.clone();
    for f in &mut funcs {
        let types = f.clone();
        rewrite(&types, &mut f.body, fused, &mut wanted);
    }
    if wanted.is_empty() {
        return None;
    }
    let mut m = ModuleBuilder::over(Module { funcs: Vec::new(), ..module.clone() });
    for (i, (a, form)) in wanted.iter().enumerate() {
        match form {
            Form::Parts(n) => a.define_parts(&mut m, &name(i), *n),
            _ => a.define(&mut m, &name(i)),
        }
    }
    let mut out = m.unchecked();
    out.funcs.extend(funcs);
    Some(out)
}

fn name(i: usize) -> String {
    format!("tpusim.attention.{i}")
}

fn rewrite(f: &Func, block: &mut Block, fused: Fused<'_>, wanted: &mut Vec<(Attention, Form)>) {
    for op in &mut block.ops {
        op.regions.iter_mut().for_each(|r| rewrite(f, &mut r.block, fused, wanted));
        let Some(a) = attention(f, op).map(|a| (fused.form(&a), a)).filter(|x| x.0 != Form::Kernel) else { continue };
        let a = (a.1, a.0);
        let i = wanted.iter().position(|w| *w == a).unwrap_or_else(|| {
            wanted.push(a);
            wanted.len() - 1
        });
        op.opcode = Opcode::Call;
        op.attrs = std::iter::once(("callee".to_owned(), Attr::Symbol(name(i)))).collect();
    }
}
