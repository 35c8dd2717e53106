//! Everything but the code: names, operations, control flow, buffers, descriptors.

use super::{BinaryError, code, pod};
use crate::num::DType;
use crate::program::{
    Addr, Buffer, BufferKind, DmaDesc, DmaDim, DmaDir, FlowInfo, FlowKind, OnChip, OpInfo, Program, Resident, SReg,
};

pub(super) type Result<T> = std::result::Result<T, BinaryError>;

const SECTIONS: [&str; 8] = ["META", "INFO", "FLOWS", "BUFFERS", "RESIDENTS", "DESCS", "PODS", "CODE"];

pub(super) fn encode(p: &Program) -> Vec<u8> {
    let mut meta = Writer::default();
    meta.bytes(p.name.as_bytes());
    meta.bytes(p.chip.as_bytes());
    meta.u64(p.hbm_peak_bytes);
    meta.u64(p.vmem_peak_bytes);
    let info = Writer::list(&p.ops, write_info);
    let flows = Writer::list(&p.flows, write_flow);
    let buffers = Writer::list(&p.buffers, write_buffer);
    let residents = Writer::list(&p.residents, write_resident);
    let descs = Writer::list(&p.descs, write_desc);
    let pods = pod::write(p);
    let code = code::encode(&p.body);
    let mut out = Vec::new();
    for (tag, payload) in (0u8..).zip([meta.0, info.0, flows.0, buffers.0, residents.0, descs.0, pods, code]) {
        out.push(tag);
        out.extend((payload.len() as u64).to_le_bytes());
        out.extend(payload);
    }
    out
}

pub(super) fn decode(body: &[u8]) -> Result<Program> {
    let mut whole = Reader { section: "file", data: body, at: 0 };
    let mut payloads = [[].as_slice(); SECTIONS.len()];
    for (tag, (name, payload)) in (0u8..).zip(SECTIONS.iter().zip(&mut payloads)) {
        if whole.u8()? != tag {
            return whole.fail(format!("expected section {name}"));
        }
        *payload = whole.bytes()?;
    }
    whole.end()?;
    let [meta, info, flows, buffers, residents, descs, pods, code] = payloads;
    let mut r = Reader { section: SECTIONS[0], data: meta, at: 0 };
    let mut p = Program {
        name: r.string()?,
        chip: r.string()?,
        hbm_peak_bytes: r.u64()?,
        vmem_peak_bytes: r.u64()?,
        ops: Reader { section: SECTIONS[1], data: info, at: 0 }.list(read_info)?,
        flows: Reader { section: SECTIONS[2], data: flows, at: 0 }.list(read_flow)?,
        buffers: Reader { section: SECTIONS[3], data: buffers, at: 0 }.list(read_buffer)?,
        residents: Reader { section: SECTIONS[4], data: residents, at: 0 }.list(read_resident)?,
        descs: Reader { section: SECTIONS[5], data: descs, at: 0 }.list(read_desc)?,
        body: code::decode(code)?,
        ..Program::default()
    };
    r.end()?;
    pod::read(&mut Reader { section: SECTIONS[6], data: pods, at: 0 }, &mut p)?;
    Ok(p)
}

#[derive(Default)]
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    fn list<T>(items: &[T], write: fn(&mut Writer, &T)) -> Writer {
        let mut w = Writer::default();
        w.items(items, write);
        w
    }

    pub fn items<T>(&mut self, items: &[T], write: fn(&mut Writer, &T)) {
        self.u64(items.len() as u64);
        items.iter().for_each(|item| write(self, item));
    }

    pub fn u8(&mut self, v: u8) {
        self.0.push(v);
    }

    pub fn u32(&mut self, v: u32) {
        self.0.extend(v.to_le_bytes());
    }

    pub fn u64(&mut self, v: u64) {
        self.0.extend(v.to_le_bytes());
    }

    pub fn i64(&mut self, v: i64) {
        self.0.extend(v.to_le_bytes());
    }

    pub fn bytes(&mut self, v: &[u8]) {
        self.u64(v.len() as u64);
        self.0.extend(v);
    }
}

fn write_info(w: &mut Writer, op: &OpInfo) {
    w.bytes(op.name.as_bytes());
    w.bytes(op.source.as_bytes());
    w.bytes(op.location.as_bytes());
    w.u64(op.mxu_flops);
    w.u64(op.vector_flops);
    w.u8(op.dtype as u8);
    w.u32(op.cores);
    w.u64(op.modelled_cycles);
}

fn write_flow(w: &mut Writer, flow: &FlowInfo) {
    w.bytes(flow.name.as_bytes());
    w.bytes(flow.location.as_bytes());
    w.u8(match flow.kind {
        FlowKind::While => 0,
        FlowKind::Case => 1,
        FlowKind::Counted => 2,
    });
}

fn write_resident(w: &mut Writer, r: &Resident) {
    w.u64(r.bytes);
    [&r.array, &r.name, &r.source, &r.location].into_iter().for_each(|text| w.bytes(text.as_bytes()));
}

fn write_buffer(w: &mut Writer, b: &Buffer) {
    w.u64(b.offset);
    w.u64(b.bytes);
    w.u32(b.live.0);
    w.u32(b.live.1);
    match &b.kind {
        BufferKind::Param(n) => {
            w.u8(0);
            w.u32(*n);
        }
        BufferKind::Output(n) => {
            w.u8(1);
            w.u32(*n);
        }
        BufferKind::Constant(data) => {
            w.u8(2);
            w.bytes(data);
        }
        BufferKind::Temp => w.u8(3),
    }
}

fn write_desc(w: &mut Writer, d: &DmaDesc) {
    w.u8(match d.dir {
        DmaDir::Load => 0,
        DmaDir::Store => 1,
    });
    w.u8(match d.mem {
        OnChip::Vmem => 0,
        OnChip::Smem => 1,
    });
    w.u8(d.elem_bytes);
    w.u32(d.rows);
    w.i64(d.row_stride);
    w.u32(d.cols);
    w.i64(d.col_stride);
    w.u32(d.lane_tiles);
    w.u64(d.outer.len() as u64);
    for o in &d.outer {
        w.u32(o.count);
        w.i64(o.hbm_stride);
        w.i64(o.local_stride);
    }
    write_addr(w, &d.hbm);
    write_addr(w, &d.local);
}

pub(super) fn write_addr(w: &mut Writer, a: &Addr) {
    w.i64(a.base);
    w.items(&a.terms, |w, (reg, scale)| {
        w.u8(reg.0);
        w.i64(*scale);
    });
}

pub(super) struct Reader<'a> {
    section: &'static str,
    data: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub fn fail<T>(&self, message: impl Into<String>) -> Result<T> {
        let place = format!("byte {}", self.at);
        Err(BinaryError::Malformed { section: self.section, place, message: message.into() })
    }

    fn take(&mut self, n: u64) -> Result<&'a [u8]> {
        let end = usize::try_from(n).ok().and_then(|n| self.at.checked_add(n));
        match end.and_then(|end| self.data.get(self.at..end)) {
            Some(bytes) => {
                self.at += bytes.len();
                Ok(bytes)
            }
            None => self.fail(format!("{n} bytes expected, {} left", self.data.len() - self.at)),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N as u64)?);
        Ok(out)
    }

    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub fn i64(&mut self) -> Result<i64> {
        self.array().map(i64::from_le_bytes)
    }

    pub fn bytes(&mut self) -> Result<&'a [u8]> {
        let n = self.u64()?;
        self.take(n)
    }

    pub fn string(&mut self) -> Result<String> {
        let bytes = self.bytes()?;
        match std::str::from_utf8(bytes) {
            Ok(s) => Ok(s.to_owned()),
            Err(_) => self.fail("text is not UTF-8"),
        }
    }

    pub fn items<T>(&mut self, read: fn(&mut Reader<'a>) -> Result<T>) -> Result<Vec<T>> {
        // Grows with what is read: every item takes at least one byte of the file, whatever the count says.
        (0..self.u64()?).map(|_| read(self)).collect::<Result<Vec<T>>>()
    }

    fn list<T>(mut self, read: fn(&mut Reader<'a>) -> Result<T>) -> Result<Vec<T>> {
        let items = self.items(read)?;
        self.end()?;
        Ok(items)
    }

    pub fn end(&self) -> Result<()> {
        if self.at == self.data.len() {
            Ok(())
        } else {
            self.fail(format!("{} bytes too many", self.data.len() - self.at))
        }
    }
}

fn read_info(r: &mut Reader<'_>) -> Result<OpInfo> {
    let (name, source, location) = (r.string()?, r.string()?, r.string()?);
    let (mxu_flops, vector_flops) = (r.u64()?, r.u64()?);
    let code = r.u8()?;
    let Some(dtype) = DType::ALL.get(usize::from(code)).copied() else {
        return r.fail(format!("unknown element type {code}"));
    };
    Ok(OpInfo { name, source, location, mxu_flops, vector_flops, dtype, cores: r.u32()?, modelled_cycles: r.u64()? })
}

fn read_flow(r: &mut Reader<'_>) -> Result<FlowInfo> {
    let (name, location) = (r.string()?, r.string()?);
    let kind = match r.u8()? {
        0 => FlowKind::While,
        1 => FlowKind::Case,
        2 => FlowKind::Counted,
        n => return r.fail(format!("unknown kind of control flow {n}")),
    };
    Ok(FlowInfo { name, location, kind })
}

fn read_buffer(r: &mut Reader<'_>) -> Result<Buffer> {
    let (offset, bytes) = (r.u64()?, r.u64()?);
    let live = (r.u32()?, r.u32()?);
    let kind = match r.u8()? {
        0 => BufferKind::Param(r.u32()?),
        1 => BufferKind::Output(r.u32()?),
        2 => BufferKind::Constant(r.bytes()?.into()),
        3 => BufferKind::Temp,
        n => return r.fail(format!("unknown kind of buffer {n}")),
    };
    Ok(Buffer { offset, bytes, kind, live })
}

fn read_resident(r: &mut Reader<'_>) -> Result<Resident> {
    let bytes = r.u64()?;
    let mut text = || r.string();
    Ok(Resident { bytes, array: text()?, name: text()?, source: text()?, location: text()? })
}

fn read_desc(r: &mut Reader<'_>) -> Result<DmaDesc> {
    let dir = match r.u8()? {
        0 => DmaDir::Load,
        1 => DmaDir::Store,
        n => return r.fail(format!("unknown direction {n}")),
    };
    let mem = match r.u8()? {
        0 => OnChip::Vmem,
        1 => OnChip::Smem,
        n => return r.fail(format!("unknown memory {n}")),
    };
    Ok(DmaDesc {
        dir,
        mem,
        elem_bytes: r.u8()?,
        rows: r.u32()?,
        row_stride: r.i64()?,
        cols: r.u32()?,
        col_stride: r.i64()?,
        lane_tiles: r.u32()?,
        outer: r.items(|r| Ok(DmaDim { count: r.u32()?, hbm_stride: r.i64()?, local_stride: r.i64()? }))?,
        hbm: read_addr(r)?,
        local: read_addr(r)?,
    })
}

pub(super) fn read_addr(r: &mut Reader<'_>) -> Result<Addr> {
    Ok(Addr { base: r.i64()?, terms: r.items(|r| Ok((SReg(r.u8()?), r.i64()?)))? })
}
