//! Routes that forward HTTP-01 challenges to us, at Gateways that another data plane serves.
//!
//! A Gateway has one without hostnames, which stays: nothing is written per challenge. A route with
//! hostnames on port 80 hides it, though, since a hostname precedes every path (Gateway API,
//! `HTTPRoute.spec.hostnames`). Only the Gateway's own namespace may have such a route there; each
//! gets a challenge route beside it with the same hostnames. No challenge route has a hostname that
//! is not on port 80 already: that would hide the redirect.
//!
//! These routes are in our namespace, with the Service that they lead to; the TenantGateway's
//! Namespace is their owner.

use crate::delta::{Derived, DerivedKind};
use crate::rule::claim::ClaimId;
use crate::rule::desired::Desired;
use crate::rule::names;
use crate::rule::solving::{SolverRoute, is_of};
use crate::settings::Settings;
use crate::state::claims::Claims;
use crate::state::derivations::Derivations;
use crate::state::dirty::Dirty;
use crate::state::tenants::Tenants;
use crate::{ClaimKey, ClaimKind};
use gatewright_objects::model::{Hostname, ObjectName};

/// The states for the derivation of these routes.
pub(crate) struct Solvers<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) tenants: &'a Tenants,
    pub(crate) derivations: &'a mut Derivations,
}

impl Solvers<'_> {
    /// Derives the route of a Gateway for all hostnames.
    pub(crate) fn solve(self, tenant: &ObjectName, dirty: &mut Dirty) {
        self.emit_solver(
            tenant,
            names::challenges(tenant, None),
            Vec::new(),
            true,
            dirty,
        );
    }

    /// Derives the route beside one with hostnames on port 80.
    pub(crate) fn solve_beside(self, claims: &Claims, id: ClaimId, dirty: &mut Dirty) {
        let (key, tenant) = claims[id].names();
        let may = key.name.namespace == tenant.namespace && !key.kind.is_set();
        if self.settings.solver.is_none() || !may {
            return;
        }
        let ports = self.settings.ports;
        let there = claims.claiming(id).filter(|claimant| {
            !claimant.challenge
                && claimant
                    .naming(tenant)
                    .any(|parent| ports.may_be_plain(parent))
        });
        let mut hostnames: Vec<Hostname> = there
            .into_iter()
            .flat_map(|claimant| claimant.hostnames.iter().flatten())
            .cloned()
            .collect();
        hostnames.sort();
        hostnames.dedup();
        let name = names::challenges(tenant, Some(&format!("{:?} {}", key.kind, key.name.name)));
        let tenant = tenant.clone();
        let wanted = !hostnames.is_empty();
        self.emit_solver(&tenant, name, hostnames, wanted, dirty);
    }

    fn emit_solver(
        self,
        tenant: &ObjectName,
        name: String,
        hosts: Vec<Hostname>,
        wanted: bool,
        dirty: &mut Dirty,
    ) {
        let Some(namespace) = self
            .settings
            .solver
            .as_ref()
            .map(|service| service.namespace.clone())
        else {
            return;
        };
        let key = Derived {
            kind: DerivedKind::HttpRoute,
            name: ObjectName::new(namespace, name.as_str()),
        };
        let template = self
            .tenants
            .resolved(tenant)
            .map(|valid| &valid.template)
            .filter(|_| wanted);
        let solving = template.and_then(|template| Some((template, template.solving.clone()?)));
        let uid = solving
            .as_ref()
            .map(|(_, solving)| solving.namespace_uid.as_str());
        let foreign = uid.is_some_and(|uid| {
            self.derivations
                .existing(&key)
                .is_some_and(|there| !there.is_orphan && there.owner != *uid)
        });
        let value = solving.map(|(template, solving)| {
            Desired::challenges(
                &template.owner,
                template.plain(),
                SolverRoute::new(solving, name, hosts),
            )
        });
        self.derivations.emit_as(tenant, key, value, foreign, dirty);
    }
}

impl Settings {
    /// True if a claimant is one of our routes that forward challenges.
    pub(crate) fn is_solver(&self, claim: &ClaimKey, tenant: &ObjectName) -> bool {
        let ours = self
            .solver
            .as_ref()
            .is_some_and(|service| service.namespace == claim.name.namespace);
        ours && claim.kind == ClaimKind::HttpRoute && is_of(&claim.name.name, tenant)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::confluence::{gone, http, tenant};
    use crate::*;

    const OURS: &str = "gatewright-system";

    fn engine() -> Tenancy {
        let service = SolverService {
            namespace: OURS.into(),
            name: "challenges".to_owned(),
            port: 80,
            answers: true,
        };
        let certificates = Source::Acme;
        Tenancy::new(Settings {
            certificates,
            solver: Some(service),
            ..Settings::default()
        })
    }

    fn namespace(name: &str, uid: &str) -> Change {
        let labels = [(GATEWAY_LABEL, "tenant-a"), (HOST_LABEL, "a.org")];
        let labels = labels
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into();
        Change::Namespace(
            name.into(),
            Some(Namespace {
                labels,
                uid: uid.to_owned(),
                ..Namespace::default()
            }),
        )
    }

    fn plain(name: &str, parent: Value, hostnames: &[&str]) -> Change {
        let value = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
            "metadata": {"namespace": "tenant-a", "name": name},
            "spec": {"hostnames": hostnames, "parentRefs": [parent], "rules": [{}]}});
        let Ok(gatewright_objects::inputs::Object::Route(route)) =
            gatewright_objects::inputs::Object::parse(value)
        else {
            panic!("a route")
        };
        let claimant = Claimant::from(&route);
        Change::Claimant(claimant.key.clone(), Some(claimant))
    }

    /// The hostnames of every route of ours, and its owner.
    fn routes(engine: &Tenancy) -> Vec<(Value, Value)> {
        let ours = engine
            .objects()
            .iter()
            .filter(|(derived, _)| &*derived.name.namespace == OURS);
        fn told(desired: &Desired) -> (Value, Value) {
            let document = desired.document();
            (
                document["spec"]["hostnames"].clone(),
                document["metadata"]["ownerReferences"][0]["uid"].clone(),
            )
        }
        ours.map(|(_, desired)| told(desired)).collect()
    }

    #[test]
    fn a_gateway_has_a_route_for_all_and_one_beside_each_that_is_on_port_80() {
        let mut engine = engine();
        fn gateway() -> Value {
            json!({"name": "cozystack"})
        }
        let spec = json!({"apex": "a.org"});
        engine.apply(vec![
            namespace("tenant-a", "u"),
            namespace("tenant-b", "v"),
            tenant("tenant-a", spec.clone()),
            plain("both", gateway(), &["x.a.org", "*.b.a.org"]),
            plain(
                "secure",
                json!({"name": "cozystack", "sectionName": "https-y"}),
                &["y.a.org"],
            ),
            plain("elsewhere", json!({"name": "other"}), &["z.a.org"]),
            http("tenant-b", "child", &["c.a.org"]),
        ]);
        let hosts = json!(["*.b.a.org", "x.a.org"]);
        let all = [(Value::Null, json!("u")), (hosts.clone(), json!("u"))];
        fn is(engine: &Tenancy, wanted: &[(Value, Value)]) {
            let found = routes(engine);
            assert!(
                found.len() == wanted.len() && wanted.iter().all(|one| found.contains(one)),
                "{found:?}"
            );
        }
        is(&engine, &all);
        // A Namespace that is created again under the same name is another owner.
        engine.apply(vec![namespace("tenant-a", "w")]);
        is(&engine, &[(Value::Null, json!("w")), (hosts, json!("w"))]);
        // An object of another writer is left alone until it is deleted.
        let name = names::challenges(&ObjectName::new("tenant-a", "cozystack"), None);
        let key = Derived {
            kind: DerivedKind::HttpRoute,
            name: ObjectName::new(OURS, name),
        };
        engine.apply(vec![Change::Existing(
            key.clone(),
            Some(Existing::default()),
        )]);
        assert_eq!(routes(&engine).len(), 1);
        assert!(
            engine.decides(&key, "w") && !engine.decides(&key, "u") && !engine.decides(&key, "")
        );
        engine.apply(vec![Change::Existing(key.clone(), None)]);
        assert_eq!(routes(&engine).len(), 2);
        // Without HTTP-01, and with a class of ours, there are none.
        let mode = json!({"apex": "a.org", "certMode": "existingSecret", "wildcardSecretRef": {"name": "w"}});
        for change in [
            tenant("tenant-a", mode),
            Change::Class("cilium".into(), true),
        ] {
            engine.apply(vec![change]);
            is(&engine, &[]);
            engine.apply(vec![tenant("tenant-a", spec.clone())]);
        }
        engine.apply(vec![Change::Class("cilium".into(), false)]);
        assert_eq!(routes(&engine).len(), 2);
        engine.apply(vec![gone(tenant("tenant-a", spec))]);
        is(&engine, &[]);
        assert!(
            engine.decides(&key, "w"),
            "the namespace is there, and wants none"
        );
    }

    proptest! {
        #[test]
        fn any_order_ends_in_the_same_routes(
            order in Just((0..5).collect::<Vec<usize>>()).prop_shuffle(),
            dropped in proptest::collection::vec(0..5usize, 0..3),
        ) {
            let all = [
                namespace("tenant-a", "u"),
                tenant("tenant-a", json!({"apex": "a.org"})),
                plain("one", json!({"name": "cozystack"}), &["x.a.org"]),
                plain("two", json!({"name": "cozystack", "port": 80}), &["x.a.org", "y.a.org"]),
                Change::Class("cilium".into(), false),
            ];
            let mut engine = self::engine();
            for at in &order {
                engine.apply(vec![all[*at].clone()]);
            }
            for at in dropped.iter().filter(|at| **at < 4) {
                engine.apply(vec![gone(all[*at].clone())]);
            }
            let left = all.iter().enumerate().filter(|(at, _)| *at == 4 || !dropped.contains(at));
            let mut fresh = self::engine();
            fresh.apply(left.map(|(_, change)| change.clone()).collect());
            // A TenantGateway that cannot be carried out any more keeps its objects, on purpose.
            if !dropped.contains(&0) {
                prop_assert_eq!(routes(&engine), routes(&fresh));
            }
        }
    }
}
