//! Hosts of a namespace and of a port with an option that makes each of them a filter chain of the
//! Listener that has them all, so there are few.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::dirty::Dirty;
use super::http3::udp_port;
use super::parent::{Parent, ParentListener};
use crate::key::{ListenerId, ParentKey};
use crate::rule::host_option::HostOption;
use crate::rule::settings::Settings;
use gatewright_objects::limits::{Limits, NamespaceLimits};
use gatewright_objects::model::{FrontendId, TransportPort};
use gatewright_objects::quota::{Member, Quota};

/// The option whose hosts are counted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CountedOption {
    Http3,
    Tickets,
}

impl CountedOption {
    fn of(self, listener: &mut ParentListener) -> &mut HostOption {
        match self {
            Self::Http3 => &mut listener.http3,
            Self::Tickets => &mut listener.tickets,
        }
    }

    fn is_asked(self, listener: &ParentListener) -> bool {
        let option = match self {
            Self::Http3 => &listener.http3,
            Self::Tickets => &listener.tickets,
        };
        listener.accepted.is_ok() && *option == HostOption::On
    }

    fn port(self, listener: &ParentListener) -> TransportPort {
        match self {
            Self::Http3 => udp_port(listener),
            Self::Tickets => listener.transport_port(),
        }
    }

    /// What hosts have by it, and the name of its limits.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Http3 => ("HTTP/3", "http3Hosts"),
            Self::Tickets => ("session tickets", "sessionTicketHosts"),
        }
    }

    fn of_namespace(self, limits: &NamespaceLimits) -> u64 {
        match self {
            Self::Http3 => limits.http3_hosts,
            Self::Tickets => limits.session_ticket_hosts,
        }
    }

    fn of_port(self, limits: &Limits) -> u32 {
        match self {
            Self::Http3 => limits.http3_hosts,
            Self::Tickets => limits.session_ticket_hosts,
        }
    }
}

/// The listeners that ask for an option.
pub(crate) struct HostQuota {
    option: CountedOption,
    of_namespace: Quota<Arc<str>, ListenerId>,
    /// Those within the quota of their namespace.
    of_port: Quota<FrontendId, ListenerId>,
    /// The listeners of each object, with their ports.
    asked: BTreeMap<ParentKey, BTreeMap<ListenerId, FrontendId>>,
}

impl HostQuota {
    pub(crate) fn new(option: CountedOption, limits: &Limits) -> Self {
        Self {
            option,
            of_namespace: Quota::new(option.of_namespace(&limits.namespace)),
            of_port: Quota::new(option.of_port(limits).into()),
            asked: BTreeMap::new(),
        }
    }

    /// Sets how many hosts a namespace may have. Returns the objects whose verdict changed.
    pub(crate) fn allow(&mut self, namespace: &Arc<str>, most: u64) -> Vec<ParentKey> {
        let moved = self.of_namespace.allow(namespace, most);
        moved.into_iter().map(|listener| listener.parent).collect()
    }

    /// Refuses the option to the listeners of a Gateway or ListenerSet that are beyond a quota;
    /// they are served without it. Marks the objects whose verdict changes.
    pub(crate) fn limit(
        &mut self,
        key: &ParentKey,
        new: Option<&mut Parent>,
        limits: &NamespaceLimits,
        settings: &Settings,
        dirty: &mut Dirty,
    ) {
        let asked = new
            .as_deref()
            .map(|parent| self.asking(parent))
            .unwrap_or_default();
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
        let option = self.option;
        let (what, limit) = option.names();
        for listener in &mut parent.listeners {
            let id = ListenerId {
                parent: key.clone(),
                name: listener.name.clone(),
            };
            if !asked.contains_key(&id) {
                continue;
            }
            if !self.of_namespace.has(&id) {
                option.of(listener).refuse(format!(
                    "the hosts with {what} of namespace {namespace} up to this one, the oldest first, exceed \
                     limits.namespace.{limit} {}",
                    option.of_namespace(limits)
                ));
            } else if !self.of_port.has(&id) {
                let port = listener.port;
                option.of(listener).refuse(format!(
                    "the hosts with {what} of port {port} up to this one, the oldest first, exceed limits.{limit} {}",
                    option.of_port(&settings.limits)
                ));
            }
        }
    }

    /// The listeners that ask for it, with their ports.
    fn asking(&self, parent: &Parent) -> BTreeMap<ListenerId, FrontendId> {
        let listeners = parent.listeners.iter();
        listeners
            .filter(|listener| parent.accepted.is_ok() && self.option.is_asked(listener))
            .map(|listener| {
                let port = self.option.port(listener);
                (parent.id(listener), parent.frontend(port))
            })
            .collect()
    }
}
