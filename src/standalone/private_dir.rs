//! The private directory: sockets, keys and the certificate authority, accessible by its owner
//! only.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use acme::storage::{StorageError, format};

use crate::replace::replace;

/// The format of the directory's files that this version writes. A change that older versions would
/// misread raises it.
const FORMAT: u32 = 1;

/// A directory that only its owner may enter, locked against other processes of this program.
pub struct PrivateDir {
    path: PathBuf,
    _lock: File,
}

/// The reason for which the private directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PrivateDirError {
    /// There is no home directory.
    #[error("neither XDG_STATE_HOME nor HOME is set: say --state-dir DIR")]
    NoHome,
    /// The directory cannot be created or read.
    #[error("{}: {why}", path.display())]
    Io {
        /// The path of the directory.
        path: PathBuf,
        /// The error.
        why: std::io::Error,
    },
    /// Other users may enter the directory.
    #[error("{} may be entered by others (mode {mode:o}): chmod 700 it, or say --state-dir DIR", path.display())]
    Open {
        /// The path of the directory.
        path: PathBuf,
        /// The mode of the directory.
        mode: u32,
    },
    /// The directory belongs to another user.
    #[error("{} belongs to another user: say --state-dir DIR", path.display())]
    Foreign {
        /// The path of the directory.
        path: PathBuf,
    },
    /// A newer version wrote the directory, or its format cannot be read.
    #[error("{0}; --state-dir names another directory")]
    Format(StorageError),
    /// Another process uses the directory.
    #[error("{} is in use by another gatewright: stop it, take its place with --take-over, or say --state-dir DIR", path.display())]
    InUse {
        /// The path of the directory.
        path: PathBuf,
    },
    /// The paths of its sockets would be too long (108 bytes, unix(7)).
    #[error("{} is too long a path for sockets: say --state-dir with a shorter one", path.display())]
    TooLong {
        /// The path of the directory.
        path: PathBuf,
    },
}

impl PrivateDir {
    /// Returns the default path.
    ///
    /// # Errors
    /// When there is no home directory.
    pub fn default_path(name: &str) -> Result<PathBuf, PrivateDirError> {
        let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
        let base = state
            .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".local/state")))
            .ok_or(PrivateDirError::NoHome)?;
        Ok(base.join("gatewright").join(name))
    }

    /// Creates the directory, or opens an existing one that is private.
    ///
    /// # Errors
    /// When the directory is not private, or is in use.
    pub fn open(path: &Path) -> Result<Self, PrivateDirError> {
        let io = |why| PrivateDirError::Io {
            path: path.to_path_buf(),
            why,
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(io)?;
        let path = path.canonicalize().map_err(io)?;
        let io = |why| PrivateDirError::Io {
            path: path.clone(),
            why,
        };
        if path.as_os_str().len() > 80 {
            return Err(PrivateDirError::TooLong { path });
        }
        let meta = fs::metadata(&path).map_err(io)?;
        let lock = path.join("lock");
        let file = File::options()
            .create(true)
            .append(true)
            .open(&lock)
            .map_err(io)?;
        if file.metadata().map_err(io)?.uid() != meta.uid() {
            return Err(PrivateDirError::Foreign { path });
        }
        let mode = meta.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(PrivateDirError::Open { path, mode });
        }
        // Before the lock, so that a running program is not asked to hand over in vain.
        format::check(&path, FORMAT).map_err(PrivateDirError::Format)?;
        match file.try_lock() {
            Ok(()) => {
                format::claim(&path, FORMAT).map_err(PrivateDirError::Format)?;
                Ok(Self { path, _lock: file })
            }
            Err(TryLockError::WouldBlock) => Err(PrivateDirError::InUse { path }),
            Err(TryLockError::Error(why)) => Err(PrivateDirError::Io { path, why }),
        }
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Writes a file atomically, readable by its owner only. A file with equal content is not written,
/// so that it needs no disk space.
pub(super) fn write_private(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    if fs::read(path).is_ok_and(|held| held == bytes) {
        return Ok(());
    }
    replace(path, |file| file.write_all(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_of_a_newer_version_is_left_as_it_is() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("state");
        let opened = PrivateDir::open(&path).expect("it is new");
        let format = path.join(format::FILE);
        assert_eq!(fs::read_to_string(&format).expect("there"), "1\n");
        // Also while another process uses it, which is not asked to hand over then.
        fs::write(&format, "2\n").expect("written");
        for in_use in [Some(opened), None] {
            let refused = PrivateDir::open(&path).err().expect("it is newer");
            assert!(
                matches!(
                    refused,
                    PrivateDirError::Format(StorageError::Newer { format: 2, .. })
                ),
                "{refused}"
            );
            let text = refused.to_string();
            let words = ["state/format", "format 2", "knows format 1", "--state-dir"];
            assert!(words.iter().all(|word| text.contains(word)), "{text}");
            drop(in_use);
        }
        assert_eq!(fs::read_to_string(&format).expect("there"), "2\n");
    }
}
