//! The rows of hostnames, for pages that follow them.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::SystemTime;

use jiff::Timestamp;

use super::{Clock, ControlPlane};
use crate::host_query::{HostQuery, HostsAnswer};
use gatewright_core::hosts::{Sight, host_rows, hostnames_of};
use gatewright_core::inputs::{ChangeKind, Kind, ObjectKey, RouteKey, SetKey};
use gatewright_core::model::Hostname;
use gatewright_core::statuses::document;
use gatewright_core::translate::{Change, Delta};

impl ControlPlane {
    /// Returns the hostnames that changed after a revision; without one, or if that is not known,
    /// all.
    pub fn hosts(&mut self, query: &HostQuery, now: Timestamp) -> HostsAnswer {
        let revision = self.host_changes.revision();
        let asked = query.after.and_then(|after| self.host_changes.since(after));
        let progress = self.progress();
        let mut fleet = self.fleet();
        let store = self.engine().store();
        for gateway in store.gateways() {
            // A row would have an acknowledgement that is under way until the next change.
            let acks = self.acks_of(&gateway.meta.name, &progress).settled();
            let sets = store.sets_of(&gateway.meta.name).map(SetKey::object);
            let own = ObjectKey::new(Kind::Gateway, gateway.meta.name.clone());
            let keys = sets.chain([own]);
            fleet.acks.extend(keys.map(|key| (key, acks.clone())));
        }
        let clock = Clock {
            fleet,
            controller: &self.controller,
            now,
            since: RefCell::new(&mut self.since),
        };
        let pipeline = &self.pipeline;
        let sight = Sight {
            document: &|key| document(pipeline, &clock, key),
            may_read: &|_| true,
        };
        let hosts = host_rows(pipeline, asked.as_ref(), &sight);
        HostsAnswer::new(revision, asked, hosts)
    }

    /// Returns what is known of the hostnames that changes touch, before they are applied.
    pub(super) fn touched_hosts(&self, changes: &[Change]) -> TouchedHosts {
        let objects: Vec<ObjectKey> = changes.iter().filter_map(Change::key).collect();
        TouchedHosts {
            before: self.hostnames(&objects),
            bad: self.engine().good_and_bad().1,
            objects,
        }
    }

    /// Notes the hostnames that a step changed: those of its resources, of its objects before and
    /// after, and of the routes whose status it changed. All, if a policy changed, or the
    /// conditions of what many hosts share.
    pub(super) fn note_hosts(
        &mut self,
        touched: TouchedHosts,
        (named, delta): (&BTreeSet<String>, &Delta),
        now: SystemTime,
    ) {
        let TouchedHosts {
            objects,
            before: mut hostnames,
            bad,
        } = touched;
        let changed = delta.statuses.keys();
        let (routes, others): (Vec<&ObjectKey>, Vec<&ObjectKey>) =
            changed.partition(|key| RouteKey::of(key).is_some());
        if objects.iter().any(is_policy)
            || !others.is_empty() && bad != self.engine().good_and_bad().1
        {
            self.host_changes.note_all(now);
            return;
        }
        let parsed = named.iter().map(|name| Hostname::parse(name));
        hostnames.extend(parsed.filter_map(Result::ok));
        hostnames.extend(self.hostnames(objects.iter().chain(routes)));
        self.host_changes.note(hostnames, now);
    }

    fn hostnames<'a>(&self, keys: impl IntoIterator<Item = &'a ObjectKey>) -> BTreeSet<Hostname> {
        let store = self.engine().store();
        let keys = keys.into_iter();
        keys.flat_map(|key| hostnames_of(store, key)).collect()
    }
}

fn is_policy(key: &ObjectKey) -> bool {
    key.kind.change() == ChangeKind::Policy
}

/// What is known of the hostnames that changes touch, before they are applied.
pub(super) struct TouchedHosts {
    objects: Vec<ObjectKey>,
    before: BTreeSet<Hostname>,
    /// The number of objects with a condition that is not as desired.
    bad: usize,
}
