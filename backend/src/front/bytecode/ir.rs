//! The operations, still with indices for everything they refer to.

use super::error::{ErrorKind, Result};
use super::reader::Reader;
use super::sections::{File, IR_SECTION, lookup};

/// Deepest nesting of regions.
pub(super) const MAX_NESTING: usize = 48;

/// Bits of an operation's mask: which parts follow.
mod mask {
    pub const ATTRS: u8 = 1;
    pub const RESULTS: u8 = 2;
    pub const OPERANDS: u8 = 4;
    pub const SUCCESSORS: u8 = 8;
    pub const REGIONS: u8 = 16;
    pub const USE_LISTS: u8 = 32;
    pub const PROPERTIES: u8 = 64;
}

/// An operation. Numbers are indices into the tables of the file.
#[derive(Debug)]
pub(super) struct RawOp {
    pub name: usize,
    pub loc: u64,
    pub attrs: Option<u64>,
    pub properties: Option<u64>,
    /// Types of the results.
    pub results: Vec<u64>,
    /// Value numbers within the innermost isolated region.
    pub operands: Vec<u64>,
    pub regions: Vec<RawRegion>,
    /// Whether its regions see no values from outside.
    pub isolated: bool,
    /// Where in the file it begins.
    pub offset: usize,
}

/// A region.
#[derive(Debug)]
pub(super) struct RawRegion {
    /// Values defined directly in it.
    pub values: usize,
    pub blocks: Vec<RawBlock>,
    pub offset: usize,
}

/// A block.
#[derive(Debug, Default)]
pub(super) struct RawBlock {
    /// Type and location of each argument.
    pub args: Vec<(u64, Option<u64>)>,
    pub ops: Vec<RawOp>,
}

/// Reads the operations at the top of the file.
pub(super) fn read(file: &File<'_>) -> Result<Vec<RawOp>> {
    let mut r = file.ir.clone();
    let block = block(file, &mut r, 0)?;
    r.finish("IR")?;
    Ok(block.ops)
}

fn block(file: &File<'_>, r: &mut Reader<'_>, depth: usize) -> Result<RawBlock> {
    let (ops, has_args) = r.varint_flag()?;
    let mut block = RawBlock::default();
    if has_args {
        for _ in 0..r.count("block arguments")? {
            block.args.push(if file.has_short_block_args() {
                let (ty, has_loc) = r.varint_flag()?;
                (ty, if has_loc { Some(r.varint()?) } else { None })
            } else {
                (r.varint()?, Some(r.varint()?))
            });
        }
        if file.has_use_lists() && r.byte()? != 0 {
            skip_use_lists(r, block.args.len())?;
        }
    }
    for _ in 0..r.check_count(ops, "operations")? {
        block.ops.push(op(file, r, depth)?);
    }
    Ok(block)
}

fn op(file: &File<'_>, r: &mut Reader<'_>, depth: usize) -> Result<RawOp> {
    let offset = r.offset();
    let name = r.varint()?;
    lookup(&file.op_names, name, "operation name", offset)?;
    let mask = r.byte()?;
    let loc = r.varint()?;
    let has = |bit: u8| mask & bit != 0;
    let attrs = if has(mask::ATTRS) { Some(r.varint()?) } else { None };
    let properties = if has(mask::PROPERTIES) { Some(r.varint()?) } else { None };
    let results = if has(mask::RESULTS) { r.varints("results")? } else { Vec::new() };
    let operands = if has(mask::OPERANDS) { r.varints("operands")? } else { Vec::new() };
    if has(mask::SUCCESSORS) {
        return r.fail(ErrorKind::Unsupported("control flow between blocks".into()));
    }
    if has(mask::USE_LISTS) && file.has_use_lists() {
        skip_use_lists(r, results.len())?;
    }
    let mut op = RawOp {
        name: name as usize,
        loc,
        attrs,
        properties,
        results,
        operands,
        regions: Vec::new(),
        isolated: false,
        offset,
    };
    if has(mask::REGIONS) {
        let (n, isolated) = r.varint_flag()?;
        op.isolated = isolated;
        if depth >= MAX_NESTING {
            return r.fail(ErrorKind::Depth("regions", MAX_NESTING));
        }
        if isolated && n > 0 && file.has_lazy_regions() {
            let mut s = r.section()?;
            if s.id != IR_SECTION {
                return r.fail(ErrorKind::Section(s.id));
            }
            op.regions = regions(file, &mut s.data, n, depth)?;
            s.data.finish("regions")?;
        } else {
            op.regions = regions(file, r, n, depth)?;
        }
    }
    Ok(op)
}

fn regions(file: &File<'_>, r: &mut Reader<'_>, n: u64, depth: usize) -> Result<Vec<RawRegion>> {
    let mut out = Vec::new();
    for _ in 0..r.check_count(n, "regions")? {
        let offset = r.offset();
        let blocks = r.count("blocks")?;
        let mut region = RawRegion { values: 0, blocks: Vec::new(), offset };
        if blocks > 0 {
            region.values = r.count("values")?;
            for _ in 0..blocks {
                region.blocks.push(block(file, r, depth + 1)?);
            }
        }
        out.push(region);
    }
    Ok(out)
}

/// Orders of uses serve to reproduce a compiler's memory; they mean nothing.
fn skip_use_lists(r: &mut Reader<'_>, values: usize) -> Result<()> {
    let lists = if values > 1 { r.count("use-list orders")? } else { 1 };
    for _ in 0..lists {
        if values > 1 {
            r.varint()?;
        }
        let (n, _pairs) = r.varint_flag()?;
        for _ in 0..r.check_count(n, "uses")? {
            r.varint()?;
        }
    }
    Ok(())
}
