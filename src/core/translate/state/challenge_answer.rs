//! Answers to HTTP-01 challenges, by the host and the requesting namespace.

use std::fmt;
use std::sync::Arc;

use gatewright_objects::model::Hostname;

/// The answer to the challenges of one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChallengeAnswer {
    /// The port on which they arrive: 80, unless something in front of Envoy maps it.
    pub port: u16,
    /// Thumbprint of the account's key.
    pub thumbprint: Arc<str>,
}

/// The subject of challenges: a host, requested by a namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Asked {
    /// The host, an exact one.
    pub hostname: Hostname,
    /// The namespace that requests its certificate.
    pub namespace: Arc<str>,
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.hostname, self.namespace)
    }
}
