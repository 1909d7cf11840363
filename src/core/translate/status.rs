//! Statuses of objects, as they would be written to Kubernetes but for times and acknowledgements.

use std::sync::Arc;

use crate::inputs::ParentRef;
use crate::model::{Condition, ObjectName, StatusAddress};

/// The status of one object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectStatus {
    /// The generation it was made from.
    pub generation: i64,
    /// The content.
    pub body: StatusBody,
}

impl ObjectStatus {
    /// Every condition in it.
    pub fn conditions(&self) -> impl Iterator<Item = &Condition> {
        self.conditions_of_listeners().map(|(_, condition)| condition)
    }

    /// Every condition in it, with the name of the listener where it is of one.
    pub fn conditions_of_listeners(&self) -> impl Iterator<Item = (Option<&str>, &Condition)> {
        let own: &[Condition] = match &self.body {
            StatusBody::Class(status) => &status.conditions,
            StatusBody::Gateway(status) => &status.conditions,
            StatusBody::ListenerSet(status) => &status.conditions,
            StatusBody::Policy(status) => &status.conditions,
            StatusBody::Route(_) => &[],
        };
        let listeners: &[ListenerStatus] = match &self.body {
            StatusBody::Gateway(status) => &status.listeners,
            StatusBody::ListenerSet(status) => &status.listeners,
            StatusBody::Class(_) | StatusBody::Route(_) | StatusBody::Policy(_) => &[],
        };
        let parents = match &self.body {
            StatusBody::Route(status) => status.parents.as_slice(),
            StatusBody::Class(_) | StatusBody::Gateway(_) | StatusBody::ListenerSet(_) | StatusBody::Policy(_) => &[],
        };
        let listeners = listeners
            .iter()
            .flat_map(|listener| listener.conditions.iter().map(|condition| (Some(&*listener.name), condition)));
        let parents = parents.iter().flat_map(|(_, conditions)| conditions).map(|condition| (None, condition));
        own.iter().map(|condition| (None, condition)).chain(listeners).chain(parents)
    }

    /// Whether nothing in it needs anybody's attention.
    pub fn is_good(&self) -> bool {
        self.conditions().all(Condition::is_good)
    }
}

/// The status of a GatewayClass.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClassStatus {
    /// Its conditions.
    pub conditions: Vec<Condition>,
    /// The features of its Gateways, sorted; nothing while it is not accepted.
    pub features: Vec<&'static str>,
}

/// The trace of a status that was handed out. The status itself is made again when somebody asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reported {
    pub(super) fingerprint: u64,
    pub(super) is_good: bool,
}

/// The content of a status, by kind.
///
/// `Programmed` is true here when there is something to serve and it was translated; whoever publishes it turns that
/// into what the connected Envoys have acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StatusBody {
    /// Of a GatewayClass.
    Class(ClassStatus),
    /// Of a Gateway.
    Gateway(GatewayStatus),
    /// Of a ListenerSet.
    ListenerSet(ListenerSetStatus),
    /// Of a route of any kind.
    Route(RouteStatus),
    /// Of a BackendTLSPolicy.
    Policy(PolicyStatus),
}

/// Of a Gateway.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GatewayStatus {
    /// The addresses it is served on.
    pub addresses: Vec<StatusAddress>,
    /// How many ListenerSets were accepted.
    pub attached_listener_sets: usize,
    /// Its conditions.
    pub conditions: Vec<Condition>,
    /// Its own listeners, in their order.
    pub listeners: Vec<ListenerStatus>,
}

/// Of a ListenerSet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ListenerSetStatus {
    /// Its conditions.
    pub conditions: Vec<Condition>,
    /// Its listeners, in their order.
    pub listeners: Vec<ListenerStatus>,
}

/// Of a listener.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ListenerStatus {
    /// Its name.
    pub name: Arc<str>,
    /// Kinds it takes: group and kind.
    pub supported_kinds: Vec<(&'static str, &'static str)>,
    /// Routes that it accepted.
    pub attached_routes: usize,
    /// Its conditions.
    pub conditions: Vec<Condition>,
}

/// Of a BackendTLSPolicy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PolicyStatus {
    /// The Gateways with routes to its Services: its ancestors, sorted.
    pub gateways: Vec<ObjectName>,
    /// The conditions of each of them: all say the same.
    pub conditions: Vec<Condition>,
}

/// Of a route.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RouteStatus {
    /// One entry for each parentRef to a Gateway of ours, as written.
    pub parents: Vec<(ParentRef, Vec<Condition>)>,
}
