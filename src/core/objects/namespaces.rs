//! The watched namespaces: all, or those of `namespaces`.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::inputs::is_label;

/// The namespaces whose objects are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Namespaces {
    /// All namespaces of the cluster.
    #[default]
    All,
    /// These alone: objects in other namespaces do not exist for us.
    Listed(BTreeSet<Arc<str>>),
}

impl Namespaces {
    /// The listed namespaces and `own`; all namespaces if none is listed.
    pub fn listed(names: &[String], own: &str) -> Self {
        if names.is_empty() {
            return Self::All;
        }
        Self::Listed(
            names
                .iter()
                .map(String::as_str)
                .chain([own])
                .map(Arc::from)
                .collect(),
        )
    }

    /// Checks that a text is the name of a namespace.
    ///
    /// # Errors
    /// When it is not.
    pub fn check(name: &str) -> Result<String, String> {
        if is_label(name) {
            Ok(name.to_owned())
        } else {
            Err(format!(
                "{name:?} is no name of a namespace: lower-case letters, digits and \"-\", 63 at most, as in team-a"
            ))
        }
    }

    /// An addition to messages about an object that is not found: whether its namespace is not
    /// watched; empty if it is.
    pub fn note(&self, namespace: &str) -> String {
        match self {
            Self::Listed(names) if !names.contains(namespace) => {
                format!(
                    " (namespace {namespace} is not among the watched ones (namespaces of the configuration))"
                )
            }
            _ => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_namespace_is_always_looked_at_and_others_are_noted() {
        let names = ["b".to_owned(), "a".to_owned(), "b".to_owned()];
        let listed = Namespaces::listed(&names, "own");
        assert_eq!(
            listed,
            Namespaces::Listed(["a", "b", "own"].map(Arc::from).into())
        );
        assert_eq!(listed.note("own"), "");
        assert_eq!(
            listed.note("c"),
            " (namespace c is not among the watched ones (namespaces of the configuration))"
        );
        assert_eq!(Namespaces::listed(&[], "own").note("c"), "");
        assert!(Namespaces::check("team-a").is_ok());
        for wrong in ["", "A", "a.b", "a_b", "-a", "*"] {
            assert!(Namespaces::check(wrong).is_err(), "{wrong}");
        }
    }
}
