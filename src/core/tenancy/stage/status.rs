//! The status of a TenantGateway, from the decisions of tenancy and the statuses of its objects.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::compile::place_of;
use crate::delta::{Derived, DerivedKind};
use crate::state::derivations::Derivations;
use crate::state::places::Places;
use crate::state::tenants::Tenants;
use gatewright_objects::inputs::Listener;
use gatewright_objects::model::{ConditionType, ObjectName, Reason, Status, clipped};
use gatewright_objects::status::{ObjectStatus, StatusBody};

/// The controller name from the Cozystack gateway page, for route statuses at Gateways of other
/// classes.
pub const CONTROLLER: &str = "gateway.cozystack.io/tenantgateway-controller";

/// The largest number of listeners that are not ready in a status.
const WAITING: usize = 64;

/// The parts that we use of the status of a Gateway or ListenerSet, from any controller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParentState {
    /// `Accepted`.
    pub accepted: bool,
    /// `Programmed`.
    pub programmed: bool,
    /// The states of its listeners.
    pub listeners: BTreeMap<Arc<str>, Listening>,
    /// The messages of its listeners whose `Programmed` has reason `Pending`.
    pub pending: BTreeMap<Arc<str>, String>,
    /// True if a condition is about an earlier generation of the object.
    pub is_behind: bool,
}

/// The conditions of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listening {
    /// `Accepted`.
    pub accepted: bool,
    /// `Programmed`.
    pub programmed: bool,
    /// `ResolvedRefs`, ignoring invalid route kinds: those that cannot attach do no harm.
    pub resolved: bool,
}

impl Listening {
    /// Why it is not ready; `None` if it is.
    fn lacks(self) -> Option<&'static str> {
        match self {
            Self {
                accepted: false, ..
            } => Some("NotAccepted"),
            Self {
                programmed: false, ..
            } => Some("NotProgrammed"),
            Self {
                resolved: false, ..
            } => Some("RefsNotResolved"),
            Self { .. } => None,
        }
    }
}

impl From<&ObjectStatus> for ParentState {
    fn from(status: &ObjectStatus) -> Self {
        let (conditions, listeners) = match &status.body {
            StatusBody::Gateway(gateway) => (&gateway.conditions, &gateway.listeners),
            StatusBody::ListenerSet(set) => (&set.conditions, &set.listeners),
            StatusBody::Class(_) | StatusBody::Route(_) | StatusBody::Policy(_) => {
                return Self::default();
            }
        };
        let both = |conditions: &[_]| {
            (
                holds(conditions, ConditionType::Accepted),
                holds(conditions, ConditionType::Programmed),
            )
        };
        let (accepted, programmed) = both(conditions);
        let pending = listeners.iter().filter_map(|listener| {
            let waits = listener
                .conditions
                .iter()
                .find(|c| c.kind == ConditionType::Programmed && c.reason == Reason::Pending)?;
            Some((listener.name.clone(), waits.message.clone()))
        });
        let pending = pending.collect();
        let listening = |conditions: &[gatewright_objects::model::Condition]| {
            let (accepted, programmed) = both(conditions);
            let mut refs = conditions
                .iter()
                .filter(|condition| condition.kind == ConditionType::ResolvedRefs);
            let resolved =
                refs.all(|c| c.status != Status::False || c.reason == Reason::InvalidRouteKinds);
            Listening {
                accepted,
                programmed,
                resolved,
            }
        };
        let listeners = listeners
            .iter()
            .map(|listener| (listener.name.clone(), listening(&listener.conditions)));
        Self {
            accepted,
            programmed,
            listeners: listeners.collect(),
            pending,
            is_behind: false,
        }
    }
}

fn holds(conditions: &[gatewright_objects::model::Condition], kind: ConditionType) -> bool {
    conditions
        .iter()
        .any(|condition| condition.kind == kind && condition.status == Status::True)
}

/// The status of a TenantGateway, without times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantStatus {
    /// The generation that it was computed from.
    pub generation: i64,
    /// `Ready`.
    pub ready: bool,
    /// Its reason.
    pub reason: &'static str,
    /// A message for people.
    pub message: String,
    /// The listeners of its Gateway, and up to 64 listeners of its ListenerSets that are not ready,
    /// in order: the size of a status must be bounded, regardless of the number of hosts.
    pub listeners: Vec<ListenerState>,
}

/// A listener of a TenantGateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerState {
    /// Its name.
    pub name: String,
    /// Its hostname.
    pub hostname: Option<String>,
    /// The Certificate; its Secret has the same name.
    pub certificate: Option<String>,
    /// Why it is not ready; `None` if it is.
    pub reason: Option<&'static str>,
}

impl ListenerState {
    fn new((listener, reason): (&Arc<Listener>, Option<&'static str>)) -> Self {
        let hostname = listener
            .hostname
            .as_ref()
            .ok()
            .filter(|hostname| !hostname.is_any());
        let certificate = listener
            .tls
            .as_ref()
            .and_then(|tls| tls.certificates.first());
        Self {
            name: listener.name.to_string(),
            hostname: hostname.map(ToString::to_string),
            certificate: certificate.map(|reference| reference.name.name.to_string()),
            reason,
        }
    }
}

impl TenantStatus {
    /// The status as written. `since` is `lastTransitionTime` of `Ready`, in RFC 3339.
    pub fn document(&self, since: &str) -> Value {
        let condition = json!({
            "type": "Ready",
            "status": if self.ready { "True" } else { "False" },
            "reason": self.reason,
            "message": clipped(self.message.clone()),
            "observedGeneration": self.generation,
            "lastTransitionTime": since,
        });
        fn listener(listener: &ListenerState) -> Value {
            let mut entry = json!({"name": listener.name, "ready": listener.reason.is_none()});
            let texts = [
                ("hostname", listener.hostname.as_deref()),
                ("certificateName", listener.certificate.as_deref()),
            ];
            for (field, text) in texts.into_iter().chain([("reason", listener.reason)]) {
                if let Some(text) = text {
                    entry[field] = json!(text);
                }
            }
            entry
        }
        json!({
            "observedGeneration": self.generation,
            "conditions": [condition],
            "listeners": self.listeners.iter().map(listener).collect::<Vec<_>>(),
        })
    }
}

/// The states from which statuses are computed.
#[derive(Clone, Copy)]
pub(crate) struct Statuses<'a> {
    pub(crate) tenants: &'a Tenants,
    pub(crate) places: &'a Places,
    pub(crate) derivations: &'a Derivations,
}

impl<'a> Statuses<'a> {
    /// The status of a TenantGateway. `look` returns the state of one of its objects by that
    /// object's status, if it has one.
    pub(crate) fn status(
        self,
        tenant: &ObjectName,
        look: &dyn Fn(&Derived) -> Option<Arc<ParentState>>,
    ) -> Option<TenantStatus> {
        let given = self.tenants.given(tenant)?;
        let gateway = Derived {
            kind: DerivedKind::Gateway,
            name: tenant.clone(),
        };
        // The status of a Gateway of another class is about that class.
        let other_class = self.other_class(&gateway);
        let told = if other_class.is_none() {
            look(&gateway)
        } else {
            None
        };
        let mut state = told.map(Arc::unwrap_or_clone).unwrap_or_default();
        let mut listeners: Vec<_> = self
            .listening(&gateway, &state)
            .map(ListenerState::new)
            .collect();
        let (hosts, fixed): (Vec<&ListenerState>, Vec<_>) = listeners
            .iter()
            .partition(|l| is_host(&l.name, tenant, self.places));
        let fixed_serve = fixed.iter().all(|listener| listener.reason.is_none());
        let mut a_host = !hosts.is_empty();
        let mut a_host_serves = hosts.iter().any(|listener| listener.reason.is_none());
        let mut total = listeners.len();
        let mut waiting = listeners
            .iter()
            .filter(|listener| listener.reason.is_some())
            .count();
        for (_, number) in self.places.shards_of(tenant).filter(|shard| shard.1 > 0) {
            let (kind, name) = place_of(tenant, *number);
            let set = Derived {
                kind,
                name: ObjectName::new(tenant.namespace.clone(), name),
            };
            let of_set = look(&set).unwrap_or_default();
            for (listener, reason) in self.listening(&set, &of_set) {
                total += 1;
                a_host = true;
                a_host_serves |= reason.is_none();
                if reason.is_some() {
                    waiting += 1;
                    if waiting <= WAITING {
                        listeners.push(ListenerState::new((listener, reason)));
                    }
                }
            }
            state.pending.extend(of_set.pending.clone());
        }
        let serves = fixed_serve && (a_host_serves || !a_host);
        let decided = self.tenants.readiness(tenant);
        let (reason, message) = match decided.filter(|readiness| readiness.reason != "Reconciled") {
            Some(readiness) => (readiness.reason, readiness.message.clone()),
            None if other_class.is_some() => {
                let class = other_class.unwrap_or_default();
                (
                    "GatewayNotAccepted",
                    format!(
                        "Gateway {tenant} has gatewayClassName {class}, which is not the one wanted"
                    ),
                )
            }
            None if state.is_behind && !(state.accepted && state.programmed) => {
                let text = format!(
                    "the conditions of Gateway {tenant} are about an earlier generation of it"
                );
                (
                    if state.accepted {
                        "GatewayNotProgrammed"
                    } else {
                        "GatewayNotAccepted"
                    },
                    text,
                )
            }
            None if !state.accepted => (
                "GatewayNotAccepted",
                format!("Gateway {tenant} is not accepted"),
            ),
            None if !state.programmed => (
                "GatewayNotProgrammed",
                format!("Gateway {tenant} is not programmed"),
            ),
            None if waiting > 0 => {
                let more = if waiting > 8 { ", ..." } else { "" };
                let tell = |listener: &ListenerState| match state.pending.get(&*listener.name) {
                    Some(text) => format!("{} ({text})", listener.name),
                    None => listener.name.clone(),
                };
                let who = listeners
                    .iter()
                    .filter(|listener| listener.reason.is_some());
                let names = who.take(8).map(tell).collect::<Vec<_>>().join(", ");
                let text = format!("{waiting} of {total} listeners are not ready: {names}{more}");
                (
                    if serves {
                        "Reconciled"
                    } else {
                        "ListenersNotReady"
                    },
                    text,
                )
            }
            None => ("Reconciled", format!("all {total} listeners are ready")),
        };
        let ready = reason == "Reconciled";
        Some(TenantStatus {
            generation: given.generation,
            ready,
            reason,
            message,
            listeners,
        })
    }

    /// The class of the existing Gateway, if it is not the desired one.
    fn other_class(self, gateway: &Derived) -> Option<&'a str> {
        let wanted = self.derivations.desired(gateway)?.class()?;
        let class = self.derivations.existing(gateway)?.class.as_deref()?;
        (class != wanted).then_some(class)
    }

    /// The listeners of an object, with the reason for each that is not ready.
    fn listening(
        self,
        object: &Derived,
        state: &ParentState,
    ) -> impl Iterator<Item = (&'a Arc<Listener>, Option<&'static str>)> {
        let listeners = self
            .derivations
            .desired(object)
            .into_iter()
            .flat_map(|desired| desired.listeners());
        listeners.map(|listener| {
            (
                listener,
                state
                    .listeners
                    .get(&listener.name)
                    .map_or(Some("Pending"), |found| found.lacks()),
            )
        })
    }
}

/// A host that is starting or fails does not affect the readiness of the others.
fn is_host(name: &str, tenant: &ObjectName, places: &Places) -> bool {
    places.holder(tenant, Arc::from(name)).is_some()
}
