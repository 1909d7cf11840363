//! Keys of routes and of their parents.

use super::{Kind, ObjectKey, Route, RouteKind};
use crate::model::ObjectName;

/// The kinds of a ListenerSet: the same object in two API groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SetKind {
    /// `ListenerSet` of `gateway.networking.k8s.io`.
    Stable,
    /// `XListenerSet` of `gateway.networking.x-k8s.io`, in bundles up to v1.4.
    Experimental,
}

impl SetKind {
    /// The kind of objects.
    pub fn kind(self) -> Kind {
        match self {
            SetKind::Stable => Kind::ListenerSet,
            SetKind::Experimental => Kind::XListenerSet,
        }
    }

    /// Converts a kind of objects; `None` for kinds that are no ListenerSets.
    pub fn of(kind: Kind) -> Option<Self> {
        [SetKind::Stable, SetKind::Experimental]
            .into_iter()
            .find(|known| known.kind() == kind)
    }
}

/// A ListenerSet of either kind. Sorted by name, so that those of a namespace stand together.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SetKey {
    /// Its name.
    pub name: ObjectName,
    /// Its kind.
    pub kind: SetKind,
}

impl SetKey {
    /// The key of a `ListenerSet` of `gateway.networking.k8s.io`.
    pub fn stable(name: ObjectName) -> Self {
        Self {
            name,
            kind: SetKind::Stable,
        }
    }

    /// The key of its object.
    pub fn object(&self) -> ObjectKey {
        ObjectKey::new(self.kind.kind(), self.name.clone())
    }

    /// Converts an object's key; `None` for kinds that are no ListenerSets.
    pub fn of(key: &ObjectKey) -> Option<Self> {
        Some(Self {
            name: key.name.clone(),
            kind: SetKind::of(key.kind)?,
        })
    }
}

/// The parent of a route: a Gateway or a ListenerSet.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ParentKey {
    /// A Gateway.
    Gateway(ObjectName),
    /// A ListenerSet.
    ListenerSet(SetKey),
}

impl ParentKey {
    /// Its name.
    pub fn name(&self) -> &ObjectName {
        match self {
            ParentKey::Gateway(name) | ParentKey::ListenerSet(SetKey { name, .. }) => name,
        }
    }

    /// The name, for changes.
    pub fn name_mut(&mut self) -> &mut ObjectName {
        match self {
            ParentKey::Gateway(name) | ParentKey::ListenerSet(SetKey { name, .. }) => name,
        }
    }

    /// The key of its object.
    pub fn object(&self) -> ObjectKey {
        match self {
            ParentKey::Gateway(name) => ObjectKey::new(Kind::Gateway, name.clone()),
            ParentKey::ListenerSet(set) => set.object(),
        }
    }

    /// The parent of an object's key; `None` for other kinds.
    pub fn of(key: &ObjectKey) -> Option<Self> {
        match key.kind {
            Kind::Gateway => Some(ParentKey::Gateway(key.name.clone())),
            _ => SetKey::of(key).map(ParentKey::ListenerSet),
        }
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
    /// The key of its object.
    pub fn object(&self) -> ObjectKey {
        ObjectKey::new(self.kind.kind(), self.name.clone())
    }

    /// The key of a route.
    pub fn of_route(route: &Route) -> Self {
        Self {
            kind: route.kind,
            name: route.meta.name.clone(),
        }
    }

    /// Parses the name of an Envoy route, `httproute/<namespace>/<name>/...`, into the key of the
    /// route it was made from.
    pub fn of_envoy_route(name: &str) -> Option<Self> {
        let mut parts = name.splitn(4, '/');
        let kind = parts.next()?;
        let namespace = parts.next()?;
        let name = parts.next()?;
        parts.next()?;
        let kind = RouteKind::ALL
            .into_iter()
            .find(|known| known.kind().as_str().eq_ignore_ascii_case(kind))?;
        Some(Self {
            kind,
            name: ObjectName::new(namespace, name),
        })
    }

    /// Converts an object's key; `None` for kinds that are no routes.
    pub fn of(key: &ObjectKey) -> Option<Self> {
        Some(Self {
            kind: RouteKind::of(key.kind)?,
            name: key.name.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_of_envoy_names_the_route_it_was_made_from() {
        let found = RouteKey::of_envoy_route("httproute/a/web/admin");
        assert_eq!(
            found,
            Some(RouteKey {
                kind: RouteKind::Http,
                name: ObjectName::new("a", "web")
            })
        );
        for other in ["", "acme-challenge", "httproute/a/web", "service/a/web/0"] {
            assert_eq!(RouteKey::of_envoy_route(other), None, "{other:?}");
        }
    }
}
