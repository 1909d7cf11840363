//! Secrets of a Gateway: CA certificates to check clients against, and the certificate that backends are shown.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::client_validation::{Clients, union};
use super::delta::{Resource, ResourceKey};
use super::dirty::Dirty;
use super::emissions::Emissions;
use super::key::ParentKey;
use super::parent::Parent;
use super::parents::Parents;
use super::surroundings::Surroundings;
use crate::model::{ClientRoots, ObjectName, RootsName, Secret, SecretName};

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
            dirty.show([ResourceKey::Secret(SecretName::Roots(name.clone()))]);
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

/// Hands out what a Gateway shows to backends.
pub(super) fn show_certificate(gateway: &ObjectName, parents: &Parents, emissions: &mut Emissions, dirty: &mut Dirty) {
    let shown = parents.get(&ParentKey::Gateway(gateway.clone())).and_then(Parent::shown).cloned();
    let name = SecretName::Client(gateway.clone());
    let secret = shown.map(|certificate| Secret { name: name.clone(), certificate, params: Arc::default() });
    emissions.emit(ResourceKey::Secret(name), secret.map(Resource::Secret), dirty);
}
