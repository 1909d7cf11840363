//! HTTP/3 hosts of a namespace and of a port. Each is a filter chain of the Listener that has them
//! all, so there are few.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::dirty::Dirty;
use super::http3::udp_port;
use super::parent::{Parent, ParentListener};
use crate::key::{ListenerId, ParentKey};
use crate::rule::settings::Settings;
use crate::rule::tls_options::Http3;
use gatewright_objects::limits::{Limits, NamespaceLimits};
use gatewright_objects::model::FrontendId;
use gatewright_objects::quota::{Member, Quota};

/// The listeners that ask for HTTP/3.
pub(crate) struct Http3Quota {
    of_namespace: Quota<Arc<str>, ListenerId>,
    /// Those within the quota of their namespace.
    of_port: Quota<FrontendId, ListenerId>,
    /// The listeners of each object, with their ports.
    asked: BTreeMap<ParentKey, BTreeMap<ListenerId, FrontendId>>,
}

impl Http3Quota {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            of_namespace: Quota::new(limits.namespace.http3_hosts),
            of_port: Quota::new(limits.http3_hosts.into()),
            asked: BTreeMap::new(),
        }
    }

    /// Sets how many hosts a namespace may have. Returns the objects whose verdict changed.
    pub(crate) fn allow(&mut self, namespace: &Arc<str>, most: u64) -> Vec<ParentKey> {
        let moved = self.of_namespace.allow(namespace, most);
        moved.into_iter().map(|listener| listener.parent).collect()
    }

    /// Refuses HTTP/3 to the listeners of a Gateway or ListenerSet that are beyond a quota; they
    /// serve TLS over TCP all the same. Marks the objects whose verdict changes.
    pub(crate) fn limit(
        &mut self,
        key: &ParentKey,
        new: Option<&mut Parent>,
        limits: &NamespaceLimits,
        settings: &Settings,
        dirty: &mut Dirty,
    ) {
        let asked = new.as_deref().map(asking).unwrap_or_default();
        let created = new.as_deref().map_or(0, |parent| parent.created);
        let before = if asked.is_empty() {
            self.asked.remove(key)
        } else {
            self.asked.insert(key.clone(), asked.clone())
        };
        let namespace = &key.name().namespace;
        let gone = before.unwrap_or_default().into_keys();
        let gone = gone.filter(|listener| !asked.contains_key(listener));
        let all = asked.iter().map(|(id, port)| (id.clone(), Some(port)));
        let all: Vec<_> = all.chain(gone.map(|listener| (listener, None))).collect();
        let mut moved = Vec::new();
        for (listener, port) in &all {
            let member = port.map(|_| Member::one(namespace.clone(), created));
            moved.extend(self.of_namespace.set(listener, member));
        }
        for (listener, port) in &all {
            let within = port.filter(|_| self.of_namespace.has(listener));
            let member = within.map(|port| Member::one(port.clone(), created));
            moved.extend(self.of_port.set(listener, member));
        }
        let others = moved.into_iter().map(|listener| listener.parent);
        dirty.parents.extend(others.filter(|other| other != key));
        let Some(parent) = new else { return };
        for listener in &mut parent.listeners {
            let id = ListenerId {
                parent: key.clone(),
                name: listener.name.clone(),
            };
            if !asked.contains_key(&id) {
                continue;
            }
            if !self.of_namespace.has(&id) {
                listener.http3 = Http3::Refused(format!(
                    "the hosts with HTTP/3 of namespace {namespace} up to this one, the oldest first, exceed \
                     limits.namespace.http3Hosts {}",
                    limits.http3_hosts
                ));
            } else if !self.of_port.has(&id) {
                listener.http3 = Http3::Refused(format!(
                    "the hosts with HTTP/3 of port {} up to this one, the oldest first, exceed limits.http3Hosts {}",
                    listener.port, settings.limits.http3_hosts
                ));
            }
        }
    }
}

/// The listeners that ask for HTTP/3, with their ports.
fn asking(parent: &Parent) -> BTreeMap<ListenerId, FrontendId> {
    let listeners = parent.listeners.iter();
    listeners
        .filter(|listener| parent.accepted.is_ok() && is_asking(listener))
        .map(|listener| (parent.id(listener), parent.frontend(udp_port(listener))))
        .collect()
}

fn is_asking(listener: &ParentListener) -> bool {
    listener.accepted.is_ok() && listener.http3 == Http3::On
}
