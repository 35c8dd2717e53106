//! Writing files so that nothing half-written ever has the final name.
//!
//! Contents go to a temporary file in the target's folder, which is renamed when complete and removed when anything fails. There
//! is no fsync: the promise is about interrupted programs, not about power cuts.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// A file could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write `{}`: {source}", path.display())]
pub struct WriteError {
    /// The file that was wanted.
    pub path: PathBuf,
    /// What went wrong.
    #[source]
    pub source: io::Error,
}

impl WriteError {
    /// The error `source` while writing `path`.
    pub fn new(path: &Path, source: impl Into<io::Error>) -> WriteError {
        WriteError { path: path.to_owned(), source: source.into() }
    }
}

/// Writes what `fill` produces to `path`, replacing a file of that name. On an error the old file stays as it was.
///
/// A path that names something other than a regular file (a pipe, `/dev/null`) is written directly: a rename would replace it.
pub fn write(path: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), WriteError> {
    let fail = |e| WriteError::new(path, e);
    let target = match fs::canonicalize(path) {
        Ok(real) => real,
        Err(e) if e.kind() == io::ErrorKind::NotFound => path.to_owned(),
        Err(e) => return Err(fail(e)),
    };
    match fs::metadata(&target) {
        Ok(m) if m.is_dir() => return Err(fail(io::Error::from(io::ErrorKind::IsADirectory))),
        Ok(m) if !m.is_file() => {
            let mut out = BufWriter::new(fs::OpenOptions::new().write(true).open(&target).map_err(fail)?);
            return fill(&mut out).and_then(|()| out.flush()).map_err(fail);
        }
        _ => {}
    }
    let mut out = BufWriter::new(temporary(&target).map_err(fail)?);
    fill(&mut out).map_err(fail)?;
    let file = out.into_inner().map_err(|e| fail(e.into_error()))?;
    file.persist(&target).map_err(|e| fail(e.error))?;
    Ok(())
}

/// Writes `bytes` to `path`.
pub fn write_bytes(path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    write(path, |out| out.write_all(bytes))
}

fn temporary(target: &Path) -> io::Result<NamedTempFile> {
    let folder = match target.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    };
    if !folder.is_dir() {
        let message = format!("there is no folder `{}`", folder.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, message));
    }
    let mut builder = tempfile::Builder::new();
    builder.prefix(".tpusim-").suffix(".tmp");
    // Temporary files are private by default; this one becomes an ordinary file, subject to the umask.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }

    // Oracle: the file system after success holds exactly the new file, after an error exactly the old one.
    #[test]
    fn replaces_or_leaves_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.csv");
        write_bytes(&path, b"one").unwrap();
        write_bytes(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        let e = write(&path, |out| {
            out.write_all(b"half")?;
            Err(io::Error::other("no more"))
        });
        let text = e.unwrap_err().to_string();
        assert!(text.contains("a.csv") && text.contains("no more"), "{text}");
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(names(dir.path()), ["a.csv"]);
    }

    // Oracle: the path in the message.
    #[test]
    fn names_the_path_when_the_folder_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("none").join("x.json");
        let text = write_bytes(&path, b"x").unwrap_err().to_string();
        assert!(text.contains("x.json"), "{text}");
        assert!(write_bytes(dir.path(), b"x").is_err());
        assert!(names(dir.path()).is_empty());
    }

    // Oracle: the mode an ordinarily created file gets, and the link that must survive.
    #[cfg(unix)]
    #[test]
    fn has_ordinary_permissions_and_keeps_links_and_devices() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let (plain, ours, link) = (dir.path().join("plain"), dir.path().join("ours"), dir.path().join("link"));
        fs::write(&plain, b"x").unwrap();
        write_bytes(&ours, b"x").unwrap();
        assert_eq!(fs::metadata(&plain).unwrap().mode(), fs::metadata(&ours).unwrap().mode());
        std::os::unix::fs::symlink(&ours, &link).unwrap();
        write_bytes(&link, b"through").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&ours).unwrap(), b"through");
        write_bytes(Path::new("/dev/null"), b"gone").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }
}
