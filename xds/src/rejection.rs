//! Rejections: resources, or parts of them, that a client refused.

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

/// A resource, or a part of one, that a node refused and that is therefore held back from it
/// (quarantine).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The view of the resource.
    pub view: View,
    /// The node's name.
    pub node: Arc<str>,
    /// Its type.
    pub kind: Kind,
    /// Its name; empty when the node refused a response as such and no single resource is to blame.
    pub name: Arc<str>,
    /// The refused part, if the node accepts the rest.
    pub part: Option<Part>,
    /// The refused version.
    pub version: Arc<str>,
    /// The node's error.
    pub text: Arc<str>,
}

/// Returns the first `most` characters of a client's text on one line: control characters become
/// spaces.
pub fn one_line(text: &str, most: usize) -> String {
    text.chars()
        .take(most)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}
