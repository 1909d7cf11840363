//! Secrets of a Gateway: client roots, and the client certificate for backends.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::delta::{Resource, ResourceKey};
use crate::key::ParentKey;
use crate::rule::client_validation::{Clients, union};
use crate::rule::surroundings::Surroundings;
use crate::state::dirty::Dirty;
use crate::state::emissions::Emissions;
use crate::state::parent::Parent;
use crate::state::parents::Parents;
use gatewright_objects::model::{ClientRoots, ObjectName, RootsName, Secret, SecretName};

/// Emits the client roots that listeners need, as secrets of their own: they are replaced without a
/// change of the chain.
pub(crate) fn place_roots(
    key: &ParentKey,
    (old, new): (Option<&Parent>, Option<&Parent>),
    around: &Surroundings<'_>,
    parents: &mut Parents,
    emissions: &mut Emissions,
    dirty: &mut Dirty,
) {
    let before = old.map(needed).unwrap_or_default();
    let after = new.map(needed).unwrap_or_default();
    before
        .difference(&after)
        .for_each(|name| parents.needs_roots(name, key, false));
    after
        .difference(&before)
        .for_each(|name| parents.needs_roots(name, key, true));
    let mut touched: BTreeSet<RootsName> = before.symmetric_difference(&after).cloned().collect();
    if let ParentKey::Gateway(_) = key {
        // The contents of its ConfigMaps may have changed.
        touched.extend(
            [old, new]
                .into_iter()
                .flatten()
                .flat_map(|parent| parent.placement.clients.roots())
                .cloned(),
        );
    }
    let is_moved = fleet(old) != fleet(new);
    for name in touched {
        if is_moved {
            dirty.show([ResourceKey::Secret(SecretName::Roots(name.clone()))]);
        }
        let roots = if parents.are_roots_needed(&name) {
            roots(&name, around)
        } else {
            None
        };
        emissions.emit(
            ResourceKey::Secret(SecretName::Roots(name)),
            roots.map(Resource::Roots),
            dirty,
        );
    }
}

fn fleet(parent: Option<&Parent>) -> Option<crate::Fleet> {
    parent.map(|parent| parent.placement.exposure.fleet)
}

/// The client roots that the listeners of a parent need.
fn needed(parent: &Parent) -> BTreeSet<RootsName> {
    let listeners = parent.listeners.iter().filter(|_| parent.accepted.is_ok());
    let named = listeners.filter_map(|listener| match &listener.clients {
        Clients::Checked(validation) => Some(validation.roots.clone()),
        Clients::Anybody | Clients::Nobody => None,
    });
    named.collect()
}

/// The client roots under a name; `None` if there are no certificates.
fn roots(name: &RootsName, around: &Surroundings<'_>) -> Option<ClientRoots> {
    let frontend = around
        .store
        .gateway(&name.gateway)?
        .frontend_tls
        .as_deref()?;
    let validation = match name.port {
        None => frontend.default.as_ref(),
        Some(port) => frontend.ports.get(&port)?.as_ref(),
    };
    let (certificates, _) = union(&name.gateway, validation?, around);
    Some(ClientRoots {
        name: name.clone(),
        certificates: certificates?,
    })
}

/// Emits the client certificate of a Gateway.
pub(crate) fn show_certificate(
    gateway: &ObjectName,
    parents: &Parents,
    emissions: &mut Emissions,
    dirty: &mut Dirty,
) {
    let client = parents
        .get(&ParentKey::Gateway(gateway.clone()))
        .and_then(Parent::client_certificate)
        .cloned();
    let name = SecretName::Client(gateway.clone());
    let secret = client.map(|certificate| Secret {
        name: name.clone(),
        certificate,
        params: Arc::default(),
    });
    emissions.emit(
        ResourceKey::Secret(name),
        secret.map(Resource::Secret),
        dirty,
    );
}
