//! From objects to answers on a real Envoy: the engine's units as seen by clients.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use e2e::echo::Echo;
use e2e::probe::Probe;
use e2e_inside::world::{World, api, class, edge, free_port, secret, service};
use gatewright_core::inputs::ObjectChange;
use gatewright_core::translate::Change;
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

fn https(name: &str, port: u16, hostname: &str) -> Value {
    let mut listener = json!({"name": name, "port": port, "protocol": "HTTPS",
        "tls": {"certificateRefs": [{"name": name}]}, "allowedRoutes": {"namespaces": {"from": "All"}}});
    if !hostname.is_empty() {
        listener["hostname"] = json!(hostname);
    }
    listener
}

fn route(name: &str, section: &str, hostnames: &[&str], backend: &str) -> Change {
    api(
        "HTTPRoute",
        name,
        json!({"parentRefs": [{"name": "edge", "sectionName": section}], "hostnames": hostnames,
        "rules": [{"backendRefs": [{"name": backend, "port": 80}]}]}),
    )
}

/// A Gateway with an exact, a wildcard and a catch-all listener, a route for each, and a running
/// backend.
async fn world(port: u16) -> Result<(World, Echo)> {
    let echo = Echo::start("web").await?;
    let listeners = [
        https("exact", port, "app.example.org"),
        https("wild", port, "*.wild.example.org"),
        https("any", port, ""),
    ];
    let mut changes = vec![
        class(),
        edge(listeners),
        secret("exact", "app.example.org")?,
        secret("wild", "*.wild.example.org")?,
        secret("any", "any.example.net")?,
        route("app", "exact", &[], "web"),
        route("one", "wild", &["one.wild.example.org"], "web"),
        route("rest", "wild", &[], "web"),
        route("other", "any", &["other.example.net"], "web"),
    ];
    changes.extend(service("web", echo.address()));
    Ok((World::start(changes).await?, echo))
}

fn to(port: u16, host: &str) -> Probe {
    Probe::https(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), host)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn exact_wildcard_and_catch_all_listeners_serve_their_own() -> Result<()> {
    let port = free_port()?;
    let (world, _echo) = world(port).await?;
    for (host, names) in [
        ("app.example.org", "app.example.org"),
        ("one.wild.example.org", "*.wild.example.org"),
        ("two.wild.example.org", "*.wild.example.org"),
        ("other.example.net", "any.example.net"),
    ] {
        let answer = to(port, host).send().await?;
        assert_eq!(answer.status, 200, "{host}\n{}", world.envoy.log());
        assert_eq!(answer.peer.expect("TLS").dns_names, [names], "{host}");
    }
    assert_eq!(to(port, "nobody.example.net").send().await?.status, 404);
    assert_eq!(
        to(port, "app.example.org")
            .authority("APP.example.org")
            .send()
            .await?
            .status,
        200
    );
    assert_eq!(
        to(port, "app.example.org")
            .authority("one.wild.example.org")
            .send()
            .await?
            .status,
        421
    );
    assert_eq!(
        to(port, "other.example.net")
            .authority("app.example.org")
            .send()
            .await?
            .status,
        421
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn changes_go_live_and_removals_take_effect() -> Result<()> {
    let port = free_port()?;
    let (world, _echo) = world(port).await?;
    let second = Echo::start("second").await?;
    world.settle(service("second", second.address())).await?;
    world
        .settle(vec![route("app", "exact", &[], "second")])
        .await?;
    let answer = to(port, "app.example.org").send().await?;
    assert!(
        String::from_utf8_lossy(&answer.body).contains("second"),
        "the new backend answers"
    );
    let serial = answer.peer.expect("TLS").serial;
    world
        .settle(vec![secret("exact", "app.example.org")?])
        .await?;
    assert_ne!(
        to(port, "app.example.org")
            .send()
            .await?
            .peer
            .expect("TLS")
            .serial,
        serial
    );
    let Change::Object(ObjectChange::Put(gone)) = route("app", "exact", &[], "second") else {
        unreachable!("a put")
    };
    world.settle(vec![Change::delete(gone.key())]).await?;
    assert_eq!(to(port, "app.example.org").send().await?.status, 404);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn many_hosts_come_and_go_without_draining_a_held_connection() -> Result<()> {
    let port = free_port()?;
    let (world, _echo) = world(port).await?;
    let set = |n: usize| {
        api(
            "ListenerSet",
            &format!("s{n}"),
            json!({"parentRef": {"name": "edge"},
            "listeners": [https(&format!("h{n}"), port, &format!("h{n}.tenant.example.com"))]}),
        )
    };
    let Change::Object(ObjectChange::Put(_)) = set(0) else {
        unreachable!("a put")
    };
    let listeners = [https("exact", port, "app.example.org")];
    let gateway = api(
        "Gateway",
        "edge",
        json!({"gatewayClassName": "ours", "listeners": listeners,
        "allowedListeners": {"namespaces": {"from": "Same"}}}),
    );
    world.settle(vec![gateway]).await?;
    let mut held = to(port, "app.example.org").connect().await?;
    assert_eq!(held.ask(&to(port, "app.example.org")).await?.status, 200);
    for n in 0..40 {
        let route = api(
            "HTTPRoute",
            &format!("r{n}"),
            json!({"parentRefs": [{"kind": "ListenerSet", "name": format!("s{n}")}],
            "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}),
        );
        world
            .settle(vec![
                secret(&format!("h{n}"), &format!("h{n}.tenant.example.com"))?,
                set(n),
                route,
            ])
            .await?;
        assert_eq!(
            to(port, &format!("h{n}.tenant.example.com"))
                .send()
                .await?
                .status,
            200,
            "host {n}"
        );
    }
    assert!(
        to(port, "unknown.tenant.example.com").send().await.is_err(),
        "an unknown name is refused"
    );
    assert_eq!(
        held.ask(&to(port, "app.example.org")).await?.status,
        200,
        "the held connection was kept"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_wildcard_without_its_certificate_closes_and_holds_nobody_back() -> Result<()> {
    let port = free_port()?;
    let echo = Echo::start("web").await?;
    let listeners = [
        https("exact", port, "app.example.org"),
        https("wild", port, "*.wild.example.org"),
        https("any", port, ""),
    ];
    let mut changes = vec![
        class(),
        edge(listeners),
        secret("exact", "app.example.org")?,
        secret("any", "any.example.net")?,
        route("app", "exact", &[], "web"),
        route("one", "wild", &["one.wild.example.org"], "web"),
        route("rest", "wild", &[], "web"),
        route("other", "any", &[], "web"),
    ];
    changes.extend(service("web", echo.address()));
    let world = World::start(changes).await?;
    assert_eq!(to(port, "app.example.org").send().await?.status, 200);
    assert_eq!(to(port, "other.example.net").send().await?.status, 200);
    for host in ["one.wild.example.org", "two.wild.example.org"] {
        assert!(
            to(port, host).send().await.is_err(),
            "{host} is not served by the catch-all listener"
        );
    }
    world
        .settle(vec![secret("wild", "*.wild.example.org")?])
        .await?;
    for host in ["one.wild.example.org", "two.wild.example.org"] {
        assert_eq!(to(port, host).send().await?.status, 200, "{host}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn hosts_under_a_wildcard_are_served_however_many_they_are() -> Result<()> {
    let port = free_port()?;
    let echo = Echo::start("web").await?;
    let listeners = [https("wild", port, "*.wild.example.org")];
    let mut changes = vec![
        class(),
        edge(listeners),
        secret("wild", "*.wild.example.org")?,
    ];
    changes.extend(service("web", echo.address()));
    let host = |n: usize| format!("h{n}.wild.example.org");
    changes.extend((0..20).map(|n| route(&format!("r{n}"), "wild", &[&host(n)], "web")));
    let world = World::start(changes).await?;
    for n in (20..100).step_by(10) {
        world
            .settle(
                (n..n + 10)
                    .map(|n| route(&format!("r{n}"), "wild", &[&host(n)], "web"))
                    .collect(),
            )
            .await?;
        for n in [0, 7, n, n + 9] {
            assert_eq!(to(port, &host(n)).send().await?.status, 200, "host {n}");
        }
        // A connection for one host of the listener is valid for all of them.
        for sni in [&host(0), "unknown.wild.example.org"] {
            assert_eq!(
                to(port, sni).authority(&host(1)).send().await?.status,
                200,
                "{sni} beside {n}"
            );
            assert_eq!(
                to(port, sni)
                    .authority("unknown.wild.example.org")
                    .send()
                    .await?
                    .status,
                404,
                "{sni}"
            );
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_connection_of_one_listener_does_not_serve_another() -> Result<()> {
    let port = free_port()?;
    let echo = Echo::start("web").await?;
    let passthrough = json!({"name": "pass", "port": port, "protocol": "TLS", "hostname": "pass.example.org",
        "tls": {"mode": "Passthrough"}});
    let mut listeners = vec![
        https("exact", port, "app.example.org"),
        https("wild", port, "*.wild.example.org"),
    ];
    listeners.push(passthrough);
    let gateway = |listeners: &[Value]| edge(listeners);
    let tls = json!({"parentRefs": [{"name": "edge"}], "hostnames": ["pass.example.org"],
        "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]});
    let mut changes = vec![
        class(),
        gateway(&listeners),
        secret("exact", "app.example.org")?,
        secret("wild", "*.wild.example.org")?,
        secret("any", "any.example.net")?,
        route("app", "exact", &[], "web"),
        route("one", "wild", &["one.wild.example.org"], "web"),
        api("TLSRoute", "pass", tls),
    ];
    changes.extend(service("web", echo.address()));
    let world = World::start(changes).await?;
    let expect = async |answers: &[(&str, &str, u16)]| -> Result<()> {
        for (sni, authority, status) in answers {
            let answer = to(port, sni).authority(authority).send().await?;
            assert_eq!(
                answer.status, *status,
                "{authority} on a connection for {sni}"
            );
        }
        anyhow::Ok(())
    };
    expect(&[
        ("app.example.org", "app.example.org", 200),
        ("app.example.org", "pass.example.org", 421),
        ("app.example.org", "one.wild.example.org", 421),
        ("app.example.org", "two.wild.example.org", 421),
        ("app.example.org", "nobody.example.org", 404),
        ("one.wild.example.org", "two.wild.example.org", 404),
        ("one.wild.example.org", "app.example.org", 421),
        ("one.wild.example.org", "nobody.example.org", 404),
    ])
    .await?;
    listeners.push(https("any", port, ""));
    world.settle(vec![gateway(&listeners)]).await?;
    expect(&[
        ("app.example.org", "app.example.org", 200),
        ("app.example.org", "nobody.example.org", 421),
        ("one.wild.example.org", "two.wild.example.org", 404),
        ("one.wild.example.org", "nobody.example.org", 421),
        ("nobody.example.org", "nobody.example.org", 404),
        ("nobody.example.org", "app.example.org", 421),
        ("nobody.example.org", "two.wild.example.org", 421),
    ])
    .await
}

/// Makes TLS connections until it is stopped; returns their number, and the failures.
fn knock(probe: Probe, stop: Arc<AtomicBool>) -> JoinHandle<(usize, Vec<String>)> {
    tokio::spawn(async move {
        let mut tried = 0;
        let mut failed = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            tried += 1;
            if let Err(failure) = probe.connect().await {
                failed.push(format!("{failure} after {tried}"));
            }
        }
        (tried, failed)
    })
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_hostname_that_is_no_longer_terminated_takes_connections_all_the_time() -> Result<()> {
    let port = free_port()?;
    let web = Echo::start("web").await?;
    let host = "app.example.org";
    let made = rcgen::generate_simple_self_signed([host.to_owned()])?;
    let key =
        PrivateKeyDer::try_from(made.signing_key.serialize_der()).map_err(anyhow::Error::msg)?;
    let own = Echo::start_tls("own", vec![made.cert.der().clone()], key).await?;
    let passed = json!({"name": "exact", "port": port, "protocol": "TLS", "hostname": host, "tls": {"mode": "Passthrough"}});
    let gateway = |listener: &Value| {
        api(
            "Gateway",
            "edge",
            json!({"gatewayClassName": "ours", "listeners": [listener]}),
        )
    };
    let terminated = https("exact", port, host);
    let tls = json!({"parentRefs": [{"name": "edge"}], "hostnames": [host],
        "rules": [{"backendRefs": [{"name": "own", "port": 80}]}]});
    let mut changes = vec![
        class(),
        gateway(&terminated),
        secret("exact", host)?,
        route("app", "exact", &[], "web"),
    ];
    changes.push(api("TLSRoute", "app", tls));
    changes.extend(
        service("web", web.address())
            .into_iter()
            .chain(service("own", own.address())),
    );
    let world = World::start(changes).await?;
    let mut held = to(port, host).connect().await?;
    assert_eq!(held.ask(&to(port, host)).await?.status, 200);
    world.settle(vec![gateway(&passed)]).await?;
    assert_eq!(
        held.ask(&to(port, host)).await?.status,
        421,
        "a client opens another connection"
    );
    world.settle(vec![gateway(&terminated)]).await?;
    to(port, host).connect().await?;
    let stop = Arc::new(AtomicBool::new(false));
    let clients = [0; 2].map(|_| knock(to(port, host), stop.clone()));
    for _ in 0..6 {
        for (listener, by) in [(&passed, "own"), (&terminated, "web")] {
            world.settle(vec![gateway(listener)]).await?;
            let answer = to(port, host).send().await?;
            assert!(
                String::from_utf8_lossy(&answer.body).contains(by),
                "{by} answers"
            );
        }
    }
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        let (tried, failed) = client.await?;
        // A handshake in progress may fail when the certificate is removed: about one in seventy
        // switches.
        assert!(
            tried > 20 && failed.len() < 3,
            "{} of {tried} failed: {failed:?}",
            failed.len()
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn regular_expressions_that_pass_are_taken() -> Result<()> {
    let port = free_port()?;
    let (world, _echo) = world(port).await?;
    let route = |pattern: &str| {
        let path = json!({"type": "RegularExpression", "value": pattern});
        let rule =
            json!({"matches": [{"path": path}], "backendRefs": [{"name": "web", "port": 80}]});
        let parent = json!([{"name": "edge", "sectionName": "exact"}]);
        api(
            "HTTPRoute",
            "app",
            json!({"parentRefs": parent, "rules": [rule]}),
        )
    };
    for (pattern, path) in [
        ("/[a-z]{1,900}", "/abc"),
        ("/users/[0-9]{1,64}/(?i)Profile|/x", "/users/7/profile"),
        (r"/[[:alpha:]_-]+\.(?:png|jpe?g)", "/a_b.jpg"),
        (r"/\p{Greek}?\pL+", "/abc"),
    ] {
        world.settle(vec![route(pattern)]).await?;
        assert_eq!(
            to(port, "app.example.org").path(path).send().await?.status,
            200,
            "{pattern}"
        );
    }
    Ok(())
}
