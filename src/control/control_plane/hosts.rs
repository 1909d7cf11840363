//! The rows of hostnames, for pages that follow them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use jiff::Timestamp;
use tokio::sync::watch;
use xds::Progress;

use super::{ControlPlane, Since, transition_time};
use crate::fleet_views::PerView;
use crate::host_query::{HostQuery, HostRevisions, HostsAnswer};
use crate::programmed::{Acks, FleetAcks, RejectedObjects};
use gatewright_core::hosts::{Sight, host_rows, hostnames_of};
use gatewright_core::inputs::{Kind, ObjectKey, RouteKey, SetKey};
use gatewright_core::model::{Hostname, ObjectName, Status};
use gatewright_core::statuses::{Context, document};
use gatewright_core::translate::{Change, Delta, ObjectStatus, ParentKey};

impl ControlPlane {
    /// Returns the hostnames that changed after a revision; without one, or if that is not known,
    /// all.
    pub fn hosts(&mut self, query: &HostQuery, now: Timestamp) -> HostsAnswer {
        let revision = self.host_changes.revision();
        let asked = query.after.and_then(|after| self.host_changes.since(after));
        let since = std::mem::take(&mut self.since);
        let statuses = SettledStatuses {
            rejected: self.fleet().rejected,
            progress: self.progress(),
            live: self,
            now,
            since: RefCell::new(since),
            acks: RefCell::default(),
        };
        let sight = Sight {
            document: &|key| document(&self.pipeline, &statuses, key),
            may_read: &|_| true,
        };
        let hosts = host_rows(&self.pipeline, asked.as_ref(), &sight);
        self.since = statuses.since.into_inner();
        HostsAnswer::new(revision, asked, hosts)
    }

    /// Returns the revisions of hostnames, as they change.
    pub fn host_revisions(&self) -> watch::Receiver<HostRevisions> {
        self.host_changes.watch()
    }

    /// Returns what is known of the hostnames that changes touch, before they are applied.
    pub(super) fn touched_hosts(&self, changes: &[Change]) -> TouchedHosts {
        let objects: Vec<ObjectKey> = changes.iter().filter_map(Change::key).collect();
        TouchedHosts {
            before: self.hostnames(&objects),
            objects,
        }
    }

    /// Notes the hostnames that a step changed: those of its resources, of its objects before and
    /// after, of the routes whose status it changed, and of the Gateways and ListenerSets that have
    /// other faults by it.
    pub(super) fn note_hosts(
        &mut self,
        touched: TouchedHosts,
        (named, delta): (&BTreeSet<String>, &Delta),
        now: SystemTime,
    ) {
        let TouchedHosts {
            objects,
            before: mut hostnames,
        } = touched;
        hostnames.extend(self.hostnames(&objects));
        let parsed = named.iter().map(|name| Hostname::parse(name));
        hostnames.extend(parsed.filter_map(Result::ok));
        for (key, status) in &delta.statuses {
            let is_shown = match ParentKey::of(key) {
                Some(_) => self.host_changes.note_status(key, status.as_ref()),
                None => RouteKey::of(key).is_some(),
            };
            if is_shown {
                hostnames.extend(self.hostnames([key]));
            }
        }
        self.host_changes.note(hostnames, now);
    }

    /// The hostnames whose rows tell of objects: those of a route, those at a Gateway or
    /// ListenerSet, and those of what a policy is about.
    fn hostnames<'a>(&self, keys: impl IntoIterator<Item = &'a ObjectKey>) -> BTreeSet<Hostname> {
        let store = self.engine().store();
        let mut hostnames = BTreeSet::new();
        for key in keys {
            for object in self.shown_at(key) {
                hostnames.extend(hostnames_of(store, &object));
                hostnames.extend(self.hostnames_at(&object));
            }
        }
        hostnames
    }

    /// The hostnames at a Gateway or ListenerSet, and those under which a route is attached.
    fn hostnames_at(&self, key: &ObjectKey) -> BTreeSet<Hostname> {
        match (ParentKey::of(key), RouteKey::of(key)) {
            (Some(parent), _) => self.engine().hostnames_at(&parent),
            (None, Some(route)) => self.engine().hostnames_of(&route),
            (None, None) => BTreeSet::new(),
        }
    }

    /// The Gateways, ListenerSets and routes whose rows tell of an object.
    fn shown_at(&self, key: &ObjectKey) -> Vec<ObjectKey> {
        let store = self.engine().store();
        if ParentKey::of(key).is_some() || RouteKey::of(key).is_some() {
            return vec![key.clone()];
        }
        let policy = store.policy(key).into_iter();
        let routes = policy
            .clone()
            .flat_map(|policy| policy.services())
            .flat_map(|service| store.indexes().routes_by_service(service))
            .map(RouteKey::object);
        let targets: Vec<ObjectKey> = policy
            .flat_map(|policy| &policy.targets)
            .map(|target| target.object.clone())
            .filter(|object| object.kind != Kind::Service)
            .collect();
        // A policy on a Gateway is one on its ListenerSets.
        let gateways = targets.iter().filter(|key| key.kind == Kind::Gateway);
        let sets = gateways.flat_map(|key| store.sets_of(&key.name));
        routes
            .chain(sets.map(SetKey::object))
            .chain(targets.iter().cloned())
            .collect()
    }
}

/// What is known of the hostnames that changes touch, before they are applied.
pub(super) struct TouchedHosts {
    objects: Vec<ObjectKey>,
    before: BTreeSet<Hostname>,
}

/// Statuses as if Envoys had acknowledged what is under way: a row would have that until the next
/// change. Acknowledgements are counted for the Gateways that are looked at, once for each.
struct SettledStatuses<'a> {
    live: &'a ControlPlane,
    progress: PerView<Progress>,
    rejected: Arc<RejectedObjects>,
    now: Timestamp,
    since: RefCell<Since>,
    acks: RefCell<BTreeMap<ObjectName, Acks>>,
}

impl Context for SettledStatuses<'_> {
    fn controller(&self) -> &str {
        &self.live.controller
    }

    fn add_acknowledgements(&self, key: &ObjectKey, status: &ObjectStatus) -> ObjectStatus {
        let mut fleet = FleetAcks {
            rejected: self.rejected.clone(),
            ..FleetAcks::default()
        };
        if let Some(gateway) = self.live.gateway_of(key) {
            let mut acks = self.acks.borrow_mut();
            let acks = acks
                .entry(gateway.clone())
                .or_insert_with(|| self.live.acks_of(gateway, &self.progress).settled());
            fleet.acks.insert(key.clone(), acks.clone());
        }
        fleet.add_acknowledgements(key, status)
    }

    fn since(&self, key: &ObjectKey, place: &str, status: Status) -> String {
        transition_time(&mut self.since.borrow_mut(), (key, place), status, self.now)
    }
}
