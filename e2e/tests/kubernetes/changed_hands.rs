//! Statuses whose entries other field managers own as well: those of a former controller of the
//! class, and of a reset of `metadata.managedFields`.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use e2e::cluster::{Cluster, condition, service};
use e2e::tenants::{GATEWAY, TENANT, namespace, program, ready, route, tenant, until};
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

const FORMER: &str = "former";
const OURS: &str = "gatewright.io/v1alpha1";
const CONTROLLER: &str = "gatewright.io/gateway-controller";
const THEIRS: &str = "example.org/former";
const SPACE: &str = "default";

/// How another manager comes to own entries of a status.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// It wrote the whole status before, by PUT.
    Put,
    /// It applied the status before.
    Apply,
    /// It applies what we wrote, so that all values are equal.
    ApplyOurs,
    /// Somebody reset the managed fields.
    Reset,
}

const WAYS: [Way; 4] = [Way::Put, Way::Apply, Way::ApplyOurs, Way::Reset];

/// Listeners of a Gateway or of its ListenerSet, with hostnames that no other Gateway has.
fn listeners(gateway: &str, names: &[&str]) -> Value {
    let listener = |name: &&str| {
        json!({"name": name, "protocol": "HTTP", "port": 80,
            "hostname": format!("{name}.{gateway}.example.org")})
    };
    names.iter().map(listener).collect()
}

fn gateway(name: &str, class: &str, names: &[&str]) -> Value {
    json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": name, "namespace": SPACE},
        "spec": {"gatewayClassName": class, "listeners": listeners(name, names),
            "allowedListeners": {"namespaces": {"from": "Same"}}}})
}

fn listener_set(name: &str, parent: &str, names: &[&str]) -> Value {
    json!({"apiVersion": GATEWAY, "kind": "ListenerSet", "metadata": {"name": name, "namespace": SPACE},
        "spec": {"parentRef": {"name": parent}, "listeners": listeners(name, names)}})
}

/// A condition as another implementation writes it.
fn former_condition(kind: &str) -> Value {
    json!({"type": kind, "status": "True", "reason": "Accepted", "message": "of the former",
        "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

/// A status as another implementation writes it, and a condition of its own.
fn of_former(names: &[&str]) -> Value {
    let condition = former_condition;
    let listener = |name: &&str| {
        json!({"name": name, "attachedRoutes": 0,
            "supportedKinds": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute"}],
            "conditions": [condition("Accepted"), condition("Programmed"), condition("Conflicted"), condition("example.org/Theirs")]})
    };
    json!({"conditions": [condition("Accepted"), condition("Programmed"), condition("example.org/Theirs")],
        "listeners": names.iter().map(listener).collect::<Vec<_>>()})
}

/// The kinds of policies, each with two specifications.
fn policies() -> [(&'static str, &'static str, [Value; 2]); 3] {
    let tls = |host| json!({"validation": {"hostname": host, "wellKnownCACertificates": "System"}});
    [
        (
            GATEWAY,
            "BackendTLSPolicy",
            [tls("one.example.org"), tls("two.example.org")],
        ),
        (
            OURS,
            "TrafficPolicy",
            ["RoundRobin", "Random"].map(|kind| json!({"loadBalancer": {"type": kind}})),
        ),
        (
            OURS,
            "AccessPolicy",
            ["192.0.2.0/24", "198.51.100.0/24"]
                .map(|network| json!({"clientAddress": {"allow": [network]}})),
        ),
    ]
}

/// A route of a Gateway, its Service, and a policy of each kind.
fn policed(name: &str) -> Vec<Value> {
    let route = json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": name, "namespace": SPACE},
        "spec": {"parentRefs": [{"name": name}], "hostnames": [format!("one.{name}.example.org")],
            "rules": [{"backendRefs": [{"name": name, "port": 80}]}]}});
    let policies = policies().map(|(version, kind, [mut spec, _])| {
        let target = match kind {
            "AccessPolicy" => json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": name}),
            _ => json!({"group": "", "kind": "Service", "name": name}),
        };
        spec["targetRefs"] = json!([target]);
        json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": SPACE}, "spec": spec})
    });
    let [service, ..] = service(SPACE, name, 8080);
    [service, route].into_iter().chain(policies).collect()
}

/// The ancestors of a policy as another implementation writes them: in our name at the Gateway and
/// at one that is gone, and in its own name.
fn former_ancestors(gateway: &str) -> Value {
    let entry = |controller: &str, gateway: &str| {
        let kinds = ["Accepted", "ResolvedRefs", "example.org/Theirs"];
        json!({"controllerName": controller, "conditions": kinds.map(former_condition),
            "ancestorRef": {"group": "gateway.networking.k8s.io", "kind": "Gateway",
                "namespace": SPACE, "name": gateway}})
    };
    json!({"ancestors": [entry(CONTROLLER, "gone"), entry(CONTROLLER, gateway), entry(THEIRS, gateway)]})
}

/// Returns true if the ancestors of a policy are those of the other controller, as it wrote them,
/// if `theirs`, and our own at these Gateways, about the present generation.
fn has_ancestors(policy: &Value, gateways: &[&str], theirs: bool) -> bool {
    let entries = policy["status"]["ancestors"].as_array();
    let (own, others): (Vec<&Value>, Vec<&Value>) = entries
        .into_iter()
        .flatten()
        .partition(|entry| entry["controllerName"] == CONTROLLER);
    let conditions = |entry: &Value| entry["conditions"].as_array().cloned().unwrap_or_default();
    let is_present = |entry: &&Value| {
        let is_of_others = |condition: &Value| condition["type"] == "example.org/Theirs";
        let all = conditions(entry);
        all.iter().any(|condition| condition["type"] == "Accepted")
            && all.iter().any(is_of_others) == theirs
            && all.iter().all(|condition| {
                is_of_others(condition)
                    || condition["observedGeneration"] == policy["metadata"]["generation"]
                        && condition["message"] != "of the former"
            })
    };
    let names: Vec<&str> = own
        .iter()
        .filter_map(|entry| entry["ancestorRef"]["name"].as_str())
        .collect();
    names == gateways
        && own.iter().all(is_present)
        && others.len() == usize::from(theirs)
        && others.iter().all(|entry| conditions(entry).len() == 3)
}

/// Has another manager own entries of the status of an object.
async fn share(api: &Api<DynamicObject>, name: &str, way: Way, status: Value) -> Result<()> {
    let mut object = api.get(name).await?;
    match way {
        Way::Put => {
            object.data["status"] = status;
            let params = PostParams {
                field_manager: Some(FORMER.to_owned()),
                ..PostParams::default()
            };
            api.replace_status(name, &params, &object).await?;
        }
        Way::Apply | Way::ApplyOurs => {
            let types = object.types.clone().context("it has a type")?;
            let mut status = status;
            if way == Way::ApplyOurs {
                status = object.data["status"].clone();
            }
            let document = json!({"apiVersion": types.api_version, "kind": types.kind, "metadata": {"name": name}, "status": status});
            let params = PatchParams::apply(FORMER).force();
            api.patch_status(name, &params, &Patch::Apply(document))
                .await?;
        }
        Way::Reset => {
            let reset = json!({"metadata": {"managedFields": [{}]}});
            api.patch(name, &PatchParams::default(), &Patch::Merge(reset))
                .await?;
        }
    }
    Ok(())
}

/// Returns true if a status is about the present generation, and has exactly these listeners.
fn has(object: &Value, names: &[&str]) -> bool {
    let listeners = object["status"]["listeners"].as_array();
    let found: BTreeSet<&str> = listeners
        .into_iter()
        .flatten()
        .filter_map(|listener| listener["name"].as_str())
        .collect();
    let is_present = condition(&object["status"], "Accepted").is_some_and(|accepted| {
        accepted["observedGeneration"] == object["metadata"]["generation"]
            && accepted["message"] != "of the former"
            && accepted["reason"] != "Pending"
    });
    is_present && found == names.iter().copied().collect()
}

/// Returns true if no entry has a condition of ours that is not about the present generation, and
/// each has the other controller's condition, if `theirs`.
fn is_clean(object: &Value, theirs: bool) -> bool {
    let listeners = object["status"]["listeners"].as_array();
    let entries = listeners.into_iter().flatten().chain([&object["status"]]);
    entries.into_iter().all(|entry| {
        let conditions = entry["conditions"].as_array().into_iter().flatten();
        let stale = conditions
            .into_iter()
            .filter(|condition| condition["type"] != "example.org/Theirs")
            .any(|condition| condition["observedGeneration"] != object["metadata"]["generation"]);
        !stale && condition(entry, "example.org/Theirs").is_some() == theirs
    })
}

async fn start() -> Result<Cluster> {
    let cluster = e2e::tenants::cluster().await?;
    cluster
        .server
        .apply(include_str!("../../../deploy/gatewayclass.yaml"))
        .await?;
    Ok(cluster)
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api cert-manager-crds"]
async fn entries_of_lists_go_whoever_else_owns_them() -> Result<()> {
    let cluster = start().await?;
    let server = &cluster.server;
    let gateways = server.api(GATEWAY, "Gateway", SPACE).await?;
    let sets = server.api(GATEWAY, "ListenerSet", SPACE).await?;
    let mut controller = cluster.controller("one")?;
    controller.line("holding the lease").await?;
    let all = ["one", "two", "three"];
    for way in WAYS {
        let name = format!("{way:?}").to_lowercase();
        // A class changes hands; the others were always ours.
        let class = match way {
            Way::Put | Way::Apply => FORMER,
            Way::ApplyOurs | Way::Reset => "gatewright",
        };
        server.put(gateway(&name, class, &all)).await?;
        server
            .put(listener_set(&name, &name, &["four", "five"]))
            .await?;
        for object in policed(&name) {
            server.put(object).await?;
        }
        if class == "gatewright" {
            for (kind, names) in [
                ("Gateway", &all[..]),
                ("ListenerSet", &["four", "five"][..]),
            ] {
                cluster
                    .until(GATEWAY, kind, SPACE, &name, |o| has(o, names))
                    .await?;
            }
        }
        share(&gateways, &name, way, of_former(&all)).await?;
        share(&sets, &name, way, of_former(&["four", "five"])).await?;
        server.put(gateway(&name, "gatewright", &all)).await?;
        for (kind, names) in [
            ("Gateway", &all[..]),
            ("ListenerSet", &["four", "five"][..]),
        ] {
            cluster
                .until(GATEWAY, kind, SPACE, &name, |o| has(o, names))
                .await?;
        }
        for (version, kind, _) in policies() {
            cluster
                .until(version, kind, SPACE, &name, |o| {
                    has_ancestors(o, &[&name], false)
                })
                .await?;
            let api = server.api(version, kind, SPACE).await?;
            share(&api, &name, way, former_ancestors(&name)).await?;
        }
    }
    for way in WAYS {
        let name = format!("{way:?}").to_lowercase();
        // Not by server-side apply: of what it wrote before a reset it would not be the only owner.
        for (api, object) in [
            (&gateways, gateway(&name, "gatewright", &["one", "renamed"])),
            (&sets, listener_set(&name, &name, &["five"])),
        ] {
            let spec = json!({"spec": object["spec"]});
            api.patch(&name, &PatchParams::default(), &Patch::Merge(spec))
                .await?;
        }
        for (version, kind, [_, spec]) in policies() {
            let api = server.api(version, kind, SPACE).await?;
            let spec = json!({"spec": spec});
            api.patch(&name, &PatchParams::default(), &Patch::Merge(spec))
                .await?;
        }
    }
    for way in WAYS {
        let name = format!("{way:?}").to_lowercase();
        let theirs = matches!(way, Way::Put | Way::Apply);
        let gateway = cluster
            .until(GATEWAY, "Gateway", SPACE, &name, |o| {
                has(o, &["one", "renamed"])
            })
            .await?;
        assert!(
            is_clean(&gateway, false) || theirs,
            "{way:?}: {:#}",
            gateway["status"]
        );
        assert_eq!(
            condition(&gateway["status"], "example.org/Theirs").is_some(),
            theirs,
            "{way:?}: conditions of others stay: {:#}",
            gateway["status"]
        );
        let one = gateway["status"]["listeners"]
            .as_array()
            .and_then(|all| all.iter().find(|listener| listener["name"] == "one"))
            .context("it is wanted")?;
        assert_eq!(
            condition(one, "example.org/Theirs").is_some(),
            theirs,
            "{way:?}: conditions of others stay in an entry"
        );
        assert!(
            condition(one, "Conflicted").is_none_or(|found| found["message"] != "of the former"),
            "{way:?}: {one:#}"
        );
        cluster
            .until(GATEWAY, "ListenerSet", SPACE, &name, |o| has(o, &["five"]))
            .await?;
        for (version, kind, _) in policies() {
            cluster
                .until(version, kind, SPACE, &name, |o| {
                    has_ancestors(o, &[&name], theirs)
                })
                .await?;
        }
    }
    // Without routes the policies of Services have no ancestors.
    let routes = server.api(GATEWAY, "HTTPRoute", SPACE).await?;
    let of_services = || {
        policies()
            .into_iter()
            .filter(|(_, kind, _)| *kind != "AccessPolicy")
    };
    for way in WAYS {
        let name = format!("{way:?}").to_lowercase();
        routes.delete(&name, &DeleteParams::default()).await?;
        for (version, kind, _) in of_services() {
            let theirs = matches!(way, Way::Put | Way::Apply);
            cluster
                .until(version, kind, SPACE, &name, |o| {
                    has_ancestors(o, &[], theirs)
                })
                .await?;
        }
    }
    cluster.quiet().await?;
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api cert-manager-crds"]
async fn features_of_a_class_go_whoever_else_owns_them() -> Result<()> {
    let cluster = start().await?;
    let mut controller = cluster.controller("one")?;
    controller.line("holding the lease").await?;
    let classes = cluster.server.api(GATEWAY, "GatewayClass", "").await?;
    let is_right = |class: &Value| {
        let features = class["status"]["supportedFeatures"].as_array();
        let mut features = features.into_iter().flatten();
        condition(&class["status"], "Accepted")
            .is_some_and(|accepted| accepted["message"] != "of the former")
            && features.clone().any(|feature| feature["name"] == "Gateway")
            && !features.any(|feature| feature["name"] == "Former")
    };
    for way in WAYS {
        cluster
            .until(GATEWAY, "GatewayClass", "", "gatewright", is_right)
            .await?;
        let mut status = of_former(&[]);
        status["listeners"].take();
        let status = json!({"conditions": status["conditions"],
            "supportedFeatures": [{"name": "Former"}, {"name": "Gateway"}]});
        share(&classes, "gatewright", way, status).await?;
        cluster
            .until(GATEWAY, "GatewayClass", "", "gatewright", is_right)
            .await?;
    }
    cluster.quiet().await?;
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api cert-manager-crds"]
async fn a_tenant_gateway_that_came_from_cilium_loses_a_host() -> Result<()> {
    let cluster = start().await?;
    let server = &cluster.server;
    let mut controller = cluster.controller("one")?;
    controller.line("holding the lease").await?;
    let (space, apex) = ("tenant-moved", "moved.example.org");
    namespace(server, space, apex).await?;
    let spec = |class: &str| json!({"apex": apex, "gatewayClassName": class});
    server.put(tenant(space, spec("cilium"))).await?;
    for host in ["more", "shop"] {
        let name = format!("{host}.{apex}");
        server.put(route(space, host, space, &[&name])).await?;
    }
    let has_listeners = |object: &Value, count: usize| {
        object["spec"]["listeners"].as_array().map_or(0, Vec::len) == count
    };
    let gateway = cluster
        .until(GATEWAY, "Gateway", space, "cozystack", |o| {
            has_listeners(o, 3)
        })
        .await?;
    let before = gateway["spec"]["listeners"].as_array().map_or(0, Vec::len);
    program(server, "Gateway", space, "cozystack").await?;
    server.put(tenant(space, spec("gatewright"))).await?;
    cluster
        .until(GATEWAY, "Gateway", space, "cozystack", |o| {
            o["spec"]["gatewayClassName"] == "gatewright"
                && condition(&o["status"], "Accepted").is_some_and(|accepted| {
                    accepted["observedGeneration"] == o["metadata"]["generation"]
                })
        })
        .await?;
    server
        .api(GATEWAY, "HTTPRoute", space)
        .await?
        .delete("more", &Default::default())
        .await?;
    cluster
        .until(GATEWAY, "Gateway", space, "cozystack", |o| {
            let names = |of: &Value| -> BTreeSet<String> {
                let listeners = of["listeners"].as_array().into_iter().flatten();
                let names = listeners.filter_map(|listener| listener["name"].as_str());
                names.map(str::to_owned).collect()
            };
            let said = names(&o["status"]);
            !said.iter().any(|name| name.starts_with("https-more"))
                && said == names(&o["spec"])
                && condition(&o["status"], "Accepted").is_some_and(|accepted| {
                    accepted["observedGeneration"] == o["metadata"]["generation"]
                })
        })
        .await?;
    assert!(before > 0, "the former controller wrote of listeners");
    until("the TenantGateway says what is", async || {
        let api = server.api(TENANT, "TenantGateway", space).await?;
        let object = serde_json::to_value(api.get("cozystack").await?)?;
        Ok(ready(&object).is_some_and(|ready| {
            !ready["message"]
                .as_str()
                .unwrap_or_default()
                .contains("earlier generation")
        }))
    })
    .await?;
    cluster.quiet().await?;
    Ok(())
}
