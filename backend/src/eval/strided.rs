//! Moving elements between row-major buffers: every shape op is one strided read or one strided write.

/// Row-major strides of `dims`, in elements.
pub fn strides(dims: &[usize]) -> Vec<isize> {
    let mut out = vec![1isize; dims.len()];
    for i in (1..dims.len()).rev() {
        // Only a tensor without elements can wrap here.
        out[i - 1] = out[i].wrapping_mul(dims[i].max(1) as isize);
    }
    out
}

/// Calls `f` with the offset `base + sum(index * stride)` of every row (all dimensions but the last), in row-major order.
fn rows(dims: &[usize], stride: &[isize], base: isize, mut f: impl FnMut(isize)) {
    if dims.contains(&0) {
        return;
    }
    let outer = dims.len().saturating_sub(1);
    let mut index = vec![0usize; outer];
    let mut at = base;
    loop {
        f(at);
        let mut d = outer;
        loop {
            if d == 0 {
                return;
            }
            d -= 1;
            index[d] += 1;
            at += stride[d];
            if index[d] < dims[d] {
                break;
            }
            at -= stride[d] * dims[d] as isize;
            index[d] = 0;
        }
    }
}

fn last(dims: &[usize], stride: &[isize]) -> (usize, isize) {
    match (dims.last(), stride.last()) {
        (Some(&n), Some(&s)) => (n, s),
        _ => (1, 1),
    }
}

/// A new buffer of shape `dims` whose element at `index` is the element of `src` at `base + sum(index * stride)`; `w` bytes each.
pub fn read(src: &[u8], w: usize, dims: &[usize], stride: &[isize], base: isize) -> Vec<u8> {
    let mut out = Vec::with_capacity(dims.iter().product::<usize>() * w);
    let (n, s) = last(dims, stride);
    rows(dims, stride, base, |at| {
        if s == 1 {
            out.extend_from_slice(&src[at as usize * w..(at as usize + n) * w]);
            return;
        }
        match w {
            1 => read_row::<1>(src, &mut out, n, s, at),
            2 => read_row::<2>(src, &mut out, n, s, at),
            4 => read_row::<4>(src, &mut out, n, s, at),
            8 => read_row::<8>(src, &mut out, n, s, at),
            _ => read_row::<16>(src, &mut out, n, s, at),
        }
    });
    out
}

fn read_row<const W: usize>(src: &[u8], out: &mut Vec<u8>, n: usize, s: isize, at: isize) {
    let elements = src.as_chunks::<W>().0;
    if s == 0 {
        let e = elements[at as usize];
        out.extend(std::iter::repeat_n(e, n).flatten());
    } else {
        out.extend((0..n as isize).flat_map(|i| elements[(at + i * s) as usize]));
    }
}

/// Writes the row-major `src` of shape `dims` into `dst`, its element at `index` to `base + sum(index * stride)`; `w` bytes each.
pub fn write(dst: &mut [u8], src: &[u8], w: usize, dims: &[usize], stride: &[isize], base: isize) {
    let (n, s) = last(dims, stride);
    let mut next = 0;
    rows(dims, stride, base, |at| {
        let row = &src[next * w..(next + n) * w];
        next += n;
        if s == 1 {
            dst[at as usize * w..(at as usize + n) * w].copy_from_slice(row);
        } else {
            for (i, e) in row.chunks_exact(w).enumerate() {
                let to = (at + i as isize * s) as usize * w;
                dst[to..to + w].copy_from_slice(e);
            }
        }
    });
}

/// Steps `index` to the next one of `dims` in row-major order; `false` after the last.
pub fn next_index(index: &mut [usize], dims: &[usize]) -> bool {
    for d in (0..dims.len()).rev() {
        index[d] += 1;
        if index[d] < dims[d] {
            return true;
        }
        index[d] = 0;
    }
    false
}
