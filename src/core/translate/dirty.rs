//! The work list of one change: what has to be redone, stage by stage.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::delta::Delta;
use super::key::{ListenerId, ParentKey, RouteKey};
use super::lead::Lead;
use super::ownership::Ownable;
use crate::inputs::ObjectKey;
use crate::model::{BackendId, ClusterId, FrontendId, Hostname, ObjectName, ServicePort};

/// What has to be redone. Any stage marks what it touches, by adding to these lists, which is why they are open;
/// [`Engine::apply`](super::Engine::apply) takes out of them, and so do the stages of owners and of secret names, of which one item
/// leads to another.
#[derive(Default)]
pub(super) struct Dirty {
    pub(super) parents: BTreeSet<ParentKey>,
    /// What may have another owner.
    pub(super) owned: BTreeSet<Ownable>,
    pub(super) claims: BTreeMap<FrontendId, BTreeSet<Hostname>>,
    pub(super) attachments: BTreeSet<RouteKey>,
    pub(super) routes: BTreeSet<RouteKey>,
    /// BackendTLSPolicies, the Services that they are about, and routes that may lead there.
    pub(super) policies: BTreeSet<ObjectName>,
    pub(super) policed: BTreeSet<ObjectName>,
    pub(super) uses: BTreeSet<RouteKey>,
    /// Gateways that may show another certificate to backends.
    pub(super) clients: BTreeSet<ObjectName>,
    /// Gateways, and what Gateways share, whose frontends may be bound elsewhere.
    pub(super) bindings: BTreeSet<ObjectName>,
    /// Routes that listeners may count, or no longer.
    pub(super) counted: BTreeSet<(ListenerId, RouteKey)>,
    /// Hostnames that only solvers may give a listener, or no longer.
    pub(super) solved: BTreeSet<(ListenerId, Hostname)>,
    pub(super) units: BTreeSet<(FrontendId, Hostname)>,
    /// Hostnames whose certificates somebody else may keep the name of, each with the namespace that kept it before.
    pub(super) secret_names: BTreeMap<Hostname, Option<Arc<str>>>,
    /// The time, in milliseconds since the epoch.
    pub(super) now: u64,
    pub(super) tables: BTreeSet<(FrontendId, Option<Hostname>)>,
    pub(super) frontends: BTreeSet<FrontendId>,
    pub(super) backends: BTreeSet<BackendId>,
    /// Where clusters lead from now on.
    pub(super) leads: BTreeMap<ClusterId, Option<Lead>>,
    pub(super) endpoints: BTreeSet<ServicePort>,
    pub(super) assignments: BTreeSet<ClusterId>,
    pub(super) statuses: BTreeSet<ObjectKey>,
    pub(super) services: BTreeSet<ObjectName>,
    pub(super) wanting: BTreeSet<ParentKey>,
    pub(super) delta: Delta,
}
