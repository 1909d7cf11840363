//! Connection managers by extension config (ECDS), as Envoy 1.40 has them: the reason why our
//! filter chains contain theirs.
//!
//! A change keeps all connections and does not touch the Listener. But a filter chain keeps the
//! init manager of the Listener that it was made for, and a new connection manager is given to it:
//! - After an update in place that Listener is gone, and Envoy uses freed memory, if the new
//!   connection manager has to wait for something: for routes by RDS always, for scopes if no other
//!   connection manager has subscribed to them.
//! - Without an update in place the init manager has done its work, and starts no subscription.
//!
//! Besides, a refused extension config counts as the last one, and one that does not exist is
//! waited for.
//!
//! A test that fails here may show that a later Envoy does better.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use super::client::*;
use e2e_inside::resources::*;

use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::listener::v3 as listener;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3 as hcm;
use envoy_types::pb::google::protobuf as google;
use hcm::http_connection_manager::RouteSpecifier;
use prost::{Message, Name};
use tokio::time::sleep;
use xds::{Kind, Resource};

const SIGSEGV: i32 = 11;

/// The time for which a filter chain waits for its first connection manager.
const PATIENCE_OF_ENVOY: google::Duration = google::Duration {
    seconds: 1,
    nanos: 0,
};

/// A connection manager that calls itself `server` in its answers.
fn manager(server: &str, routes: RouteSpecifier) -> hcm::HttpConnectionManager {
    let whole =
        listener::Listener::decode(http_listener("any", 1, routes).body()).expect("just encoded");
    let Some(listener::filter::ConfigType::TypedConfig(config)) =
        &whole.filter_chains[0].filters[0].config_type
    else {
        panic!("a filter has its configuration")
    };
    let made = hcm::HttpConnectionManager::decode(config.value.as_slice()).expect("just encoded");
    hcm::HttpConnectionManager {
        server_name: server.into(),
        ..made
    }
}

/// The extension config `name`.
fn extension(name: &str, manager: &hcm::HttpConnectionManager) -> Resource {
    let message = core::TypedExtensionConfig {
        name: name.into(),
        typed_config: Some(any(manager)),
    };
    Resource::new(name, &message)
}

/// A connection manager that Envoy refuses: its format has a command that does not exist.
fn refused() -> hcm::HttpConnectionManager {
    let text = core::data_source::Specifier::InlineString("%BOGUS(%".into());
    let format = core::SubstitutionFormatString {
        format: Some(core::substitution_format_string::Format::TextFormatSource(
            core::DataSource {
                specifier: Some(text),
                ..Default::default()
            },
        )),
        ..Default::default()
    };
    hcm::HttpConnectionManager {
        local_reply_config: Some(hcm::LocalReplyConfig {
            body_format: Some(format),
            ..Default::default()
        }),
        ..manager("refused", scoped())
    }
}

/// A chain with the connection manager `name`, for connections to `port`.
fn chain(name: &str, port: u16) -> listener::FilterChain {
    let source = core::ConfigSource {
        initial_fetch_timeout: Some(PATIENCE_OF_ENVOY),
        ..ads()
    };
    let discovery = core::ExtensionConfigSource {
        config_source: Some(source),
        type_urls: vec![hcm::HttpConnectionManager::type_url()],
        ..Default::default()
    };
    listener::FilterChain {
        name: format!("{name}-{port}"),
        filter_chain_match: Some(listener::FilterChainMatch {
            destination_port: Some(google::UInt32Value { value: port.into() }),
            ..Default::default()
        }),
        filters: vec![listener::Filter {
            name: name.into(),
            config_type: Some(listener::filter::ConfigType::ConfigDiscovery(discovery)),
        }],
        ..Default::default()
    }
}

/// A listener of these chains.
fn front(port: u16, filter_chains: Vec<listener::FilterChain>) -> Resource {
    let message = listener::Listener {
        name: "front".into(),
        address: Some(address(port)),
        filter_chains,
        ..Default::default()
    };
    Resource::new("front", &message)
}

/// Sends a request on a connection that stays open. Returns the status, and who answered.
fn ask(socket: &mut TcpStream) -> (String, String) {
    socket
        .set_read_timeout(Some(PATIENCE))
        .expect("a socket option");
    write!(socket, "GET / HTTP/1.1\r\nHost: test\r\nx-key: s\r\n\r\n").expect("sent");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte).expect("it answers");
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).expect("a head is text");
    let server = head.lines().find_map(|line| line.strip_prefix("server: "));
    (
        head[9..12].to_owned(),
        server.unwrap_or_default().to_owned(),
    )
}

/// Waits until a new connection is answered by `server`; returns the status.
async fn answered_by(port: u16, server: &str) -> String {
    let mut last = String::new();
    for _ in 0..600 {
        let new = TcpStream::connect(("127.0.0.1", port));
        match new.map(|mut socket| std::panic::catch_unwind(move || ask(&mut socket))) {
            Ok(Ok((status, by))) if by == server => return status,
            other => last = format!("{other:?}"),
        }
        sleep(Duration::from_millis(50)).await;
    }
    panic!("never answered by {server}: {last}")
}

/// Waits until a counter has a value.
async fn counted(envoy: &Envoy, name: &str, value: u64) {
    for _ in 0..600 {
        if envoy.stat(name) == value {
            return;
        }
        sleep(Duration::from_millis(50)).await;
    }
    panic!("{name} is never {value}, but {}", envoy.stat(name))
}

/// A listener that subscribes to scopes in the usual way. The xDS server sends them once a listener
/// has such a connection manager.
fn subscriber() -> Resource {
    http_listener("subscriber", free_port(), scoped())
}

/// Serves a first connection manager, and replaces it: the connection held meanwhile stays, and the
/// Listener is what it was.
async fn replaced(fleet: &Served, envoy: &Envoy, port: u16, routes: RouteSpecifier) {
    let generation = fleet.publish(
        vec![
            Resource::new("front", &routes_of_front()),
            scope("s", prefix()),
            subscriber(),
            extension("manager", &manager("first", routes.clone())),
            front(port, vec![chain("manager", port)]),
        ],
        vec![],
    );
    fleet.live(generation, 1).await;
    assert_eq!(answered_by(port, "first").await, "200");
    let mut held = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    assert_eq!(ask(&mut held).1, "first");
    let generation = fleet.publish(
        vec![extension("manager", &manager("second", routes))],
        vec![],
    );
    fleet.live(generation, 1).await;
    assert_eq!(answered_by(port, "second").await, "200");
    // Longer than the drain time.
    sleep(Duration::from_secs(2)).await;
    assert_eq!(ask(&mut held).1, "first", "the connection stays");
    for unchanged in [
        "listener_modified",
        "listener_in_place_updated",
        "total_filter_chains_draining",
    ] {
        let name = format!("listener_manager.{unchanged}");
        assert_eq!(envoy.stat(&name), 0, "{name}");
    }
}

fn routes_of_front() -> envoy_types::pb::envoy::config::route::v3::RouteConfiguration {
    routes("front", vec![respond(prefix(), 200)])
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_change_after_an_update_in_place_ends_an_envoy_with_routes_by_rds() {
    let fleet = Served::default();
    let port = free_port();
    let mut envoy = Envoy::of(&fleet, "one");
    replaced(&fleet, &envoy, port, rds("front")).await;
    let other = free_port();
    let chains = vec![chain("manager", port), chain("manager", other)];
    let generation = fleet.publish(vec![front(port, chains)], vec![]);
    fleet.live(generation, 1).await;
    counted(&envoy, "listener_manager.listener_in_place_updated", 1).await;
    for change in 0..100 {
        let made = manager(&format!("change-{change}"), rds("front"));
        fleet.publish(vec![extension("manager", &made)], vec![]);
        sleep(Duration::from_millis(200)).await;
        if let Some(ended) = envoy.process.try_wait().expect("a child of ours") {
            return assert_eq!(ended.signal(), Some(SIGSEGV));
        }
    }
    panic!("Envoy lives: its filter chains no longer use freed memory")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn changes_after_updates_in_place_are_served_if_scopes_are_subscribed() {
    let fleet = Served::default();
    let port = free_port();
    let envoy = Envoy::of(&fleet, "one");
    replaced(&fleet, &envoy, port, scoped()).await;
    for change in 1..=20 {
        let chains = vec![chain("manager", port), chain("manager", port - change)];
        let generation = fleet.publish(vec![front(port, chains)], vec![]);
        fleet.live(generation, 1).await;
        counted(
            &envoy,
            "listener_manager.listener_in_place_updated",
            change.into(),
        )
        .await;
        let server = format!("change-{change}");
        let made = manager(&server, scoped());
        fleet.publish(vec![extension("manager", &made)], vec![]);
        assert_eq!(answered_by(port, &server).await, "200");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn scopes_never_come_to_any_listener_if_the_first_connection_manager_was_refused() {
    let fleet = Served::default();
    let port = free_port();
    let neighbour = free_port();
    let envoy = Envoy::of(&fleet, "one");
    let generation = fleet.publish(
        vec![
            scope("s", prefix()),
            extension("manager", &refused()),
            front(port, vec![chain("manager", port)]),
        ],
        vec![],
    );
    fleet.live(generation, 1).await;
    counted(&envoy, "listener_manager.workers_started", 1).await;
    let corrected = extension("manager", &manager("corrected", scoped()));
    fleet.publish(vec![corrected], vec![]);
    assert_eq!(answered_by(port, "corrected").await, "404");
    // The subscription that is never started is that of all connection managers.
    let generation = fleet.publish(
        vec![http_listener("neighbour", neighbour, scoped())],
        vec![],
    );
    fleet.live(generation, 1).await;
    assert_eq!(status(neighbour, "x-key: s\r\n"), 404);
    assert_eq!(envoy.stat("http.http.scoped_rds.scopes.update_attempt"), 0);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_connection_manager_that_does_not_exist_holds_up_the_start_beyond_its_time_limit() {
    let fleet = Served::default();
    let port = free_port();
    let envoy = Envoy::of(&fleet, "one");
    let generation = fleet.publish(vec![front(port, vec![chain("manager", port)])], vec![]);
    fleet.live(generation, 1).await;
    // Envoy was told that it does not exist, which ends the time limit and not the waiting.
    sleep(Duration::from_secs(5)).await;
    assert_eq!(envoy.stat("listener_manager.workers_started"), 0);
    let made = manager("late", scoped());
    fleet.publish(vec![extension("manager", &made)], vec![]);
    counted(&envoy, "listener_manager.workers_started", 1).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_refused_connection_manager_is_acknowledged_when_it_comes_again() {
    let fleet = Served::default();
    let port = free_port();
    let envoy = Envoy::of(&fleet, "one");
    let other = free_port();
    let good = |server: &str| manager(server, scoped());
    let generation = fleet.publish(
        vec![
            scope("s", prefix()),
            subscriber(),
            extension("good", &good("first")),
            extension("bad", &good("first")),
            front(port, vec![chain("good", port), chain("bad", other)]),
        ],
        vec![],
    );
    fleet.live(generation, 1).await;
    assert_eq!(answered_by(port, "first").await, "200");
    // The two are in one response, which is refused, and each comes again in its own.
    let generation = fleet.publish(
        vec![
            extension("good", &good("second")),
            extension("bad", &refused()),
        ],
        vec![],
    );
    fleet.live(generation, 1).await;
    let rejections = fleet.cache.progress(&fleet.view).rejections;
    assert!(
        rejections.iter().all(|found| found.kind != Kind::Extension),
        "Envoy refuses it a second time: {rejections:?}"
    );
    let refused = "extension_config_discovery.network_filter.bad.update_rejected";
    assert_eq!(envoy.stat(refused), 1);
}
