//! Files that a command will write: looked at before the work, written after it, whole or not at all.

use std::path::{Path, PathBuf};

use tpusim_backend::hlo::TensorType;
use tpusim_traces::atomic;
use tpusim_traces::npy::NpyArray;

use crate::failure::Failure;

/// Files and folders that will be written.
#[derive(Default)]
pub struct Targets(Vec<(PathBuf, String)>);

impl Targets {
    /// Notes that `flag` will write the file `path`, and checks that it can.
    pub fn file(&mut self, flag: &str, path: &Path) -> Result<(), Failure> {
        if let Some((_, other)) = self.0.iter().find(|(p, _)| p == path) {
            return Err(Failure::usage(format!("{other} and {flag} both write `{}`", path.display())));
        }
        writable(path).map_err(|e| Failure::usage(format!("{flag}: cannot write `{}`: {e}", path.display())))?;
        self.0.push((path.to_owned(), flag.to_owned()));
        Ok(())
    }

    /// As [`Targets::file`] for a figure and the table beside it.
    pub fn figure(&mut self, flag: &str, path: &Path) -> Result<(), Failure> {
        let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase();
        if !["svg", "png"].contains(&extension.as_str()) {
            return Err(Failure::usage(format!("{flag}: `{}`: figures are .svg or .png", path.display())));
        }
        self.file(flag, path)?;
        self.file(&format!("{flag} (its table)"), &path.with_extension("csv"))
    }

    /// Checks that files can be written to the folder `path`, which is made when they are.
    pub fn folder(&mut self, flag: &str, path: &Path) -> Result<(), Failure> {
        let fail = |e: std::io::Error| Failure::usage(format!("{flag}: cannot write to `{}`: {e}", path.display()));
        let existing = path.ancestors().find(|p| p.exists());
        let folder = existing.unwrap_or(Path::new("."));
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        probe(folder).map_err(fail)
    }
}

fn writable(path: &Path) -> std::io::Result<()> {
    if let Ok(m) = std::fs::metadata(path) {
        if m.is_dir() {
            return Err(std::io::ErrorKind::IsADirectory.into());
        }
        if !m.is_file() {
            return Ok(());
        }
    }
    let folder = match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    };
    probe(folder)
}

/// Whether a file can be made in `folder`.
fn probe(folder: &Path) -> std::io::Result<()> {
    if !folder.is_dir() {
        let kind = if folder.exists() { std::io::ErrorKind::NotADirectory } else { std::io::ErrorKind::NotFound };
        let what = if folder.exists() { "is no folder" } else { "does not exist" };
        return Err(std::io::Error::new(kind, format!("`{}` {what}", folder.display())));
    }
    tempfile::Builder::new().prefix(".tpusim-").tempfile_in(folder).map(drop)
}

/// Writes `out0.npy`, `out1.npy`, ... to `folder`: all of them, or on an error none.
pub fn write_outputs(folder: &Path, arrays: &[(TensorType, Vec<u8>)]) -> Result<(), Failure> {
    let fail = |e: &dyn std::fmt::Display| Failure::usage(format!("cannot write to `{}`: {e}", folder.display()));
    std::fs::create_dir_all(folder).map_err(|e| fail(&e))?;
    let staged = tempfile::Builder::new().prefix(".tpusim-").tempdir_in(folder).map_err(|e| fail(&e))?;
    let name = |i: usize| format!("out{i}.npy");
    for (i, (ty, data)) in arrays.iter().enumerate() {
        let shape: Vec<usize> = ty.dims.iter().map(|&d| usize::try_from(d).unwrap_or(0)).collect();
        let array = NpyArray::new(ty.dtype, &shape, data.clone()).map_err(|e| fail(&e))?;
        array.write(&staged.path().join(name(i))).map_err(|e| fail(&e))?;
    }
    if let Some(taken) = (0..arrays.len()).map(|i| folder.join(name(i))).find(|p| p.is_dir()) {
        return Err(fail(&format!("`{}` is a folder", taken.display())));
    }
    for i in 0..arrays.len() {
        std::fs::rename(staged.path().join(name(i)), folder.join(name(i))).map_err(|e| fail(&e))?;
    }
    Ok(())
}

/// Writes `bytes` to the file `path`.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    atomic::write_bytes(path, bytes).map_err(Failure::usage)
}

/// Reads the file `path`.
pub fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|e| Failure::usage(format!("cannot read `{}`: {e}", path.display())))
}
