//! Virtual hosts that Envoy requests at the first request for a host (VHDS).

use super::client::*;
use e2e_inside::resources::*;

use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::listener::v3 as listener;
use envoy_types::pb::envoy::config::route::v3 as route;
use envoy_types::pb::envoy::extensions::filters::http::on_demand::v3::OnDemand;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3 as hcm;
use envoy_types::pb::google::protobuf::Duration;
use prost::Message;
use xds::{Kind, Resource};

/// A listener whose requests wait for their virtual host.
fn on_demand_listener(port: u16) -> Resource {
    let plain = listener::Listener::decode(http_listener("front", port, rds("front")).body())
        .expect("just encoded");
    let mut message = plain;
    let filter = &mut message.filter_chains[0].filters[0];
    let Some(listener::filter::ConfigType::TypedConfig(config)) = &mut filter.config_type else {
        panic!("a filter has its configuration")
    };
    let mut manager =
        hcm::HttpConnectionManager::decode(config.value.as_slice()).expect("just encoded");
    let on_demand = hcm::HttpFilter {
        name: "envoy.filters.http.on_demand".into(),
        config_type: Some(hcm::http_filter::ConfigType::TypedConfig(any(
            &OnDemand::default(),
        ))),
        ..Default::default()
    };
    manager.http_filters.insert(0, on_demand);
    *config = any(&manager);
    Resource::new("front", &message)
}

fn table() -> Resource {
    // Envoy waits for that time for a first virtual host of the table, and none is sent
    // unrequested.
    let patience = Duration {
        seconds: 0,
        nanos: 50_000_000,
    };
    let source = core::ConfigSource {
        initial_fetch_timeout: Some(patience),
        ..ads()
    };
    let message = route::RouteConfiguration {
        name: "front".into(),
        vhds: Some(route::Vhds {
            config_source: Some(source),
        }),
        ..Default::default()
    };
    Resource::new("front", &message)
}

/// A virtual host, which Envoy requests as `table/host`.
fn host(name: &str, status: u32, aliases: &[&str]) -> Resource {
    let domains = std::iter::once(name)
        .chain(aliases.iter().copied())
        .map(str::to_owned)
        .collect();
    let message = route::VirtualHost {
        name: format!("front/{name}"),
        domains,
        routes: vec![respond(prefix(), status)],
        ..Default::default()
    };
    Resource::new(format!("front/{name}"), &message).with_aliases(
        aliases
            .iter()
            .map(|alias| format!("front/{alias}"))
            .collect(),
    )
}

fn ask(port: u16, host: &str) -> u16 {
    use std::io::{Read, Write};
    // Envoy acknowledges a listener before the listener is warm.
    let mut connected = (0..600).find_map(|_| {
        let socket = std::net::TcpStream::connect(("127.0.0.1", port)).ok();
        if socket.is_none() {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        socket
    });
    let socket = connected.as_mut().expect("the listener becomes live");
    // A request that Envoy never answers fails here, and not by the time limit of the test.
    socket
        .set_read_timeout(Some(PATIENCE))
        .expect("a socket option");
    write!(
        socket,
        "GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    )
    .expect("sent");
    let mut answer = String::new();
    socket
        .read_to_string(&mut answer)
        .expect("the request is answered");
    answer[9..12].parse().expect("a status line")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn virtual_hosts_come_at_the_first_request_and_unknown_ones_are_answered() {
    let mut fleet = Served::default();
    let port = free_port();
    let _envoy = Envoy::of(&fleet, "one");
    let hosts = (0..100).map(|i| host(&format!("h{i}.test"), 200, &[]));
    let hosts = hosts.chain([
        host("a.test", 201, &["b.test"]),
        table(),
        on_demand_listener(port),
    ]);
    let generation = fleet.publish(hosts.collect(), vec![]);
    fleet.live(generation, 1).await;
    let sent = |fleet: &Served| fleet.cache.counts().of(Kind::VirtualHost).sent;
    assert_eq!(sent(&fleet), 0, "nobody asked yet");
    assert_eq!(ask(port, "h7.test"), 200);
    assert_eq!(sent(&fleet), 1, "only what was asked for");
    assert_eq!(ask(port, "unknown.test"), 404);
    assert_eq!(ask(port, "unknown.test"), 404, "and again");
    assert_eq!(ask(port, "b.test"), 201, "by its alias");
    assert_eq!(ask(port, "a.test"), 201);
    assert!(fleet.cache.progress(&fleet.view).rejections.is_empty());

    // A change reaches its subscribers, a new host an earlier request for it, a removal its
    // subscribers.
    let generation = fleet.publish(
        vec![host("h7.test", 418, &[]), host("unknown.test", 202, &[])],
        vec![],
    );
    fleet.live(generation, 1).await;
    assert_eq!(ask(port, "h7.test"), 418, "the known host is served");
    assert_eq!(
        ask(port, "unknown.test"),
        202,
        "the unknown one is answered"
    );
    let generation = fleet.publish(vec![], vec![(Kind::VirtualHost, "front/h7.test".into())]);
    fleet.live(generation, 1).await;
    assert_eq!(ask(port, "h7.test"), 404);

    // After a restart nothing is resent, and requests are answered.
    let before = sent(&fleet);
    fleet.stop().await;
    fleet.serve();
    fleet.live(generation, 1).await;
    assert_eq!(ask(port, "h8.test"), 200);
    assert_eq!(ask(port, "nobody.test"), 404);
    assert_eq!(sent(&fleet), before + 1);
    fleet.stop().await;
}
