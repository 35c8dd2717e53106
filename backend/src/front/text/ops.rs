//! Operations: results, the generic form, signatures, regions.

use std::ops::Range;

use super::lexer::{Kind, lex};
use super::parser::{Failed, MAX_DIAGS, Parsed, Parser};
use super::testing::is_testing;
use crate::front::normalize;
use crate::hlo::{Attr, AttrList, Block, LocId, LocTable, Op, Opcode, Region, Type, ValueId};

/// An operation while it is being parsed.
pub(super) struct Draft {
    pub opcode: Opcode,
    /// Where its name stands.
    pub name: Range<usize>,
    pub operands: Vec<(ValueId, Range<usize>)>,
    pub attrs: Vec<(String, Attr)>,
    pub regions: Vec<Region>,
    pub results: Vec<Type>,
    /// A location given inside the op rather than behind it.
    pub loc: Option<LocId>,
}

impl Draft {
    pub fn set(&mut self, name: &str, attr: Attr) {
        self.attrs.push((name.to_owned(), attr));
    }
}

/// A name on the left of `=`: `%a` or `%a:2`.
struct ResultName<'a> {
    name: &'a str,
    span: Range<usize>,
    count: usize,
}

/// A block argument: name, type, location.
pub(super) type BlockArg<'a> = (&'a str, Range<usize>, Type, Option<LocId>);

impl<'a> Parser<'a> {
    /// Operations up to the closing brace, which is left. `returns` are the types the block must return, if known.
    pub(super) fn block_ops(&mut self, returns: Option<&[Type]>, implicit_return: bool) -> Parsed<Vec<Op>> {
        let mut ops: Vec<Op> = Vec::new();
        let open = self.last_end;
        while !self.at(b'}') {
            if self.tok.kind == Kind::Eof {
                return self.expected("`}`");
            }
            if self.tok.kind == Kind::Caret {
                return Err(self.error(self.span(), "a region has one block: StableHLO has no jumps"));
            }
            let start = self.tok.start;
            if ops.last().is_some_and(|o| o.opcode == Opcode::Return) {
                return Err(self.error(self.span(), "an operation behind the end of its block"));
            }
            let mark = self.enter();
            let mut names = Vec::new();
            match self.op(&mut names) {
                Ok(op) => {
                    if op.opcode == Opcode::Return
                        && let Some(types) = returns
                    {
                        self.check_return(&op, types, start)?;
                    }
                    ops.push(op);
                }
                Err(Failed) if self.diags.len() >= MAX_DIAGS => return Err(Failed),
                Err(Failed) => {
                    self.leave(mark);
                    for r in names {
                        self.poison(r.name);
                    }
                    self.skip_op(start);
                }
            }
        }
        if ops.last().is_none_or(|o| o.opcode != Opcode::Return) && self.diags.is_empty() {
            if !implicit_return {
                let message = "the block does not end with `return`";
                return Err(self.error(open.saturating_sub(1)..open, message));
            }
            ops.push(Op {
                opcode: Opcode::Return,
                operands: Vec::new(),
                results: Vec::new(),
                attrs: AttrList::default(),
                regions: Vec::new(),
                loc: LocTable::UNKNOWN,
            });
        }
        Ok(ops)
    }

    fn check_return(&mut self, op: &Op, types: &[Type], start: usize) -> Parsed<()> {
        let given: Vec<String> = op.operands.iter().map(|&v| self.names.values[v].ty.to_string()).collect();
        let wanted: Vec<String> = types.iter().map(Type::to_string).collect();
        if given == wanted {
            return Ok(());
        }
        let message = format!("returns ({}), the function's type says ({})", given.join(", "), wanted.join(", "));
        Err(self.error(self.since(start), message))
    }

    /// Continues behind the op at byte `start`: at the next line of the same block that can begin an op.
    pub(super) fn skip_op(&mut self, start: usize) {
        self.reset(start);
        let mut open = 0u32;
        loop {
            match self.tok.kind {
                Kind::Eof => return,
                Kind::Punct(b'{' | b'(' | b'[') => open += 1,
                Kind::Punct(b'}') if open == 0 => return,
                Kind::Punct(b'}' | b')' | b']') => open = open.saturating_sub(1),
                _ => {}
            }
            let end = self.bump().end;
            let new_line = self.slice(end..self.tok.start).contains('\n');
            let next = lex(self.src, self.tok.end).kind;
            let starts_op = match self.tok.kind {
                Kind::Percent => matches!(next, Kind::Punct(b'=' | b':')),
                Kind::Str => next == Kind::Punct(b'('),
                Kind::Caret => true,
                Kind::Word => self.text().contains('.') || matches!(self.text(), "return" | "call"),
                _ => false,
            };
            if open == 0 && new_line && starts_op {
                return;
            }
        }
    }

    /// One operation with its results and location; `names` receives the names it defines, even if it fails.
    fn op(&mut self, names: &mut Vec<ResultName<'a>>) -> Parsed<Op> {
        if self.tok.kind == Kind::Percent {
            loop {
                names.push(self.result_name()?);
                if !self.eat(b',') {
                    break;
                }
            }
            self.expect(b'=')?;
        }
        let span = self.span();
        let (spelled, generic) = match self.tok.kind {
            Kind::Str => (self.string()?, true),
            Kind::Word => (self.word("an operation")?.to_owned(), false),
            _ => return self.expected("an operation"),
        };
        let testing = is_testing(&spelled);
        let Some(opcode) = Opcode::from_name(&spelled).or(testing.then_some(Opcode::CustomCall)) else {
            let message = format!("operation `{spelled}` is not supported");
            return Err(self.error_help(span, message, "StableHLO, CHLO and Shardy operations and `func.call` are"));
        };
        let mut d = Draft {
            opcode,
            name: span.clone(),
            operands: Vec::new(),
            attrs: Vec::new(),
            regions: Vec::new(),
            results: Vec::new(),
            loc: None,
        };
        self.nested(|p| match (generic, testing) {
            (true, _) => p.generic_op(&mut d),
            (false, true) => p.testing_op(&mut d, &spelled),
            (false, false) => p.pretty_op(&mut d),
        })?;
        if testing {
            d.set("call_target_name", Attr::Str(spelled));
        }
        let trailing = self.trailing_loc()?;
        let given = trailing.or(d.loc);
        let loc = given.unwrap_or_else(|| self.place(span.start));
        self.finish(d, names, loc)
    }

    fn result_name(&mut self) -> Parsed<ResultName<'a>> {
        if self.tok.kind != Kind::Percent {
            return self.expected("the name of a result");
        }
        let (name, span) = (&self.text()[1..], self.span());
        self.bump();
        let mut count = 1;
        if self.eat(b':') {
            let span = self.span();
            count = match usize::try_from(self.int()?) {
                Ok(n) if n > 0 => n,
                _ => return Err(self.error(span, "expected a number of results")),
            };
        }
        Ok(ResultName { name, span, count })
    }

    /// Checks counts, normalises the attributes and defines the results.
    fn finish(&mut self, d: Draft, names: &[ResultName<'a>], loc: LocId) -> Parsed<Op> {
        let what = d.opcode.name();
        if let Err(message) = normalize::check_counts(d.opcode, d.operands.len(), d.results.len(), d.regions.len()) {
            return Err(self.error(d.name, message));
        }
        let mut attrs = self.attr_list(d.attrs, d.name.start)?;
        if let Err(message) = normalize::normalize_attrs(d.opcode, &mut attrs) {
            return Err(self.error(d.name, format!("`{what}`: {message}")));
        }
        let named: usize = names.iter().fold(0, |n, r| n.saturating_add(r.count));
        if named != d.results.len() && !names.is_empty() {
            let message = format!("{named} results are named, `{what}` has {}", d.results.len());
            return Err(self.error(d.name, message));
        }
        let mut types = d.results.into_iter();
        let mut results = Vec::new();
        for r in names {
            let part: Vec<Type> = types.by_ref().take(r.count).collect();
            results.extend(self.define(r.name, r.span.clone(), part)?);
        }
        // Results nobody names are values all the same.
        results.extend(types.map(|ty| self.names.values.push(crate::hlo::Value { ty })));
        Ok(Op {
            opcode: d.opcode,
            operands: d.operands.into_iter().map(|(v, _)| v).collect(),
            results,
            attrs,
            regions: d.regions,
            loc,
        })
    }

    /// `(%a, %b) <{...}> ({...}) {...} : (...) -> ...` behind the quoted name.
    fn generic_op(&mut self, d: &mut Draft) -> Parsed<()> {
        d.operands = self.list(b'(', b')', Self::operand)?;
        self.generic_tail(d)
    }

    /// The generic form behind the operands.
    pub(super) fn generic_tail(&mut self, d: &mut Draft) -> Parsed<()> {
        if self.at(b'[') {
            return Err(self.error(self.span(), "StableHLO has no jumps between blocks"));
        }
        if self.eat(b'<') {
            let properties = self.attr_dict()?;
            d.attrs.extend(properties.iter().map(|(n, a)| (n.to_owned(), a.clone())));
            self.expect(b'>')?;
        }
        if self.at(b'(') {
            let isolated = is_isolated(d.opcode);
            let implicit = d.opcode == Opcode::SdyManualComputation;
            d.regions = self.list(b'(', b')', |p| p.region(None, isolated, implicit))?;
        }
        self.opt_dict(d)?;
        self.expect(b':')?;
        self.func_signature(d)
    }

    /// `{...}`, if it is there.
    pub(super) fn opt_dict(&mut self, d: &mut Draft) -> Parsed<()> {
        if self.at(b'{') {
            let dict = self.list(b'{', b'}', |p| {
                let name =
                    if p.tok.kind == Kind::Str { p.string()? } else { p.word("the name of an attribute")?.to_owned() };
                let value = if p.eat(b'=') { p.attr()? } else { Attr::Unit };
                Ok((name, value))
            })?;
            d.attrs.extend(dict);
        }
        Ok(())
    }

    /// `(operand types) -> result types`.
    pub(super) fn func_signature(&mut self, d: &mut Draft) -> Parsed<()> {
        let start = self.tok.start;
        let t = self.func_type()?;
        self.check_operands(d, &t.inputs, start)?;
        d.results = t.outputs;
        Ok(())
    }

    /// Compares the types of a signature that began at byte `start` with those of the operands.
    pub(super) fn check_operands(&mut self, d: &Draft, types: &[Type], start: usize) -> Parsed<()> {
        if d.operands.len() != types.len() {
            let message = format!("{} operands, but {} operand types", d.operands.len(), types.len());
            return Err(self.error(self.since(start), message));
        }
        for ((v, span), ty) in d.operands.iter().zip(types) {
            let actual = &self.names.values[*v].ty;
            if actual != ty {
                let message = format!("`{}` has type `{actual}`, the signature says `{ty}`", self.slice(span.clone()));
                return Err(self.error(span.clone(), message));
            }
        }
        Ok(())
    }

    /// `{ ops }` or `{ ^bb0(%a: type): ops }`. `args` are given where the syntax around the region names them.
    pub(super) fn region(&mut self, args: Option<Vec<BlockArg<'a>>>, isolated: bool, implicit: bool) -> Parsed<Region> {
        self.nested(|p| {
            if isolated { p.isolated(|p| p.region_body(args, implicit)) } else { p.region_body(args, implicit) }
        })
    }

    fn region_body(&mut self, args: Option<Vec<BlockArg<'a>>>, implicit: bool) -> Parsed<Region> {
        let mark = self.enter();
        let r = self.region_scope(args, implicit);
        self.leave(mark);
        r
    }

    fn region_scope(&mut self, args: Option<Vec<BlockArg<'a>>>, implicit: bool) -> Parsed<Region> {
        self.expect(b'{')?;
        let mut block = Block::default();
        let args = match args {
            Some(a) => a,
            None if self.tok.kind == Kind::Caret => {
                self.bump();
                let args = if self.at(b'(') { self.list(b'(', b')', Self::block_arg)? } else { Vec::new() };
                self.expect(b':')?;
                args
            }
            None => Vec::new(),
        };
        for (name, span, ty, _) in args {
            block.args.extend(self.define(name, span, vec![ty])?);
        }
        block.ops = self.block_ops(None, implicit)?;
        self.expect(b'}')?;
        Ok(Region { block })
    }

    /// `%name: type loc(...)`.
    pub(super) fn block_arg(&mut self) -> Parsed<BlockArg<'a>> {
        if self.tok.kind != Kind::Percent {
            return self.expected("a block argument");
        }
        let (name, span) = (&self.text()[1..], self.span());
        self.bump();
        self.expect(b':')?;
        let ty = self.ty()?;
        let loc = self.trailing_loc()?;
        Ok((name, span, ty, loc))
    }
}

/// Whether regions of the op see no value from outside.
pub(super) fn is_isolated(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::SdyManualComputation | Opcode::SdyNamedComputation | Opcode::ChloScan)
}
