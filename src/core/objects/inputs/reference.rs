//! References from one object to another.

use std::sync::Arc;

use super::Kind;
use crate::model::ObjectName;

/// A reference to an object that may be in another namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LocalRef {
    /// Its group; empty for the core group.
    pub group: String,
    /// Its kind.
    pub kind: String,
    /// Its name, with the namespace filled in.
    pub name: ObjectName,
}

impl LocalRef {
    /// A reference to CA certificates by an object in `namespace`. A ClusterTrustBundle has no
    /// namespace.
    pub(super) fn to_roots(group: String, kind: String, namespace: Arc<str>, name: String) -> Self {
        let reference = Self {
            group,
            kind,
            name: ObjectName::new(namespace, name),
        };
        if reference.is_to_trust_bundle() {
            let name = ObjectName::new("", reference.name.name.clone());
            return Self { name, ..reference };
        }
        reference
    }

    /// True if the target is a ClusterTrustBundle (GEP-5075).
    pub fn is_to_trust_bundle(&self) -> bool {
        self.is_of_kind(Kind::ClusterTrustBundle)
    }

    /// True if the target is of a kind.
    pub(super) fn is_of_kind(&self, kind: Kind) -> bool {
        self.group == kind.group() && self.kind == kind.as_str()
    }
}

/// A reference to a parent.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ParentRef {
    /// The group as written; the status repeats it.
    pub group: Option<String>,
    /// The kind as written.
    pub kind: Option<String>,
    /// The namespace as written.
    pub namespace: Option<String>,
    /// The parent's name.
    pub name: String,
    /// `sectionName`: the name of the only listener to attach to.
    pub section: Option<String>,
    /// The port of the listeners to attach to.
    pub port: Option<u16>,
}

impl ParentRef {
    /// Kind and name of the parent for a route in `namespace`; `None` when the parent is no Gateway
    /// or ListenerSet.
    pub fn target(&self, namespace: &Arc<str>) -> Option<(Kind, ObjectName)> {
        let group = self.group.as_deref();
        let kind = self.kind.as_deref();
        let (group, kind) = (
            group.unwrap_or(Kind::Gateway.group()),
            kind.unwrap_or(Kind::Gateway.as_str()),
        );
        let parents = [Kind::Gateway, Kind::ListenerSet, Kind::XListenerSet];
        let kind = parents
            .into_iter()
            .find(|known| known.group() == group && known.as_str() == kind)?;
        let namespace = self
            .namespace
            .as_deref()
            .map_or_else(|| namespace.clone(), Arc::from);
        Some((kind, ObjectName::new(namespace, self.name.as_str())))
    }
}
