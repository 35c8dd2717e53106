//! What happens to data while a pod's time passes.

use rustc_hash::FxHashMap;
use tpusim_isa::chip::ChipSpec;
use tpusim_isa::pod::SendDesc;
use tpusim_isa::program::{Addr, Program};

use crate::RunOptions;
use crate::code::{Code, Node};
use crate::core::Engine;
use crate::exact::Exact;
use crate::fault::FaultKind;

/// The data side of a pod.
pub(super) trait Data {
    /// Whether there is any data.
    const DATA: bool;

    /// What a message carries.
    type Mail: Send + Default;

    /// Runs an operation. `scalars` are the registers of the code around it, before and after.
    fn operation(&mut self, device: u32, op: u32, scalars: &mut [u32]) -> Result<(), FaultKind>;

    /// Reads a message from the sender's HBM. `scalars` are the registers of the code that sends it.
    fn read(&self, device: u32, d: &SendDesc, scalars: &[u32]) -> Result<Self::Mail, FaultKind>;

    /// Writes a message to the receiver's HBM.
    fn write(&mut self, device: u32, d: &SendDesc, mail: Self::Mail) -> Result<(), FaultKind>;
}

/// No data.
pub(super) struct Nothing;

impl Data for Nothing {
    const DATA: bool = false;
    type Mail = ();

    fn operation(&mut self, _: u32, _: u32, _: &mut [u32]) -> Result<(), FaultKind> {
        Ok(())
    }

    fn read(&self, _: u32, _: &SendDesc, _: &[u32]) -> Result<(), FaultKind> {
        Ok(())
    }

    fn write(&mut self, _: u32, _: &SendDesc, (): ()) -> Result<(), FaultKind> {
        Ok(())
    }
}

/// Real bits of every device.
pub(super) struct Bits<'a> {
    devices: Vec<Engine<'a, Exact<'a>>>,
    ops: FxHashMap<u32, &'a Node>,
}

impl<'a> Bits<'a> {
    pub fn new(
        program: &'a Program,
        chip: &'a ChipSpec,
        inputs: &[Vec<Vec<u8>>],
        opts: &'a RunOptions,
        code: &'a Code,
    ) -> Result<Bits<'a>, FaultKind> {
        let device = |own: &Vec<Vec<u8>>| {
            let data = Exact::new(program, chip, own, opts)?;
            Ok(Engine::new(program, chip, opts, code, data))
        };
        let devices = inputs.iter().map(device).collect::<Result<_, FaultKind>>()?;
        let mut ops = FxHashMap::default();
        code.each_op(&mut |op, node| {
            ops.insert(op, node);
        });
        Ok(Bits { devices, ops })
    }

    /// Outputs of every device, by number.
    pub fn outputs(&self, program: &Program) -> Vec<Vec<Vec<u8>>> {
        self.devices.iter().map(|d| d.data().outputs(program)).collect()
    }
}

/// Offsets of the contiguous pieces of a message, from its start, on the side whose strides `stride` gives.
fn pieces(d: &SendDesc, stride: impl Fn(usize) -> i64) -> Vec<i128> {
    let mut at = vec![0i128];
    for (k, dim) in d.outer.iter().enumerate() {
        let step = i128::from(stride(k));
        at = at.iter().flat_map(|a| (0..i128::from(dim.count)).map(move |i| a + i * step)).collect();
    }
    at
}

fn range(start: i128, bytes: u64, hbm: usize) -> Result<std::ops::Range<usize>, FaultKind> {
    let end = start + i128::from(bytes);
    match (usize::try_from(start), usize::try_from(end)) {
        (Ok(s), Ok(e)) if e <= hbm => Ok(s..e),
        _ => Err(FaultKind::Malformed(format!("a message reaches bytes {start} to {end} of {hbm} bytes of HBM"))),
    }
}

fn address(a: &Addr, scalars: &[u32]) -> i128 {
    a.terms.iter().fold(i128::from(a.base), |sum, (r, scale)| {
        let value = scalars.get(usize::from(r.0)).copied().unwrap_or(0) as i32;
        sum + i128::from(value) * i128::from(*scale)
    })
}

/// The bytes of a message, and the first byte of the receiver's HBM they go to.
#[derive(Default)]
pub(super) struct Parcel {
    to: i128,
    bytes: Box<[u8]>,
}

impl Data for Bits<'_> {
    const DATA: bool = true;
    type Mail = Parcel;

    fn operation(&mut self, device: u32, op: u32, scalars: &mut [u32]) -> Result<(), FaultKind> {
        let Some(node) = self.ops.get(&op) else { return Ok(()) };
        self.devices[device as usize].data_operation(node, scalars)
    }

    fn read(&self, device: u32, d: &SendDesc, scalars: &[u32]) -> Result<Parcel, FaultKind> {
        let from = address(&d.from, scalars);
        let hbm = self.devices[device as usize].data().hbm();
        let mut out = Vec::new();
        if d.bytes > 0 {
            for piece in pieces(d, |k| d.outer[k].from_stride) {
                out.extend_from_slice(&hbm[range(from + piece, d.bytes, hbm.len())?]);
            }
        }
        Ok(Parcel { to: address(&d.to, scalars), bytes: out.into() })
    }

    fn write(&mut self, device: u32, d: &SendDesc, mail: Parcel) -> Result<(), FaultKind> {
        let hbm = self.devices[device as usize].data_mut().hbm_mut();
        if d.bytes > 0 {
            let length = usize::try_from(d.bytes).unwrap_or(usize::MAX);
            for (piece, bytes) in pieces(d, |k| d.outer[k].to_stride).into_iter().zip(mail.bytes.chunks(length)) {
                let at = range(mail.to + piece, d.bytes, hbm.len())?;
                hbm[at].copy_from_slice(bytes);
            }
        }
        Ok(())
    }
}
