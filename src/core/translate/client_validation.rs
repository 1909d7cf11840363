//! Which certificates of clients the listeners of a Gateway ask for (GEP-91).
//!
//! A port asks all its clients for the same, so that no connection that was opened for one of its hosts reaches another
//! with less (GEP-3567). Where nothing is left to check clients against, nobody is let in.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::ca_bundles;
use super::delta::{Resource, ResourceKey};
use super::dirty::Dirty;
use super::emissions::Emissions;
use super::key::{ParentKey, Verdict};
use super::limits;
use super::parent::{Parent, ParentListener, Protocol, Surroundings};
use super::parents::Parents;
use crate::inputs::{FrontendTls, FrontendValidation, Gateway, Kind};
use crate::limits::Limits;
use crate::model::{ClientRoots, ClientValidation, ObjectName, Reason, RootsName, SecretName, ValidationMode};
use crate::store::Store;

/// What is asked of the clients of a listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Clients {
    /// No certificate.
    #[default]
    Anybody,
    /// A certificate.
    Checked(ClientValidation),
    /// A certificate that nobody can have: there are no CA certificates to check it against. The listener keeps its
    /// hostname, and closes every connection.
    Nobody,
}

impl Clients {
    /// Whether somebody can be let in.
    pub(super) fn verdict(&self) -> Verdict {
        match self {
            Clients::Anybody | Clients::Checked(_) => Ok(()),
            Clients::Nobody => Err((
                Reason::NoValidCACertificate,
                "no CA certificate is there to check clients against: every connection is closed".to_owned(),
            )),
        }
    }
}

/// What the ports of a Gateway ask of clients.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientPolicy {
    default: Option<Arc<PortPolicy>>,
    ports: BTreeMap<u16, Option<Arc<PortPolicy>>>,
}

/// What one port asks of clients.
#[derive(Clone, Debug, PartialEq)]
struct PortPolicy {
    mode: ValidationMode,
    /// Where the CA certificates are, if there are any.
    roots: Option<RootsName>,
    /// Whether every reference resolves.
    resolved: Verdict,
}

impl ClientPolicy {
    /// Evaluates a Gateway.
    pub(super) fn of(gateway: &Gateway, store: &Store, limits: &Limits) -> Self {
        let Some(frontend) = gateway.frontend_tls.as_deref() else { return Self::default() };
        let evaluated = |port: Option<u16>, validation: &FrontendValidation| {
            let (roots, resolved) = union(&gateway.meta.name, validation, store, limits);
            let name = RootsName { gateway: gateway.meta.name.clone(), port };
            Arc::new(PortPolicy { mode: validation.mode, roots: roots.map(|_| name), resolved })
        };
        let FrontendTls { default, ports } = frontend;
        let of_port = |(port, own): (&u16, &Option<FrontendValidation>)| {
            (*port, own.as_ref().map(|own| evaluated(Some(*port), own)))
        };
        Self {
            default: default.as_ref().map(|default| evaluated(None, default)),
            ports: ports.iter().map(of_port).collect(),
        }
    }

    fn all(&self) -> impl Iterator<Item = &Arc<PortPolicy>> {
        self.default.iter().chain(self.ports.values().flatten())
    }

    /// Whether some port lets clients in whose certificates are not valid.
    pub(super) fn is_insecure(&self) -> bool {
        self.all().any(|policy| policy.mode == ValidationMode::AllowInsecureFallback)
    }

    /// The names of all CA certificates that are there.
    pub(super) fn roots(&self) -> impl Iterator<Item = &RootsName> {
        self.all().filter_map(|policy| policy.roots.as_ref())
    }

    /// Lays what its port asks of clients over a listener, where TLS ends at it.
    pub(super) fn guard(&self, listener: &mut ParentListener) {
        let own = self.ports.get(&listener.port).unwrap_or(&self.default);
        let terminates = listener.protocol.is_some_and(Protocol::terminates);
        let Some(policy) = own.as_deref().filter(|_| terminates) else { return };
        listener.resolved = listener.resolved.clone().and(policy.resolved.clone());
        listener.clients = match &policy.roots {
            Some(roots) => Clients::Checked(ClientValidation { mode: policy.mode, roots: roots.clone() }),
            None => Clients::Nobody,
        };
    }
}

/// Puts CA certificates where chains ask for them, as far as listeners need them: others take their place without the chain.
pub(super) fn place_roots(
    key: &ParentKey,
    (old, new): (Option<&Parent>, Option<&Parent>),
    around: &Surroundings<'_>,
    parents: &mut Parents,
    emissions: &mut Emissions,
    dirty: &mut Dirty,
) {
    let (before, after) = (old.map(needed).unwrap_or_default(), new.map(needed).unwrap_or_default());
    before.difference(&after).for_each(|name| parents.needs_roots(name, key, false));
    after.difference(&before).for_each(|name| parents.needs_roots(name, key, true));
    let mut touched: BTreeSet<RootsName> = before.symmetric_difference(&after).cloned().collect();
    if let ParentKey::Gateway(_) = key {
        // What is in its ConfigMaps may be another.
        touched.extend([old, new].into_iter().flatten().flat_map(|parent| parent.stand.clients.roots()).cloned());
    }
    let fleet = |parent: Option<&Parent>| parent.map(|parent| parent.stand.reach.fleet);
    let is_moved = fleet(old) != fleet(new);
    for name in touched {
        if is_moved {
            dirty.delta.shown.insert(ResourceKey::Secret(SecretName::Roots(name.clone())));
        }
        let roots = if parents.are_roots_needed(&name) { roots(&name, around) } else { None };
        emissions.emit(ResourceKey::Secret(SecretName::Roots(name)), roots.map(Resource::Roots), dirty);
    }
}

/// The CA certificates that the listeners of a parent need.
fn needed(parent: &Parent) -> BTreeSet<RootsName> {
    let listeners = parent.listeners.iter().filter(|_| parent.accepted.is_ok());
    let named = listeners.filter_map(|listener| match &listener.clients {
        Clients::Checked(validation) => Some(validation.roots.clone()),
        Clients::Anybody | Clients::Nobody => None,
    });
    named.collect()
}

/// The CA certificates under a name, if there are any.
fn roots(name: &RootsName, around: &Surroundings<'_>) -> Option<ClientRoots> {
    let frontend = around.store.gateway(&name.gateway)?.frontend_tls.as_deref()?;
    let validation = match name.port {
        None => frontend.default.as_ref(),
        Some(port) => frontend.ports.get(&port)?.as_ref(),
    };
    let (certificates, _) = union(&name.gateway, validation?, around.store, &around.settings.limits);
    Some(ClientRoots { name: name.clone(), certificates: certificates? })
}

/// The CA certificates that a validation refers to, and whether all references resolve.
fn union(
    gateway: &ObjectName,
    validation: &FrontendValidation,
    store: &Store,
    limits: &Limits,
) -> (Option<Arc<str>>, Verdict) {
    let permitted = |name: &ObjectName| {
        if store.permits(Kind::Gateway, &gateway.namespace, "ConfigMap", name) {
            return Ok(());
        }
        let text = format!("ConfigMap {name} is in another namespace and no ReferenceGrant permits it");
        Err((Reason::RefNotPermitted, text))
    };
    ca_bundles::union(&validation.references, |_, reference, before| {
        let with = |(reason, text)| (reason, format!("with ConfigMap {}: {text}", reference.name));
        ca_bundles::look_up(reference, store, Reason::InvalidCACertificateKind, permitted)
            .and_then(|found| limits::bundle(before, found, limits).map(|()| found).map_err(with))
            .map_err(|(reason, text)| (reason, format!("caCertificateRefs: {text}")))
    })
}
