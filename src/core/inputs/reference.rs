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
    /// Its name, the namespace filled in.
    pub name: ObjectName,
}

impl LocalRef {
    /// A reference to certificates of CAs by an object in `namespace`. A ClusterTrustBundle is in no namespace.
    pub(super) fn to_roots(group: String, kind: String, namespace: Arc<str>, name: String) -> Self {
        let reference = Self { group, kind, name: ObjectName::new(namespace, name) };
        if reference.is_to_trust_bundle() {
            let name = ObjectName::new("", reference.name.name.clone());
            return Self { name, ..reference };
        }
        reference
    }

    /// Whether it is to a ClusterTrustBundle (GEP-5075).
    pub(crate) fn is_to_trust_bundle(&self) -> bool {
        self.group == Kind::ClusterTrustBundle.group() && self.kind == Kind::ClusterTrustBundle.as_str()
    }
}

/// A reference to a parent.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ParentRef {
    /// As written; the status repeats it.
    pub group: Option<String>,
    /// As written.
    pub kind: Option<String>,
    /// As written.
    pub namespace: Option<String>,
    /// The parent's name.
    pub name: String,
    /// Only this listener.
    pub section: Option<String>,
    /// Only listeners of this port.
    pub port: Option<u16>,
}

impl ParentRef {
    /// Kind and name of the parent for a route in `namespace`; `None` when it is no Gateway or ListenerSet.
    pub fn target(&self, namespace: &Arc<str>) -> Option<(Kind, ObjectName)> {
        if self.group.as_deref().is_some_and(|group| group != super::kind::GATEWAY_GROUP) {
            return None;
        }
        let kind = match self.kind.as_deref().unwrap_or("Gateway") {
            "Gateway" => Kind::Gateway,
            "ListenerSet" => Kind::ListenerSet,
            _ => return None,
        };
        let namespace = self.namespace.as_deref().map_or_else(|| namespace.clone(), Arc::from);
        Some((kind, ObjectName::new(namespace, self.name.as_str())))
    }
}
