//! The verifier: the only way from a [`Module`] to a [`Verified`] one, which passes and the evaluator may trust.

use rustc_hash::{FxHashMap, FxHashSet};

use super::{Block, DYNAMIC, Func, LocId, Module, Op, Opcode, Type, ValueId};
use crate::ops::{self, Rule, Site, types_agree};

/// A module that [`verify`] accepted: every op has the operands, results, regions and attributes its shape rule asks for, every
/// value is defined before it is used, every symbol is there, no function calls itself, every shape is fixed.
#[derive(Clone, Debug)]
pub struct Verified<T = Module>(T);

impl<T> Verified<T> {
    /// The module, free to be changed again.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> std::ops::Deref for Verified<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

/// What is wrong with a module, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}@{func}: {}{message}", place(.line), subject(.op))]
pub struct VerifyError {
    /// Function.
    pub func: String,
    /// Name of the op, if it is about one.
    pub op: Option<&'static str>,
    /// Location of the op.
    pub loc: LocId,
    /// File and line the location stands for.
    pub line: Option<(String, u32)>,
    /// What is wrong.
    pub message: String,
}

fn place(line: &Option<(String, u32)>) -> String {
    line.as_ref().map(|(f, l)| format!("{f}:{l}: ")).unwrap_or_default()
}

fn subject(op: &Option<&'static str>) -> String {
    op.map(|o| format!("{o}: ")).unwrap_or_default()
}

/// What to do about a dynamic dimension.
const NO_DYNAMIC: &str = "a dimension of unknown size is not supported, only fixed shapes are; export the program with the sizes it \
                          will run with (in JAX without symbolic dimensions, in PyTorch without dynamic shapes)";

/// Checks `module`.
///
/// # Errors
/// All the errors found, in the order of the program.
pub fn verify(module: Module) -> Result<Verified<Module>, Vec<VerifyError>> {
    let mut v = Verifier { module: &module, errors: Vec::new() };
    v.symbols();
    for f in &module.funcs {
        v.func(f);
    }
    let errors = v.errors;
    if errors.is_empty() { Ok(Verified(module)) } else { Err(errors) }
}

struct Verifier<'m> {
    module: &'m Module,
    errors: Vec<VerifyError>,
}

impl<'m> Verifier<'m> {
    fn error(&mut self, func: &Func, op: Option<&Op>, message: impl Into<String>) {
        self.error_at(func, op, op.map_or(func.loc, |op| op.loc), message);
    }

    fn error_at(&mut self, func: &Func, op: Option<&Op>, loc: LocId, message: impl Into<String>) {
        self.errors.push(VerifyError {
            func: func.name.clone(),
            op: op.map(|op| op.opcode.name()),
            loc,
            line: self.module.locs.file_line(loc).map(|(f, l)| (f.to_owned(), l)),
            message: message.into(),
        });
    }

    /// Function names differ, and calls do not go in circles.
    fn symbols(&mut self) {
        let mut index: FxHashMap<&str, usize> = FxHashMap::default();
        for (i, f) in self.module.funcs.iter().enumerate() {
            if index.insert(&f.name, i).is_some() {
                self.error(f, None, "a second function of this name");
            }
        }
        let callees: Vec<Vec<usize>> = (self.module.funcs.iter())
            .map(|f| {
                let mut out = Vec::new();
                calls(&f.body, &mut |name| out.extend(index.get(name)));
                out
            })
            .collect();
        // Removes functions that call only removed ones; what stays is on a circle or calls into one.
        let mut left: Vec<usize> = callees.iter().map(Vec::len).collect();
        let mut callers = vec![Vec::new(); callees.len()];
        callees.iter().enumerate().for_each(|(f, cs)| cs.iter().for_each(|&c| callers[c].push(f)));
        let mut ready: Vec<usize> = (0..left.len()).filter(|&f| left[f] == 0).collect();
        while let Some(f) = ready.pop() {
            for &c in &callers[f] {
                left[c] -= 1;
                if left[c] == 0 {
                    ready.push(c);
                }
            }
        }
        for f in (0..left.len()).filter(|&f| left[f] > 0) {
            self.error(&self.module.funcs[f], None, "calls itself, directly or through others");
        }
    }

    fn func(&mut self, f: &'m Func) {
        let mut scope = Scope::default();
        for (i, p) in f.params.iter().enumerate() {
            if usize::from(p.value) < f.values.len() && dynamic(f.ty(p.value)) {
                let message = format!("parameter {i} is {}: {NO_DYNAMIC}", f.ty(p.value));
                self.error_at(f, None, p.loc, message);
            }
            self.define(f, None, p.value, &mut scope);
        }
        self.block(f, &f.body, &mut scope);
        let declared: Vec<Type> = f.results.iter().map(|r| r.ty.clone()).collect();
        match crate::eval::terminator(&f.body) {
            Some(op) => {
                let known = op.operands.iter().all(|v| usize::from(*v) < f.values.len());
                let returned: Vec<Type> =
                    if known { op.operands.iter().map(|v| f.ty(*v).clone()).collect() } else { Vec::new() };
                let same =
                    returned.len() == declared.len() && returned.iter().zip(&declared).all(|(a, b)| types_agree(a, b));
                if known && !same {
                    self.error(
                        f,
                        Some(op),
                        format!("returns ({}), declared are ({})", list(&returned), list(&declared)),
                    );
                }
            }
            None => self.error(f, None, "does not end with a return"),
        }
    }

    fn define(&mut self, f: &Func, op: Option<&Op>, v: ValueId, scope: &mut Scope) {
        if usize::from(v) >= f.values.len() {
            return self.error(f, op, format!("value {} has no type", v.0));
        }
        if !scope.ever.insert(v) {
            self.error(f, op, format!("value {} is defined twice", v.0));
        }
        if op.is_some() && dynamic(f.ty(v)) {
            self.error(f, op, format!("gives {}: {NO_DYNAMIC}", f.ty(v)));
        }
        scope.visible.insert(v);
        scope.defined.push(v);
    }

    fn block(&mut self, f: &'m Func, block: &'m Block, scope: &mut Scope) {
        for (i, op) in block.ops.iter().enumerate() {
            if op.opcode == Opcode::Return && i + 1 != block.ops.len() {
                self.error(f, Some(op), "ends its block, but other ops follow");
            }
            self.op(f, op, scope);
        }
    }

    fn op(&mut self, f: &'m Func, op: &'m Op, scope: &mut Scope) {
        let before = self.errors.len();
        for v in &op.operands {
            if !scope.visible.contains(v) {
                self.error(f, Some(op), format!("operand {} is not defined here", v.0));
            }
        }
        for region in &op.regions {
            let outside = scope.defined.len();
            for &a in &region.block.args {
                self.define(f, Some(op), a, scope);
            }
            self.block(f, &region.block, scope);
            scope.defined.drain(outside..).for_each(|v| {
                scope.visible.remove(&v);
            });
        }
        for &r in &op.results {
            self.define(f, Some(op), r, scope);
        }
        // Rules presume that operands and results have fixed types.
        if self.errors.len() == before {
            self.rule(f, op);
        }
    }

    fn rule(&mut self, f: &'m Func, op: &'m Op) {
        let Some(def) = ops::lookup(op.opcode) else {
            if op.opcode != Opcode::Return || !op.regions.is_empty() || !op.results.is_empty() {
                self.error(f, Some(op), "is no op by itself");
            }
            return;
        };
        if !def.operands.fits(op.operands.len()) {
            return self.error(
                f,
                Some(op),
                format!("takes {} operands, has {}", count(def.operands), op.operands.len()),
            );
        }
        if !def.regions.fits(op.regions.len()) {
            return self.error(f, Some(op), format!("takes {} regions, has {}", count(def.regions), op.regions.len()));
        }
        let site = Site { module: self.module, func: f, op };
        match def.rule {
            Rule::Check(check) => {
                if let Err(e) = check(&site) {
                    self.error(f, Some(op), e.0);
                }
            }
            Rule::Infer(infer) => match infer(&site) {
                Err(e) => self.error(f, Some(op), e.0),
                Ok(types) => {
                    let declared = site.result_types();
                    let same =
                        types.len() == declared.len() && types.iter().zip(&declared).all(|(a, b)| types_agree(a, b));
                    if !same {
                        let message = format!("gives ({}), declared are ({})", list(&types), list(&declared));
                        self.error(f, Some(op), message);
                    }
                }
            },
        }
    }
}

/// Values that can be used here, in the order of their definitions too, and all that were defined so far in the function.
#[derive(Default)]
struct Scope {
    visible: FxHashSet<ValueId>,
    defined: Vec<ValueId>,
    ever: FxHashSet<ValueId>,
}

fn calls<'m>(block: &'m Block, f: &mut impl FnMut(&'m str)) {
    for op in &block.ops {
        for name in ["callee", "decomposition"] {
            if let (Opcode::Call | Opcode::Composite, Some(callee)) = (op.opcode, op.attrs.text(name)) {
                f(callee);
            }
        }
        op.regions.iter().for_each(|r| calls(&r.block, f));
    }
}

fn dynamic(t: &Type) -> bool {
    match t {
        Type::Tensor(t) => t.dims.contains(&DYNAMIC),
        Type::Tuple(ts) => ts.iter().any(dynamic),
        _ => false,
    }
}

fn list(types: &[Type]) -> String {
    types.iter().map(Type::to_string).collect::<Vec<_>>().join(", ")
}

fn count(a: ops::Arity) -> String {
    match a {
        ops::Arity::Exactly(n) => n.to_string(),
        ops::Arity::AtLeast(n) => format!("at least {n}"),
    }
}
