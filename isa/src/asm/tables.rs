//! Entries of a program's tables: operations, control flow, buffers, descriptors.

use super::cursor::{Parser, Result};
use super::lex::Tok;
use super::{AsmError, MAX_ZERO_RUN_BYTES};
use crate::num::DType;
use crate::program::{Addr, Buffer, BufferKind, DmaDesc, DmaDim, DmaDir, FlowInfo, FlowKind, OnChip, OpInfo, Resident};

impl Parser<'_> {
    pub fn info(&mut self, index: usize) -> Result<OpInfo> {
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

    pub fn resident(&mut self, index: usize) -> Result<Resident> {
        self.index(index, "resident")?;
        let (bytes, array) = (self.keyed("bytes")?, self.string()?);
        self.word("by")?;
        let name = self.string()?;
        self.word("source")?;
        let source = self.string()?;
        self.word("at")?;
        Ok(Resident { bytes, array, name, source, location: self.string()? })
    }

    pub fn flow(&mut self, index: usize) -> Result<FlowInfo> {
        self.index(index, "flow")?;
        let kind = if self.eat("while")? {
            FlowKind::While
        } else if self.eat("case")? {
            FlowKind::Case
        } else if self.eat("counted")? {
            FlowKind::Counted
        } else {
            return self.expected("`while`, `case` or `counted`");
        };
        let name = self.string()?;
        self.word("at")?;
        Ok(FlowInfo { name, location: self.string()?, kind })
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

    pub fn buffer(&mut self, index: usize) -> Result<Buffer> {
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

    pub fn desc(&mut self, index: usize) -> Result<DmaDesc> {
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
        let tiles = if self.is_word("lane_tiles") { Some(self.keyed("lane_tiles")?) } else { None };
        let mut outer = Vec::new();
        while self.eat("outer")? {
            self.sign('[')?;
            let count = self.unsigned("a count")?;
            self.sign(':')?;
            let hbm_stride = self.signed("a stride in bytes")?;
            self.sign(',')?;
            let local_stride = self.signed("a stride in rows or words")?;
            self.sign(']')?;
            outer.push(DmaDim { count, hbm_stride, local_stride });
        }
        self.word("hbm")?;
        let hbm = self.addr()?;
        let (mem, lane_tiles) = match tiles {
            Some(n) if self.eat("vmem")? => (OnChip::Vmem, n),
            None if self.is_word("vmem") => return self.expected("`lane_tiles` before a block of VMEM, or `smem`"),
            tiles if self.eat("smem")? => (OnChip::Smem, tiles.unwrap_or(0)),
            _ => return self.expected("`vmem` or `smem`"),
        };
        let local = self.addr()?;
        Ok(DmaDesc { dir, mem, elem_bytes, outer, rows, row_stride, cols, col_stride, lane_tiles, hbm, local })
    }

    pub fn addr(&mut self) -> Result<Addr> {
        let mut addr = Addr { base: self.signed("an address")?, terms: Vec::new() };
        while self.is_sign('+') {
            self.advance()?;
            let reg = self.sreg()?;
            self.sign('*')?;
            addr.terms.push((reg, self.signed("a scale")?));
        }
        Ok(addr)
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
