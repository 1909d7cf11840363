//! What a client has rejected.

use std::sync::Arc;

use crate::{Kind, View};

/// A part of a resource of routes that a node refused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Part {
    /// The name of the virtual host.
    pub virtual_host: Arc<str>,
    /// The name of the route.
    pub route: Arc<str>,
}

/// A resource, or a part of one, that a node refused and that is therefore held back from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The view it is in.
    pub view: View,
    /// The node that refused it, as it calls itself.
    pub node: Arc<str>,
    /// Its type.
    pub kind: Kind,
    /// Its name; empty when the node refused a response as such and no single resource is to blame.
    pub name: Arc<str>,
    /// What of it, when the node takes the rest.
    pub part: Option<Part>,
    /// The refused version.
    pub version: Arc<str>,
    /// The node's words.
    pub text: Arc<str>,
}
