//! Storage of certificates, keys, accounts and orders.
//!
//! A key-value store with preconditions and locks: the directory of [`dir::Directory`], or objects
//! of a Kubernetes API server. All its content is secret.

pub mod dir;
mod file_pool;
pub mod format;
mod journal;
mod reserve;

use std::fmt;

use async_trait::async_trait;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::task::{JoinHandle, spawn_blocking};
use zeroize::Zeroizing;

/// The format of entries that this version writes. A change that older versions would misread
/// raises it.
pub const FORMAT: u32 = 1;

/// Spawns a call of the file system on a thread where it may block. The report of a panic has the
/// name of the span.
fn blocking<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let span = tracing::error_span!("storage");
    spawn_blocking(move || span.in_scope(call))
}

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// An ACME account with its key.
    Account,
    /// A pending order, with the key of its certificate.
    Order,
    /// A certificate with its key.
    Certificate,
    /// The budget of an account, or of our address at a CA.
    Budget,
    /// A record of failed attempts.
    Attempts,
    /// A renewal window by ARI.
    Renewal,
    /// The state of an internal CA.
    Authority,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 7] = [
        Self::Account,
        Self::Order,
        Self::Certificate,
        Self::Budget,
        Self::Attempts,
        Self::Renewal,
        Self::Authority,
    ];

    /// Returns the name of the folder, or the value of the label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Account => "accounts",
            Self::Order => "orders",
            Self::Certificate => "certificates",
            Self::Budget => "budgets",
            Self::Attempts => "attempts",
            Self::Renewal => "renewals",
            Self::Authority => "authorities",
        }
    }
}

/// The key of an entry. The name has letters, digits, `.`, `-` and `_` only, and does not begin
/// with a dot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    kind: Kind,
    name: String,
}

impl Key {
    /// Makes a key. Other characters become `_` followed by their code, so that different names
    /// stay different.
    pub fn new(kind: Kind, name: &str) -> Self {
        let mut safe = String::with_capacity(name.len());
        for (i, byte) in name.bytes().enumerate() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' => safe.push(byte as char),
                b'.' if i > 0 => safe.push('.'),
                _ => safe.push_str(&format!("_{byte:02x}")),
            }
        }
        Self { kind, name: safe }
    }

    /// Makes a key from the output of [`Self::name`]; `None` if no key has this name.
    pub fn named(kind: Kind, name: &str) -> Option<Self> {
        let is_name = !name.is_empty()
            && !name.starts_with('.')
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'));
        is_name.then(|| Self {
            kind,
            name: name.to_owned(),
        })
    }

    /// Returns the kind of the entry.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the name of the entry, as it is stored.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind.as_str(), self.name)
    }
}

/// Identifies one version of an entry's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version(pub String);

/// An entry that was read.
pub struct Entry {
    /// Its content.
    pub bytes: Zeroizing<Vec<u8>>,
    /// Its version.
    pub version: Version,
}

/// The precondition of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    /// None: any content is replaced.
    Anything,
    /// The entry does not exist.
    Absent,
    /// The entry has this version.
    Version(Version),
}

/// A lock that is held; it is released when dropped, and when the process dies.
pub trait Lock: Send + Sync {}

/// Storage of entries. Writes are atomic, and survive the death of the process once they returned.
/// They survive a power failure as well; a write of an order does once [`Storage::flush`] returned.
#[async_trait]
pub trait Storage: Send + Sync {
    /// Reads an entry.
    async fn read(&self, key: &Key) -> Result<Option<Entry>, StorageError>;
    /// Writes an entry if the precondition holds; else returns [`StorageError::Conflict`].
    async fn write(
        &self,
        key: &Key,
        bytes: &[u8],
        expect: &Expect,
    ) -> Result<Version, StorageError>;
    /// Waits until the last write of an entry survives a power failure. Each order is written
    /// several times, and few of these writes need it.
    async fn flush(&self, _key: &Key) -> Result<(), StorageError> {
        Ok(())
    }
    /// Sets space aside for what an order writes once it is placed: its URL, its certificate.
    async fn reserve_space(&self) -> Result<(), StorageError> {
        Ok(())
    }
    /// Sets an unusable entry aside, so that a new one can be made, and returns its new place.
    /// `None`: this storage has no such place, and the entry stays until it is overwritten.
    async fn set_aside(&self, _key: &Key) -> Result<Option<String>, StorageError> {
        Ok(None)
    }
    /// Removes an entry; a missing one is no error.
    async fn remove(&self, key: &Key) -> Result<(), StorageError>;
    /// Returns the keys of a kind, in order.
    async fn list(&self, kind: Kind) -> Result<Vec<Key>, StorageError>;
    /// Waits for the lock of a key.
    async fn lock(&self, key: &Key) -> Result<Box<dyn Lock>, StorageError>;
}

/// Sets an entry aside, logs it, and returns the sentence for an operator.
pub(crate) async fn set_aside(storage: &dyn Storage, key: &Key, why: &StorageError) -> String {
    let text = match storage.set_aside(key).await {
        Ok(Some(place)) => format!("{why}: set aside as {place}, and made anew"),
        Ok(None) => format!("{why}: made anew"),
        Err(error) => format!("{why}: made anew where it can be, for {error}"),
    };
    tracing::error!(%key, "{text}");
    text
}

/// Reads and parses a JSON entry.
pub async fn read_json<T: DeserializeOwned>(
    storage: &dyn Storage,
    key: &Key,
) -> Result<Option<(T, Version)>, StorageError> {
    let Some(entry) = storage.read(key).await? else {
        return Ok(None);
    };
    let value = serde_json::from_slice(&entry.bytes)
        // The error of serde may quote the content, which is secret: only its position is used.
        .map_err(|e| StorageError::Damaged {
            key: key.to_string(),
            line: e.line(),
            column: e.column(),
        })?;
    Ok(Some((value, entry.version)))
}

/// Writes an entry as JSON.
pub async fn write_json<T: Serialize + Sync>(
    storage: &dyn Storage,
    key: &Key,
    value: &T,
    expect: &Expect,
) -> Result<Version, StorageError> {
    let bytes =
        Zeroizing::new(serde_json::to_vec(value).expect("our own records have string keys only"));
    storage.write(key, &bytes, expect).await
}

impl StorageError {
    /// Returns true if the error concerns the content of one entry: waiting does not help, and
    /// other entries are unaffected.
    pub fn is_of_the_entry(&self) -> bool {
        matches!(
            self,
            Self::Damaged { .. } | Self::Unreadable { .. } | Self::Open { .. }
        )
    }
}

/// The error of a storage operation.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The precondition does not hold: another process wrote the entry.
    #[error("{key} was changed by another process; it is read again")]
    Conflict {
        /// The key of the entry.
        key: String,
    },
    /// A newer version of this program wrote the storage, or an object of it.
    #[error(
        "{object}: a newer version wrote this in format {format}, and this version knows format {known}; run that \
         version or a newer one; nothing was changed"
    )]
    Newer {
        /// The file or object that says so.
        object: String,
        /// Its format.
        format: u32,
        /// The newest format that this version knows.
        known: u32,
    },
    /// The content is not the expected JSON.
    #[error(
        "{key} cannot be read: not the JSON expected, at line {line}, column {column}; move it away to begin anew"
    )]
    Damaged {
        /// The key of the entry.
        key: String,
        /// Line of the error.
        line: usize,
        /// Column of the error.
        column: usize,
    },
    /// The entry exists and cannot be read.
    #[error("{path} cannot be read: {why}; give it back to us, or move it away to begin anew")]
    Unreadable {
        /// The path of the file.
        path: String,
        /// The cause.
        why: String,
    },
    /// Others may read or write the entry.
    #[error("{path} is open to others (mode {mode:o}); expected {expected:o}: chmod it")]
    Open {
        /// The path of the file or folder.
        path: String,
        /// Its mode.
        mode: u32,
        /// Its expected mode.
        expected: u32,
    },
    /// Somebody else's object exists under this name, and is not overwritten.
    #[error("{object} {why}")]
    Foreign {
        /// The object.
        object: String,
        /// Its owner, and the fix.
        why: String,
    },
    /// An error of the file system or the API server.
    #[error("{doing} {object}: {why}")]
    Io {
        /// The operation.
        doing: &'static str,
        /// The object of the operation.
        object: String,
        /// The cause.
        why: std::io::Error,
    },
}
