//! The text form of a module: one canonical spelling, which the text front end reads back to an equal module.
//!
//! Common ops are in their pretty form, the others in MLIR's generic form with attributes sorted by name. Values are numbered in
//! the order they appear.

use std::fmt::{self, Write};

use rustc_hash::FxHashMap;

use super::print_attr::{attr_dict, name, quoted, symbol};
use super::print_pretty::{pretty, short_reduce, signature};
use super::{Block, Func, Loc, LocId, LocTable, Module, Op, Opcode, Region, ValueId};

impl fmt::Display for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text(false))
    }
}

impl Module {
    /// The module as text, with or without the locations of its ops.
    pub fn to_text(&self, locations: bool) -> String {
        let mut p = Printer { out: String::new(), locations };
        p.module(self);
        p.out
    }
}

struct Printer {
    out: String,
    locations: bool,
}

/// Names of the values of a function.
pub(super) struct Values<'a> {
    pub(super) func: &'a Func,
    names: FxHashMap<ValueId, String>,
    next: u32,
}

impl Values<'_> {
    /// A fresh name for one value.
    fn define(&mut self, v: ValueId) -> String {
        let name = format!("%{}", self.next);
        self.next += 1;
        self.names.insert(v, name.clone());
        name
    }

    pub(super) fn name(&self, v: ValueId) -> &str {
        self.names.get(&v).map_or("%undefined", String::as_str)
    }

    pub(super) fn list(&self, vs: &[ValueId]) -> String {
        vs.iter().map(|&v| self.name(v)).collect::<Vec<_>>().join(", ")
    }

    pub(super) fn types(&self, vs: &[ValueId]) -> String {
        vs.iter().map(|&v| self.func.ty(v).to_string()).collect::<Vec<_>>().join(", ")
    }
}

impl Printer {
    /// Writing to a string cannot fail.
    fn put(&mut self, text: fmt::Arguments<'_>) {
        let _ = self.out.write_fmt(text);
    }

    fn loc(&mut self, id: LocId) {
        if self.locations {
            match id {
                LocTable::UNKNOWN => self.out.push_str(" loc(unknown)"),
                LocId(n) => self.put(format_args!(" loc(#loc{n})")),
            }
        }
    }

    fn module(&mut self, m: &Module) {
        self.out.push_str("module");
        if !m.name.is_empty() {
            self.put(format_args!(" {}", symbol(&m.name)));
        }
        if !m.attrs.is_empty() {
            self.put(format_args!(" attributes {}", attr_dict(&m.attrs, None)));
        }
        self.out.push_str(" {\n");
        for (mesh, attr) in &m.meshes {
            let body = super::print_attr::attr("mesh", attr, None);
            let generic = format!("  \"sdy.mesh\"() <{{mesh = {body}, sym_name = {}}}> : () -> ()\n", quoted(mesh));
            self.out.push_str(&generic);
        }
        for f in &m.funcs {
            self.func(f);
        }
        self.out.push_str("}\n");
        if self.locations {
            self.loc_table(&m.locs);
        }
    }

    /// Definitions of all locations, innermost first as they are in the table.
    fn loc_table(&mut self, table: &LocTable) {
        let refer = |id: &LocId| if *id == LocTable::UNKNOWN { "unknown".to_owned() } else { format!("#loc{}", id.0) };
        for (LocId(n), loc) in table.iter().skip(1) {
            let body = match loc {
                Loc::Unknown => "unknown".to_owned(),
                Loc::File { file, line, col } => format!("{}:{line}:{col}", quoted(file)),
                Loc::Name(text, child) if *child == LocTable::UNKNOWN => quoted(text),
                Loc::Name(text, child) => format!("{}({})", quoted(text), refer(child)),
                Loc::CallSite(callee, caller) => format!("callsite({} at {})", refer(callee), refer(caller)),
                Loc::Fused(parts) => format!("fused[{}]", parts.iter().map(refer).collect::<Vec<_>>().join(", ")),
            };
            self.put(format_args!("#loc{n} = loc({body})\n"));
        }
    }

    fn func(&mut self, f: &Func) {
        let mut values = Values { func: f, names: FxHashMap::default(), next: 0 };
        let visibility = if f.public { "" } else { "private " };
        self.put(format_args!("  func.func {visibility}{}(", symbol(&f.name)));
        for (i, p) in f.params.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            let name = values.define(p.value);
            self.put(format_args!("{comma}{name}: {}", f.ty(p.value)));
            if !p.attrs.is_empty() {
                self.put(format_args!(" {}", attr_dict(&p.attrs, None)));
            }
            self.loc(p.loc);
        }
        self.out.push(')');
        if !f.results.is_empty() {
            let result = |r: &super::ResultInfo| {
                if r.attrs.is_empty() { r.ty.to_string() } else { format!("{} {}", r.ty, attr_dict(&r.attrs, None)) }
            };
            self.put(format_args!(" -> ({})", f.results.iter().map(result).collect::<Vec<_>>().join(", ")));
        }
        if !f.attrs.is_empty() {
            self.put(format_args!(" attributes {}", attr_dict(&f.attrs, None)));
        }
        self.out.push_str(" {\n");
        self.block(&f.body, &mut values, 2, "return");
        self.out.push_str("  }");
        self.loc(f.loc);
        self.out.push('\n');
    }

    fn block(&mut self, b: &Block, values: &mut Values<'_>, indent: usize, end: &str) {
        for op in &b.ops {
            self.put(format_args!("{:1$}", "", indent * 2));
            self.op(op, values, indent, end);
            self.loc(op.loc);
            self.out.push('\n');
        }
    }

    fn results(&mut self, op: &Op, values: &mut Values<'_>) {
        match op.results.as_slice() {
            [] => {}
            &[v] => {
                let name = values.define(v);
                self.put(format_args!("{name} = "));
            }
            many => {
                let base = values.next;
                values.next += 1;
                for (i, &v) in many.iter().enumerate() {
                    values.names.insert(v, format!("%{base}#{i}"));
                }
                self.put(format_args!("%{base}:{} = ", many.len()));
            }
        }
    }

    fn op(&mut self, op: &Op, values: &mut Values<'_>, indent: usize, end: &str) {
        let operands = values.list(&op.operands);
        if op.opcode == Opcode::Return {
            self.out.push_str(end);
            if !op.attrs.is_empty() {
                self.put(format_args!(" {}", attr_dict(&op.attrs, Some(op.opcode))));
            }
            if !op.operands.is_empty() {
                self.put(format_args!(" {operands} : {}", values.types(&op.operands)));
            }
            return;
        }
        self.results(op, values);
        if let Some(text) = pretty(op, values).or_else(|| short_reduce(op, values, self.locations)) {
            self.out.push_str(&text);
            return;
        }
        if op.opcode == Opcode::While && self.while_op(op, values, indent) {
            return;
        }
        self.put(format_args!("\"{}\"({operands})", op.opcode));
        if !op.regions.is_empty() {
            self.out.push_str(" (");
            for (i, r) in op.regions.iter().enumerate() {
                if i > 0 {
                    self.out.push_str(", ");
                }
                self.region(r, values, indent, op.opcode);
            }
            self.out.push(')');
        }
        if !op.attrs.is_empty() {
            self.put(format_args!(" {}", attr_dict(&op.attrs, Some(op.opcode))));
        }
        self.out.push_str(&signature(op, values));
    }

    /// A loop in its pretty form; `false` if its regions do not have one argument per operand.
    fn while_op(&mut self, op: &Op, values: &mut Values<'_>, indent: usize) -> bool {
        let [cond, body] = op.regions.as_slice() else { return false };
        let fits = |r: &Region| {
            r.block.args.len() == op.operands.len()
                && r.block.args.iter().zip(&op.operands).all(|(&a, &o)| values.func.ty(a) == values.func.ty(o))
        };
        let same_results = op.results.len() == op.operands.len()
            && op.results.iter().zip(&op.operands).all(|(&r, &o)| values.func.ty(r) == values.func.ty(o));
        if op.operands.is_empty() || !fits(cond) || !fits(body) || !same_results {
            return false;
        }
        self.out.push_str("stablehlo.while(");
        for (i, (&o, (&c, &b))) in op.operands.iter().zip(cond.block.args.iter().zip(&body.block.args)).enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            let name = values.define(c);
            self.put(format_args!("{comma}{name} = {}", values.name(o)));
            values.names.insert(b, name);
        }
        self.put(format_args!(") : {}", values.types(&op.operands)));
        if !op.attrs.is_empty() {
            self.put(format_args!(" attributes {}", attr_dict(&op.attrs, Some(op.opcode))));
        }
        for (word, region) in [("cond", cond), ("do", body)] {
            match word {
                "cond" => self.put(format_args!("\n{:1$}cond {{\n", "", indent * 2)),
                _ => self.out.push_str(" do {\n"),
            }
            self.block(&region.block, values, indent + 1, "stablehlo.return");
            self.put(format_args!("{:1$}}}", "", indent * 2));
        }
        true
    }

    fn region(&mut self, r: &Region, values: &mut Values<'_>, indent: usize, parent: Opcode) {
        self.out.push_str("{\n");
        if !r.block.args.is_empty() {
            self.put(format_args!("{:1$}^bb0(", "", indent * 2));
            for (i, &v) in r.block.args.iter().enumerate() {
                let comma = if i == 0 { "" } else { ", " };
                let name = values.define(v);
                self.put(format_args!("{comma}{name}: {}", values.func.ty(v)));
            }
            self.out.push_str("):\n");
        }
        let end = if parent.name().starts_with("sdy.") { "sdy.return" } else { "stablehlo.return" };
        self.block(&r.block, values, indent + 1, end);
        self.put(format_args!("{:1$}}}", "", indent * 2));
    }
}

impl fmt::Display for super::Attr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&super::print_attr::attr("", self, None))
    }
}

impl fmt::Display for super::AttrList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (n, a)) in self.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{} = {a}", name(n))?;
        }
        Ok(())
    }
}
