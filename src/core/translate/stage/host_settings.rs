//! Settings of a Gateway that all of its hosts have.

use super::certificate_condition::touch_routes_at;
use super::policy_marks::touch_statuses;
use crate::rule::gateway_exposure::GatewayExposure;
use crate::state::attachments::Attachments;
use crate::state::dirty::Dirty;
use crate::state::parent::Parent;
use gatewright_objects::store::Store;

/// Marks all units of the listeners of a Gateway or ListenerSet whose setting changed, and the
/// statuses of routes that say that they are served in clear.
pub(crate) fn touch_hosts(
    attachments: &Attachments,
    old: Option<&Parent>,
    new: Option<&Parent>,
    store: &Store,
    dirty: &mut Dirty,
) {
    let (Some(old), Some(new)) = (old, new) else {
        return;
    };
    // Policies on another Gateway are others.
    if of_hosts(&old.placement.exposure) == of_hosts(&new.placement.exposure)
        && old.placement.gateway == new.placement.gateway
    {
        return;
    }
    if old.placement.exposure.policies != new.placement.exposure.policies {
        touch_policies(attachments, new, store, dirty);
    }
    if old.placement.exposure.plain_http != new.placement.exposure.plain_http {
        touch_routes_at(new, store, dirty);
    }
    for listener in &new.listeners {
        let frontend = new.frontend(listener.transport_port());
        let id = new.id(listener);
        dirty
            .units
            .insert((frontend.clone(), listener.hostname.clone()));
        dirty.units.extend(
            attachments
                .names_of(&id)
                .map(|name| (frontend.clone(), name.clone())),
        );
    }
}

/// Marks what depends on the policies and filters that a Gateway allows, beside its units: their
/// statuses, those of routes, and what routes take.
fn touch_policies(attachments: &Attachments, parent: &Parent, store: &Store, dirty: &mut Dirty) {
    touch_statuses(&parent.key.object(), store, dirty);
    if parent.is_default() {
        dirty.attachments.extend(store.defaulted_routes().cloned());
    }
    for route in attachments.routes_at(parent) {
        touch_statuses(&route.object(), store, dirty);
        dirty.statuses.insert(route.object());
        dirty.charged.insert(route);
    }
}

fn of_hosts(exposure: &GatewayExposure) -> impl PartialEq + use<> {
    (
        exposure.escaped_slashes,
        exposure.path_parameters,
        exposure.identity_headers,
        exposure.plain_http,
        exposure.policies.clone(),
    )
}
