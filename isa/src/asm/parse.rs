//! From text to a program.

use super::lex::{Lexer, Tok, Token};
use super::print::{opens_address, prefix};
use super::{AsmError, MAX_ZERO_RUN_BYTES};
use crate::num::{DType, Format};
use crate::op::{Field, Instr, MAX_FIELDS, Op};
use crate::program::{
    Addr, Buffer, BufferKind, Bundle, DmaDesc, DmaDim, DmaDir, MAX_DEPTH, Node, OpInfo, Program, SReg,
};

type Result<T> = std::result::Result<T, AsmError>;

/// The program that `text` describes.
///
/// Only the text's form is checked; whether the program makes sense on a chip is for [`check`](crate::check::check).
///
/// # Errors
/// The first token that does not fit, with what was expected there.
pub fn parse(text: &str) -> Result<Program> {
    let mut p = Parser::new(text)?;
    let program = p.program()?;
    match p.token.kind {
        Tok::End => Ok(program),
        _ => p.expected("the end of the text"),
    }
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    token: Token,
    zero_bytes: u64,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Result<Self> {
        let mut lexer = Lexer::new(text);
        let token = lexer.next()?;
        Ok(Parser { lexer, token, zero_bytes: 0 })
    }

    fn advance(&mut self) -> Result<Tok> {
        let next = self.lexer.next()?;
        Ok(std::mem::replace(&mut self.token, next).kind)
    }

    fn fail<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(AsmError { line: self.token.line, column: self.token.column, message: message.into() })
    }

    fn expected<T>(&self, what: &str) -> Result<T> {
        self.fail(format!("expected {what}, found {}", self.token.kind.describe()))
    }

    fn is_sign(&self, c: char) -> bool {
        self.token.kind == Tok::Sign(c)
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(&self.token.kind, Tok::Word(w) if w == word)
    }

    fn sign(&mut self, c: char) -> Result<()> {
        if !self.is_sign(c) {
            return self.expected(&format!("`{c}`"));
        }
        self.advance().map(drop)
    }

    fn word(&mut self, word: &str) -> Result<()> {
        if !self.is_word(word) {
            return self.expected(&format!("`{word}`"));
        }
        self.advance().map(drop)
    }

    /// Consumes `word` if it is next.
    fn eat(&mut self, word: &str) -> Result<bool> {
        let found = self.is_word(word);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    fn string(&mut self) -> Result<String> {
        if !matches!(self.token.kind, Tok::Str(_)) {
            return self.expected("a string");
        }
        match self.advance()? {
            Tok::Str(s) => Ok(s),
            _ => self.expected("a string"),
        }
    }

    fn unsigned<T: TryFrom<u64>>(&mut self, what: &str) -> Result<T> {
        let (Tok::Int(n) | Tok::Hex(n)) = self.token.kind else {
            return self.expected(what);
        };
        let Ok(value) = T::try_from(n) else {
            return self.fail(format!("{what} {n} does not fit {} bits", 8 * size_of::<T>()));
        };
        self.advance()?;
        Ok(value)
    }

    fn signed(&mut self, what: &str) -> Result<i64> {
        let negative = self.is_sign('-');
        if negative {
            self.advance()?;
        }
        let (Tok::Int(n) | Tok::Hex(n)) = self.token.kind else {
            return self.expected(what);
        };
        let value = if negative { -i128::from(n) } else { i128::from(n) };
        let Ok(value) = i64::try_from(value) else {
            return self.fail(format!("{what} {value} does not fit 64 bits"));
        };
        self.advance()?;
        Ok(value)
    }

    /// `word` followed by a number.
    fn keyed<T: TryFrom<u64>>(&mut self, word: &str) -> Result<T> {
        self.word(word)?;
        self.unsigned(&format!("a number after `{word}`"))
    }

    fn keyed_signed(&mut self, word: &str) -> Result<i64> {
        self.word(word)?;
        self.signed(&format!("a number after `{word}`"))
    }

    /// The index that the next entry of a table must have.
    fn index(&mut self, expected: usize, what: &str) -> Result<()> {
        if self.token.kind != Tok::Int(expected as u64) {
            return self.expected(&format!("`{expected}`, the index of the next {what}"));
        }
        self.advance().map(drop)
    }

    /// A word made of a prefix and a number, such as `v3`.
    fn numbered(&mut self, prefix: &str, what: &str) -> Result<u32> {
        let number = match &self.token.kind {
            Tok::Word(w) => w.strip_prefix(prefix).filter(|d| d.bytes().all(|b| b.is_ascii_digit())),
            _ => None,
        };
        let Some(number) = number.and_then(|d| d.parse().ok()) else {
            return self.expected(&format!("{what} such as `{prefix}3`"));
        };
        self.advance()?;
        Ok(number)
    }

    fn sreg(&mut self) -> Result<SReg> {
        let at = self.token.clone();
        let n = self.numbered("s", "a scalar register")?;
        u8::try_from(n).map(SReg).map_err(|_| AsmError {
            line: at.line,
            column: at.column,
            message: format!("expected a scalar register below s256, found `s{n}`"),
        })
    }

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
            } else if self.eat("buffer")? {
                let buffer = self.buffer(p.buffers.len())?;
                p.buffers.push(buffer);
            } else if self.eat("desc")? {
                let desc = self.desc(p.descs.len())?;
                p.descs.push(desc);
            } else if self.eat("code")? {
                self.sign('{')?;
                p.body = self.nodes(1)?;
                return Ok(p);
            } else {
                return self.expected("`info`, `buffer`, `desc` or `code`");
            }
        }
    }

    fn info(&mut self, index: usize) -> Result<OpInfo> {
        self.index(index, "info")?;
        let name = self.string()?;
        self.word("source")?;
        let source = self.string()?;
        self.word("at")?;
        let location = self.string()?;
        let mxu_flops = self.keyed("mxu_flops")?;
        let vector_flops = self.keyed("vector_flops")?;
        self.word("dtype")?;
        let dtype = self.dtype()?;
        let cores = self.keyed("cores")?;
        let modelled_cycles = self.keyed("modelled")?;
        Ok(OpInfo { name, source, location, mxu_flops, vector_flops, dtype, cores, modelled_cycles })
    }

    fn dtype(&mut self) -> Result<DType> {
        let Tok::Word(name) = &self.token.kind else {
            return self.expected("an element type such as `bf16`");
        };
        let found = DType::ALL.iter().copied().find(|d| dtype_word(*d) == name);
        let Some(dtype) = found else {
            return self.expected("an element type such as `bf16`");
        };
        self.advance()?;
        Ok(dtype)
    }

    fn buffer(&mut self, index: usize) -> Result<Buffer> {
        self.index(index, "buffer")?;
        let kind = if self.is_word("param") {
            Some(BufferKind::Param(self.keyed("param")?))
        } else if self.is_word("output") {
            Some(BufferKind::Output(self.keyed("output")?))
        } else if self.eat("temp")? {
            Some(BufferKind::Temp)
        } else if self.eat("const")? {
            None
        } else {
            return self.expected("`param`, `output`, `const` or `temp`");
        };
        let offset = self.keyed("offset")?;
        let bytes = self.keyed("bytes")?;
        let first = self.keyed("live")?;
        if self.token.kind != Tok::Dots {
            return self.expected("`..`");
        }
        self.advance()?;
        let last = self.unsigned("the last operation that needs the buffer")?;
        let kind = match kind {
            Some(kind) => kind,
            None => BufferKind::Constant(self.data()?.into()),
        };
        Ok(Buffer { offset, bytes, kind, live: (first, last) })
    }

    fn data(&mut self) -> Result<Vec<u8>> {
        self.word("data")?;
        let mut data = Vec::new();
        loop {
            if self.eat("zero")? {
                self.sign('*')?;
                let at = self.token.clone();
                let n: u64 = self.unsigned("a number of zero bytes")?;
                self.zero_bytes = self.zero_bytes.saturating_add(n);
                let fits = usize::try_from(n).ok().filter(|_| self.zero_bytes <= MAX_ZERO_RUN_BYTES);
                let Some(n) = fits else {
                    let message = format!("zero runs of more than {MAX_ZERO_RUN_BYTES} bytes in one text");
                    return Err(AsmError { line: at.line, column: at.column, message });
                };
                data.resize(data.len() + n, 0);
            } else if self.eat("x")? {
                let at = self.token.clone();
                let hex = self.string()?;
                let Some(bytes) = unhex(&hex) else {
                    let message = "expected pairs of hexadecimal digits in the string".to_owned();
                    return Err(AsmError { line: at.line, column: at.column, message });
                };
                data.extend(bytes);
            } else {
                return Ok(data);
            }
        }
    }

    fn desc(&mut self, index: usize) -> Result<DmaDesc> {
        let at = self.token.clone();
        let n = self.numbered("d", "a descriptor")?;
        if n as usize != index {
            let message = format!("expected `d{index}`, the next descriptor, found `d{n}`");
            return Err(AsmError { line: at.line, column: at.column, message });
        }
        let dir = if self.eat("load")? {
            DmaDir::Load
        } else if self.eat("store")? {
            DmaDir::Store
        } else {
            return self.expected("`load` or `store`");
        };
        let elem_bytes = self.keyed("elem")?;
        let rows = self.keyed("rows")?;
        let row_stride = self.keyed_signed("stride")?;
        let cols = self.keyed("cols")?;
        let col_stride = self.keyed_signed("stride")?;
        let lane_tiles = self.keyed("lane_tiles")?;
        let mut outer = Vec::new();
        while self.eat("outer")? {
            self.sign('[')?;
            let count = self.unsigned("a count")?;
            self.sign(':')?;
            let hbm_stride = self.signed("a stride in bytes")?;
            self.sign(',')?;
            let vmem_stride = self.signed("a stride in rows")?;
            self.sign(']')?;
            outer.push(DmaDim { count, hbm_stride, vmem_stride });
        }
        self.word("hbm")?;
        let hbm = self.addr()?;
        self.word("vmem")?;
        let vmem = self.addr()?;
        Ok(DmaDesc { dir, elem_bytes, outer, rows, row_stride, cols, col_stride, lane_tiles, hbm, vmem })
    }

    fn addr(&mut self) -> Result<Addr> {
        let mut addr = Addr { base: self.signed("an address")?, terms: Vec::new() };
        while self.is_sign('+') {
            self.advance()?;
            let reg = self.sreg()?;
            self.sign('*')?;
            addr.terms.push((reg, self.signed("a scale")?));
        }
        Ok(addr)
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
            } else {
                return self.expected("a bundle `{ ... }`, `loop`, `op` or `}`");
            }
        }
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

/// The spelling of an element type as one word of assembly.
pub(super) fn dtype_word(d: DType) -> &'static str {
    match d {
        DType::C64 => "c64",
        DType::C128 => "c128",
        other => other.name(),
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect::<Option<_>>()?;
    let pairs = digits.chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return None;
    }
    Some(pairs.map(|p| (p[0] << 4) | p[1]).collect())
}
