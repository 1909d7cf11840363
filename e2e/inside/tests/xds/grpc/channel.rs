//! gRPC as an xDS client.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use e2e_inside::served::{IDENTITY, Served};
use envoy_types::pb::envoy::config::cluster::v3 as cluster;
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::endpoint::v3 as endpoint;
use envoy_types::pb::envoy::config::listener::v3 as listener;
use envoy_types::pb::envoy::config::route::v3 as route;
use envoy_types::pb::envoy::extensions::filters::http::router::v3::Router;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3 as hcm;
use envoy_types::pb::google::protobuf::{Any, UInt32Value};
use prost::{Message, Name};
use xds::{Kind, Limits, Resource};

use super::python::{interpreter, script};

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _gone_already = self.0.kill();
        let _reaped = self.0.wait();
    }
}

fn any<M: Message + Name>(message: &M) -> Any {
    Any {
        type_url: M::type_url(),
        value: message.encode_to_vec(),
    }
}

fn ads() -> core::ConfigSource {
    core::ConfigSource {
        config_source_specifier: Some(core::config_source::ConfigSourceSpecifier::Ads(
            Default::default(),
        )),
        resource_api_version: core::ApiVersion::V3 as i32,
        ..Default::default()
    }
}

/// The listener with which a channel to `name` starts.
fn api_listener(name: &str) -> Resource {
    let manager = hcm::HttpConnectionManager {
        route_specifier: Some(hcm::http_connection_manager::RouteSpecifier::Rds(
            hcm::Rds {
                config_source: Some(ads()),
                route_config_name: "routes".into(),
            },
        )),
        http_filters: vec![hcm::HttpFilter {
            name: "router".into(),
            config_type: Some(hcm::http_filter::ConfigType::TypedConfig(any(
                &Router::default(),
            ))),
            ..Default::default()
        }],
        ..Default::default()
    };
    let api = listener::ApiListener {
        api_listener: Some(any(&manager)),
    };
    Resource::new(
        name,
        &listener::Listener {
            name: name.into(),
            api_listener: Some(api),
            ..Default::default()
        },
    )
}

fn routes_to(cluster: &str) -> Resource {
    let to = route::route_action::ClusterSpecifier::Cluster(cluster.into());
    let rule = route::Route {
        r#match: Some(route::RouteMatch {
            path_specifier: Some(route::route_match::PathSpecifier::Prefix(String::new())),
            ..Default::default()
        }),
        action: Some(route::route::Action::Route(route::RouteAction {
            cluster_specifier: Some(to),
            ..Default::default()
        })),
        ..Default::default()
    };
    let host = route::VirtualHost {
        name: "all".into(),
        domains: vec!["*".into()],
        routes: vec![rule],
        ..Default::default()
    };
    let message = route::RouteConfiguration {
        name: "routes".into(),
        virtual_hosts: vec![host],
        ..Default::default()
    };
    Resource::new("routes", &message)
}

fn eds_cluster(name: &str) -> Resource {
    let eds = cluster::cluster::DiscoveryType::Eds as i32;
    let message = cluster::Cluster {
        name: name.into(),
        cluster_discovery_type: Some(cluster::cluster::ClusterDiscoveryType::Type(eds)),
        eds_cluster_config: Some(cluster::cluster::EdsClusterConfig {
            eds_config: Some(ads()),
            ..Default::default()
        }),
        ..Default::default()
    };
    Resource::new(name, &message)
}

fn endpoints(name: &str, port: u32) -> Resource {
    let address = core::Address {
        address: Some(core::address::Address::SocketAddress(core::SocketAddress {
            address: "127.0.0.1".into(),
            port_specifier: Some(core::socket_address::PortSpecifier::PortValue(port)),
            ..Default::default()
        })),
    };
    let backend = endpoint::Endpoint {
        address: Some(address),
        ..Default::default()
    };
    let message = endpoint::ClusterLoadAssignment {
        cluster_name: name.into(),
        endpoints: vec![endpoint::LocalityLbEndpoints {
            locality: Some(core::Locality {
                region: "here".into(),
                ..Default::default()
            }),
            lb_endpoints: vec![endpoint::LbEndpoint {
                host_identifier: Some(endpoint::lb_endpoint::HostIdentifier::Endpoint(backend)),
                ..Default::default()
            }],
            load_balancing_weight: Some(UInt32Value { value: 1 }),
            ..Default::default()
        }],
        ..Default::default()
    };
    Resource::new(name, &message)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Python's grpcio"]
async fn a_grpc_channel_is_configured_follows_a_change_and_survives_a_restart_of_the_server() {
    let mut served = Served::over_tls(Limits::default());
    let pair = served.tls().client(IDENTITY);
    let files = [
        ("ca.pem", served.tls().authority.certificate()),
        ("cert.pem", &pair.certificate),
        ("key.pem", &pair.key),
    ];
    for (name, text) in files {
        std::fs::write(served.dir().join(name), text).expect("the directory is ours");
    }
    let mut child = Command::new(interpreter())
        .arg(script("channel.py"))
        .arg(served.tls().port.to_string())
        .arg(served.dir())
        .arg("who.test")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("Python starts");
    let mut calls = child.stdin.take().expect("piped");
    let answers = child.stdout.take().expect("piped");
    let _killed = Killed(child);
    let mut answers = BufReader::new(answers).lines();
    let mut answer = move || answers.next().expect("it still runs").expect("a line");
    let ports: Vec<u32> = serde_json::from_str(&answer()).expect("two ports");
    served.publish(
        vec![
            api_listener("who.test"),
            routes_to("one"),
            eds_cluster("one"),
            endpoints("one", ports[0]),
            eds_cluster("two"),
            endpoints("two", ports[1]),
        ],
        vec![],
    );
    writeln!(calls, "call").expect("it reads");
    assert_eq!(answer(), "one");

    // To the other backend, without a failed call at any time.
    let generation = served.publish(vec![routes_to("two")], vec![]);
    served.live(generation, 1).await;
    let mut seen = String::new();
    while seen != "two" {
        writeln!(calls, "call").expect("it reads");
        seen = answer();
        assert!(seen == "one" || seen == "two", "{seen}");
    }
    let generation = served.publish(
        vec![],
        vec![
            (Kind::Cluster, "one".into()),
            (Kind::Endpoints, "one".into()),
        ],
    );
    served.live(generation, 1).await;

    served.stop().await;
    served.serve();
    let generation = served.publish(
        vec![
            eds_cluster("one"),
            endpoints("one", ports[0]),
            routes_to("one"),
        ],
        vec![],
    );
    served.live(generation, 1).await;
    while seen != "one" {
        writeln!(calls, "call").expect("it reads");
        seen = answer();
        assert!(seen == "one" || seen == "two", "{seen}");
    }
    assert!(served.cache.progress(&served.view).rejections.is_empty());
    served.stop().await;
}
