//! Selection of attached namespaces by a listener.

use super::names::{NAMESPACE_NAME, NO_LABEL};
use gatewright_objects::inputs::{Listener, NamespaceRule};

/// The attached namespaces of a Gateway whose routes a listener accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes<'a> {
    /// All of them: the verdict on each route decides.
    Attached,
    /// One of them.
    Only(&'a str),
    /// None of them.
    Nobody,
}

impl<'a> Takes<'a> {
    /// The selection of a listener with this keeper; `own` is true at a Gateway that we serve.
    pub(crate) fn of(sole_namespace: Option<&'a str>, own: bool) -> Self {
        match sole_namespace {
            Some(sole_namespace) => Self::Only(sole_namespace),
            None if own => Self::Attached,
            None => Self::Nobody,
        }
    }
}

/// True if a TLS listener that we made selects a namespace that is attached to its Gateway.
pub(crate) fn selects(listener: &Listener, namespace: &str) -> bool {
    let NamespaceRule::Selector(selector) = &listener.allowed.namespaces else {
        return true;
    };
    let name = selector.labels.get(NAMESPACE_NAME);
    let nobody = selector
        .expressions
        .iter()
        .any(|(key, operator, _)| key == NAMESPACE_NAME && operator == NO_LABEL);
    listener.tls.is_none() || !nobody && name.is_none_or(|name| name == namespace)
}
