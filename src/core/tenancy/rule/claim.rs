//! Claims: the hostnames that claimants claim of TenantGateways.

use std::sync::Arc;

use super::names;
use gatewright_objects::inputs::{
    Kind, ListenerSet, ObjectKey, ParentRef, Route, RouteKind, SetKind,
};
use gatewright_objects::model::{Hostname, HostnameError, ObjectName};

/// The kinds that claim hostnames.
#[allow(missing_docs, reason = "the names are the kinds'")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ClaimKind {
    HttpRoute,
    GrpcRoute,
    TlsRoute,
    /// It has no hostname to claim, and is always refused.
    TcpRoute,
    /// It has no hostname to claim, and is always refused.
    UdpRoute,
    ListenerSet(SetKind),
}

/// A claiming object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClaimKey {
    /// Its kind.
    pub kind: ClaimKind,
    /// Its name.
    pub name: ObjectName,
}

/// A route or ListenerSet that claims hostnames.
#[derive(Clone, Debug, PartialEq)]
pub struct Claimant {
    /// Kind and name.
    pub key: ClaimKey,
    /// `metadata.generation`, which verdicts contain.
    pub generation: i64,
    /// True if it answers an ACME challenge for an issuer; such a route claims nothing.
    pub challenge: bool,
    /// Its parents.
    pub parents: Arc<[ParentRef]>,
    /// Its hostnames.
    pub hostnames: Arc<[Result<Hostname, HostnameError>]>,
    /// The hostnames that a ListenerSet has on plain HTTP alone: they get no listener for TLS and
    /// no certificate.
    pub plain: Vec<Hostname>,
}

impl ClaimKind {
    /// True if it is a ListenerSet.
    pub fn is_set(self) -> bool {
        matches!(self, ClaimKind::ListenerSet(_))
    }
}

impl ClaimKey {
    /// The key of the object.
    pub fn object(&self) -> ObjectKey {
        let kind = match self.kind {
            ClaimKind::HttpRoute => Kind::HTTPRoute,
            ClaimKind::GrpcRoute => Kind::GRPCRoute,
            ClaimKind::TlsRoute => Kind::TLSRoute,
            ClaimKind::TcpRoute => Kind::TCPRoute,
            ClaimKind::UdpRoute => Kind::UDPRoute,
            ClaimKind::ListenerSet(kind) => kind.kind(),
        };
        ObjectKey::new(kind, self.name.clone())
    }

    /// Converts an object's key; `None` for kinds that claim nothing.
    pub fn of(key: &ObjectKey) -> Option<Self> {
        let kind = match key.kind {
            Kind::HTTPRoute => ClaimKind::HttpRoute,
            Kind::GRPCRoute => ClaimKind::GrpcRoute,
            Kind::TLSRoute => ClaimKind::TlsRoute,
            Kind::TCPRoute => ClaimKind::TcpRoute,
            Kind::UDPRoute => ClaimKind::UdpRoute,
            kind => ClaimKind::ListenerSet(SetKind::of(kind)?),
        };
        Some(Self {
            kind,
            name: key.name.clone(),
        })
    }
}

impl Claimant {
    /// The TenantGateways that it refers to, each once.
    pub(crate) fn tenants(&self) -> Vec<ObjectName> {
        let mut tenants: Vec<_> = self
            .parents
            .iter()
            .filter_map(|parent| tenant_of(parent, &self.key.name.namespace))
            .collect();
        tenants.sort();
        tenants.dedup();
        tenants
    }

    /// True if it refers to a ListenerSet.
    pub(crate) fn names_set(&self, set: &ObjectName) -> bool {
        let named = self
            .parents
            .iter()
            .filter_map(|parent| parent.target(&self.key.name.namespace));
        named
            .into_iter()
            .any(|(kind, name)| kind == Kind::ListenerSet && name == *set)
    }
}

/// The TenantGateway of a parentRef of an object in `namespace`: a Gateway has the name of its
/// TenantGateway, and the name of an overflow ListenerSet begins with it.
pub fn tenant_of(parent: &ParentRef, namespace: &Arc<str>) -> Option<ObjectName> {
    let (kind, name) = parent.target(namespace)?;
    match kind {
        Kind::Gateway => Some(name),
        Kind::ListenerSet => names::overflow_of(&name.name)
            .map(|(tenant, _)| ObjectName::new(name.namespace.clone(), tenant)),
        _ => None,
    }
}

impl From<&Route> for Claimant {
    fn from(route: &Route) -> Self {
        let kind = match route.kind {
            RouteKind::Http => ClaimKind::HttpRoute,
            RouteKind::Grpc => ClaimKind::GrpcRoute,
            RouteKind::Tls => ClaimKind::TlsRoute,
            RouteKind::Tcp => ClaimKind::TcpRoute,
            RouteKind::Udp => ClaimKind::UdpRoute,
        };
        Self {
            key: ClaimKey {
                kind,
                name: route.meta.name.clone(),
            },
            generation: route.meta.generation,
            challenge: route.challenge,
            parents: route.parents.clone(),
            hostnames: route.hostnames.clone(),
            plain: Vec::new(),
        }
    }
}

/// A ListenerSet claims the hostnames of all its listeners, also those for plain HTTP, at the
/// Gateway that it extends.
impl From<&ListenerSet> for Claimant {
    fn from(set: &ListenerSet) -> Self {
        let parent = set.parent.as_ref().map(|gateway| ParentRef {
            group: None,
            kind: None,
            namespace: Some(gateway.namespace.to_string()),
            name: gateway.name.to_string(),
            section: None,
            port: None,
        });
        let of = |plain: bool| {
            set.listeners
                .iter()
                .filter(move |listener| (listener.protocol == "HTTP") == plain)
        };
        let secure: Vec<&Hostname> = of(false)
            .filter_map(|listener| listener.hostname.as_ref().ok())
            .collect();
        let plain = of(true).filter_map(|listener| listener.hostname.as_ref().ok());
        let plain = plain
            .filter(|hostname| !secure.contains(hostname))
            .cloned()
            .collect();
        Self {
            key: ClaimKey {
                kind: ClaimKind::ListenerSet(set.kind),
                name: set.meta.name.clone(),
            },
            generation: set.meta.generation,
            challenge: false,
            parents: parent.into_iter().collect(),
            hostnames: set
                .listeners
                .iter()
                .map(|listener| listener.hostname.clone())
                .collect(),
            plain,
        }
    }
}

/// The rank of a claimant: `cozy-*` namespaces first, then by `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    tenant: bool,
    pub(crate) name: ObjectName,
    pub(crate) kind: ClaimKind,
}

impl Rank {
    pub(crate) fn of(key: &ClaimKey) -> Self {
        Self {
            tenant: !key.name.namespace.starts_with("cozy-"),
            name: key.name.clone(),
            kind: key.kind,
        }
    }

    pub(crate) fn key(&self) -> ClaimKey {
        ClaimKey {
            kind: self.kind,
            name: self.name.clone(),
        }
    }

    pub(crate) fn namespace(&self) -> &Arc<str> {
        &self.name.namespace
    }
}

/// True if a hostname is the apex or below it.
pub(crate) fn within(hostname: &Hostname, apex: &str) -> bool {
    let name = hostname.as_str();
    let name = name.strip_prefix("*.").unwrap_or(name);
    name == apex
        || name
            .strip_suffix(apex)
            .is_some_and(|rest| rest.ends_with('.'))
}

/// Identifies a [`Claim`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClaimId(pub(crate) usize);
