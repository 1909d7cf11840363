//! The processor time that a request to a hostname may take to be compared with the matches of a
//! namespace's routes.

use std::sync::Arc;

use super::super::charge::{Charged, Matching};
use super::Quotas;
use crate::key::RouteKey;
use gatewright_objects::model::Hostname;
use gatewright_objects::quota::Member;

/// Microseconds as what is counted.
pub(super) fn nanoseconds(micros: u64) -> u64 {
    micros.saturating_mul(1000)
}

impl Quotas {
    /// How long a request to a hostname may take to be compared with the matches of a namespace's
    /// routes, in microseconds.
    pub(crate) fn matching_micros(&self, namespace: &Arc<str>) -> u64 {
        self.limits_of(namespace).matching_micros
    }

    /// Counts a route at its hostnames. Returns the other routes whose verdict changes.
    pub(super) fn set_matching(
        &mut self,
        key: &RouteKey,
        old: Option<&Charged>,
        new: Option<&Charged>,
    ) -> Vec<RouteKey> {
        let mut moved = Vec::new();
        let old = old.map_or(&[][..], |old| &*old.matching.hostnames);
        let served = new.filter(|new| new.too_large.is_none());
        let hostnames = served.map_or(&[][..], |new| &*new.matching.hostnames);
        for gone in old.iter().filter(|old| !hostnames.contains(old)) {
            moved.extend(self.set_matching_at(key, gone, None));
        }
        for (hostname, new) in hostnames.iter().zip(served.into_iter().cycle()) {
            let member = Member {
                group: (key.name.namespace.clone(), hostname.clone()),
                created: new.charge.created,
                weight: new.matching.time,
            };
            moved.extend(self.set_matching_at(key, hostname, Some(member)));
        }
        moved
    }

    fn set_matching_at(
        &mut self,
        key: &RouteKey,
        hostname: &Hostname,
        member: Option<Member<(Arc<str>, Hostname)>>,
    ) -> impl Iterator<Item = RouteKey> + use<> {
        let mut moved = Vec::new();
        if let Some(member) = &member {
            let most = self.limits_of(&key.name.namespace).matching_micros;
            moved.extend(self.matching.allow(&member.group, nanoseconds(most)));
        }
        moved.extend(self.matching.set(&(key.clone(), hostname.clone()), member));
        moved.into_iter().map(|(route, _)| route)
    }

    /// The first hostname of a route at which the older ones leave it no time.
    pub(super) fn slow_hostname(&self, key: &RouteKey) -> Option<&Hostname> {
        self.matching_of(key)?
            .hostnames
            .iter()
            .find(|hostname| !self.matching.has(&(key.clone(), (*hostname).clone())))
    }

    /// The time that a request may take to be compared with the matches of a route.
    pub(super) fn matching_time(&self, key: &RouteKey) -> u64 {
        self.matching_of(key).map_or(0, |matching| matching.time)
    }

    fn matching_of(&self, key: &RouteKey) -> Option<&Matching> {
        self.charges.get(key).map(|charged| &charged.matching)
    }

    /// Sets what the routes of a namespace may take. Returns those whose verdict changes.
    pub(super) fn allow_matching(&mut self, namespace: &Arc<str>, micros: u64) -> Vec<RouteKey> {
        let groups: Vec<(Arc<str>, Hostname)> = self
            .matching
            .groups()
            .filter(|(of, _)| of == namespace)
            .cloned()
            .collect();
        let moved = groups
            .iter()
            .flat_map(|group| self.matching.allow(group, nanoseconds(micros)));
        moved.map(|(route, _)| route).collect()
    }
}
