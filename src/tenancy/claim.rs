//! Who wants which hostnames of which TenantGateway.

use std::sync::Arc;

use crate::inputs::{Kind, ParentRef, Route, RouteKind};
use crate::model::{Hostname, HostnameError, ObjectName};

/// The kinds that claim hostnames.
#[allow(missing_docs, reason = "the names are the kinds'")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ClaimKind {
    HttpRoute,
    GrpcRoute,
    TlsRoute,
    ListenerSet,
}

/// A claiming object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClaimKey {
    /// Its kind.
    pub kind: ClaimKind,
    /// Its name.
    pub name: ObjectName,
}

/// What a route or ListenerSet asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Claimant {
    /// Kind and name.
    pub key: ClaimKey,
    /// Whether it answers an ACME challenge of an issuer; such a route claims nothing.
    pub challenge: bool,
    /// Its parents.
    pub parents: Vec<ParentRef>,
    /// Its hostnames.
    pub hostnames: Vec<Result<Hostname, HostnameError>>,
}

impl Claimant {
    /// The TenantGateways it names, each once: a Gateway has the name of its TenantGateway.
    pub(super) fn tenants(&self) -> Vec<ObjectName> {
        let gateway = |parent: &ParentRef| match parent.target(&self.key.name.namespace) {
            Some((Kind::Gateway, name)) => Some(name),
            _ => None,
        };
        let mut tenants: Vec<_> = self.parents.iter().filter_map(gateway).collect();
        tenants.sort();
        tenants.dedup();
        tenants
    }

    /// Whether it names a ListenerSet.
    pub(super) fn names_set(&self, set: &ObjectName) -> bool {
        let named = self.parents.iter().filter_map(|parent| parent.target(&self.key.name.namespace));
        named.into_iter().any(|(kind, name)| kind == Kind::ListenerSet && name == *set)
    }
}

impl From<&Route> for Claimant {
    fn from(route: &Route) -> Self {
        let kind = match route.kind {
            RouteKind::Http => ClaimKind::HttpRoute,
            RouteKind::Tls => ClaimKind::TlsRoute,
        };
        Self {
            key: ClaimKey { kind, name: route.meta.name.clone() },
            challenge: false,
            parents: route.parents.clone(),
            hostnames: route.hostnames.clone(),
        }
    }
}

/// Where a claimant stands among others: `cozy-*` namespaces first, then by `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    tenant: bool,
    pub(super) name: ObjectName,
    kind: ClaimKind,
}

impl Rank {
    pub(super) fn of(key: &ClaimKey) -> Self {
        Self { tenant: !key.name.namespace.starts_with("cozy-"), name: key.name.clone(), kind: key.kind }
    }

    pub(super) fn key(&self) -> ClaimKey {
        ClaimKey { kind: self.kind, name: self.name.clone() }
    }

    pub(super) fn namespace(&self) -> &Arc<str> {
        &self.name.namespace
    }
}

/// Whether a hostname is the apex or below it.
pub(super) fn within(hostname: &Hostname, apex: &str) -> bool {
    let name = hostname.as_str();
    let name = name.strip_prefix("*.").unwrap_or(name);
    name == apex || name.strip_suffix(apex).is_some_and(|rest| rest.ends_with('.'))
}

/// The labels in reverse, so that what lies below a name follows it and a wildcard goes before what it covers.
pub(super) fn reversed(hostname: &Hostname) -> String {
    hostname.as_str().rsplit('.').flat_map(|label| [label, "."]).collect()
}
