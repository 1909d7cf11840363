//! The definitions of the Gateway API in a cluster, as far as the features of classes depend on
//! them.

use std::collections::BTreeSet;

use crate::inputs::Kind;

/// The fields of the experimental channel that definitions may lack: the API server drops such a
/// field, and nobody sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DefinedFields {
    /// `filters` of a Gateway's listeners.
    pub listener_filters: bool,
    /// `routability` of a Gateway's addresses.
    pub routability: bool,
}

/// The kinds and fields that a cluster has definitions for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definitions {
    /// Fields of the experimental channel.
    pub fields: DefinedFields,
    /// The kinds that the API server does not serve.
    pub missing: BTreeSet<Kind>,
}

impl Definitions {
    /// The definitions of a cluster whose API server has not been asked yet: without any field.
    pub fn unknown() -> Self {
        Self {
            fields: DefinedFields::default(),
            missing: BTreeSet::new(),
        }
    }
}

impl Default for Definitions {
    /// All kinds and fields: no API server comes between manifests and their reader.
    fn default() -> Self {
        let fields = DefinedFields {
            listener_filters: true,
            routability: true,
        };
        Self {
            fields,
            missing: BTreeSet::new(),
        }
    }
}
