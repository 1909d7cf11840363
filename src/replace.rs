//! A file of this user alone that is replaced as a whole: after a crash there is the one before or the new one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Replaces the file at `path` by what `write` writes.
///
/// # Errors
/// When that fails: the file is as it was.
pub(crate) fn replace(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<()> {
    let new = path.with_extension("new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = BufWriter::new(OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?);
    write(&mut file)?;
    file.flush()?;
    let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.sync_all()?;
    fs::rename(new, path)
}
