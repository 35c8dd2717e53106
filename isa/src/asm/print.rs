//! From a program to its text.

use std::fmt::{self, Write};

use super::tables::dtype_word;
use super::{AsmError, pod};
use crate::num::Format;
use crate::op::{Field, Instr, Op};
use crate::program::{Addr, Buffer, BufferKind, DmaDesc, DmaDir, FlowInfo, Node, OnChip, OpInfo, Program, Resident};

/// Shortest run of zero bytes that is written as `zero*n`.
const ZERO_RUN: usize = 16;
/// Bytes per hexadecimal string.
const HEX_BYTES: usize = 48;

/// The assembly text of `program`.
pub fn print(program: &Program) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write_program(&mut out, program);
    out
}

/// The text of one instruction, e.g. `vadd.f32 v3, v1, v2`.
pub fn instr(i: &Instr) -> String {
    let mut out = String::new();
    let _ = write_instr(&mut out, i);
    out
}

/// Whether an instruction writes its scalar register and the immediate after it as `[s+imm]`.
pub(super) fn has_address(op: Op) -> bool {
    matches!(op, Op::SLd | Op::SSt | Op::VLd | Op::VSt | Op::VStM)
}

/// Whether operand `i` of `op` opens an address: a scalar register directly before an immediate.
pub(super) fn opens_address(op: Op, i: usize) -> bool {
    let f = op.fields();
    has_address(op) && f.get(i) == Some(&Field::Ss) && f.get(i + 1) == Some(&Field::Imm)
}

fn write_program(out: &mut String, p: &Program) -> fmt::Result {
    out.push_str("program ");
    quote(out, &p.name);
    out.push_str(" chip ");
    quote(out, &p.chip);
    writeln!(out, " hbm_peak {} vmem_peak {}", p.hbm_peak_bytes, p.vmem_peak_bytes)?;
    section(out, &p.ops, write_info)?;
    section(out, &p.flows, write_flow)?;
    section(out, &p.groups, pod::write_groups)?;
    section(out, &p.peers, pod::write_peer)?;
    section(out, &p.tables, pod::write_table)?;
    section(out, &p.sends, pod::write_send)?;
    section(out, &p.transfers, pod::write_transfer)?;
    section(out, &p.buffers, write_buffer)?;
    section(out, &p.residents, write_resident)?;
    section(out, &p.descs, write_desc)?;
    out.push_str("\ncode {\n");
    write_nodes(out, &p.body, 1)?;
    out.push_str("}\n");
    Ok(())
}

fn section<T>(out: &mut String, items: &[T], write: fn(&mut String, usize, &T) -> fmt::Result) -> fmt::Result {
    if !items.is_empty() {
        out.push('\n');
    }
    for (i, item) in items.iter().enumerate() {
        write(out, i, item)?;
        out.push('\n');
    }
    Ok(())
}

fn write_info(out: &mut String, i: usize, op: &OpInfo) -> fmt::Result {
    write!(out, "info {i} ")?;
    quote(out, &op.name);
    out.push_str(" source ");
    quote(out, &op.source);
    out.push_str(" at ");
    quote(out, &op.location);
    write!(out, " mxu_flops {} vector_flops {} dtype {}", op.mxu_flops, op.vector_flops, dtype_word(op.dtype))?;
    write!(out, " cores {} modelled {}", op.cores, op.modelled_cycles)
}

fn write_flow(out: &mut String, i: usize, flow: &FlowInfo) -> fmt::Result {
    write!(out, "flow {i} {} ", flow.kind.name())?;
    quote(out, &flow.name);
    out.push_str(" at ");
    quote(out, &flow.location);
    Ok(())
}

fn write_buffer(out: &mut String, i: usize, b: &Buffer) -> fmt::Result {
    write!(out, "buffer {i} ")?;
    match &b.kind {
        BufferKind::Param(n) => write!(out, "param {n}")?,
        BufferKind::Output(n) => write!(out, "output {n}")?,
        BufferKind::Constant(_) => out.push_str("const"),
        BufferKind::Temp => out.push_str("temp"),
    }
    write!(out, " offset {} bytes {} live {}..{}", b.offset, b.bytes, b.live.0, b.live.1)?;
    if let BufferKind::Constant(data) = &b.kind {
        out.push_str(" data");
        write_data(out, data)?;
    }
    Ok(())
}

fn write_resident(out: &mut String, i: usize, r: &Resident) -> fmt::Result {
    write!(out, "resident {i} bytes {} ", r.bytes)?;
    for (word, text) in [("", &r.array), (" by ", &r.name), (" source ", &r.source), (" at ", &r.location)] {
        out.push_str(word);
        quote(out, text);
    }
    Ok(())
}

fn write_data(out: &mut String, data: &[u8]) -> fmt::Result {
    let mut rest = data;
    while !rest.is_empty() {
        let zeros = rest.iter().take_while(|b| **b == 0).count();
        if zeros >= ZERO_RUN || zeros == rest.len() {
            write!(out, " zero*{zeros}")?;
            rest = &rest[zeros..];
            continue;
        }
        // A hex string ends where a run of zeros starts that is worth writing as one.
        let limit = rest.len().min(HEX_BYTES);
        let run = rest[..limit].windows(ZERO_RUN).position(|w| w.iter().all(|b| *b == 0));
        let len = run.unwrap_or(limit);
        out.push_str(" x\"");
        for b in &rest[..len] {
            write!(out, "{b:02x}")?;
        }
        out.push('"');
        rest = &rest[len..];
    }
    Ok(())
}

fn write_desc(out: &mut String, i: usize, d: &DmaDesc) -> fmt::Result {
    let dir = match d.dir {
        DmaDir::Load => "load",
        DmaDir::Store => "store",
    };
    write!(out, "desc d{i} {dir} elem {} rows {} stride {}", d.elem_bytes, d.rows, d.row_stride)?;
    write!(out, " cols {} stride {}", d.cols, d.col_stride)?;
    if d.mem == OnChip::Vmem || d.lane_tiles != 0 {
        write!(out, " lane_tiles {}", d.lane_tiles)?;
    }
    for o in &d.outer {
        write!(out, " outer [{}: {}, {}]", o.count, o.hbm_stride, o.local_stride)?;
    }
    out.push_str(" hbm ");
    write_addr(out, &d.hbm)?;
    out.push_str(match d.mem {
        OnChip::Vmem => " vmem ",
        OnChip::Smem => " smem ",
    });
    write_addr(out, &d.local)
}

pub(super) fn write_addr(out: &mut String, a: &Addr) -> fmt::Result {
    write!(out, "{}", a.base)?;
    for (reg, scale) in &a.terms {
        write!(out, " + s{}*{scale}", reg.0)?;
    }
    Ok(())
}

fn indent(out: &mut String, depth: usize) {
    for _ in 0..depth {
        out.push_str("  ");
    }
}

fn write_nodes(out: &mut String, nodes: &[Node], depth: usize) -> fmt::Result {
    for node in nodes {
        indent(out, depth);
        let body = match node {
            Node::Bundle(b) => {
                out.push('{');
                for (i, instr) in b.instrs.iter().enumerate() {
                    out.push_str(if i == 0 { " " } else { " ; " });
                    write_instr(out, instr)?;
                }
                out.push_str(" }\n");
                continue;
            }
            Node::Loop { counter, trip, body } => {
                writeln!(out, "loop s{} = 0..{trip} {{", counter.0)?;
                body
            }
            Node::Op { op, body } => {
                writeln!(out, "op {op} {{")?;
                body
            }
            Node::While { info, cond, test, body } => {
                writeln!(out, "while {info} {{")?;
                write_nodes(out, cond, depth + 1)?;
                indent(out, depth);
                writeln!(out, "}} test s{} {{", test.0)?;
                body
            }
            Node::Start { transfer, body } => {
                writeln!(out, "start {transfer} {{")?;
                body
            }
            Node::Done { transfer } => {
                writeln!(out, "done {transfer}")?;
                continue;
            }
            Node::Case { info, selector, branches } => {
                writeln!(out, "case {info} s{} {{", selector.0)?;
                for branch in branches {
                    indent(out, depth + 1);
                    out.push_str("branch {\n");
                    write_nodes(out, branch, depth + 2)?;
                    indent(out, depth + 1);
                    out.push_str("}\n");
                }
                &Vec::new()
            }
        };
        write_nodes(out, body, depth + 1)?;
        indent(out, depth);
        out.push_str("}\n");
    }
    Ok(())
}

fn write_instr(out: &mut String, i: &Instr) -> fmt::Result {
    out.push_str(i.op.name());
    let mut inside = false;
    for (n, (field, arg)) in i.operands().enumerate() {
        if inside {
            write!(out, "{arg:+}]")?;
            inside = false;
            continue;
        }
        out.push_str(if n == 0 { " " } else { ", " });
        if opens_address(i.op, n) {
            out.push('[');
            inside = true;
        }
        if field == Field::Imm {
            write_imm(out, i.op, arg)?;
        } else {
            out.push_str(&operand_name(field, arg));
        }
    }
    Ok(())
}

/// Name of a register, unit, flag, descriptor or format; the number for an immediate.
pub(crate) fn operand_name(field: Field, arg: i32) -> String {
    match (field, Format::from_code(arg)) {
        (Field::Imm, _) => arg.to_string(),
        (Field::Fmt, Some(f)) => f.name().to_owned(),
        _ => format!("{}{}", prefix(field), arg as u32),
    }
}

fn write_imm(out: &mut String, op: Op, arg: i32) -> fmt::Result {
    // Broadcast constants are mostly float bits, which nobody reads in decimal.
    if op == Op::VImm && arg.unsigned_abs() >= 1 << 16 { write!(out, "{arg:#010x}") } else { write!(out, "{arg}") }
}

/// What the numbers of a field's registers, units or indices are prefixed with.
pub(super) fn prefix(field: Field) -> &'static str {
    match field {
        Field::Vd | Field::Vs => "v",
        Field::Md | Field::Ms => "m",
        Field::Sd | Field::Ss => "s",
        Field::Mxu => "mxu",
        Field::Xlu => "xlu",
        Field::Flag => "flag",
        Field::Desc => "d",
        Field::Send => "send",
        Field::Table => "table",
        Field::Fmt => "fmt",
        Field::Imm => "",
    }
}

pub(super) fn quote(out: &mut String, s: &str) {
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out.push('"');
}

impl std::str::FromStr for Program {
    type Err = AsmError;

    /// Same as [`parse`](super::parse).
    fn from_str(text: &str) -> Result<Program, AsmError> {
        super::parse(text)
    }
}
