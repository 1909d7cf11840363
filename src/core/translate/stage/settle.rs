//! Decides which listener gets a hostname of a frontend: the record decides the namespace,
//! precedence the listener.

use super::admission::Admission;
use super::fleet::note_gateway;
use super::host_contests::note_guest;
use super::tables::touch_lists;
use crate::key::ListenerId;
use crate::rule::gateway_exposure::is_shared;
use crate::state::by_record::admitted;
use crate::state::claims::{Claim, Conflict};
use crate::state::dirty::Dirty;
use crate::state::frontends::Frontends;
use crate::state::parent::Parent;
use gatewright_objects::model::{FrontendId, Hostname, Reason, TransportPort};
use gatewright_objects::ownership::{Ownable, Recording};

/// The stage that decides which listener gets a hostname of a frontend.
pub(crate) fn settle(
    frontends: &mut Frontends,
    admission: Admission<'_>,
    id: &FrontendId,
    hostname: &Hostname,
    dirty: &mut Dirty,
) {
    let Some(frontend) = frontends.get(id) else {
        return;
    };
    let (winner, losers) = frontend
        .claims()
        .outcome(hostname, |claim| admission.is_entitled(id, claim));
    let winner = winner.map(|claim| (claim.listener.clone(), claim.protocol));
    let losers = losers.into_iter().map(|(loser, reason)| {
        (
            loser.clone(),
            admission.narrowed(id, hostname, loser, reason),
        )
    });
    let losers: Vec<(ListenerId, Reason)> = losers.collect();
    let family = frontend.claims().family();
    for (loser, reason) in losers {
        let holder = family.filter(|_| reason == Reason::ProtocolConflict);
        let is_recorded = reason == Reason::HostnameConflict
            && admission.is_recorded_elsewhere(id, hostname, &loser);
        if frontends.set_conflict(
            &loser,
            Some(Conflict {
                reason,
                is_recorded,
                holder,
            }),
        ) {
            dirty.wanting.insert(loser.parent.clone());
            dirty.statuses.insert(loser.parent.object());
        }
    }
    if let Some((listener, _)) = &winner
        && frontends.set_conflict(listener, None)
    {
        dirty.wanting.insert(listener.parent.clone());
        dirty.statuses.insert(listener.parent.object());
    }
    let Some(frontend) = frontends.get_mut(id) else {
        return;
    };
    let before = frontend.winner(hostname).cloned();
    if before == winner {
        return;
    }
    let overlapping = frontend.set_winner(hostname, winner.clone());
    dirty.statuses.extend(
        overlapping
            .into_iter()
            .map(|listener| listener.parent.object()),
    );
    touch_lists(id, frontend, dirty);
    let now = winner.as_ref().map(|(listener, _)| listener);
    note_guest(admission, frontend, hostname, now, dirty);
    for (listener, _) in [before, winner].into_iter().flatten() {
        note_gateway(admission.parents, &id.gateway, &listener, dirty);
        dirty.wanting.insert(listener.parent.clone());
        dirty.statuses.insert(listener.parent.object());
    }
    dirty.units.insert((id.clone(), hostname.clone()));
    dirty.frontends.insert(id.clone());
    if !hostname.is_exact() {
        admission.touch_under(frontends, id, hostname, dirty);
    }
}

impl Admission<'_> {
    /// True if the record permits a claim on a hostname of a frontend.
    fn is_entitled(self, id: &FrontendId, claim: &Claim) -> bool {
        let namespace = &claim.listener.parent.name().namespace;
        let whole_port = !claim.protocol.has_hostnames();
        let owner = || {
            if whole_port {
                self.register.owner(&Ownable::Port(id.transport_port()))
            } else {
                self.register
                    .owner(&Ownable::Hostname(claim.hostname.clone()))
            }
        };
        let has_own =
            !is_shared(&id.gateway) || owner().is_some_and(|owner| owner.namespace == *namespace);
        has_own
            && claim
                .admitted
                .as_ref()
                .is_none_or(|at| self.has_admitted(at, &claim.hostname, namespace))
    }

    /// True if another namespace than a listener's is the recorded owner of its hostname.
    fn is_recorded_elsewhere(
        self,
        id: &FrontendId,
        hostname: &Hostname,
        listener: &ListenerId,
    ) -> bool {
        self.needed(id, hostname, listener).iter().any(|what| {
            self.register
                .owner(what)
                .is_some_and(|owner| owner.namespace != listener.parent.name().namespace)
        })
    }

    /// The items that a listener's namespace must own by record, for the listener to get its
    /// hostname, or its whole port.
    fn needed(self, id: &FrontendId, hostname: &Hostname, listener: &ListenerId) -> Vec<Ownable> {
        let is_shared = is_shared(&id.gateway);
        if self
            .parents
            .listener(listener)
            .is_some_and(|listener| !listener.has_hostnames())
        {
            return is_shared
                .then(|| Ownable::Port(id.transport_port()))
                .into_iter()
                .collect();
        }
        let own = is_shared.then(|| Ownable::Hostname(hostname.clone()));
        let at = self.parents.get(&listener.parent).and_then(admitted);
        let among = at.map(|at| Ownable::Admitted(at.clone(), hostname.clone()));
        own.into_iter().chain(among).collect()
    }

    /// The reason for a listener that lost: `Pending` if its namespace is about to own what it
    /// needs, `LimitReached` if that is beyond its quota of the record.
    fn narrowed(
        self,
        id: &FrontendId,
        hostname: &Hostname,
        loser: &ListenerId,
        reason: Reason,
    ) -> Reason {
        if self.beyond_quota(id, hostname, loser).is_some() {
            return Reason::LimitReached;
        }
        if self.register.recording() == Recording::ThisProcess {
            return reason;
        }
        let (namespace, is_shared) = (&loser.parent.name().namespace, is_shared(&id.gateway));
        let at = id.transport_port();
        let port = Ownable::Port(at);
        let undecided = || {
            is_shared
                && self.register.family(at).is_none()
                && self.register.proposal(&port).is_some()
        };
        let mut lacking = self.needed(id, hostname, loser);
        lacking.retain(|what| !has(what, namespace, self.register));
        let waits = match reason {
            Reason::ProtocolConflict => undecided(),
            _ => {
                !lacking.is_empty()
                    && lacking.iter().all(|what| {
                        self.register.owner(what).is_none()
                            && self.register.is_about_to_own(what, namespace)
                    })
            }
        };
        if waits { Reason::Pending } else { reason }
    }

    /// Why the namespace of a listener may not own what the listener needs, if that is its quota of
    /// the record.
    pub(crate) fn beyond_quota(
        self,
        id: &FrontendId,
        hostname: &Hostname,
        listener: &ListenerId,
    ) -> Option<String> {
        let namespace = &listener.parent.name().namespace;
        let needed = self.needed(id, hostname, listener);
        needed
            .iter()
            .find_map(|what| self.register.exceeds_quota(what, namespace))
    }

    /// True if a hostname below a wildcard or catch-all listener of the shared fleet belongs to
    /// another namespace: that listener does not serve it, on any port.
    pub(crate) fn is_of_another(
        self,
        id: &FrontendId,
        hostname: &Hostname,
        listener: &ListenerId,
    ) -> bool {
        if !is_shared(&id.gateway) {
            return false;
        }
        let namespace = &listener.parent.name().namespace;
        let mut names = std::iter::once(hostname.clone())
            .chain(hostname.covering())
            .filter(|name| !name.is_any());
        names
            .find_map(|name| {
                let what = Ownable::Hostname(name.clone());
                let Some(owner) = self.register.owner(&what) else {
                    return self.is_granted_to_others(&name, hostname, listener);
                };
                // A ListenerSet's namespace leaves hostnames that it does not own to the Gateway
                // that it extends.
                Some(
                    owner.namespace != *namespace
                        && !self.register.reaches(&what, &owner.namespace, namespace),
                )
            })
            .unwrap_or(false)
    }

    /// True if the platform granted a hostname by a wildcard, or by itself, to others than the
    /// namespace of a listener, and no route of theirs gives the hostname to the listener; `None`
    /// without such a grant.
    fn is_granted_to_others(
        self,
        grant: &Hostname,
        hostname: &Hostname,
        listener: &ListenerId,
    ) -> Option<bool> {
        let granted = self.register.granted();
        granted.first(grant)?;
        let mut routes = self.attachments.contributors(hostname, listener);
        let is_theirs = routes.any(|(route, _)| granted.has(grant, &route.name.namespace));
        Some(!is_theirs && !granted.lets_answer(grant, &listener.parent.name().namespace))
    }

    /// True if the record has an owner of a hostname itself, not only of a wildcard over it, or the
    /// platform granted it.
    pub(crate) fn is_owned(self, hostname: &Hostname, listener: &ListenerId) -> bool {
        if self.register.granted().first(hostname).is_some() {
            return true;
        }
        let at = self.parents.get(&listener.parent).and_then(admitted);
        let admitted = at.map(|at| Ownable::Admitted(at.clone(), hostname.clone()));
        let mut records = admitted
            .into_iter()
            .chain([Ownable::Hostname(hostname.clone())]);
        records.any(|what| self.register.owner(&what).is_some())
    }

    /// True if a port of the shared fleet without hostnames belongs to another namespace than a
    /// Gateway's or ListenerSet's.
    pub(crate) fn is_port_of_another(self, parent: &Parent, port: TransportPort) -> bool {
        let owner = self
            .register
            .owner(&Ownable::Port(port))
            .filter(|_| is_shared(&parent.placement.frontend_owner));
        owner.is_some_and(|owner| owner.namespace != parent.key.name().namespace)
    }

    /// True if the namespace of a parent lacks a hostname by record: on the shared fleet, or among
    /// the admitted namespaces of its Gateway. A listener then does not get it, whatever its
    /// precedence.
    pub(crate) fn owned_by_another(self, parent: &Parent, hostname: &Hostname) -> bool {
        let namespace = &parent.key.name().namespace;
        let owner = self.register.owner(&Ownable::Hostname(hostname.clone()));
        let lacks_own = is_shared(&parent.placement.frontend_owner)
            && owner.is_none_or(|owner| owner.namespace != *namespace);
        lacks_own || admitted(parent).is_some_and(|at| !self.has_admitted(at, hostname, namespace))
    }

    /// Marks all units below a wildcard or catch-all; this is for rare changes.
    pub(crate) fn touch_under(
        self,
        frontends: &Frontends,
        id: &FrontendId,
        wide: &Hostname,
        dirty: &mut Dirty,
    ) {
        let Some(frontend) = frontends.get(id) else {
            return;
        };
        let served = frontend
            .claims()
            .listeners()
            .flat_map(|listener| self.attachments.names_of(listener));
        // This includes names that were kept from the former winner.
        let there = frontend.served_names();
        let names = frontend
            .winners()
            .map(|(name, _)| name)
            .chain(served)
            .chain(there);
        dirty.units.extend(
            names
                .filter(|name| wide.covers(name))
                .map(|name| (id.clone(), name.clone())),
        );
        if !frontend.has_hostnames() {
            return;
        }
        if frontend.is_plain() {
            let secured = frontends
                .of_gateway(&id.gateway)
                .flat_map(|(_, frontend)| frontend.secured().names());
            dirty.units.extend(
                secured
                    .filter(|name| wide.covers(name))
                    .map(|name| (id.clone(), name.clone())),
            );
        }
        if let Some((listener, _)) = frontend.winner(wide) {
            dirty.units.extend(
                self.kept_under(listener, wide)
                    .into_iter()
                    .map(|name| (id.clone(), name)),
            );
        }
        if is_shared(&id.gateway) {
            // Names of other namespaces are kept from it.
            let wide = Ownable::Hostname(wide.clone());
            dirty.units.extend(
                self.register
                    .kept_below(&wide)
                    .map(|name| (id.clone(), name.clone())),
            );
        }
    }
}

/// The needed items that its namespace does not own.
fn has(
    what: &Ownable,
    namespace: &std::sync::Arc<str>,
    register: &crate::state::register::Register,
) -> bool {
    register
        .owner(what)
        .is_some_and(|owner| owner.namespace == *namespace)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::IpAddr;
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    use serde_json::{Value, json};

    use super::*;
    use crate::published::Published;
    use crate::rule::ownership::shared_frontend;
    use crate::{Change, Engine, Fact, Fleet, Resource, ResourceKey, Settings, StatusBody};
    use gatewright_objects::inputs::{HOST_LABEL, Kind, Object, ObjectKey};
    use gatewright_objects::model::ObjectName;

    const GATEWAY: &str = "gateway.networking.k8s.io/v1";

    /// Namespaces that share a fleet, translated by one program, with a clock.
    struct Site {
        engine: Engine,
        published: Published,
        now: SystemTime,
    }

    impl Site {
        fn new(recording: Recording) -> Self {
            let addresses = vec![IpAddr::from([127, 0, 0, 1])];
            let settings = Settings {
                fleet: Fleet::Shared,
                recording,
                hold: 3600,
                ..Settings::new("c", addresses)
            };
            let mut site = Self {
                engine: Engine::new(settings),
                published: Published::default(),
                now: UNIX_EPOCH + Duration::from_secs(1_000_000),
            };
            site.put(
                json!({"apiVersion": GATEWAY, "kind": "GatewayClass", "metadata": {"name": "g"},
                "spec": {"controllerName": "c"}}),
            );
            site
        }

        fn apply(&mut self, changes: Vec<Change>) {
            self.now += Duration::from_secs(1);
            self.published.take(self.engine.apply(changes, self.now));
        }

        fn put(&mut self, value: Value) {
            self.apply(vec![put(value)]);
        }

        /// Records the proposals, as the keeper of the record does.
        fn keep(&mut self) -> usize {
            let proposals = self.engine.ledger().proposals();
            let all: Vec<Change> = proposals
                .map(|(what, owner)| Change::Fact(Fact::Recorded(what.clone(), owner.cloned())))
                .collect();
            let count = all.len();
            self.apply(all);
            count
        }

        /// The namespace whose listener has a hostname on a port.
        fn served(&self, port: u16, host: &str) -> Option<String> {
            let winner = self
                .engine
                .frontends()
                .get(&shared_frontend(TransportPort::tcp(port)))?
                .winner(&name(host))?;
            Some(winner.0.parent.name().namespace.to_string())
        }

        /// The names that are kept from the catch-all listener of port 80.
        fn kept(&self) -> Vec<String> {
            let id = shared_frontend(TransportPort::tcp(80));
            let scopes = self.published.scopes(&id).into_iter();
            let empty = scopes.filter(|(name, host)| host.routes.is_empty() && !name.is_any());
            empty.map(|(name, _)| name.to_string()).collect()
        }

        /// The hostnames with routes on port 80.
        fn hosts(&self) -> Vec<String> {
            let id = shared_frontend(TransportPort::tcp(80));
            let scopes = self.published.scopes(&id).into_keys();
            scopes.map(ToString::to_string).collect()
        }

        /// The reason of `Accepted` of a Gateway's first listener.
        fn told(&self, namespace: &str) -> &'static str {
            let key = ObjectKey::new(Kind::Gateway, ObjectName::new(namespace, "edge"));
            let status = self.engine.status(&key).expect("it has a status");
            let StatusBody::Gateway(status) = status.body else {
                panic!("a Gateway's")
            };
            status.listeners[0].conditions[0].reason.as_str()
        }
    }

    fn put(value: Value) -> Change {
        Change::put(Object::parse(value).expect("an object"))
    }

    fn name(text: &str) -> Hostname {
        Hostname::parse(text).expect("a hostname")
    }

    fn gateway(namespace: &str, created: u8, listeners: &[(&str, u16, &str)]) -> Value {
        fn listener((index, (protocol, port, host)): (usize, &(&str, u16, &str))) -> Value {
            let mut listener =
                json!({"name": format!("l{index}"), "protocol": protocol, "port": port});
            if !host.is_empty() {
                listener["hostname"] = json!(host);
            }
            if *protocol == "TLS" {
                listener["tls"] = json!({"mode": "Passthrough"});
            }
            listener
        }
        let listeners: Vec<Value> = listeners.iter().enumerate().map(listener).collect();
        json!({"apiVersion": GATEWAY, "kind": "Gateway",
            "metadata": {"name": "edge", "namespace": namespace, "creationTimestamp": format!("2026-01-01T00:00:{created:02}Z")},
            "spec": {"gatewayClassName": "g", "listeners": listeners}})
    }

    fn gone(namespace: &str) -> Change {
        Change::delete(ObjectKey::new(
            Kind::Gateway,
            ObjectName::new(namespace, "edge"),
        ))
    }

    /// Namespace `team`, to which a domain is granted.
    fn label(host: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team", "labels": {HOST_LABEL: host}}})
    }

    #[test]
    fn the_first_owner_keeps_a_hostname_on_every_port_and_for_the_hold_time() {
        let mut site = Site::new(Recording::ThisProcess);
        site.put(gateway("b", 9, &[("TLS", 443, "x.org")]));
        site.put(gateway(
            "a",
            1,
            &[
                ("TLS", 443, "x.org"),
                ("HTTP", 80, "x.org"),
                ("TLS", 443, "y.org"),
            ],
        ));
        assert_eq!(
            site.served(443, "x.org").as_deref(),
            Some("b"),
            "the first owner is served"
        );
        assert_eq!(
            site.served(80, "x.org"),
            None,
            "nobody is on the other port"
        );
        assert_eq!(
            site.told("a"),
            "HostnameConflict",
            "the later one conflicts"
        );
        assert_eq!(
            site.served(443, "y.org").as_deref(),
            Some("a"),
            "it is served by another name"
        );
        site.apply(vec![gone("b")]);
        assert_eq!(site.served(443, "x.org"), None, "it is reserved");
        site.put(gateway("b", 9, &[("TLS", 443, "x.org")]));
        assert_eq!(site.served(443, "x.org").as_deref(), Some("b"));
        site.apply(vec![gone("b")]);
        site.now += Duration::from_secs(3600);
        assert!(site.engine.next_deadline().is_some_and(|at| at <= site.now));
        site.apply(Vec::new());
        assert_eq!(site.served(443, "x.org").as_deref(), Some("a"));
    }

    #[test]
    fn of_hostnames_with_one_hash_the_older_listener_has_routes() {
        let old = gateway("b", 1, &[("HTTP", 80, "old.org")]);
        let new = gateway("a", 9, &[("HTTP", 80, "new.org")]);
        for order in [[&old, &new], [&new, &old]] {
            let mut site = Site::new(Recording::ThisProcess);
            site.engine.hash_scopes_by(|_, _| 7);
            order
                .into_iter()
                .for_each(|gateway| site.put(gateway.clone()));
            assert_eq!(site.hosts(), ["old.org"], "it is older");
            assert_eq!(site.told("b"), "Accepted", "the older one");
            assert_eq!(site.told("a"), "HostnameConflict", "the younger one");
            site.apply(vec![gone("b")]);
            assert_eq!(site.hosts(), ["new.org"], "it is alone");
            assert_eq!(site.told("a"), "Accepted", "the one that is left");
            site.put(gateway("a", 9, &[("HTTP", 80, "other.org")]));
            site.put(old.clone());
            assert_eq!(site.hosts(), ["old.org"], "the older one is back");
        }
    }

    #[test]
    fn hostnames_with_hashes_of_their_own_are_all_served() {
        let mut site = Site::new(Recording::ThisProcess);
        site.put(gateway("b", 1, &[("HTTP", 80, "old.org")]));
        site.put(gateway("a", 9, &[("HTTP", 80, "new.org")]));
        assert_eq!(site.hosts(), ["new.org", "old.org"]);
    }

    #[test]
    fn names_that_come_together_are_the_older_objects() {
        let mut site = Site::new(Recording::ThisProcess);
        let young = gateway("a", 9, &[("TLS", 443, "x.org"), ("TLS", 443, "*.z.org")]);
        let old = gateway("b", 1, &[("TLS", 443, "x.org"), ("TLS", 443, "y.z.org")]);
        site.apply(vec![put(young), put(old)]);
        for (host, owner) in [("x.org", "b"), ("y.z.org", "b"), ("*.z.org", "a")] {
            assert_eq!(site.served(443, host).as_deref(), Some(owner), "{host}");
        }
    }

    #[test]
    fn hostnames_below_a_wildcard_belong_to_its_owner_unless_owned_before_or_delegated() {
        let mut site = Site::new(Recording::ThisProcess);
        site.put(gateway("early", 9, &[("TLS", 443, "e.x.org")]));
        site.put(gateway("wide", 8, &[("TLS", 443, "*.x.org")]));
        site.put(gateway(
            "late",
            1,
            &[("TLS", 443, "l.x.org"), ("TLS", 443, "*.l.x.org")],
        ));
        site.put(gateway(
            "team",
            1,
            &[("TLS", 443, "w.team.x.org"), ("TLS", 443, "l.x.org")],
        ));
        assert_eq!(
            site.served(443, "w.team.x.org"),
            None,
            "the owner of the wildcard has it"
        );
        site.put(label("team.x.org"));
        for (host, owner) in [
            ("e.x.org", Some("early")),
            ("w.team.x.org", Some("team")),
            ("l.x.org", None),
            ("*.l.x.org", None),
        ] {
            assert_eq!(site.served(443, host).as_deref(), owner, "{host}");
        }
        site.apply(vec![gone("wide")]);
        assert_eq!(
            site.served(443, "l.x.org"),
            None,
            "the wildcard is reserved as well"
        );
        site.now += Duration::from_secs(3600);
        site.apply(Vec::new());
        assert_eq!(site.served(443, "l.x.org").as_deref(), Some("late"));
    }

    #[test]
    fn listener_sets_that_a_gateway_admits_have_names_below_its_wildcard() {
        let mut site = Site::new(Recording::ThisProcess);
        let mut wide = gateway("wide", 8, &[("TLS", 443, "*.x.org")]);
        wide["spec"]["allowedListeners"] = json!({"namespaces": {"from": "All"}});
        site.put(wide);
        site.put(json!({"apiVersion": GATEWAY, "kind": "ListenerSet", "metadata": {"name": "s", "namespace": "team"},
            "spec": {"parentRef": {"name": "edge", "namespace": "wide"}, "listeners": [
                {"name": "l", "protocol": "TLS", "port": 443, "hostname": "t.x.org", "tls": {"mode": "Passthrough"}}]}}));
        assert_eq!(site.served(443, "t.x.org").as_deref(), Some("team"));
    }

    #[test]
    fn a_catch_all_has_nothing_that_somebody_owns() {
        let mut site = Site::new(Recording::ThisProcess);
        site.put(gateway("any", 1, &[("HTTP", 80, ""), ("TLS", 443, "")]));
        site.put(gateway(
            "b",
            9,
            &[
                ("HTTP", 80, "h.org"),
                ("TLS", 443, "t.org"),
                ("TLS", 443, "*.w.org"),
            ],
        ));
        fn emitted(site: &mut Site) -> std::collections::BTreeMap<ResourceKey, Option<Resource>> {
            let mut anew = Engine::new(site.engine.settings().clone());
            let class = json!({"apiVersion": GATEWAY, "kind": "GatewayClass", "metadata": {"name": "g"},
                "spec": {"controllerName": "c"}});
            let any = gateway("any", 1, &[("HTTP", 80, ""), ("TLS", 443, "")]);
            let own = gateway(
                "b",
                9,
                &[
                    ("HTTP", 80, "h.org"),
                    ("TLS", 443, "t.org"),
                    ("TLS", 443, "*.w.org"),
                ],
            );
            anew.apply(vec![put(class), put(any), put(own)], site.now)
                .resources
        }
        let resources = emitted(&mut site);
        let mut kept = BTreeSet::new();
        for (key, resource) in resources {
            if let (ResourceKey::Scope(id, name), Some(Resource::Scope(scope))) = (key, resource)
                && id.port == 80
                && scope.virtual_host.routes.is_empty()
            {
                kept.insert(name.to_string());
            }
        }
        assert!(
            ["t.org", "*.w.org"].iter().all(|host| kept.contains(*host)),
            "{kept:?}"
        );
    }

    #[test]
    fn wide_listeners_have_nothing_that_the_platform_granted_to_another_namespace() {
        let mut site = Site::new(Recording::ThisProcess);
        site.put(gateway(
            "early",
            1,
            &[("TLS", 443, "e.t.org"), ("TLS", 443, "*.w.t.org")],
        ));
        site.put(gateway(
            "any",
            1,
            &[("HTTP", 80, ""), ("TLS", 443, ""), ("TLS", 443, "*.org")],
        ));
        assert_eq!(site.kept(), ["*.w.t.org", "e.t.org"], "they have owners");
        site.put(label("t.org"));
        assert_eq!(
            site.kept(),
            ["*.t.org", "e.t.org", "t.org"],
            "the domain, too"
        );
        site.put(gateway(
            "late",
            1,
            &[("TLS", 443, "l.t.org"), ("TLS", 443, "*.t.org")],
        ));
        for (host, owner) in [
            ("e.t.org", Some("early")),
            ("*.w.t.org", None),
            ("l.t.org", None),
            ("*.t.org", None),
        ] {
            assert_eq!(site.served(443, host).as_deref(), owner, "{host}");
        }
        site.put(gateway(
            "team",
            9,
            &[("HTTP", 80, ""), ("TLS", 443, "*.t.org")],
        ));
        assert_eq!(
            site.served(443, "*.t.org").as_deref(),
            Some("team"),
            "its own"
        );
        site.put(label("u.org"));
        assert_eq!(
            site.kept(),
            ["*.t.org", "*.u.org", "e.t.org", "u.org"],
            "another domain, and what has an owner"
        );
    }

    #[test]
    fn the_work_for_a_granted_domain_does_not_grow_with_their_number() {
        fn label(number: u32) -> Value {
            json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": format!("n{number}"), "labels": {HOST_LABEL: format!("d{number}.org")}}})
        }
        let [few, many] = [4, 40].map(|count| {
            let mut site = Site::new(Recording::ThisProcess);
            site.put(gateway(
                "any",
                1,
                &[("HTTP", 80, ""), ("TLS", 443, "*.org")],
            ));
            (1..=count).for_each(|number| site.put(label(number)));
            let before = site.engine.counters();
            site.put(label(0));
            site.engine.counters().since(&before)
        });
        assert_eq!(few, many);
        assert!(
            few.units > 0,
            "the domain is kept from the listeners: {few:?}"
        );
    }

    #[test]
    fn a_port_speaks_what_it_spoke_first_and_well_known_ones_what_everybody_knows() {
        let mut site = Site::new(Recording::ThisProcess);
        site.put(gateway(
            "b",
            9,
            &[("TLS", 8443, "b.org"), ("TLS", 443, "b.org")],
        ));
        site.put(gateway(
            "a",
            1,
            &[
                ("HTTP", 8443, "a.org"),
                ("HTTP", 443, "a.org"),
                ("TLS", 80, "a.org"),
            ],
        ));
        assert_eq!(
            site.served(8443, "b.org").as_deref(),
            Some("b"),
            "the first protocol of the port is served"
        );
        assert_eq!(site.served(8443, "a.org"), None, "the other one is not");
        assert_eq!(
            site.served(443, "b.org").as_deref(),
            Some("b"),
            "the well-known port speaks TLS"
        );
        assert_eq!(
            site.served(443, "a.org"),
            None,
            "nothing else is served there"
        );
        assert_eq!(
            site.served(80, "a.org"),
            None,
            "TLS is not served on the port of HTTP"
        );
        assert_eq!(site.told("a"), "ProtocolConflict", "the conflict is told");
        // Others continue to use it like this.
        site.put(gateway("c", 9, &[("TLS", 8443, "c.org")]));
        site.apply(vec![gone("b")]);
        assert_eq!(site.served(8443, "c.org").as_deref(), Some("c"));
        site.apply(vec![gone("c")]);
        assert_eq!(site.served(8443, "a.org").as_deref(), Some("a"));
    }

    #[test]
    fn in_a_cluster_a_name_is_nobodys_until_it_is_recorded_and_every_replica_goes_by_the_record() {
        let mut one = Site::new(Recording::OtherProcess);
        let mut two = Site::new(Recording::OtherProcess);
        one.put(gateway("b", 9, &[("TLS", 8443, "x.org")]));
        assert_eq!(
            one.served(8443, "x.org"),
            None,
            "nobody is served before the record"
        );
        assert_eq!(one.told("b"), "Pending", "the claim waits");
        assert_eq!(one.keep(), 2, "both names are recorded");
        assert_eq!(
            one.served(8443, "x.org").as_deref(),
            Some("b"),
            "the owner is served"
        );
        assert_eq!(one.told("b"), "Accepted", "and accepted");
        one.put(gateway("a", 1, &[("TLS", 8443, "x.org")]));
        assert_eq!(one.keep(), 0, "nothing is recorded anew");
        assert_eq!(one.told("a"), "HostnameConflict", "the later one conflicts");
        // Another replica sees them in another order.
        two.put(gateway("a", 1, &[("TLS", 8443, "x.org")]));
        two.put(gateway("b", 9, &[("TLS", 8443, "x.org")]));
        assert_eq!(two.served(8443, "x.org"), None);
        let record: Vec<Change> = one
            .engine
            .ledger()
            .records()
            .iter()
            .map(|(what, owner)| Change::Fact(Fact::Recorded(what.clone(), Some(owner.clone()))))
            .collect();
        two.apply(record);
        assert_eq!(
            two.served(8443, "x.org").as_deref(),
            Some("b"),
            "the other replica serves the recorded owner"
        );
        assert_eq!(two.keep(), 0, "it records nothing");
        // A released hostname is reserved, which is recorded as well, and then free.
        one.apply(vec![gone("b")]);
        assert_eq!(one.keep(), 1, "the owner of the listener is recorded");
        assert_eq!(one.served(8443, "x.org"), None, "nobody is served yet");
        one.now += Duration::from_secs(3600);
        one.apply(Vec::new());
        assert_eq!(one.keep(), 1, "the heir is recorded");
        assert_eq!(
            one.served(8443, "x.org").as_deref(),
            Some("a"),
            "the heir is served"
        );
    }
}
