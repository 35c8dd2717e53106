//! From text to a program.

use super::AsmError;
use super::cursor::{Parser, Result};
use super::lex::Tok;
use super::print::{opens_address, prefix};
use crate::num::Format;
use crate::op::{Field, Instr, MAX_FIELDS, Op};
use crate::program::{Bundle, MAX_DEPTH, Node, Program};

/// The program that `text` describes.
///
/// Only the text's form is checked; whether the program makes sense on a chip is for [`check`](crate::check::check).
///
/// # Errors
/// The first token that does not fit, with what was expected there.
pub fn parse(text: &str) -> std::result::Result<Program, AsmError> {
    let mut p = Parser::new(text)?;
    let program = p.program()?;
    match p.token.kind {
        Tok::End => Ok(program),
        _ => p.expected("the end of the text"),
    }
}

impl Parser<'_> {
    fn program(&mut self) -> Result<Program> {
        self.word("program")?;
        let mut p = Program { name: self.string()?, ..Program::default() };
        self.word("chip")?;
        p.chip = self.string()?;
        p.hbm_peak_bytes = self.keyed("hbm_peak")?;
        p.vmem_peak_bytes = self.keyed("vmem_peak")?;
        loop {
            if self.eat("info")? {
                let info = self.info(p.ops.len())?;
                p.ops.push(info);
            } else if self.eat("flow")? {
                let flow = self.flow(p.flows.len())?;
                p.flows.push(flow);
            } else if self.eat("groups")? {
                let groups = self.groups(p.groups.len())?;
                p.groups.push(groups);
            } else if self.eat("peer")? {
                let peer = self.peer(p.peers.len())?;
                p.peers.push(peer);
            } else if self.eat("table")? {
                let table = self.table(p.tables.len())?;
                p.tables.push(table);
            } else if self.eat("send")? {
                let send = self.send(p.sends.len())?;
                p.sends.push(send);
            } else if self.eat("transfer")? {
                let transfer = self.transfer(p.transfers.len())?;
                p.transfers.push(transfer);
            } else if self.eat("buffer")? {
                let buffer = self.buffer(p.buffers.len())?;
                p.buffers.push(buffer);
            } else if self.eat("resident")? {
                let resident = self.resident(p.residents.len())?;
                p.residents.push(resident);
            } else if self.eat("desc")? {
                let desc = self.desc(p.descs.len())?;
                p.descs.push(desc);
            } else if self.eat("code")? {
                self.sign('{')?;
                p.body = self.nodes(1)?;
                return Ok(p);
            } else {
                return self.expected(
                    "`info`, `flow`, `groups`, `peer`, `table`, `send`, `transfer`, `buffer`, `resident`, `desc` or `code`",
                );
            }
        }
    }

    /// Nodes up to and with the closing brace.
    fn nodes(&mut self, depth: usize) -> Result<Vec<Node>> {
        if depth > MAX_DEPTH {
            return self.fail(format!("nesting deeper than {MAX_DEPTH} levels"));
        }
        let mut nodes = Vec::new();
        loop {
            if self.is_sign('}') {
                self.advance()?;
                return Ok(nodes);
            } else if self.is_sign('{') {
                nodes.push(Node::Bundle(self.bundle()?));
            } else if self.eat("loop")? {
                let counter = self.sreg()?;
                self.sign('=')?;
                if self.token.kind != Tok::Int(0) {
                    return self.expected("`0`, where every loop starts");
                }
                self.advance()?;
                if self.token.kind != Tok::Dots {
                    return self.expected("`..`");
                }
                self.advance()?;
                let trip = self.unsigned("a trip count")?;
                self.sign('{')?;
                nodes.push(Node::Loop { counter, trip, body: self.nodes(depth + 1)? });
            } else if self.eat("op")? {
                let op = self.unsigned("the index of an info")?;
                self.sign('{')?;
                nodes.push(Node::Op { op, body: self.nodes(depth + 1)? });
            } else if self.eat("while")? {
                nodes.push(self.while_loop(depth)?);
            } else if self.eat("case")? {
                nodes.push(self.case(depth)?);
            } else if self.eat("start")? {
                let transfer = self.unsigned("the index of a transfer")?;
                self.sign('{')?;
                nodes.push(Node::Start { transfer, body: self.nodes(depth + 1)? });
            } else if self.eat("done")? {
                nodes.push(Node::Done { transfer: self.unsigned("the index of a transfer")? });
            } else {
                return self.expected("a bundle `{ ... }`, `loop`, `op`, `while`, `case`, `start`, `done` or `}`");
            }
        }
    }

    /// The rest of a `while`.
    fn while_loop(&mut self, depth: usize) -> Result<Node> {
        let info = self.unsigned("the index of a flow")?;
        self.sign('{')?;
        let cond = self.nodes(depth + 1)?;
        self.word("test")?;
        let test = self.sreg()?;
        self.sign('{')?;
        Ok(Node::While { info, cond, test, body: self.nodes(depth + 1)? })
    }

    /// The rest of a `case`.
    fn case(&mut self, depth: usize) -> Result<Node> {
        let info = self.unsigned("the index of a flow")?;
        let selector = self.sreg()?;
        self.sign('{')?;
        let mut branches = Vec::new();
        while self.eat("branch")? {
            self.sign('{')?;
            branches.push(self.nodes(depth + 1)?);
        }
        if !self.is_sign('}') {
            return self.expected("`branch` or `}`");
        }
        self.advance()?;
        Ok(Node::Case { info, selector, branches })
    }

    fn bundle(&mut self) -> Result<Bundle> {
        self.sign('{')?;
        let mut bundle = Bundle::default();
        if self.is_sign('}') {
            self.advance()?;
            return Ok(bundle);
        }
        loop {
            bundle.instrs.push(self.instr()?);
            if self.is_sign('}') {
                self.advance()?;
                return Ok(bundle);
            }
            if !self.is_sign(';') {
                return self.expected("`;` or `}` after the instruction");
            }
            self.advance()?;
        }
    }

    fn instr(&mut self) -> Result<Instr> {
        let op = match &self.token.kind {
            Tok::Word(w) => Op::ALL.iter().copied().find(|o| o.name() == w),
            _ => None,
        };
        let Some(op) = op else {
            return self.expected("an instruction");
        };
        self.advance()?;
        let mut args = [0; MAX_FIELDS];
        let mut inside = false;
        for (n, (field, arg)) in op.fields().iter().zip(&mut args).enumerate() {
            if inside {
                *arg = self.displacement()?;
                inside = false;
                continue;
            }
            if n > 0 {
                self.comma(op, n)?;
            }
            if opens_address(op, n) {
                self.sign('[')?;
                inside = true;
            }
            *arg = self.operand(op, *field)?;
        }
        Ok(Instr { op, args })
    }

    fn comma(&mut self, op: Op, n: usize) -> Result<()> {
        if !self.is_sign(',') {
            return self.expected(&format!("`,` and operand {} of `{}`", n + 1, op.name()));
        }
        self.advance().map(drop)
    }

    /// The rest of `[s2+64]` after the register.
    fn displacement(&mut self) -> Result<i32> {
        let mut value = 0;
        if self.is_sign('+') {
            self.advance()?;
            value = self.imm()?;
        } else if self.is_sign('-') {
            value = self.imm()?;
        } else if !self.is_sign(']') {
            return self.expected("`+`, `-` or `]` after the address register");
        }
        self.sign(']')?;
        Ok(value)
    }

    fn operand(&mut self, op: Op, field: Field) -> Result<i32> {
        let what = match field {
            Field::Vd | Field::Vs => "a vector register",
            Field::Md | Field::Ms => "a mask register",
            Field::Sd | Field::Ss => "a scalar register",
            Field::Mxu => "an MXU",
            Field::Xlu => "an XLU",
            Field::Flag => "a sync flag",
            Field::Desc => "a descriptor",
            Field::Send => "a send descriptor",
            Field::Table => "a table",
            Field::Imm => return self.imm(),
            Field::Fmt => return self.format(op),
        };
        Ok(self.numbered(prefix(field), what)? as i32)
    }

    fn format(&mut self, op: Op) -> Result<i32> {
        if let Tok::Word(w) = &self.token.kind {
            let named = Format::ALL.iter().find(|f| f.name() == w).map(|f| f.code());
            let coded = || w.strip_prefix("fmt").and_then(|d| d.parse::<u32>().ok()).map(|c| c as i32);
            if let Some(code) = named.or_else(coded) {
                self.advance()?;
                return Ok(code);
            }
        }
        let names = Format::ALL.iter().map(|f| f.name()).collect::<Vec<_>>().join(", ");
        self.expected(&format!("the format of `{}` ({names})", op.name()))
    }

    /// 32 bits: a signed or unsigned integer, or a float's bits.
    fn imm(&mut self) -> Result<i32> {
        let negative = self.is_sign('-');
        if negative {
            self.advance()?;
        }
        let bits = match self.token.kind {
            Tok::Float(x) => Some((if negative { -x } else { x }).to_bits() as i32),
            Tok::Int(n) | Tok::Hex(n) if negative => i64::try_from(n).ok().and_then(|n| i32::try_from(-n).ok()),
            Tok::Int(n) | Tok::Hex(n) => u32::try_from(n).ok().map(|n| n as i32),
            _ => return self.expected("an immediate"),
        };
        let Some(bits) = bits else {
            return self.fail(format!("immediate {} does not fit 32 bits", self.token.kind.describe()));
        };
        self.advance()?;
        Ok(bits)
    }
}
