//! The status of a TenantGateway, from what was decided and from what the statuses of its objects say.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::compile::place_of;
use super::delta::{Derived, DerivedKind, Patch};
use super::engine::Tenancy;
use super::{ClaimKey, Verdict, names, solver};
use crate::inputs::{Listener, ParentRef};
use crate::model::{ConditionType, ObjectName, Reason, Status, clipped};
use crate::translate::{ObjectStatus, StatusBody};

/// The controller name of the page, under which routes of other classes are told how their claims fared.
pub const CONTROLLER: &str = "gateway.cozystack.io/tenantgateway-controller";

/// Listeners that are not ready are told of by name, up to so many.
const WAITING: usize = 64;

/// What the status of a Gateway or ListenerSet says, whoever serves it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParentState {
    /// `Accepted`.
    pub accepted: bool,
    /// `Programmed`.
    pub programmed: bool,
    /// What it says of its listeners.
    pub listeners: BTreeMap<Arc<str>, Listening>,
    /// What its listeners wait for, where their `Programmed` says so with reason `Pending`.
    pub pending: BTreeMap<Arc<str>, String>,
}

/// What a status says of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listening {
    /// `Accepted`.
    pub accepted: bool,
    /// `Programmed`.
    pub programmed: bool,
    /// `ResolvedRefs`, but for kinds of routes: those that cannot attach do no harm.
    pub resolved: bool,
}

impl Listening {
    /// Why it is not ready; `None` when it is.
    fn lacks(self) -> Option<&'static str> {
        match self {
            Self { accepted: false, .. } => Some("NotAccepted"),
            Self { programmed: false, .. } => Some("NotProgrammed"),
            Self { resolved: false, .. } => Some("RefsNotResolved"),
            Self { .. } => None,
        }
    }
}

impl From<&ObjectStatus> for ParentState {
    fn from(status: &ObjectStatus) -> Self {
        let holds = |conditions: &[crate::model::Condition], kind| {
            conditions.iter().any(|condition| condition.kind == kind && condition.status == Status::True)
        };
        let (conditions, listeners) = match &status.body {
            StatusBody::Gateway(gateway) => (&gateway.conditions, &gateway.listeners),
            StatusBody::ListenerSet(set) => (&set.conditions, &set.listeners),
            StatusBody::Class(_) | StatusBody::Route(_) => return Self::default(),
        };
        let both = |conditions: &[_]| {
            (holds(conditions, ConditionType::Accepted), holds(conditions, ConditionType::Programmed))
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
        let listening = |conditions: &[crate::model::Condition]| {
            let (accepted, programmed) = both(conditions);
            let mut refs = conditions.iter().filter(|condition| condition.kind == ConditionType::ResolvedRefs);
            let resolved = refs.all(|c| c.status != Status::False || c.reason == Reason::InvalidRouteKinds);
            Listening { accepted, programmed, resolved }
        };
        let listeners = listeners.iter().map(|listener| (listener.name.clone(), listening(&listener.conditions)));
        Self { accepted, programmed, listeners: listeners.collect(), pending }
    }
}

/// The status of a TenantGateway but for times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantStatus {
    /// The generation it was made from.
    pub generation: i64,
    /// `Ready`.
    pub ready: bool,
    /// Its reason.
    pub reason: &'static str,
    /// For people.
    pub message: String,
    /// The listeners of its Gateway, and up to 64 of its ListenerSets that are not ready, in their order: a status has to fit
    /// into an object, however many hosts there are.
    pub listeners: Vec<ListenerState>,
}

/// A listener of a TenantGateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerState {
    /// Its name.
    pub name: String,
    /// Its hostname.
    pub hostname: Option<String>,
    /// The Certificate, which has the name of its Secret.
    pub certificate: Option<String>,
    /// Why it is not ready; `None` when it is.
    pub reason: Option<&'static str>,
}

impl ListenerState {
    fn new((listener, reason): (&Arc<Listener>, Option<&'static str>)) -> Self {
        let hostname = listener.hostname.as_ref().ok().filter(|hostname| !hostname.is_any());
        let certificate = listener.tls.as_ref().and_then(|tls| tls.certificates.first());
        Self {
            name: listener.name.to_string(),
            hostname: hostname.map(ToString::to_string),
            certificate: certificate.map(|reference| reference.name.name.to_string()),
            reason,
        }
    }
}

impl TenantStatus {
    /// As it is written. `since` is when `Ready` last changed its status, in RFC 3339.
    pub fn document(&self, since: &str) -> Value {
        let condition = json!({
            "type": "Ready",
            "status": if self.ready { "True" } else { "False" },
            "reason": self.reason,
            "message": clipped(self.message.clone()),
            "observedGeneration": self.generation,
            "lastTransitionTime": since,
        });
        let listener = |listener: &ListenerState| {
            let mut told = json!({"name": listener.name, "ready": listener.reason.is_none()});
            let texts =
                [("hostname", listener.hostname.as_deref()), ("certificateName", listener.certificate.as_deref())];
            for (field, text) in texts.into_iter().chain([("reason", listener.reason)]) {
                if let Some(text) = text {
                    told[field] = json!(text);
                }
            }
            told
        };
        json!({
            "observedGeneration": self.generation,
            "conditions": [condition],
            "listeners": self.listeners.iter().map(listener).collect::<Vec<_>>(),
        })
    }
}

impl Tenancy {
    /// The TenantGateways that were given, whatever is wrong with them.
    pub fn tenants(&self) -> impl Iterator<Item = &ObjectName> {
        self.given.keys()
    }

    /// The status of a TenantGateway. `look` says what the status of one of its objects says, if it has one.
    pub fn status(
        &self,
        tenant: &ObjectName,
        look: &dyn Fn(&Derived) -> Option<Arc<ParentState>>,
    ) -> Option<TenantStatus> {
        let given = self.given.get(tenant)?;
        let gateway = Derived { kind: DerivedKind::Gateway, name: tenant.clone() };
        let mut state = look(&gateway).map(Arc::unwrap_or_clone).unwrap_or_default();
        let mut listeners: Vec<_> = self.listening(&gateway, &state).map(ListenerState::new).collect();
        // A host that comes up, or one that is in trouble, takes nothing from the others.
        let is_host = |name: &str| self.listeners.contains_key(&(tenant.clone(), Arc::from(name)));
        let (hosts, fixed): (Vec<&ListenerState>, Vec<_>) = listeners.iter().partition(|l| is_host(&l.name));
        let fixed_serve = fixed.iter().all(|listener| listener.reason.is_none());
        let (mut a_host, mut a_host_serves) =
            (!hosts.is_empty(), hosts.iter().any(|listener| listener.reason.is_none()));
        let mut total = listeners.len();
        let mut waiting = listeners.iter().filter(|listener| listener.reason.is_some()).count();
        for ((_, number), _) in self.shards.range((tenant.clone(), 1)..).take_while(|((of, _), _)| of == tenant) {
            let (kind, name) = place_of(tenant, *number);
            let set = Derived { kind, name: ObjectName::new(tenant.namespace.clone(), name) };
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
        let decided = self.readiness.get(tenant);
        let (reason, message) = match decided.filter(|readiness| readiness.reason != "Reconciled") {
            Some(readiness) => (readiness.reason, readiness.message.clone()),
            None if !state.accepted => ("GatewayNotAccepted", format!("Gateway {tenant} is not accepted")),
            None if !state.programmed => ("GatewayNotProgrammed", format!("Gateway {tenant} is not programmed")),
            None if waiting > 0 => {
                let more = if waiting > 8 { ", ..." } else { "" };
                let tell = |listener: &ListenerState| match state.pending.get(&*listener.name) {
                    Some(text) => format!("{} ({text})", listener.name),
                    None => listener.name.clone(),
                };
                let who = listeners.iter().filter(|listener| listener.reason.is_some());
                let names = who.take(8).map(tell).collect::<Vec<_>>().join(", ");
                let text = format!("{waiting} of {total} listeners are not ready: {names}{more}");
                (if serves { "Reconciled" } else { "ListenersNotReady" }, text)
            }
            None => ("Reconciled", format!("all {total} listeners are ready")),
        };
        let ready = reason == "Reconciled";
        Some(TenantStatus { generation: given.generation, ready, reason, message, listeners })
    }

    /// The listeners of an object, and why those are not ready that are not.
    fn listening(
        &self,
        object: &Derived,
        state: &ParentState,
    ) -> impl Iterator<Item = (&Arc<Listener>, Option<&'static str>)> {
        let listeners = self.desired.get(object).into_iter().flat_map(|desired| desired.listeners());
        listeners.map(|listener| {
            (listener, state.listeners.get(&listener.name).map_or(Some("Pending"), |told| told.lacks()))
        })
    }

    /// Namespaces whose label names one that has no TenantGateway, with what it names.
    pub fn dangling(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)> {
        self.members.iter().filter(|(_, gateway)| self.tenants_in.count(*gateway) == 0)
    }

    /// Every verdict on claims, by claim.
    pub fn verdicts(&self) -> impl Iterator<Item = (&ClaimKey, &ObjectName, &Verdict)> {
        let told = self.claims.iter().filter_map(|claim| Some((&claim.key, &claim.tenant, claim.verdict.as_ref()?)));
        let mut told: Vec<_> = told.collect();
        told.sort_by_key(|(claim, tenant, _)| (*claim, *tenant));
        told.into_iter()
    }

    /// The verdicts on one claim, for each TenantGateway that it names, in no order.
    pub fn verdicts_of(&self, claim: &ClaimKey) -> impl Iterator<Item = (&ObjectName, &Verdict)> {
        let told = self.claims.of(claim).map(|id| &self.claims[id]);
        told.filter_map(|claim| Some((&claim.tenant, claim.verdict.as_ref()?)))
    }

    /// Whether a TenantGateway is carried out to which an object belongs whose controlling owner has this UID: what is not
    /// among the desired objects is then not wanted, rather than not decided.
    pub fn decides(&self, derived: &Derived, uid: &str) -> bool {
        let decided = |name: &ObjectName| {
            let frozen = self.readiness.get(name).is_none_or(|readiness| readiness.frozen);
            !frozen && self.valid.contains_key(name)
        };
        if let Some((namespace, _)) = names::challenges_of(&derived.name.name) {
            let here = self.settings.solver.as_ref().is_some_and(|to| to.namespace == derived.name.namespace);
            let of = self.namespaces.get(namespace).filter(|_| here);
            let there = of.is_some_and(|there| !uid.is_empty() && there.uid == uid);
            // It belongs to the namespace, and is not wanted when the TenantGateway is gone.
            return there && self.tenant_of(derived).is_none_or(decided);
        }
        let named = |name: &&ObjectName| self.is_uid_of(uid, name);
        self.tenants_in.of(&derived.name.namespace).find(named).is_some_and(decided)
    }

    /// The TenantGateway that an object under a derived name would belong to, by its name.
    pub fn tenant_of(&self, derived: &Derived) -> Option<&ObjectName> {
        if let Some((namespace, _)) = names::challenges_of(&derived.name.name) {
            return self.tenants_in.of(namespace).find(|tenant| solver::is_of(&derived.name.name, tenant));
        }
        self.tenants_in.of(&derived.name.namespace).find(|tenant| match derived.kind {
            DerivedKind::Gateway => derived.name.name == tenant.name,
            _ => derived.name.name.strip_prefix(&*tenant.name).is_some_and(|rest| rest.starts_with('-')),
        })
    }

    /// The TenantGateways that expect a namespace to be attached, the first of them first.
    pub fn attaching(&self, namespace: &Arc<str>) -> impl Iterator<Item = &ObjectName> {
        self.expecting.of(namespace)
    }

    /// Every namespace whose label or annotation is to be changed.
    pub fn patches(&self) -> impl Iterator<Item = (&Arc<str>, &Patch)> {
        self.patches.iter()
    }

    /// Whether a TenantGateway's Gateway is of a class that we serve: there `Accepted` is among the conditions of the
    /// Gateway's own controller.
    pub fn is_own(&self, tenant: &ObjectName) -> bool {
        self.valid.get(tenant).is_some_and(|valid| valid.frame.own)
    }

    /// The parentRefs by which a claim names a TenantGateway.
    pub fn parents(&self, claim: &ClaimKey, tenant: &ObjectName) -> Vec<&ParentRef> {
        self.claims.claimant(claim).into_iter().flat_map(|claimant| claimant.naming(tenant)).collect()
    }

    /// Every certificate that we are to get, by Secret.
    pub fn wants(&self) -> &BTreeMap<ObjectName, crate::wanted::WantedCertificate> {
        &self.wanted
    }
}
