//! Whether two modules say the same, and where they first differ.

use rustc_hash::FxHashMap;

use super::{AttrList, Block, Func, Module, Op, ValueId};

impl Module {
    /// Compares two modules but for locations and the numbering of values.
    ///
    /// # Errors
    ///
    /// Where they first differ.
    pub fn same_as(&self, other: &Module) -> Result<(), String> {
        equal("module name", &self.name, &other.name)?;
        attrs("module", &self.attrs, &other.attrs)?;
        equal("meshes", &self.meshes, &other.meshes)?;
        let names = |m: &Module| m.funcs.iter().map(|f| f.name.clone()).collect::<Vec<_>>();
        equal("functions", &names(self), &names(other))?;
        for (a, b) in self.funcs.iter().zip(&other.funcs) {
            funcs(a, b).map_err(|e| format!("@{}: {e}", a.name))?;
        }
        Ok(())
    }
}

/// Equal, or equal as printed: a NaN is the same as a NaN.
fn equal<T: PartialEq + std::fmt::Debug>(what: &str, a: &T, b: &T) -> Result<(), String> {
    if a == b {
        return Ok(());
    }
    let (left, right) = (format!("{a:?}"), format!("{b:?}"));
    if left == right {
        return Ok(());
    }
    let short = |s: String| if s.len() > 400 { s.chars().take(400).collect::<String>() + "..." } else { s };
    Err(format!("{what}: {} against {}", short(left), short(right)))
}

fn attrs(what: &str, a: &AttrList, b: &AttrList) -> Result<(), String> {
    let names = |l: &AttrList| l.iter().map(|(n, _)| n.to_owned()).collect::<Vec<_>>();
    equal(&format!("{what}: names of attributes"), &names(a), &names(b))?;
    for ((name, x), (_, y)) in a.iter().zip(b.iter()) {
        equal(&format!("{what}: attribute `{name}`"), x, y)?;
    }
    Ok(())
}

fn funcs(a: &Func, b: &Func) -> Result<(), String> {
    equal("visibility", &a.public, &b.public)?;
    attrs("function", &a.attrs, &b.attrs)?;
    equal("number of parameters", &a.params.len(), &b.params.len())?;
    let mut ids = Ids { left: a, right: b, map: FxHashMap::default() };
    for (i, (p, q)) in a.params.iter().zip(&b.params).enumerate() {
        attrs(&format!("parameter {i}"), &p.attrs, &q.attrs)?;
        ids.define(&format!("parameter {i}"), p.value, q.value)?;
    }
    equal("number of results", &a.results.len(), &b.results.len())?;
    for (i, (r, s)) in a.results.iter().zip(&b.results).enumerate() {
        equal(&format!("type of result {i}"), &r.ty, &s.ty)?;
        attrs(&format!("result {i}"), &r.attrs, &s.attrs)?;
    }
    ids.blocks(&a.body, &b.body)
}

/// Which value of one function is which of the other.
struct Ids<'a> {
    left: &'a Func,
    right: &'a Func,
    map: FxHashMap<ValueId, ValueId>,
}

impl Ids<'_> {
    fn define(&mut self, what: &str, a: ValueId, b: ValueId) -> Result<(), String> {
        equal(&format!("type of {what}"), self.left.ty(a), self.right.ty(b))?;
        self.map.insert(a, b);
        Ok(())
    }

    fn blocks(&mut self, a: &Block, b: &Block) -> Result<(), String> {
        equal("number of block arguments", &a.args.len(), &b.args.len())?;
        for (i, (&x, &y)) in a.args.iter().zip(&b.args).enumerate() {
            self.define(&format!("block argument {i}"), x, y)?;
        }
        for (i, (x, y)) in a.ops.iter().zip(&b.ops).enumerate() {
            self.ops(x, y).map_err(|e| format!("op {i} ({}): {e}", x.opcode))?;
        }
        equal("number of ops", &a.ops.len(), &b.ops.len())
    }

    fn ops(&mut self, a: &Op, b: &Op) -> Result<(), String> {
        equal("opcode", &a.opcode, &b.opcode)?;
        attrs("op", &a.attrs, &b.attrs)?;
        equal("number of operands", &a.operands.len(), &b.operands.len())?;
        for (i, (x, y)) in a.operands.iter().zip(&b.operands).enumerate() {
            if self.map.get(x) != Some(y) {
                return Err(format!("operand {i} is another value"));
            }
        }
        equal("number of regions", &a.regions.len(), &b.regions.len())?;
        for (i, (r, s)) in a.regions.iter().zip(&b.regions).enumerate() {
            self.blocks(&r.block, &s.block).map_err(|e| format!("region {i}: {e}"))?;
        }
        equal("number of results", &a.results.len(), &b.results.len())?;
        for (i, (&x, &y)) in a.results.iter().zip(&b.results).enumerate() {
            self.define(&format!("result {i}"), x, y)?;
        }
        Ok(())
    }
}
