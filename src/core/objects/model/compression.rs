//! Compression of responses, as a TrafficPolicy asks for it.

use serde::Deserialize;

use super::ObjectName;

/// The compression of responses by Envoy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Compression {
    /// The policy.
    pub policy: ObjectName,
    /// The media types that are compressed, in lower case, without parameters; at least one.
    pub types: Vec<String>,
    /// The least bytes of a body that is compressed, where its length is known.
    pub min_bytes: u32,
    /// The algorithms in order of preference, each once; at least one.
    pub algorithms: Vec<CompressionAlgorithm>,
}

/// An algorithm of compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
pub enum CompressionAlgorithm {
    /// `br` (RFC 7932).
    Brotli,
    /// `gzip` (RFC 1952).
    Gzip,
}
