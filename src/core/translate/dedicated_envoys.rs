//! The Envoys that serve Gateways of the dedicated fleet.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::settings::{DedicatedEnvoys, Settings};
use crate::model::ObjectName;
use crate::store::Store;

/// The Service of these Envoys: their own, or that of the shared fleet if it serves both.
pub(super) fn service<'a>(settings: &'a Settings, store: &Store) -> Option<&'a ObjectName> {
    match &settings.dedicated {
        DedicatedEnvoys::Apart(own) => Some(own),
        DedicatedEnvoys::Joining(own) if !behind(own, store).is_empty() => Some(own),
        DedicatedEnvoys::Joining(_) | DedicatedEnvoys::OfSharedFleet => settings.envoys.as_ref(),
    }
}

/// The addresses of these Envoys.
pub(super) fn addresses(settings: &Settings, store: &Store) -> BTreeSet<IpAddr> {
    service(settings, store).map(|service| behind(service, store)).unwrap_or_default()
}

/// The endpoint addresses of a Service.
pub(super) fn behind(service: &ObjectName, store: &Store) -> BTreeSet<IpAddr> {
    store.slices(service).flat_map(|slice| slice.addresses.iter().copied()).collect()
}
