//! Gateways that another data plane serves: the namespace that each listener selects.
//!
//! There we control nothing but the listeners. The other data plane does not know our verdicts, so
//! a refused route can be excluded by `allowedRoutes.namespaces` alone, which selects namespaces
//! and never single routes. Therefore
//!
//! - a listener selects one namespace: the owner of its hostname. A listener whose hostname has no
//!   owner selects none;
//! - the wildcard listener of an apex, which exists even if no namespace owns the wildcard, selects
//!   the namespace of the apex: its *home*. Hostnames below it that other namespaces own have
//!   listeners of their own.
//!
//! Nothing here depends on refusals: a route that a tenant writes later finds its listeners closed
//! already, even while none of our replicas runs. A refused route can reach the listeners of its
//! own namespace alone: for hostnames that this namespace owns, and for hostnames below its own
//! apex that have no owner.

use std::sync::Arc;

use crate::Source;
use crate::delta::{Derived, DerivedKind};
use crate::rule::host::{Host, HostId};
use crate::rule::names;
use crate::state::children::ChildApexes;
use crate::state::derivations::Derivations;
use crate::state::hosts::Hosts;
use crate::state::tenants::{ResolvedTenant, Tenants};
use gatewright_objects::model::{Hostname, ObjectName};

/// The states from which the selectors of listeners are computed.
#[derive(Clone, Copy)]
pub(crate) struct Selection<'a> {
    pub(crate) tenants: &'a Tenants,
    pub(crate) hosts: &'a Hosts,
    pub(crate) children: &'a ChildApexes,
    pub(crate) derivations: &'a Derivations,
}

impl Selection<'_> {
    /// The namespace that the listener of a host selects; `None` selects no namespace.
    pub(crate) fn selected_namespace(self, id: HostId) -> Option<Arc<str>> {
        let held = &self.hosts[id];
        match held.owner() {
            Some(_) if self.lacks_its_certificate(held.host()) => None,
            Some(owner) => Some(owner.rank.namespace().clone()),
            None if !held.bids().is_empty() => self.hosts.owner_elsewhere(held.host()),
            None => self.home(held.host()),
        }
    }

    /// The namespace that a fixed listener selects, whose hostname may have no state.
    pub(crate) fn selected_namespace_of_fixed(
        self,
        tenant: &ObjectName,
        hostname: &Hostname,
    ) -> Option<Arc<str>> {
        match self.hosts.get(tenant, hostname) {
            Some(held) => held.sole_namespace().cloned(),
            None => self.home(&Host::new(tenant, hostname)),
        }
    }

    /// True if an owned host needs a listener of its own, so that its owner is served and no other
    /// namespace is.
    pub(crate) fn needs_own_listener(self, id: HostId, valid: &ResolvedTenant) -> bool {
        let held = &self.hosts[id];
        let Some(owner) = held.owner().map(|owner| owner.rank.namespace()) else {
            return false;
        };
        let served = match self.selected_by_wildcard(held.host(), valid) {
            Some(namespace) => namespace != *owner,
            None => held.is_secure(owner),
        };
        served
            && self
                .children
                .beyond_the_certificate(Some(valid), held.host())
                .is_none()
    }

    /// The namespace that the closest wildcard listener over a host selects.
    fn selected_by_wildcard(self, host: &Host, valid: &ResolvedTenant) -> Option<Arc<str>> {
        let stands = |id: &HostId| {
            let held = &self.hosts[*id];
            held.shard().is_some() || valid.template.wildcard() == Some(&held.host().hostname)
        };
        if let Some(over) = self.hosts.over(&host.tenant, &host.hostname).find(stands) {
            return self.hosts[over].sole_namespace().cloned();
        }
        let wildcard = valid
            .template
            .wildcard()
            .filter(|wildcard| wildcard.covers(&host.hostname))?;
        self.selected_namespace_of_fixed(&host.tenant, wildcard)
    }

    /// The namespace that a wildcard listener selects while the wildcard has no bids: the owner of
    /// a wildcard over it, else the namespace whose apex it belongs to.
    fn home(self, host: &Host) -> Option<Arc<str>> {
        let over = self
            .hosts
            .covering(host)
            .next()
            .map(|over| over.rank.namespace().clone());
        over.or_else(|| {
            let valid = self.tenants.resolved(&host.tenant)?;
            (valid.template.wildcard() == Some(&host.hostname))
                .then(|| host.tenant.namespace.clone())
        })
        .or_else(|| self.children.home(host).cloned())
    }

    /// True if the certificate of a host is an object that is not ours, so that the host is not
    /// served.
    fn lacks_its_certificate(self, host: &Host) -> bool {
        let valid = self.tenants.resolved(&host.tenant);
        if !valid.is_some_and(|valid| valid.mode.per_host() && valid.source == Source::CertManager)
        {
            return false;
        }
        let name = names::OfHost::new(&host.tenant.name, host.hostname.as_str()).certificate;
        let name = ObjectName::new(host.tenant.namespace.clone(), name);
        self.derivations.is_foreign(
            self.tenants.given(&host.tenant),
            &Derived {
                kind: DerivedKind::Certificate,
                name,
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::confluence::{
        engine, event, gone, http, key, name, namespace, reason, tenant, tenant_with_namespaces,
    };
    use crate::rule::selection::selects;
    use crate::*;
    use gatewright_objects::inputs::Listener;

    /// All TLS listeners of the TenantGateway.
    fn listeners(engine: &Tenancy) -> Vec<Arc<Listener>> {
        let all = engine
            .objects()
            .values()
            .flat_map(|desired| desired.listeners().to_vec());
        all.filter(|listener| listener.tls.is_some()).collect()
    }

    /// The listener of a connection for a hostname: that of its name, else of the closest wildcard.
    fn closest<'a>(all: &'a [Arc<Listener>], hostname: &Hostname) -> Option<&'a Arc<Listener>> {
        let over = std::iter::once(hostname.clone()).chain(hostname.covering());
        over.into_iter().find_map(|name| {
            all.iter()
                .find(|listener| listener.hostname.as_ref() == Ok(&name))
        })
    }

    /// True if the data plane admits routes of a namespace for a hostname.
    fn lets_in(engine: &Tenancy, hostname: &str, namespace: &str) -> bool {
        let all = listeners(engine);
        let hostname = Hostname::parse(hostname).expect("a hostname");
        closest(&all, &hostname).is_some_and(|listener| selects(listener, namespace))
    }

    fn shared() -> serde_json::Value {
        json!({"apex": "a.org", "certMode": "existingSecret", "wildcardSecretRef": {"name": "w"},
            "tlsPassthroughServices": ["api"]})
    }

    #[test]
    fn a_listener_selects_the_owner_of_its_hostname_before_anything_is_refused() {
        for spec in [
            json!({"apex": "a.org", "tlsPassthroughServices": ["api"]}),
            shared(),
        ] {
            let mut engine = engine();
            engine.apply(tenant_with_namespaces(spec));
            engine.apply(vec![
                http("tenant-a", "shop", &["shop.a.org"]),
                http("tenant-a-b", "own", &["own.b.a.org", "b.a.org"]),
                http("cozy-x", "dash", &["dash.a.org"]),
            ]);
            let spaces = ["tenant-a", "tenant-a-b", "tenant-a-c", "cozy-x"];
            for (hostname, owner) in [
                ("shop.a.org", "tenant-a"),
                ("own.b.a.org", "tenant-a-b"),
                ("b.a.org", "tenant-a-b"),
                ("dash.a.org", "cozy-x"),
                ("api.a.org", ""),
                ("a.org", ""),
            ] {
                let let_in: Vec<&str> = spaces
                    .into_iter()
                    .filter(|of| lets_in(&engine, hostname, of))
                    .collect();
                assert_eq!(
                    let_in,
                    owner.split_whitespace().collect::<Vec<_>>(),
                    "{hostname}"
                );
            }
        }
    }

    #[test]
    fn unowned_hostnames_below_a_wildcard_listener_belong_to_the_namespace_of_the_apex() {
        let mut engine = engine();
        engine.apply(tenant_with_namespaces(shared()));
        for hostname in ["free.a.org", "free.b.a.org"] {
            let home = if hostname == "free.a.org" {
                "tenant-a"
            } else {
                "tenant-a-b"
            };
            for of in ["tenant-a", "tenant-a-b", "tenant-a-c", "cozy-x"] {
                assert_eq!(
                    lets_in(&engine, hostname, of),
                    of == home,
                    "{hostname} {of}"
                );
            }
        }
        // Of two namespaces with one apex the first is its home; the other has its hostnames all
        // the same.
        engine.apply(vec![
            namespace("tenant-a-a", "tenant-a", "b.a.org"),
            http("tenant-a-b", "own", &["own.b.a.org"]),
        ]);
        assert!(
            lets_in(&engine, "free.b.a.org", "tenant-a-a")
                && !lets_in(&engine, "free.b.a.org", "tenant-a-b")
        );
        assert!(
            lets_in(&engine, "own.b.a.org", "tenant-a-b")
                && !lets_in(&engine, "own.b.a.org", "tenant-a-a")
        );
        // The owner of the wildcard gets the hostnames below it.
        engine.apply(vec![http("cozy-x", "wide", &["*.b.a.org"])]);
        assert!(
            lets_in(&engine, "free.b.a.org", "cozy-x")
                && !lets_in(&engine, "free.b.a.org", "tenant-a-a")
        );
        engine.apply(vec![
            gone(http("cozy-x", "wide", &[])),
            gone(namespace("tenant-a-a", "", "")),
        ]);
        assert!(
            lets_in(&engine, "own.b.a.org", "tenant-a-b")
                && lets_in(&engine, "free.b.a.org", "tenant-a-b")
        );
        assert!(
            !listeners(&engine)
                .iter()
                .any(|listener| listener.hostname == Hostname::parse("own.b.a.org"))
        );
    }

    #[test]
    fn a_host_whose_certificate_is_somebody_elses_is_nobodys_to_serve() {
        let mut engine = engine();
        engine.apply(tenant_with_namespaces(json!({"apex": "a.org"})));
        engine.apply(vec![http("tenant-a", "r", &["x.a.org"])]);
        let secret = names::host_certificate("cozystack", "x.a.org");
        let certificate = Derived {
            kind: DerivedKind::Certificate,
            name: ObjectName::new("tenant-a", secret),
        };
        for there in [true, false] {
            let existing = there.then(Existing::default);
            engine.apply(vec![Change::Existing(certificate.clone(), existing)]);
            assert_eq!(
                reason(&engine, "tenant-a", "r"),
                if there { "ForeignObject" } else { "Accepted" }
            );
            assert_eq!(lets_in(&engine, "x.a.org", "tenant-a"), !there);
        }
    }

    #[test]
    fn a_child_that_the_certificate_has_no_room_for_has_no_listener() {
        let mut engine = engine();
        let spec = json!({"apex": "a.org", "certMode": "dns01", "dns01": {"provider": "cloudflare",
            "cloudflare": {"apiTokenSecretRef": {"name": "t", "key": "k"}}}});
        let mut changes = vec![
            namespace("tenant-a", "tenant-a", "a.org"),
            tenant("tenant-a", spec),
        ];
        for n in 10..60 {
            let child = format!("tenant-a-{n}");
            changes.push(namespace(&child, "tenant-a", &format!("c{n}.a.org")));
            changes.push(http(&child, "r", &[&format!("x.c{n}.a.org")]));
        }
        engine.apply(changes);
        let refused =
            |n: &usize| reason(&engine, &format!("tenant-a-{n}"), "r") == "CertificateLimitReached";
        let refused: Vec<usize> = (10..60).filter(refused).collect();
        assert_eq!(refused.len(), 1);
        for n in 10..60 {
            let let_in = lets_in(&engine, &format!("x.c{n}.a.org"), &format!("tenant-a-{n}"));
            assert_eq!(let_in, !refused.contains(&n), "{n}");
        }
    }

    #[test]
    fn a_parent_ref_that_names_the_listener_of_others_is_told() {
        let mut engine = engine();
        engine.apply(tenant_with_namespaces(shared()));
        let Change::Claimant(id, Some(mut route)) = http("cozy-x", "r", &["x.a.org"]) else {
            unreachable!()
        };
        Arc::make_mut(&mut route.parents)[0].section = Some("https".to_owned());
        engine.apply(vec![Change::Claimant(id, Some(route.clone()))]);
        fn told(engine: &Tenancy) -> Vec<&str> {
            let verdict = engine
                .verdict(&key("cozy-x", "r"), &name())
                .expect("there is one");
            verdict
                .parents
                .iter()
                .map(|(_, (reason, _))| reason.as_str())
                .collect::<Vec<_>>()
        }
        assert_eq!(told(&engine), ["NotAllowedByListeners"]);
        // The owner of the wildcard may name its listener.
        engine.apply(vec![http("cozy-x", "wide", &["*.a.org"])]);
        assert!(told(&engine).is_empty());
    }

    /// The work for one added host does not grow with the number of hosts, in the mode with a
    /// wildcard listener over all of them.
    #[test]
    fn work_does_not_grow_with_hosts() {
        fn work(hosts: usize) -> [Counters; 2] {
            let mut engine = engine();
            engine.apply(tenant_with_namespaces(shared()));
            fn host(n: usize, namespace: &str) -> Change {
                http(namespace, &format!("r{n}"), &[&format!("h{n}.a.org")])
            }
            engine.apply((0..hosts).map(|n| host(n, "tenant-a")).collect());
            ["tenant-a", "cozy-x"].map(|namespace| {
                let before = engine.counters();
                engine.apply(vec![host(hosts, namespace)]);
                engine.counters().since(&before)
            })
        }
        let few = work(100);
        assert!(
            few.iter()
                .all(|work| work.places <= 2 && work.shards <= 1 && work.verdicts <= 2),
            "{few:?}"
        );
        assert_eq!(few, work(5_000));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

        #[test]
        fn nobody_but_the_owner_is_let_in_and_the_owner_is(
            events in proptest::collection::vec((event(), proptest::bool::weighted(0.2)), 1..40),
        ) {
            let mut engine = engine();
            engine.apply(vec![tenant("tenant-a", json!({"apex": "a.org"})), namespace("tenant-a", "tenant-a", "a.org")]);
            for (change, remove) in events {
                if matches!(&change, Change::Namespace(name, _) if **name == *"tenant-a") {
                    continue;
                }
                let remove = remove && matches!(change, Change::Claimant(..));
                engine.apply(vec![if remove { gone(change) } else { change }]);
                let all = listeners(&engine);
                let spaces = ["tenant-a", "tenant-a-b", "tenant-a-c", "cozy-x", "default"];
                for held in engine.hosts().iter() {
                    let Some(owner) = held.owner() else { continue };
                    let (hostname, owner) = (&held.host().hostname, &**owner.rank.namespace());
                    let listener = closest(&all, hostname);
                    for other in spaces.into_iter().filter(|other| *other != owner) {
                        prop_assert!(listener.is_none_or(|l| !selects(l, other)), "{hostname} of {owner}: {other}");
                    }
                    if held.is_secure(owner) {
                        prop_assert!(listener.is_some_and(|l| selects(l, owner)), "{hostname} is not served for {owner}");
                    }
                }
            }
        }
    }
}
