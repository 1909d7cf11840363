//! The evaluated Gateways and ListenerSets of ours, with indexes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use super::by_record::WideListener;
use super::deadline::Deadlines;
use super::ends::Ends;
use super::named_service::NamedService;
use super::parent::{Parent, ParentListener};
use crate::key::{ListenerId, ParentKey};
use gatewright_objects::cost::{self, Bytes};
use gatewright_objects::model::{Certificate, FrontendId, Hostname, ObjectName, RootsName};
use gatewright_objects::multimap::MultiMap;
use gatewright_objects::ownership::ListenersOf;

/// All Gateways and ListenerSets of ours.
#[derive(Default)]
pub(crate) struct Parents {
    all: BTreeMap<ParentKey, Parent>,
    /// Parents by their Secrets, and the reverse index.
    by_secret: MultiMap<ObjectName, ParentKey>,
    secrets_of: MultiMap<ParentKey, ObjectName>,
    /// The time at which each must be evaluated again without a change.
    deadlines: Deadlines<ParentKey>,
    /// The ends of the certificates of each.
    ends: Ends,
    /// The default Gateways.
    defaults: BTreeSet<ObjectName>,
    /// Parents by the client roots that their listeners validate client certificates against.
    by_roots: MultiMap<RootsName, ParentKey>,
    /// Gateways by the named Services that they stand on.
    by_service: MultiMap<ObjectName, ObjectName>,
    /// Wildcard and catch-all listeners below which admitted namespaces may own narrower hostnames.
    admitting: MultiMap<(Arc<ListenersOf>, Hostname), WideListener>,
}

impl Parents {
    /// A Gateway or ListenerSet.
    pub(crate) fn get(&self, key: &ParentKey) -> Option<&Parent> {
        self.all.get(key)
    }

    /// The default Gateways.
    pub(crate) fn defaults(&self) -> impl Iterator<Item = &Parent> {
        self.defaults
            .iter()
            .filter_map(|name| self.all.get(&ParentKey::Gateway(name.clone())))
    }

    /// The keys of all parents, sorted.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &ParentKey> {
        self.all.keys()
    }

    /// A listener.
    pub(crate) fn listener(&self, id: &ListenerId) -> Option<&ParentListener> {
        self.all.get(&id.parent)?.listener(&id.name)
    }

    /// The Gateway of a listener, if it has a client certificate for backends.
    pub(crate) fn client_of(&self, listener: &ListenerId) -> Option<&ObjectName> {
        let gateway = &self.all.get(&listener.parent)?.placement.gateway;
        self.shows_certificate(gateway).then_some(gateway)
    }

    /// True if a Gateway has a client certificate for backends.
    pub(crate) fn shows_certificate(&self, gateway: &ObjectName) -> bool {
        self.client_certificate(gateway).is_some()
    }

    /// What the client certificate of a Gateway takes in each cluster that has it.
    pub(crate) fn chain_of(&self, gateway: &ObjectName) -> Bytes {
        self.client_certificate(gateway)
            .map_or(Bytes::default(), |certificate| cost::chain(certificate))
    }

    fn client_certificate(&self, gateway: &ObjectName) -> Option<&Arc<Certificate>> {
        self.all
            .get(&ParentKey::Gateway(gateway.clone()))
            .and_then(Parent::client_certificate)
    }

    /// The frontend of a listener, if its parent exists.
    pub(crate) fn frontend_of(&self, listener: &ListenerId) -> Option<FrontendId> {
        let parent = self.all.get(&listener.parent)?;
        Some(parent.frontend(parent.listener(&listener.name)?.transport_port()))
    }

    /// The parents that have a Secret: a listener refers to it, or an issuer stores a listener's
    /// certificate there.
    pub(crate) fn of_secret(&self, secret: &ObjectName) -> impl Iterator<Item = &ParentKey> {
        self.by_secret.of(secret)
    }

    /// The Secrets of a parent.
    pub(crate) fn secrets_of(&self, key: &ParentKey) -> impl Iterator<Item = &ObjectName> {
        self.secrets_of.of(key)
    }

    /// True if a listener validates client certificates against these client roots.
    pub(crate) fn are_roots_needed(&self, name: &RootsName) -> bool {
        self.by_roots.of(name).next().is_some()
    }

    /// Sets whether a parent has such a listener.
    pub(crate) fn needs_roots(&mut self, name: &RootsName, key: &ParentKey, there: bool) {
        self.by_roots.set(name, key, there);
    }

    /// The Gateways that stand on a Service.
    pub(crate) fn standing_on(&self, service: &ObjectName) -> impl Iterator<Item = &ObjectName> {
        self.by_service.of(service)
    }

    /// The Gateways on Services with a `targetPort` that is a name.
    pub(crate) fn standing_by_names(&self) -> impl Iterator<Item = &ObjectName> {
        let all = self
            .by_service
            .keys()
            .flat_map(|service| self.by_service.of(service));
        all.filter(|gateway| {
            self.service_of(gateway)
                .is_some_and(|service| service.has_names)
        })
    }

    /// The named Service that a Gateway stands on.
    pub(crate) fn service_of(&self, gateway: &ObjectName) -> Option<&Arc<NamedService>> {
        self.all
            .get(&ParentKey::Gateway(gateway.clone()))?
            .placement
            .service
            .as_ref()
    }

    /// Sets or removes a parent.
    pub(crate) fn set(&mut self, key: &ParentKey, parent: Option<Parent>) {
        if let ParentKey::Gateway(gateway) = key {
            for (parent, there) in [(self.all.get(key), false), (parent.as_ref(), true)] {
                if let Some(service) = parent.and_then(|parent| parent.placement.service.as_ref()) {
                    self.by_service.set(&service.name, gateway, there);
                }
            }
            if parent.as_ref().is_some_and(Parent::is_default) {
                self.defaults.insert(gateway.clone());
            } else {
                self.defaults.remove(gateway);
            }
        }
        match parent {
            Some(parent) => self.all.insert(key.clone(), parent),
            None => self.all.remove(key),
        };
    }

    /// Replaces the Secrets of a parent.
    pub(crate) fn set_secrets(&mut self, key: &ParentKey, wanted: &BTreeSet<ObjectName>) {
        let held: BTreeSet<ObjectName> = self.secrets_of.of(key).cloned().collect();
        for secret in held.difference(wanted) {
            self.by_secret.remove(secret, key);
            self.secrets_of.remove(key, secret);
        }
        for secret in wanted.difference(&held) {
            self.by_secret.insert(secret.clone(), key.clone());
            self.secrets_of.insert(key.clone(), secret.clone());
        }
    }

    /// The next time at which a parent must be evaluated again without a change.
    pub(crate) fn next_deadline(&self) -> Option<SystemTime> {
        self.deadlines.next()
    }

    /// Removes and returns a parent whose deadline has passed.
    pub(crate) fn pop_due(&mut self, now: SystemTime) -> Option<ParentKey> {
        self.deadlines.pop_due(now)
    }

    /// Sets the time at which a parent must be evaluated again without a change.
    pub(crate) fn set_deadline(&mut self, key: &ParentKey, next: Option<SystemTime>) {
        self.deadlines.set(key, next);
    }

    /// The ends of the certificates in use.
    pub(crate) fn ends(&self) -> &Ends {
        &self.ends
    }

    /// Sets the certificates of a parent, for their ends.
    pub(crate) fn set_ends<'a>(
        &mut self,
        key: &ParentKey,
        certificates: impl Iterator<Item = &'a Certificate>,
    ) {
        self.ends.set(key, certificates);
    }

    /// The wildcard and catch-all listeners with a hostname below which admitted namespaces may own
    /// narrower ones.
    pub(crate) fn admitting(
        &self,
        at: &Arc<ListenersOf>,
        hostname: Hostname,
    ) -> impl Iterator<Item = &WideListener> {
        self.admitting.of(&(at.clone(), hostname))
    }

    /// Adds or removes such a listener.
    pub(crate) fn set_admitting(
        &mut self,
        at: &Arc<ListenersOf>,
        name: &Hostname,
        wide: &WideListener,
        there: bool,
    ) {
        self.admitting.set(&(at.clone(), name.clone()), wide, there);
    }
}
