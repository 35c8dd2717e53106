//! From the operations of the file to the module of the IR.

use super::decode::Decoder;
use super::error::{BytecodeError, ErrorKind, Result};
use super::ir::{RawBlock, RawOp, RawRegion};
use super::ops::{self, OpSpec};
use super::sections::lookup;
use super::upgrade;
use crate::hlo::{
    Attr, AttrList, Block, Func, IdVec, LocId, LocTable, Module, Op, Opcode, Param, Region, ResultInfo, Type, Value,
    ValueId,
};

/// Builds the module. Functions that cannot be built are left out, each with its error.
pub(super) fn module(d: &mut Decoder<'_>, top: Vec<RawOp>) -> Result<(Module, Vec<BytecodeError>)> {
    let missing = |at| BytecodeError::new(ErrorKind::Missing("a single top-level module".into()), at);
    let at = top.first().map_or(d.file.ir.offset(), |op| op.offset);
    let [raw] = <[RawOp; 1]>::try_from(top).map_err(|_| missing(at))?;
    let spec = op_spec(d, &raw)?;
    if spec.name != "builtin.module" {
        return Err(named(d, missing(raw.offset), &raw));
    }
    let mut attrs = attributes(d, &raw, spec)?;
    let mut module = Module::default();
    if let Some(Attr::Str(s)) = attrs.remove("sym_name") {
        module.name = s;
    }
    attrs.remove("sym_visibility");
    module.attrs = attrs;
    let mut errors = Vec::new();
    for op in raw.regions.into_iter().flat_map(|r| r.blocks).flat_map(|b| b.ops) {
        let at = op.offset;
        let result = op_spec(d, &op).and_then(|spec| top_level(d, &mut module, &op, spec));
        if let Err(e) = result.map_err(|e| named(d, e, &op)) {
            // A budget once spent stays spent: the rest would only repeat the error.
            let fatal = e.kind == ErrorKind::Budget;
            errors.push(e);
            if fatal {
                break;
            }
        }
        d.charge(1, at)?;
    }
    module.locs = std::mem::take(&mut d.locs.table);
    Ok((module, errors))
}

fn top_level(d: &mut Decoder<'_>, module: &mut Module, op: &RawOp, spec: OpSpec) -> Result<()> {
    match spec.name {
        "vhlo.func" => {
            let func = function(d, op, spec)?;
            module.funcs.push(func);
        }
        "sdy.mesh" => {
            let mut attrs = attributes(d, op, spec)?;
            match (attrs.remove("sym_name"), attrs.remove("mesh")) {
                (Some(Attr::Str(name)), Some(mesh)) => module.meshes.push((name, mesh)),
                _ => return fail(ErrorKind::Missing("name or axes of a mesh".into()), op.offset),
            }
        }
        name => return fail(ErrorKind::Unsupported(format!("`{name}` at the top of a module")), op.offset),
    }
    Ok(())
}

fn fail<T>(kind: ErrorKind, at: usize) -> Result<T> {
    Err(BytecodeError::new(kind, at))
}

/// Adds the operation's name and source position to an error.
fn named(d: &mut Decoder<'_>, e: BytecodeError, op: &RawOp) -> BytecodeError {
    match full_name(d, op) {
        Ok(name) => e.in_op(&name, || d.position(op.loc)),
        Err(_) => e,
    }
}

/// Full name of an operation.
fn full_name(d: &Decoder<'_>, op: &RawOp) -> Result<String> {
    let entry = lookup(&d.file.op_names, op.name as u64, "operation name", op.offset)?;
    Ok(format!("{}.{}", d.file.dialect(entry.dialect), d.file.string(entry.name, op.offset)?))
}

/// What is known about an operation, by its name.
fn op_spec(d: &mut Decoder<'_>, op: &RawOp) -> Result<OpSpec> {
    if let Some(spec) = d.specs.get(&op.name) {
        return Ok(*spec);
    }
    let entry = lookup(&d.file.op_names, op.name as u64, "operation name", op.offset)?;
    let dialect = d.file.dialect(entry.dialect);
    if let Some(spec) = ops::find(dialect, d.file.string(entry.name, op.offset)?) {
        d.specs.insert(op.name, spec);
        return Ok(spec);
    }
    let name = full_name(d, op)?;
    let kind = match dialect {
        "stablehlo" | "chlo" | "func" | "mhlo" => ErrorKind::NotPortable(name),
        _ => ErrorKind::UnknownOp(name),
    };
    fail(kind, op.offset)
}

/// All attributes of an operation: its properties, and what stands in its dictionary.
fn attributes(d: &mut Decoder<'_>, op: &RawOp, spec: OpSpec) -> Result<AttrList> {
    let mut list = match op.attrs {
        Some(i) => dictionary(d.attr(i, op.offset)?, op.offset)?,
        None => AttrList::default(),
    };
    let Some(i) = op.properties else { return Ok(list) };
    let mut r = lookup(&d.file.properties, i, "properties", op.offset)?.clone();
    if !lookup(&d.file.op_names, op.name as u64, "operation name", op.offset)?.registered {
        let at = r.offset();
        let all = dictionary(d.attr(r.varint()?, at)?, at)?;
        for (name, attr) in all.iter() {
            list.set(name, attr.clone());
        }
        return Ok(list);
    }
    for (name, optional) in spec.properties() {
        let at = r.offset();
        // Properties that later versions of a dialect added are missing at the end.
        let index = match optional {
            true if r.is_empty() => None,
            true => r.optional()?,
            false => Some(r.varint()?),
        };
        if let Some(i) = index {
            list.set(name, d.attr(i, at)?);
        }
    }
    r.finish("properties")?;
    Ok(list)
}

fn dictionary(attr: Attr, at: usize) -> Result<AttrList> {
    match attr {
        Attr::Dict(list) => Ok(list),
        _ => fail(ErrorKind::Expected("a dictionary".into()), at),
    }
}

/// A list of dictionaries, one per argument or result, or none at all.
fn dictionaries(attr: Option<Attr>, n: usize, at: usize) -> Result<Vec<AttrList>> {
    let items = match attr {
        None => Vec::new(),
        Some(Attr::Array(items)) => items,
        Some(_) => return fail(ErrorKind::Expected("a list of dictionaries".into()), at),
    };
    match items.len() {
        0 => Ok(vec![AttrList::default(); n]),
        k if k == n => items.into_iter().map(|a| dictionary(a, at)).collect(),
        k => fail(ErrorKind::Expected(format!("{n} dictionaries of attributes instead of {k}")), at),
    }
}

fn function(d: &mut Decoder<'_>, op: &RawOp, spec: OpSpec) -> Result<Func> {
    let at = op.offset;
    let loc = d.loc(op.loc, at)?;
    let mut attrs = attributes(d, op, spec)?;
    let Some(Attr::Str(name)) = attrs.remove("sym_name") else {
        return fail(ErrorKind::Missing("name of a function".into()), at);
    };
    let public = match attrs.remove("sym_visibility") {
        None => true,
        Some(Attr::Str(s)) => s.is_empty() || s == "public",
        Some(_) => return fail(ErrorKind::Expected("a string as `sym_visibility`".into()), at),
    };
    let Some(Attr::Type(Type::Func(ty))) = attrs.remove("function_type") else {
        return fail(ErrorKind::Missing("type of a function".into()), at);
    };
    let (arg_attrs, res_attrs) = (attrs.remove("arg_attrs"), attrs.remove("res_attrs"));
    let [body] = op.regions.as_slice() else { return fail(ErrorKind::Missing("body of a function".into()), at) };
    if body.blocks.is_empty() {
        return fail(ErrorKind::Unsupported("a function without a body".into()), at);
    }
    let mut b = Builder { d, values: IdVec::default(), scopes: Vec::new() };
    let (mut body, locs) = b.isolated(std::slice::from_ref(body))?.pop().unwrap_or_default();
    let values = b.values;
    // The parameters of a function are listed once, with their attributes.
    let args = std::mem::take(&mut body.args);
    if args.len() != ty.inputs.len() {
        return fail(ErrorKind::Expected(format!("{} arguments", ty.inputs.len())), at);
    }
    let params = args.into_iter().zip(locs).zip(dictionaries(arg_attrs, ty.inputs.len(), at)?);
    let params = params.map(|((value, loc), attrs)| Param { value, attrs, loc }).collect();
    let results = dictionaries(res_attrs, ty.outputs.len(), at)?;
    let results = ty.outputs.into_iter().zip(results).map(|(ty, attrs)| ResultInfo { ty, attrs }).collect();
    Ok(Func { name, public, params, results, values, body, attrs, loc })
}

/// The values that the operations of an isolated region may refer to.
#[derive(Default)]
struct Scope {
    /// By number in the file; `None` where the definition has not come yet.
    values: Vec<Option<ValueId>>,
    /// The next number to define, one per open region.
    next: Vec<usize>,
}

/// Builds the body of one function.
struct Builder<'d, 'a> {
    d: &'d mut Decoder<'a>,
    values: IdVec<ValueId, Value>,
    scopes: Vec<Scope>,
}

impl Builder<'_, '_> {
    /// Blocks of regions that see no values from outside, with the locations of their arguments.
    fn isolated(&mut self, regions: &[RawRegion]) -> Result<Vec<(Block, Vec<LocId>)>> {
        self.scopes.push(Scope::default());
        let blocks = regions.iter().map(|r| self.region(r)).collect();
        self.scopes.pop();
        blocks
    }

    fn scope(&mut self, at: usize) -> Result<&mut Scope> {
        self.scopes.last_mut().ok_or_else(|| BytecodeError::new(ErrorKind::Value(0), at))
    }

    fn region(&mut self, region: &RawRegion) -> Result<(Block, Vec<LocId>)> {
        let at = region.offset;
        let block = match region.blocks.as_slice() {
            [block] => block,
            [] => return fail(ErrorKind::Missing("body of a region".into()), at),
            _ => return fail(ErrorKind::Unsupported("several blocks in a region".into()), at),
        };
        let len = self.d.file.len;
        let scope = self.scope(at)?;
        let first = scope.values.len();
        // Every value takes a byte of its own, its type at least.
        if region.values > len.saturating_sub(first) {
            return fail(ErrorKind::Count(region.values as u64, "values", len.saturating_sub(first)), at);
        }
        scope.next.push(first);
        scope.values.resize(first + region.values, None);
        let result = self.block(block, at);
        let scope = self.scope(at)?;
        scope.values.truncate(first);
        scope.next.pop();
        result
    }

    fn block(&mut self, raw: &RawBlock, at: usize) -> Result<(Block, Vec<LocId>)> {
        let mut block = Block::default();
        let mut locs = Vec::new();
        for &(ty, loc) in &raw.args {
            let ty = self.d.ty(ty, at)?;
            let v = self.values.push(Value { ty });
            self.define(v, at)?;
            block.args.push(v);
            locs.push(loc.map_or(Ok(LocTable::UNKNOWN), |l| self.d.loc(l, at))?);
        }
        for op in &raw.ops {
            let spec = op_spec(self.d, op);
            let built = spec.and_then(|spec| self.op(op, spec));
            block.ops.extend(built.map_err(|e| named(self.d, e, op))?);
        }
        match block.ops.last() {
            Some(op) if op.opcode == Opcode::Return => Ok((block, locs)),
            _ => fail(ErrorKind::Missing("return at the end of a region".into()), at),
        }
    }

    /// Takes the next `n` numbers of the innermost region.
    fn reserve(&mut self, n: usize, at: usize) -> Result<usize> {
        let scope = self.scope(at)?;
        let len = scope.values.len();
        match scope.next.last_mut() {
            Some(next) if n <= len - *next => {
                *next += n;
                Ok(*next - n)
            }
            _ => fail(ErrorKind::Value(len as u64), at),
        }
    }

    /// Says which value the file means by `number`.
    fn set(&mut self, number: usize, v: ValueId, at: usize) -> Result<()> {
        match self.scope(at)?.values.get_mut(number) {
            Some(slot) => {
                *slot = Some(v);
                Ok(())
            }
            None => fail(ErrorKind::Value(number as u64), at),
        }
    }

    fn define(&mut self, v: ValueId, at: usize) -> Result<()> {
        let number = self.reserve(1, at)?;
        self.set(number, v, at)
    }

    fn operands(&mut self, op: &RawOp) -> Result<Vec<ValueId>> {
        let scope = self.scope(op.offset)?;
        let value = |&i: &u64| usize::try_from(i).ok().and_then(|i| *scope.values.get(i)?);
        op.operands
            .iter()
            .map(|i| value(i).ok_or_else(|| BytecodeError::new(ErrorKind::Value(*i), op.offset)))
            .collect()
    }

    /// Builds an operation; casts between the types of dialects vanish.
    fn op(&mut self, raw: &RawOp, spec: OpSpec) -> Result<Option<Op>> {
        let at = raw.offset;
        let operands = self.operands(raw)?;
        if spec.name == "builtin.unrealized_conversion_cast" {
            if operands.len() != raw.results.len() {
                return fail(ErrorKind::Unsupported("a cast that changes the number of values".into()), at);
            }
            for v in operands {
                self.define(v, at)?;
            }
            return Ok(None);
        }
        let opcode = opcode(spec).ok_or_else(|| BytecodeError::new(ErrorKind::UnknownOp(spec.name.into()), at))?;
        let attrs = attributes(self.d, raw, spec)?;
        let attrs = match spec.name.starts_with("vhlo.") {
            true => upgrade::vhlo(self.d, spec, attrs, at)?,
            false => upgrade::sdy(spec, attrs, at)?,
        };
        let loc = self.d.loc(raw.loc, at)?;
        // The file numbers results before what the regions define; in the IR they come after it, as in the text of a program,
        // which names their types behind the regions.
        let first = self.reserve(raw.results.len(), at)?;
        let blocks = if raw.isolated {
            self.isolated(&raw.regions)?
        } else {
            raw.regions.iter().map(|r| self.region(r)).collect::<Result<_>>()?
        };
        let mut results = Vec::new();
        for (i, &ty) in raw.results.iter().enumerate() {
            let ty = self.d.ty(ty, at)?;
            let v = self.values.push(Value { ty });
            self.set(first + i, v, at)?;
            results.push(v);
        }
        let regions = blocks.into_iter().map(|(block, _)| Region { block }).collect();
        Ok(Some(Op { opcode, operands, results, attrs, regions, loc }))
    }
}

/// The IR's operation for a VHLO or Shardy operation.
fn opcode(spec: OpSpec) -> Option<Opcode> {
    match spec.name {
        "vhlo.return" | "sdy.return" => Some(Opcode::Return),
        "vhlo.call" => Some(Opcode::Call),
        name => match name.strip_prefix("vhlo.") {
            Some(base) => Opcode::from_name(&format!("stablehlo.{base}")),
            None => Opcode::from_name(name),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_versioned_operation_has_its_opcode() {
        for name in ops::vhlo_names() {
            let spec = ops::find("vhlo", name.strip_prefix("vhlo.").unwrap_or_default());
            let spec = spec.unwrap_or_else(|| panic!("{name} is not found"));
            assert!(opcode(spec).is_some() || spec.name == "vhlo.func", "{name}");
        }
    }
}
