//! The Envoys that serve Gateways of the dedicated fleet.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::settings::{DedicatedEnvoys, Settings};
use crate::model::ObjectName;
use crate::store::Store;

/// The Service that has them behind it: their own, or that of the shared fleet where it serves both.
pub(super) fn service<'a>(settings: &'a Settings, store: &Store) -> Option<&'a ObjectName> {
    match &settings.dedicated {
        DedicatedEnvoys::Apart(own) => Some(own),
        DedicatedEnvoys::Joining(own) if !behind(own, store).is_empty() => Some(own),
        DedicatedEnvoys::Joining(_) | DedicatedEnvoys::OfSharedFleet => settings.envoys.as_ref(),
    }
}

/// Their addresses.
pub(super) fn addresses(settings: &Settings, store: &Store) -> BTreeSet<IpAddr> {
    service(settings, store).map(|service| behind(service, store)).unwrap_or_default()
}

/// The addresses behind a Service.
pub(super) fn behind(service: &ObjectName, store: &Store) -> BTreeSet<IpAddr> {
    store.slices(service).flat_map(|slice| slice.addresses.iter().copied()).collect()
}
