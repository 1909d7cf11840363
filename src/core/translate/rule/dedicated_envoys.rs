//! The Envoys that serve Gateways of the dedicated fleet.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::settings::{DedicatedEnvoys, Settings};
use gatewright_objects::inputs::SliceEndpoint;
use gatewright_objects::model::ObjectName;
use gatewright_objects::store::Store;

/// The Service of these Envoys: their own, or that of the shared fleet if it serves both.
pub(crate) fn service(settings: &Settings) -> Option<&ObjectName> {
    match &settings.dedicated {
        DedicatedEnvoys::Apart(own) => Some(own),
        DedicatedEnvoys::OfSharedFleet => settings.envoys.as_ref(),
    }
}

/// These Envoys by address.
pub(crate) fn endpoints(settings: &Settings, store: &Store) -> BTreeMap<IpAddr, SliceEndpoint> {
    service(settings)
        .map(|service| behind(service, store))
        .unwrap_or_default()
}

/// The endpoints of a Service by address. Of an address in several slices the ready one counts.
pub(crate) fn behind(service: &ObjectName, store: &Store) -> BTreeMap<IpAddr, SliceEndpoint> {
    let mut all: Vec<&(IpAddr, SliceEndpoint)> = store
        .slices(service)
        .flat_map(|slice| &slice.placed)
        .collect();
    all.sort();
    all.into_iter().rev().cloned().collect()
}
