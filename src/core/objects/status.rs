//! Statuses of objects, before times and acknowledgements are added.

use std::sync::Arc;

use crate::inputs::{ObjectKey, ParentRef, SetKind};
use crate::model::{Condition, StatusAddress};

/// The status of one object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectStatus {
    /// The generation it was made from.
    pub generation: i64,
    /// The content.
    pub body: StatusBody,
}

impl ObjectStatus {
    /// All its conditions.
    pub fn conditions(&self) -> impl Iterator<Item = &Condition> {
        self.conditions_of_listeners()
            .map(|(_, condition)| condition)
    }

    /// All its conditions, with the name of the listener for a listener's condition.
    pub fn conditions_of_listeners(&self) -> impl Iterator<Item = (Option<&str>, &Condition)> {
        let own: &[Condition] = match &self.body {
            StatusBody::Class(status) => &status.conditions,
            StatusBody::Gateway(status) => &status.conditions,
            StatusBody::ListenerSet(status) => &status.conditions,
            StatusBody::Route(_) | StatusBody::Policy(_) => &[],
        };
        let listeners: &[ListenerStatus] = match &self.body {
            StatusBody::Gateway(status) => &status.listeners,
            StatusBody::ListenerSet(status) => &status.listeners,
            StatusBody::Class(_) | StatusBody::Route(_) | StatusBody::Policy(_) => &[],
        };
        let parents: &[(ParentRef, Vec<Condition>)] = match &self.body {
            StatusBody::Route(status) => &status.parents,
            _ => &[],
        };
        let ancestors: &[(ObjectKey, Vec<Condition>)] = match &self.body {
            StatusBody::Policy(status) => &status.ancestors,
            _ => &[],
        };
        let listeners = listeners.iter().flat_map(|listener| {
            listener
                .conditions
                .iter()
                .map(|condition| (Some(&*listener.name), condition))
        });
        let parents = parents.iter().flat_map(|(_, conditions)| conditions);
        let ancestors = ancestors.iter().flat_map(|(_, conditions)| conditions);
        own.iter()
            .map(|condition| (None, condition))
            .chain(listeners)
            .chain(parents.chain(ancestors).map(|condition| (None, condition)))
    }

    /// True if all conditions are good.
    pub fn is_healthy(&self) -> bool {
        self.conditions().all(Condition::is_healthy)
    }
}

/// The status of a GatewayClass.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClassStatus {
    /// Its conditions.
    pub conditions: Vec<Condition>,
    /// The features of its Gateways, sorted; empty while it is not accepted.
    pub features: Vec<&'static str>,
}

/// The record of a reported status. The status itself is computed again when it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reported {
    /// A hash of the status.
    pub fingerprint: u64,
    /// True if none of its conditions says that something is wrong.
    pub is_healthy: bool,
}

/// The content of a status, by kind.
///
/// `Programmed` is true here if there is something to serve and it was translated; the publication
/// combines it with the acknowledgements of the connected Envoys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StatusBody {
    /// The status of a GatewayClass.
    Class(ClassStatus),
    /// The status of a Gateway.
    Gateway(GatewayStatus),
    /// The status of a ListenerSet.
    ListenerSet(ListenerSetStatus),
    /// The status of a route of any kind.
    Route(RouteStatus),
    /// Of a policy of any kind.
    Policy(PolicyStatus),
}

/// The status of a Gateway.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GatewayStatus {
    /// The addresses it is served on.
    pub addresses: Vec<StatusAddress>,
    /// The number of accepted ListenerSets.
    pub attached_listener_sets: usize,
    /// Its conditions.
    pub conditions: Vec<Condition>,
    /// Its own listeners, in their order.
    pub listeners: Vec<ListenerStatus>,
}

/// The status of a ListenerSet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ListenerSetStatus {
    /// Its kind.
    pub kind: SetKind,
    /// Its conditions.
    pub conditions: Vec<Condition>,
    /// Its listeners, in their order.
    pub listeners: Vec<ListenerStatus>,
}

/// The status of a listener.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ListenerStatus {
    /// Its name.
    pub name: Arc<str>,
    /// Its port; 0 if it has none.
    pub port: u16,
    /// The supported route kinds: group and kind.
    pub supported_kinds: Vec<(&'static str, &'static str)>,
    /// The number of accepted routes.
    pub attached_routes: usize,
    /// Its conditions.
    pub conditions: Vec<Condition>,
}

/// The status of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PolicyStatus {
    /// The Gateways whose hosts or routes it is about, and targets that do not exist, each with its
    /// own conditions; those of its own namespace first, sorted by kind and name.
    pub ancestors: Vec<(ObjectKey, Vec<Condition>)>,
}

/// The status of a route.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RouteStatus {
    /// One entry for each parentRef to a Gateway of ours, as written.
    pub parents: Vec<(ParentRef, Vec<Condition>)>,
}
