//! A ReferenceGrant: permits references from other namespaces into its own.

use super::{Kind, Meta, ParseError};
use crate::gateway_api::referencegrants::ReferenceGrantSpec;

/// A ReferenceGrant. Any `from` together with any `to` is permitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReferenceGrant {
    /// Its metadata; the namespace is the targets'.
    pub meta: Meta,
    /// Group, kind and namespace of the referring objects.
    pub from: Vec<(String, String, String)>,
    /// Group, kind and, if given, the name of the target.
    pub to: Vec<(String, String, Option<String>)>,
}

impl ReferenceGrant {
    pub(super) fn read(meta: Meta, spec: ReferenceGrantSpec) -> Result<Self, ParseError> {
        Ok(Self {
            meta,
            from: spec
                .from
                .into_iter()
                .map(|f| (f.group, f.kind, f.namespace))
                .collect(),
            to: spec
                .to
                .into_iter()
                .map(|t| (t.group, t.kind, t.name.filter(|name| !name.is_empty())))
                .collect(),
        })
    }

    /// True if an object of `from_kind` in `from_namespace` may refer to the object of kind
    /// `to_kind` named `name` in this grant's namespace.
    pub fn permits(
        &self,
        from_kind: Kind,
        from_namespace: &str,
        to_kind: Kind,
        name: &str,
    ) -> bool {
        let from = self.from.iter().any(|(group, kind, namespace)| {
            group == from_kind.group() && kind == from_kind.as_str() && namespace == from_namespace
        });
        from && self.to.iter().any(|(group, kind, only)| {
            group == to_kind.group()
                && kind == to_kind.as_str()
                && only.as_deref().is_none_or(|only| only == name)
        })
    }
}
