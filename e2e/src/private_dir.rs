//! A private directory of the program, which takes none that others may read.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;

use tempfile::{Builder, TempDir};

/// Creates a directory that its owner alone may use.
///
/// # Errors
/// When it cannot be created.
pub fn private_dir() -> io::Result<TempDir> {
    Builder::new()
        .permissions(Permissions::from_mode(0o700))
        .tempdir()
}
