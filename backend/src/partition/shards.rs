//! Arrays cut into the parts of devices, and parts put together.

use tpusim_isa::num::DType;

use super::mesh::{Mesh, Sharding};

/// An array that does not fit its sharding.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShardError {
    /// The bytes are not those of an array of this shape.
    #[error("an array of shape {dims:?} of {dtype} takes {expected} bytes, got {got}")]
    Length {
        /// Shape.
        dims: Vec<i64>,
        /// Element type.
        dtype: DType,
        /// Bytes of such an array.
        expected: u64,
        /// Bytes given.
        got: usize,
    },
    /// The shape has a negative dimension or too many elements, or a dimension does not divide.
    #[error("an array of shape {dims:?} cannot be cut as {sharding}")]
    Shape {
        /// Shape.
        dims: Vec<i64>,
        /// The sharding, as Shardy writes it.
        sharding: String,
    },
    /// Not one part per device.
    #[error("{devices} devices should give {devices} parts, got {got}")]
    Parts {
        /// Devices of the mesh.
        devices: u64,
        /// Parts given.
        got: usize,
    },
}

/// Shape of the whole and of a part, in elements.
struct Cut<'a> {
    whole: Vec<usize>,
    part: Vec<usize>,
    width: usize,
    sharding: &'a Sharding,
    mesh: &'a Mesh,
}

impl<'a> Cut<'a> {
    fn new(dims: &[i64], dtype: DType, sharding: &'a Sharding, mesh: &'a Mesh) -> Result<Cut<'a>, ShardError> {
        let bad = || ShardError::Shape { dims: dims.to_vec(), sharding: sharding.text(mesh) };
        let whole: Vec<usize> =
            dims.iter().map(|&d| usize::try_from(d)).collect::<Result<_, _>>().map_err(|_| bad())?;
        let bytes = whole.iter().try_fold(dtype.bytes(), |n, &d| n.checked_mul(d));
        if bytes.is_none() || sharding.dims.len() != dims.len() {
            return Err(bad());
        }
        let mut part = Vec::new();
        for (&d, axes) in whole.iter().zip(&sharding.dims) {
            let n = usize::try_from(mesh.count(axes)).unwrap_or(usize::MAX).max(1);
            if d % n != 0 {
                return Err(bad());
            }
            part.push(d / n);
        }
        Ok(Cut { whole, part, width: dtype.bytes(), sharding, mesh })
    }

    fn bytes(&self, shape: &[usize]) -> usize {
        shape.iter().product::<usize>() * self.width
    }

    /// Calls `f` with the bytes' ranges of each row of the part at mesh position `at`: in the whole, and in the part.
    fn rows(&self, at: u64, mut f: impl FnMut(std::ops::Range<usize>, std::ops::Range<usize>)) {
        if self.bytes(&self.part) == 0 {
            return;
        }
        // Trailing dimensions that are not cut are one run.
        let rank = self.whole.len();
        let cut = (0..rank).rev().find(|&d| self.part[d] != self.whole[d]).unwrap_or(0);
        let run = self.part.iter().skip(cut).product::<usize>() * self.width;
        let start: Vec<usize> = (0..rank)
            .map(|d| usize::try_from(self.mesh.place(at, &self.sharding.dims[d])).unwrap_or(0) * self.part[d])
            .collect();
        let mut index = vec![0; cut];
        let mut to = 0;
        loop {
            let mut from = 0;
            for (d, (whole, start)) in self.whole.iter().zip(&start).enumerate() {
                from = from * whole + start + index.get(d).copied().unwrap_or(0);
            }
            let from = from * self.width;
            f(from..from + run, to..to + run);
            to += run;
            let Some(d) = (0..cut).rev().find(|&d| index[d] + 1 < self.part[d]) else { return };
            index[d] += 1;
            index[d + 1..].fill(0);
        }
    }
}

/// The parts of an array, by device: `bytes` are dense and row-major, of shape `dims`.
///
/// # Errors
/// When the bytes do not fit the shape, or the shape does not fit the sharding.
pub fn cut(
    bytes: &[u8],
    dims: &[i64],
    dtype: DType,
    sharding: &Sharding,
    mesh: &Mesh,
) -> Result<Vec<Vec<u8>>, ShardError> {
    let c = Cut::new(dims, dtype, sharding, mesh)?;
    let expected = c.bytes(&c.whole);
    if bytes.len() != expected {
        return Err(ShardError::Length { dims: dims.to_vec(), dtype, expected: expected as u64, got: bytes.len() });
    }
    let mut parts = vec![Vec::new(); mesh.devices() as usize];
    for at in 0..mesh.devices() {
        let mut part = Vec::with_capacity(c.bytes(&c.part));
        c.rows(at, |from, _| part.extend_from_slice(&bytes[from]));
        if let Some(slot) = parts.get_mut(mesh.device(at) as usize) {
            *slot = part;
        }
    }
    Ok(parts)
}

/// The array whose parts, by device, are `parts`. Of replicas the first device's counts.
///
/// # Errors
/// When there is not one part of the right size per device, or the shape does not fit the sharding.
pub fn assemble(
    parts: &[Vec<u8>],
    dims: &[i64],
    dtype: DType,
    sharding: &Sharding,
    mesh: &Mesh,
) -> Result<Vec<u8>, ShardError> {
    let c = Cut::new(dims, dtype, sharding, mesh)?;
    if parts.len() as u64 != mesh.devices() {
        return Err(ShardError::Parts { devices: mesh.devices(), got: parts.len() });
    }
    let expected = c.bytes(&c.part);
    if let Some(p) = parts.iter().find(|p| p.len() != expected) {
        let dims = c.part.iter().map(|&d| d as i64).collect();
        return Err(ShardError::Length { dims, dtype, expected: expected as u64, got: p.len() });
    }
    let mut out = vec![0; c.bytes(&c.whole)];
    for at in (0..mesh.devices()).rev() {
        let Some(part) = parts.get(mesh.device(at) as usize) else { continue };
        c.rows(at, |to, from| out[to].copy_from_slice(&part[from]));
    }
    Ok(out)
}
