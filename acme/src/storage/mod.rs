//! Where certificates, keys, accounts and orders are kept.
//!
//! A key-value store with preconditions and locks: the directory of [`dir::Directory`], or objects of a Kubernetes API
//! server. Everything in it is secret.

pub mod dir;
mod file_pool;
mod journal;

use std::fmt;

use async_trait::async_trait;
use serde::Serialize;
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// An ACME account with its key.
    Account,
    /// An order on its way, with the key of the certificate to be.
    Order,
    /// A certificate with its key.
    Certificate,
    /// What was spent of a CA's limits.
    Budget,
    /// Failed attempts.
    Attempts,
    /// What ARI said about a certificate.
    Renewal,
    /// An internal CA.
    Authority,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Account, Self::Order, Self::Certificate, Self::Budget, Self::Attempts, Self::Renewal, Self::Authority];

    /// The folder, or the label.
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

/// Names an entry. The name has letters, digits, `.`, `-` and `_` only, and does not begin with a dot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    kind: Kind,
    name: String,
}

impl Key {
    /// A key. Characters that may not stand in a name become `_` followed by their code, so that no two names meet.
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

    /// The key of an entry by the name that [`Self::name`] gave; `None` for a name that none has.
    pub fn named(kind: Kind, name: &str) -> Option<Self> {
        let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
        let is_name = !name.is_empty() && !name.starts_with('.') && name.bytes().all(fits);
        is_name.then(|| Self { kind, name: name.to_owned() })
    }

    /// What it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind.as_str(), self.name)
    }
}

/// Tells one state of an entry from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version(pub String);

/// An entry as it was read.
pub struct Entry {
    /// Its content.
    pub bytes: Zeroizing<Vec<u8>>,
    /// Its state.
    pub version: Version,
}

/// What must be true for a write to happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Whatever is there is replaced.
    Anything,
    /// Nothing is there.
    Absent,
    /// Exactly this state is there.
    Version(Version),
}

/// A lock held; dropping it frees it, and so does the death of the process.
pub trait Lock: Send + Sync {}

/// Keeps entries. Every write is whole or not at all, and survives the death of the process once it returned. It survives
/// the loss of the machine's power as well, for orders once [`Storage::settle`] returned.
#[async_trait]
pub trait Storage: Send + Sync {
    /// Reads an entry.
    async fn read(&self, key: &Key) -> Result<Option<Entry>, StorageError>;
    /// Writes an entry if the expectation holds; else [`StorageError::Conflict`].
    async fn write(&self, key: &Key, bytes: &[u8], expect: &Expect) -> Result<Version, StorageError>;
    /// Waits until what was written there survives the loss of the machine's power. Orders are written several times each,
    /// and few of those writes need it.
    async fn settle(&self, _key: &Key) -> Result<(), StorageError> {
        Ok(())
    }
    /// Puts an entry out of the way that cannot be used, so that another one can be made, and says where it is now. `None`:
    /// this storage has no such place, and the entry stays until it is written over.
    async fn set_aside(&self, _key: &Key) -> Result<Option<String>, StorageError> {
        Ok(None)
    }
    /// Removes an entry; removing what is not there is success.
    async fn remove(&self, key: &Key) -> Result<(), StorageError>;
    /// The keys of a kind, in order.
    async fn list(&self, kind: Kind) -> Result<Vec<Key>, StorageError>;
    /// Waits for the lock of that name.
    async fn lock(&self, key: &Key) -> Result<Box<dyn Lock>, StorageError>;
}

/// Sets an entry aside for a reason, tells the log, and gives the sentence.
pub(crate) async fn set_aside(storage: &dyn Storage, key: &Key, why: &StorageError) -> String {
    let text = match storage.set_aside(key).await {
        Ok(Some(place)) => format!("{why}: set aside as {place}, and made anew"),
        Ok(None) => format!("{why}: made anew"),
        Err(error) => format!("{why}: made anew where it can be, for {error}"),
    };
    tracing::error!(%key, "{text}");
    text
}

/// Reads an entry of JSON.
pub async fn read_json<T: DeserializeOwned>(
    storage: &dyn Storage,
    key: &Key,
) -> Result<Option<(T, Version)>, StorageError> {
    let Some(entry) = storage.read(key).await? else {
        return Ok(None);
    };
    let value = serde_json::from_slice(&entry.bytes)
        // The error of serde may quote the content, which is secret: only its place is told.
        .map_err(|e| StorageError::Damaged { key: key.to_string(), line: e.line(), column: e.column() })?;
    Ok(Some((value, entry.version)))
}

/// Writes an entry as JSON.
pub async fn write_json<T: Serialize + Sync>(
    storage: &dyn Storage,
    key: &Key,
    value: &T,
    expect: &Expect,
) -> Result<Version, StorageError> {
    let bytes = Zeroizing::new(serde_json::to_vec(value).expect("our own records have string keys only"));
    storage.write(key, &bytes, expect).await
}

impl StorageError {
    /// Is it about the content of one entry? Then it passes by no waiting, and concerns no other entry.
    pub fn is_of_the_entry(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::Unreadable { .. } | Self::Open { .. })
    }
}

/// What may go wrong with storage.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// Somebody else wrote in between.
    #[error("{key} was changed by another process; it is read again")]
    Conflict {
        /// Which entry.
        key: String,
    },
    /// The content is not ours.
    #[error("{key} cannot be read: not the JSON expected, at line {line}, column {column}; move it away to begin anew")]
    Damaged {
        /// Which entry.
        key: String,
        /// Where.
        line: usize,
        /// Where.
        column: usize,
    },
    /// It is there and cannot be read.
    #[error("{path} cannot be read: {why}; give it back to us, or move it away to begin anew")]
    Unreadable {
        /// Which file.
        path: String,
        /// Why.
        why: String,
    },
    /// Others could read or write it.
    #[error("{path} is open to others (mode {mode:o}); expected {expected:o}: chmod it")]
    Open {
        /// Which file or folder.
        path: String,
        /// Its mode.
        mode: u32,
        /// What it should be.
        expected: u32,
    },
    /// Somebody else put something there, and keeps it.
    #[error("{object} {why}")]
    Foreign {
        /// What it is.
        object: String,
        /// Whose it is, and what to do.
        why: String,
    },
    /// The file system, or the API server.
    #[error("{doing} {object}: {why}")]
    Io {
        /// What we were doing.
        doing: &'static str,
        /// To what.
        object: String,
        /// Why it failed.
        why: std::io::Error,
    },
}
