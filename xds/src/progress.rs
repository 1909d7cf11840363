//! What clients have acknowledged and refused.

use std::sync::Arc;

use crate::{Generation, ResourceType, View};

/// How far one connected client is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What it sees.
    pub view: View,
    /// What it calls itself. A hint for people, never an identity.
    pub node: Arc<str>,
    /// Everything it subscribes to that was published up to this generation is acknowledged.
    pub acknowledged: Generation,
    /// What it refused and does not have.
    pub rejections: Vec<Rejection>,
}

/// A resource that a client refused; its last good version stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Its type.
    pub kind: ResourceType,
    /// Its name.
    pub name: Arc<str>,
    /// The version that was refused.
    pub version: Arc<str>,
    /// The client's words.
    pub text: String,
}
