//! The Service of a dedicated Gateway in every form of parameters and listeners, one after the
//! other.

use anyhow::{Context, Result};
use e2e::cluster::{BACKEND, Cluster, is_true, tls_secret};
use serde_json::{Value, json};

use super::{GATEWAY, change, dedicated, gateway, give, parameters, told};

/// A change, and the expected result.
struct Step {
    name: &'static str,
    /// `spec.service` of the parameters.
    service: Value,
    /// `spec.addresses` of the Gateway.
    addresses: Value,
    /// The ports of its listeners.
    ports: &'static [u16],
    /// The address that the load balancer assigns, if any.
    given: Option<&'static str>,
    /// The reason of `Programmed`.
    reason: &'static str,
    /// A part of its message.
    text: &'static str,
    /// A predicate on the Service, except for its ports.
    like: fn(&Value) -> bool,
}

const ASKED: &str = "198.18.0.7";

fn steps() -> Vec<Step> {
    let balanced = |class: &str| json!({"type": "LoadBalancer", "loadBalancerClass": class});
    let ip = |ip: &str| json!([{"type": "IPAddress", "value": ip}]);
    let base = || Step {
        name: "",
        service: json!({"type": "ClusterIP"}),
        addresses: json!([]),
        ports: &[443],
        given: None,
        reason: "Programmed",
        text: "acknowledged",
        like: |o| {
            o["spec"]["type"] == "ClusterIP"
                && o["spec"]["ports"][0]["nodePort"].is_null()
                && policy(o).is_null()
        },
    };
    vec![
        Step {
            name: "within the cluster",
            ..base()
        },
        Step {
            name: "on nodes, with another port",
            service: json!({"type": "NodePort"}),
            ports: &[443, 8443],
            like: |o| {
                o["spec"]["type"] == "NodePort"
                    && o["spec"]["ports"][1]["nodePort"].is_u64()
                    && policy(o) == "Cluster"
            },
            ..base()
        },
        Step {
            name: "on nodes, each to its own Envoys",
            service: json!({"type": "NodePort", "externalTrafficPolicy": "Local"}),
            like: |o| o["spec"]["type"] == "NodePort" && policy(o) == "Local",
            ..base()
        },
        Step {
            name: "within the cluster again, with the first port alone",
            ..base()
        },
        Step {
            name: "a load balancer of a class, without an address",
            service: balanced("example.org/a"),
            reason: "AddressNotAssigned",
            text: "has no address yet",
            // A load balancer asks each node at this port whether it has an Envoy.
            like: |o| {
                let spec = &o["spec"];
                spec["loadBalancerClass"] == "example.org/a"
                    && policy(o) == "Local"
                    && spec["healthCheckNodePort"].is_u64()
            },
            ..base()
        },
        Step {
            name: "and with one",
            service: balanced("example.org/a"),
            given: Some(BACKEND),
            like: |o| o["spec"]["loadBalancerClass"] == "example.org/a",
            ..base()
        },
        Step {
            name: "from each node to all Envoys",
            service: json!({"type": "LoadBalancer", "loadBalancerClass": "example.org/a", "externalTrafficPolicy": "Cluster"}),
            given: Some(BACKEND),
            like: |o| policy(o) == "Cluster" && o["spec"]["healthCheckNodePort"].is_null(),
            ..base()
        },
        Step {
            name: "of another class, which it cannot be, and with another port, which it can have",
            service: balanced("example.org/b"),
            ports: &[443, 8443],
            given: Some(BACKEND),
            reason: "Invalid",
            text: "which Kubernetes cannot change: delete the Service",
            like: |o| o["spec"]["loadBalancerClass"] == "example.org/a",
            ..base()
        },
        Step {
            name: "of the class that it has, which has no other say any more",
            service: json!({"type": "LoadBalancer"}),
            given: Some(BACKEND),
            like: |o| o["spec"]["loadBalancerClass"] == "example.org/a",
            ..base()
        },
        Step {
            name: "with an address that it asks for and does not get",
            service: json!({"type": "LoadBalancer"}),
            addresses: ip(ASKED),
            given: Some(BACKEND),
            reason: "AddressNotUsable",
            text: "got 198.18.0.1 instead of 198.18.0.7",
            like: |o| o["spec"]["loadBalancerIP"] == ASKED,
            ..base()
        },
        Step {
            name: "and gets",
            service: json!({"type": "LoadBalancer"}),
            addresses: ip(ASKED),
            given: Some(ASKED),
            like: |o| o["spec"]["loadBalancerIP"] == ASKED,
            ..base()
        },
        Step {
            name: "one that can be had with a load balancer only: the Service stays as it is",
            service: json!({"type": "NodePort"}),
            addresses: ip(ASKED),
            reason: "AddressNotUsable",
            text: "type LoadBalancer only",
            like: |o| o["spec"]["type"] == "LoadBalancer",
            ..base()
        },
        Step {
            name: "on nodes",
            service: json!({"type": "NodePort"}),
            like: |o| {
                let spec = &o["spec"];
                spec["type"] == "NodePort"
                    && spec["loadBalancerClass"].is_null()
                    && spec["loadBalancerIP"].is_null()
            },
            ..base()
        },
    ]
}

fn policy(service: &Value) -> &Value {
    &service["spec"]["externalTrafficPolicy"]
}

fn ports(service: &Value) -> Vec<u64> {
    service["spec"]["ports"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|port| port["port"].as_u64())
        .collect()
}

#[tokio::test]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn a_service_takes_every_form_and_keeps_its_ports() -> Result<()> {
    let cluster = Cluster::start().await?;
    let server = &cluster.server;
    dedicated(&cluster).await?;
    // Envoys of both address families, two of one, of which one terminates.
    let labels = json!({"kubernetes.io/service-name": "gatewright-envoy"});
    let slice = |name: &str, family: &str, endpoints: &Value| {
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family,
            "metadata": {"name": name, "namespace": "gatewright-system", "labels": labels},
            "endpoints": endpoints, "ports": [{"name": "http", "port": 80}]})
    };
    let terminating = json!({"ready": false, "serving": true, "terminating": true});
    let envoys_v4 = json!([
        {"addresses": [BACKEND], "conditions": {"ready": true}, "nodeName": "node-1"},
        {"addresses": ["198.18.0.2"], "conditions": terminating, "nodeName": "node-2"},
    ]);
    let envoys_v6 = json!([{"addresses": ["2001:db8::1"], "conditions": {"ready": true}}]);
    server
        .put(slice("gatewright-envoy-1", "IPv4", &envoys_v4))
        .await?;
    server
        .put(slice("gatewright-envoy-2", "IPv6", &envoys_v6))
        .await?;
    let mut controller = cluster.controller("one")?;
    controller.line("xDS at").await?;
    let (_envoy, _tls) = cluster.envoy("envoy-a").await?;
    server
        .put(tls_secret("default", "cert", &["web.example.org"])?)
        .await?;
    server
        .put(parameters(
            "own",
            json!({"fleet": "Dedicated", "service": {"type": "ClusterIP"}}),
        ))
        .await?;
    server
        .put(gateway("default", "own", 443, &["web.example.org"]))
        .await?;
    let mut cluster_ip = Value::Null;
    let mut first = Value::Null;
    for step in steps() {
        let Step {
            name,
            service,
            addresses,
            ports: wanted,
            given,
            reason,
            text,
            like,
        } = step;
        #[expect(
            clippy::print_stdout,
            reason = "what is printed last says at which step it failed"
        )]
        {
            println!("{name}");
        }
        server
            .put(parameters(
                "own",
                json!({"fleet": "Dedicated", "service": service}),
            ))
            .await?;
        let listeners: Vec<Value> = wanted.iter().map(|port| {
            json!({"name": format!("l{port}"), "protocol": "HTTPS", "port": port, "hostname": "web.example.org",
                "tls": {"certificateRefs": [{"name": "cert"}]}})
        }).collect();
        change(
            &cluster,
            "default",
            json!({"spec": {"listeners": listeners, "addresses": addresses}}),
        )
        .await?;
        let there = cluster
            .until("v1", "Service", "default", "edge-own", |o| {
                like(o)
                    && ports(o).iter().eq(wanted
                        .iter()
                        .map(|port| u64::from(*port))
                        .collect::<Vec<_>>()
                        .iter())
            })
            .await?;
        if let Some(given) = given {
            give(&cluster, "default", "edge-own", given).await?;
        }
        // It is the same Service, and the ports of the Envoys are unchanged.
        let target = there["spec"]["ports"][0]["targetPort"].clone();
        if first.is_null() {
            (first, cluster_ip) = (target, there["spec"]["clusterIP"].clone());
        } else {
            assert_eq!(target, first, "{name}");
            assert_eq!(there["spec"]["clusterIP"], cluster_ip, "{name}");
        }
        let reached = match (given, reason) {
            (_, "AddressNotUsable" | "AddressNotAssigned") => Value::Null,
            (Some(ip), _) => json!(ip),
            (None, _) => cluster_ip.clone(),
        };
        cluster
            .until(GATEWAY, "Gateway", "default", "edge", |o| {
                let (why, what) = told(&o["status"], "Programmed");
                why == reason
                    && what.contains(text)
                    && is_new(o)
                    && o["status"]["addresses"][0]["value"] == reached
            })
            .await?;
        // A node forwards connections from outside to the endpoints that say its name, if the
        // policy is Local.
        for (family, envoys) in [("v4", &envoys_v4), ("v6", &envoys_v6)] {
            let number = target_numbers(&there);
            cluster
                .until(
                    "discovery.k8s.io/v1",
                    "EndpointSlice",
                    "default",
                    &format!("edge-own-{family}"),
                    |o| {
                        let numbers: Vec<&Value> = o["ports"]
                            .as_array()
                            .into_iter()
                            .flatten()
                            .map(|p| &p["port"])
                            .collect();
                        o["endpoints"] == *envoys && json!(numbers) == number
                    },
                )
                .await?;
        }
    }

    // An immutable field: if the Service is deleted, it is made again with the new class.
    let class = json!({"type": "LoadBalancer", "loadBalancerClass": "example.org/a"});
    server
        .put(parameters(
            "own",
            json!({"fleet": "Dedicated", "service": class}),
        ))
        .await?;
    cluster
        .until("v1", "Service", "default", "edge-own", |o| {
            o["spec"]["loadBalancerClass"] == "example.org/a"
        })
        .await?;
    let class = json!({"type": "LoadBalancer", "loadBalancerClass": "example.org/b"});
    server
        .put(parameters(
            "own",
            json!({"fleet": "Dedicated", "service": class}),
        ))
        .await?;
    cluster
        .until(GATEWAY, "Gateway", "default", "edge", |o| {
            told(&o["status"], "Programmed").0 == "Invalid"
        })
        .await?;
    let services = server.api("v1", "Service", "default").await?;
    let old = services
        .get("edge-own")
        .await?
        .metadata
        .uid
        .context("a UID")?;
    services.delete("edge-own", &Default::default()).await?;
    cluster
        .until("v1", "Service", "default", "edge-own", |o| {
            o["spec"]["loadBalancerClass"] == "example.org/b" && o["metadata"]["uid"] != *old
        })
        .await?;
    give(&cluster, "default", "edge-own", BACKEND).await?;
    cluster
        .until(GATEWAY, "Gateway", "default", "edge", |o| {
            is_true(&o["status"], "Programmed")
        })
        .await?;
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    Ok(())
}

/// Returns true if the status is of the current generation.
fn is_new(object: &Value) -> bool {
    let generation = &object["metadata"]["generation"];
    e2e::cluster::condition(&object["status"], "Programmed")
        .is_some_and(|c| c["observedGeneration"] == *generation)
}

/// Returns the Envoys' ports that a Service leads to.
fn target_numbers(service: &Value) -> Value {
    let ports = service["spec"]["ports"].as_array().into_iter().flatten();
    json!(
        ports
            .map(|port| port["targetPort"].clone())
            .collect::<Vec<_>>()
    )
}
