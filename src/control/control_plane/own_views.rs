//! Views of Gateways with Envoys of their own: created when a Gateway first wants such Envoys, and
//! removed when it no longer does.

use std::collections::BTreeMap;

use super::ControlPlane;
use crate::flood::Flood;
use crate::lag::Lag;
use crate::overtaken::Overtaken;
use gatewright_core::model::ObjectName;
use gatewright_core::translate::DesiredEnvoys;

impl ControlPlane {
    /// Creates the views of Gateways that want Envoys of their own, and admits these Envoys.
    pub(super) fn make_views(&mut self, envoys: &BTreeMap<ObjectName, Option<DesiredEnvoys>>) {
        for gateway in envoys.iter().filter(|(_, intent)| intent.is_some()) {
            let Some((id, view)) = self.views.isolate(gateway.0) else {
                continue;
            };
            self.leaving.remove(&view);
            self.floods.insert(id, Flood::default());
            self.lags.insert(id, Lag::default());
            self.overtaken.insert(id, Overtaken::default());
            self.generations
                .insert(id, self.cache.publish(&view, xds::Update::default()));
            self.others.0.insert(id, Vec::new());
            self.acks.set_view(id, true);
            self.access.admit(gateway.0, view);
        }
    }

    /// Removes the views of Gateways that no longer want Envoys of their own: such Envoys are not
    /// admitted any more, and get no resources.
    pub(super) fn end_views(&mut self, envoys: &BTreeMap<ObjectName, Option<DesiredEnvoys>>) {
        for gateway in envoys
            .iter()
            .filter(|(_, intent)| intent.is_none())
            .map(|(gateway, _)| gateway)
        {
            let Some((id, view)) = self.views.dissolve(gateway) else {
                continue;
            };
            self.access.dismiss(gateway);
            self.floods.remove(id);
            self.lags.remove(id);
            self.overtaken.remove(id);
            self.generations.remove(id);
            self.others.0.remove(id);
            self.acks.set_view(id, false);
            self.states.forget(id);
            self.withheld.retain(|(at, ..), _| *at != id);
            for waiting in &mut self.waiting {
                waiting.published.retain(|(at, _)| *at != id);
            }
            self.cache.replace(&view, Vec::new());
            if !self.cache.remove(&view) {
                self.leaving.insert(view);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use gatewright_core::inputs::{Kind, ObjectKey};
    use gatewright_core::model::EnvoyFleet;
    use gatewright_core::tenancy;
    use gatewright_core::translate::{Fleet, Settings, isolated_name};
    use serde_json::{Value, json};
    use xds::{Cache, Views};

    use super::super::tests::{put, seen};
    use super::*;
    use crate::envoy_access::EnvoyAccess;
    use crate::fleet_views::FleetViews;

    fn edge(namespace: &str) -> ObjectName {
        ObjectName::new(namespace, "edge")
    }

    fn own(namespace: &str) -> EnvoyFleet {
        EnvoyFleet::Isolated(edge(namespace))
    }

    fn parameters(fleet: &str) -> Value {
        json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
            "metadata": {"namespace": "ours", "name": fleet.to_lowercase()}, "spec": {"fleet": fleet}})
    }

    fn class(fleet: &str) -> Value {
        let name = fleet.to_lowercase();
        json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": {"name": name},
            "spec": {"controllerName": "c", "parametersRef":
                {"group": "gatewright.io", "kind": "GatewayParameters", "name": name, "namespace": "ours"}}})
    }

    fn gateway(namespace: &str, class: &str) -> Value {
        json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": {"name": "edge", "namespace": namespace}, "spec": {"gatewayClassName": class,
                "listeners": [{"name": "http", "protocol": "HTTP", "port": 80,
                    "allowedRoutes": {"namespaces": {"from": "All"}}}]}})
    }

    /// Returns the Service that records which port of the Envoys a Gateway has.
    fn service(namespace: &str, target: u16) -> Value {
        json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"namespace": namespace, "name": "edge-isolated", "uid": "u",
                "labels": {"app.kubernetes.io/managed-by": "gatewright"},
                "annotations": {"gatewright.io/gateway": "edge"},
                "ownerReferences": [{"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "name": "edge",
                    "uid": "g", "controller": true}]},
            "spec": {"type": "LoadBalancer", "ports": [{"name": "p80", "port": 80, "targetPort": target}]},
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}}})
    }

    fn route(namespaces: &[&str]) -> Value {
        let parents: Vec<Value> = namespaces
            .iter()
            .map(|namespace| json!({"name": "edge", "namespace": namespace}))
            .collect();
        json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
            "metadata": {"name": "web", "namespace": "shop"}, "spec": {"parentRefs": parents,
                "hostnames": ["a.example.org"], "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}})
    }

    /// A control plane with a class of each fleet, and the Gateways of three namespaces; that of
    /// `shop` is on the shared fleet.
    fn three(views: impl Into<FleetViews>) -> (ControlPlane, EnvoyAccess) {
        let settings = Settings {
            fleet: Fleet::Shared,
            envoys: Some(ObjectName::new("ours", "envoy")),
            isolated: Some("ours".into()),
            ..Settings::new("c", vec![[127, 0, 0, 1].into()])
        };
        let access = EnvoyAccess::new(Views::new());
        let live =
            ControlPlane::in_cluster(settings, tenancy::Settings::default(), Cache::new(), views);
        let mut live = live.admitting(access.clone());
        for fleet in ["Shared", "Dedicated", "Isolated"] {
            put(&mut live, parameters(fleet));
            put(&mut live, class(fleet));
        }
        put(
            &mut live,
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"},
                "spec": {"ports": [{"port": 80}]}}),
        );
        put(&mut live, gateway("shop", "shared"));
        for (namespace, target) in [("bank", 20_001), ("coop", 20_002)] {
            put(&mut live, gateway(namespace, "isolated"));
            put(&mut live, service(namespace, target));
        }
        (live, access)
    }

    fn published(live: &ControlPlane, fleet: &EnvoyFleet) -> u64 {
        live.own_progress()[live.views().id(fleet).expect("it has a view")].published
    }

    #[test]
    fn envoys_of_a_gateways_own_see_it_alone_and_nobody_else_sees_it() {
        for views in [
            FleetViews::apart(),
            FleetViews::from(xds::View::new("shared")),
        ] {
            let (mut live, access) = three(views);
            put(&mut live, route(&["shop", "bank", "coop"]));
            fn of(namespace: &str) -> Vec<String> {
                ["cds shop/web:80", "eds shop/web:80"]
                    .map(str::to_owned)
                    .into_iter()
                    .chain([
                        format!("lds {namespace}/edge:80"),
                        format!("srds {namespace}/edge:80"),
                        format!("srds {namespace}/edge:80|*"),
                        format!("srds {namespace}/edge:80|a.example.org"),
                    ])
                    .collect::<Vec<_>>()
            }
            let shared = [
                "cds shop/web:80",
                "eds shop/web:80",
                "lds shared:80",
                "srds shared:80",
                "srds shared:80|*",
                "srds shared:80|a.example.org",
            ];
            assert_eq!(
                seen(&live, own("bank")),
                of("bank"),
                "the Envoys of bank see bank"
            );
            assert_eq!(
                seen(&live, own("coop")),
                of("coop"),
                "those of coop see coop"
            );
            assert_eq!(seen(&live, EnvoyFleet::Shared), shared);
            assert!(
                access
                    .fleet_of_account(&isolated_name(&edge("bank")))
                    .is_some()
            );

            // A resource that one view loses stays in the others, without a publication to them.
            let [coop, many] =
                [own("coop"), EnvoyFleet::Shared].map(|fleet| published(&live, &fleet));
            put(&mut live, route(&["shop", "coop"]));
            assert_eq!(
                seen(&live, own("bank")),
                [
                    "lds bank/edge:80",
                    "srds bank/edge:80",
                    "srds bank/edge:80|*"
                ]
            );
            assert_eq!(
                [own("coop"), EnvoyFleet::Shared].map(|fleet| published(&live, &fleet)),
                [coop, many]
            );
            put(&mut live, route(&["shop", "coop", "bank"]));
            assert_eq!(
                seen(&live, own("bank")),
                of("bank"),
                "with what the others have"
            );
            assert_eq!(
                [own("coop"), EnvoyFleet::Shared].map(|fleet| published(&live, &fleet)),
                [coop, many]
            );

            // A Gateway leaves the fleet, and comes back.
            put(&mut live, gateway("bank", "dedicated"));
            assert_eq!(live.views().id(&own("bank")), None);
            assert_eq!(access.fleet_of_account(&isolated_name(&edge("bank"))), None);
            assert_eq!(published(&live, &own("coop")), coop);
            put(&mut live, gateway("bank", "isolated"));
            assert_eq!(seen(&live, own("bank")), of("bank"));
            assert!(
                !seen(&live, EnvoyFleet::Dedicated)
                    .iter()
                    .any(|one| one.contains("bank"))
            );
        }
    }

    #[test]
    fn a_view_goes_with_its_gateway_and_takes_everything_along() {
        let (mut live, _) = three(FleetViews::apart());
        put(&mut live, route(&["bank"]));
        let before = live.views().iter().count();
        for _ in 0..3 {
            let key = ObjectKey::new(Kind::Gateway, edge("bank"));
            let record = &mut |_: &_| Ok::<_, std::convert::Infallible>(());
            let gone = vec![gatewright_core::translate::Change::delete(key)];
            let effects = live
                .apply(
                    gone,
                    Vec::new(),
                    record,
                    std::time::SystemTime::UNIX_EPOCH,
                    std::time::Duration::ZERO,
                )
                .expect("it is recorded");
            assert_eq!(
                effects.envoys.get(&edge("bank")),
                Some(&None),
                "its Envoys are not wanted any more"
            );
            assert_eq!(live.views().iter().count(), before - 1);
            assert!(
                live.leaving.is_empty() && live.cache.debug().len() == before - 1,
                "nobody was connected"
            );
            put(&mut live, gateway("bank", "isolated"));
            put(&mut live, service("bank", 20_001));
            assert_eq!(seen(&live, own("bank")).len(), 6);
        }
        let known: BTreeSet<_> = live.generations.iter().map(|(id, _)| id).collect();
        assert_eq!(known, live.views().iter().map(|(id, _)| id).collect());
        assert_eq!(
            known.len(),
            before,
            "ids of views that went are remembered nowhere"
        );
    }
}
