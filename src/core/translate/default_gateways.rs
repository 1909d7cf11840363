//! Default Gateways (GEP-3793): which Gateways are, and to which of them a route comes that names none.

use super::attachments::{OfRoute, Way};
use super::fleet;
use super::key::Verdict;
use super::parent::Parent;
use super::parents::Parents;
use super::settings::Settings;
use crate::channel::Channel;
use crate::inputs::{DefaultGateways, Gateway, Kind, ParentRef, Route};
use crate::model::{ObjectName, Reason};
use crate::store::{Store, parent_key};

/// The most parents that the status of a route can tell of (`RouteStatus.parents`).
const PARENTS: usize = 32;

/// Ok if a Gateway that is to be a default one is: `None` where it is not to be.
pub(super) fn verdict(gateway: &Gateway, store: &Store, settings: &Settings) -> Option<Verdict> {
    let refuse = |reason, text: &str| Some(Err((reason, format!("spec.defaultScope has no effect: {text}"))));
    if !gateway.is_default {
        None
    } else if settings.channel == Channel::Standard {
        refuse(Reason::Unsupported, "it is of the experimental channel, --gateway-api-channel is standard")
    } else if store.is_governed(&gateway.meta.name) {
        refuse(Reason::NotAllowed, "a TenantGateway decides which routes the Gateway takes")
    } else if !allows(&gateway.class, store) {
        let text = "the GatewayClass does not allow default Gateways: leave it out, or have the operator set \
                    spec.defaultGateways to Allow in the GatewayParameters of the class";
        refuse(Reason::NotAllowed, text)
    } else {
        Some(Ok(()))
    }
}

/// True if Gateways of a class may be default Gateways: whoever may create one would otherwise reach the routes of all
/// namespaces.
fn allows(class: &str, store: &Store) -> bool {
    let parameters = store.class(class).and_then(|class| fleet::class_parameters(class, store).ok().flatten());
    parameters.and_then(|parameters| parameters.default_gateways) == Some(DefaultGateways::Allow)
}

/// The default Gateways that a route comes to: those that allow its kind and namespace, as many as its status has room
/// for. Those of its own namespace come first, then the oldest, where `dates` can be believed, then the first by name.
/// One that the route names is reached as its parentRef says.
pub(super) fn of_route<'a>(route: &Route, parents: &'a Parents, store: &Store, dates: bool) -> Vec<&'a Parent> {
    let namespace = &route.meta.name.namespace;
    let asks = route.uses_defaults.then(|| parents.defaults());
    let is_named = |parent: &Parent| {
        route.parents.iter().any(|named| parent_key(named, namespace).is_some_and(|named| named == parent.key))
    };
    let labels = store.labels(namespace);
    let allows = |parent: &Parent| {
        let own = &parent.key.name().namespace;
        let mut listeners = parent.listeners.iter();
        listeners.any(|l| l.kinds.contains(route.kind) && l.allowed.namespaces.admits(own, namespace, labels))
    };
    let mut all: Vec<&Parent> =
        asks.into_iter().flatten().filter(|parent| !is_named(parent) && allows(parent)).collect();
    let rank = |parent: &Parent| {
        let name = parent.key.name().clone();
        (name.namespace != *namespace, if dates { parent.created } else { 0 }, name)
    };
    all.sort_by_cached_key(|parent| rank(parent));
    all.truncate(PARENTS.saturating_sub(route.parents.len()));
    all
}

/// The reference to a default Gateway that stands in the status of a route.
pub(super) fn reference(gateway: &ObjectName) -> ParentRef {
    ParentRef {
        group: Some(Kind::Gateway.group().to_owned()),
        kind: Some(Kind::Gateway.as_str().to_owned()),
        namespace: Some(gateway.namespace.to_string()),
        name: gateway.name.to_string(),
        section: None,
        port: None,
    }
}

/// The note in the status of a route that a default Gateway accepts.
pub(super) fn note(route: &Route, attachments: &OfRoute) -> String {
    let defaults = attachments.iter().filter(|(way, ..)| *way == Way::Default).count();
    let full =
        (route.parents.len() + defaults >= PARENTS).then_some("; with 32 parents the route has all that it may have");
    format!("attached to a default Gateway{}", full.unwrap_or_default())
}
