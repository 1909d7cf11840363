//! Names of the things translation speaks of.

use std::fmt;
use std::sync::Arc;

use crate::inputs::{Kind, ObjectKey, RouteKind};
use crate::model::ObjectName;

/// What a route attaches to: a Gateway or a ListenerSet.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ParentKey {
    /// A Gateway.
    Gateway(ObjectName),
    /// A ListenerSet.
    ListenerSet(ObjectName),
}

impl ParentKey {
    /// Its name.
    pub fn name(&self) -> &ObjectName {
        match self {
            ParentKey::Gateway(name) | ParentKey::ListenerSet(name) => name,
        }
    }

    pub(crate) fn name_mut(&mut self) -> &mut ObjectName {
        match self {
            ParentKey::Gateway(name) | ParentKey::ListenerSet(name) => name,
        }
    }

    /// Its object.
    pub fn object(&self) -> ObjectKey {
        match self {
            ParentKey::Gateway(name) => ObjectKey::new(Kind::Gateway, name.clone()),
            ParentKey::ListenerSet(name) => ObjectKey::new(Kind::ListenerSet, name.clone()),
        }
    }
}

/// A listener of a Gateway or ListenerSet.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerId {
    /// Whose.
    pub parent: ParentKey,
    /// Its name there.
    pub name: Arc<str>,
}

impl fmt::Display for ListenerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "listener {:?} of {}", self.name, self.parent.object())
    }
}

/// A route of any kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RouteKey {
    /// Its kind.
    pub kind: RouteKind,
    /// Its name.
    pub name: ObjectName,
}

impl RouteKey {
    /// Its object.
    pub fn object(&self) -> ObjectKey {
        ObjectKey::new(self.kind.kind(), self.name.clone())
    }

    /// The route of an object's key; `None` for other kinds.
    pub fn of(key: &ObjectKey) -> Option<Self> {
        let kind = match key.kind {
            Kind::HTTPRoute => RouteKind::Http,
            Kind::TLSRoute => RouteKind::Tls,
            _ => return None,
        };
        Some(Self { kind, name: key.name.clone() })
    }
}

/// Why something does not hold: a condition's reason and message.
pub type Verdict = Result<(), (crate::model::Reason, String)>;
