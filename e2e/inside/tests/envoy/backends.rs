//! TrafficPolicies on a real Envoy: how endpoints are chosen, checked and limited.

mod idle;
mod proxied;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::held::Held;
use e2e::probe::{Answer, Probe};
use e2e::switched::Switched;
use e2e_inside::served::PATIENCE;
use e2e_inside::world::{World, api, class, edge, free_port, object, service};
use gatewright_core::inputs::{Kind, ObjectKey};
use gatewright_core::model::ObjectName;
use gatewright_core::translate::Change;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{Instant, sleep, timeout};

const HOST: &str = "app.example.org";

/// A listener for HTTP, and one for TCP.
fn listeners(http: u16, tcp: u16) -> Value {
    json!([{"name": "http", "port": http, "protocol": "HTTP"},
        {"name": "tcp", "port": tcp, "protocol": "TCP"}])
}

/// The Gateway with these listeners, and its class.
fn gateway(listeners: &Value) -> Vec<Change> {
    vec![class(), edge(listeners)]
}

/// A route whose rules have a path for each Service.
fn route(services: &[&str]) -> Change {
    let rules: Vec<Value> = services
        .iter()
        .map(|service| {
            json!({"matches": [{"path": {"value": format!("/{service}")}}],
                "backendRefs": [{"name": service, "port": 80}]})
        })
        .collect();
    let parents = json!([{"name": "edge", "sectionName": "http"}]);
    api(
        "HTTPRoute",
        "app",
        json!({"parentRefs": parents, "hostnames": [HOST], "rules": rules}),
    )
}

fn tcp_route(service: &str) -> Change {
    let parents = json!([{"name": "edge", "sectionName": "tcp"}]);
    let rules = json!([{"backendRefs": [{"name": service, "port": 80}]}]);
    api(
        "TCPRoute",
        "tcp",
        json!({"parentRefs": parents, "rules": rules}),
    )
}

/// Adds an address behind port 80 of a Service.
fn another(service: &str, address: SocketAddr) -> Change {
    object(
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"namespace": "default", "name": format!("{service}-{}", address.port()),
            "labels": {"kubernetes.io/service-name": service}},
        "ports": [{"name": "p", "port": address.port()}], "endpoints": [{"addresses": [address.ip().to_string()]}]}),
    )
}

/// The policy of Service `web`.
fn policy(spec: Value) -> Change {
    policy_of("web", spec)
}

/// The policy of a Service, with its name.
fn policy_of(service: &str, mut spec: Value) -> Change {
    spec["targetRefs"] = json!([{"group": "", "kind": "Service", "name": service}]);
    object(
        json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "TrafficPolicy",
        "metadata": {"namespace": "default", "name": service}, "spec": spec}),
    )
}

fn balanced(kind: &str) -> Change {
    policy(json!({"loadBalancer": {"type": kind}}))
}

fn no_policy() -> Change {
    let name = ObjectName::new("default", "web");
    Change::delete(ObjectKey::new(Kind::TrafficPolicy, name))
}

fn to(port: u16, path: &str) -> Probe {
    Probe::http(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), HOST).path(path)
}

fn name(answer: &Answer) -> String {
    String::from_utf8_lossy(&answer.body).into_owned()
}

/// Two endpoints of Services `web` and `other`, and an Envoy with routes to both.
struct Pair {
    one: Switched,
    two: Switched,
    http: u16,
    tcp: u16,
    world: World,
}

impl Pair {
    /// Starts them at two addresses that no other test has.
    async fn start(first: &str, second: &str) -> Result<Self> {
        let (http, tcp) = (free_port()?, free_port()?);
        let one = Switched::start_on("one", first).await?;
        let two = Switched::start_on("two", second).await?;
        let mut changes = gateway(&listeners(http, tcp));
        for name in ["web", "other"] {
            changes.extend(service(name, one.address()));
            changes.push(another(name, two.address()));
        }
        changes.extend([route(&["web", "other"]), tcp_route("web")]);
        let world = World::start(changes).await?;
        Ok(Self {
            one,
            two,
            http,
            tcp,
            world,
        })
    }

    /// The names of the backends that answer `times` requests, each on a connection of its own.
    async fn by(&self, probe: &Probe, times: usize) -> Result<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        for _ in 0..times {
            names.insert(name(&probe.send().await?));
        }
        Ok(names)
    }

    /// Waits until exactly these answer 20 requests in a row, all of them with 200.
    async fn until_by(&self, path: &str, expected: &[&str]) -> Result<()> {
        let probe = to(self.http, path);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut names = BTreeSet::new();
            let mut statuses = BTreeSet::new();
            for _ in 0..20 {
                let answer = probe.send().await?;
                statuses.insert(answer.status);
                names.insert(name(&answer));
            }
            let is_so = names
                .iter()
                .map(String::as_str)
                .eq(expected.iter().copied());
            if is_so && statuses == BTreeSet::from([200]) {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "{path} is answered {statuses:?} by {names:?}, expected {expected:?}:\n{}",
                self.world.envoy.log()
            );
        }
    }
}

/// True if the answers to requests of one connection alternate between two endpoints.
async fn alternates(probe: &Probe) -> Result<bool> {
    let mut connection = probe.connect().await?;
    let mut names = Vec::new();
    for _ in 0..24 {
        names.push(name(&connection.ask(probe).await?));
    }
    Ok(names.windows(2).all(|pair| pair[0] != pair[1]))
}

async fn until_alternating(probe: &Probe, expected: bool) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while alternates(probe).await? != expected {
        ensure!(Instant::now() < deadline, "alternating is not {expected}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn round_robin_takes_one_after_the_other_and_least_request_does_not() -> Result<()> {
    let pair = Pair::start("198.18.60.1", "198.18.60.2").await?;
    let web = to(pair.http, "/web");
    ensure!(!alternates(&web).await?, "least request is at random");
    pair.world.settle(vec![balanced("RoundRobin")]).await?;
    until_alternating(&web, true).await?;
    ensure!(
        !alternates(&to(pair.http, "/other")).await?,
        "another Service with the same endpoints has no policy"
    );
    pair.world.settle(vec![balanced("Random")]).await?;
    until_alternating(&web, false).await?;
    pair.world.settle(vec![balanced("RoundRobin")]).await?;
    until_alternating(&web, true).await?;
    // A value out of bounds leaves the Service as without a policy.
    let wrong =
        json!({"loadBalancer": {"type": "RoundRobin"}, "circuitBreaker": {"maxConnections": 0}});
    pair.world.settle(vec![policy(wrong)]).await?;
    until_alternating(&web, false).await?;
    pair.world.settle(vec![no_policy()]).await?;
    until_alternating(&web, false).await
}

/// Changes of a policy send nothing that belongs to another host, and close no connection of it.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn another_host_pays_nothing_for_a_policy() -> Result<()> {
    let pair = Pair::start("198.18.60.11", "198.18.60.12").await?;
    let host = "stranger.example.org";
    let rules = json!([{"backendRefs": [{"name": "stranger", "port": 80}]}]);
    let parents = json!([{"name": "edge", "sectionName": "http"}]);
    let mut changes = service("stranger", pair.one.address());
    let spec = json!({"parentRefs": parents, "hostnames": [host], "rules": rules});
    changes.push(api("HTTPRoute", "stranger", spec));
    pair.world.settle(changes).await?;
    let stranger = Probe::http((Ipv4Addr::LOCALHOST, pair.http).into(), host);
    let mut connection = stranger.connect().await?;
    let deadline = Instant::now() + PATIENCE;
    while connection.ask(&stranger).await?.status != 200 {
        ensure!(Instant::now() < deadline, "{}", pair.world.envoy.log());
        connection = stranger.connect().await?;
    }
    let active = json!({"active": {"type": "TCP"}, "panicThreshold": 0});
    let header = json!({"type": "Header", "header": {"name": "x-user"}});
    for (change, expected) in [
        (balanced("RoundRobin"), 2),
        (policy(json!({"healthCheck": active})), 2),
        (hashed(header), 3),
        (no_policy(), 3),
    ] {
        let (delta, generation) = pair.world.apply(vec![change]);
        let sent: Vec<String> = delta
            .resources
            .keys()
            .map(|key| format!("{key:?}"))
            .collect();
        // Two clusters, for requests and for connections; a hash is in the routes of the host.
        ensure!(sent.len() == expected, "{sent:?}");
        for key in &sent {
            ensure!(!key.contains("stranger") && !key.contains("other"), "{key}");
        }
        pair.world.acknowledged(generation).await?;
        let answer = connection.ask(&stranger).await?;
        ensure!(answer.status == 200, "answered {}", answer.status);
    }
    ensure!(!connection.is_closed(), "the stranger's connection stays");
    Ok(())
}

fn hashed(hash: Value) -> Change {
    policy(json!({"loadBalancer": {"type": "ConsistentHash", "consistentHash": hash}}))
}

/// A request of one of many users.
fn of_user(probe: &Probe, user: usize) -> Probe {
    probe.clone().header("x-user", &format!("user-{user}"))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_hash_keeps_a_client_at_one_endpoint() -> Result<()> {
    let pair = Pair::start("198.18.60.3", "198.18.60.4").await?;
    let both = BTreeSet::from(["one".to_owned(), "two".to_owned()]);
    let web = to(pair.http, "/web");
    ensure!(pair.by(&web, 30).await? == both, "without a hash");

    let header = hashed(json!({"type": "Header", "header": {"name": "X-User"}}));
    pair.world.settle(vec![header]).await?;
    let deadline = Instant::now() + PATIENCE;
    while pair.by(&of_user(&web, 0), 30).await?.len() > 1 {
        ensure!(Instant::now() < deadline, "{}", pair.world.envoy.log());
    }
    let mut owners = BTreeSet::new();
    for user in 0..20 {
        let names = pair.by(&of_user(&web, user), 6).await?;
        ensure!(names.len() == 1, "user {user} is at {names:?}");
        owners.extend(names);
    }
    ensure!(owners == both, "users are spread: {owners:?}");
    ensure!(pair.by(&web, 30).await? == both, "no header, no endpoint");
    let other = to(pair.http, "/other").header("x-user", "user-0");
    ensure!(pair.by(&other, 30).await? == both, "no policy, no hash");

    let cookie = hashed(json!({"type": "Cookie", "cookie": {"name": "sid", "ttl": "1h"}}));
    pair.world.settle(vec![cookie]).await?;
    let answer = web.send().await?;
    let set = answer.headers.get("set-cookie").context("a cookie")?;
    let set = set.to_str()?;
    let (value, attributes) = set.split_once("; ").context("attributes")?;
    ensure!(value.starts_with("sid="), "{set}");
    for expected in ["Max-Age=3600", "Path=/", "HttpOnly", "SameSite=Lax"] {
        ensure!(attributes.contains(expected), "{set}");
    }
    let known = web.clone().header("cookie", value);
    let names = pair.by(&known, 20).await?;
    ensure!(names == BTreeSet::from([name(&answer)]), "{names:?}");
    let again = known.send().await?;
    ensure!(
        !again.headers.contains_key("set-cookie"),
        "a client has one cookie"
    );

    // Session persistence of a rule decides; the hash decides where a session begins.
    let session = json!({"type": "Header", "header": {"name": "x-session"}});
    let rules =
        json!([{"sessionPersistence": session, "backendRefs": [{"name": "web", "port": 80}]}]);
    let parents = json!([{"name": "edge", "sectionName": "http"}]);
    let spec = json!({"parentRefs": parents, "hostnames": [HOST], "rules": rules});
    let header = hashed(json!({"type": "Header", "header": {"name": "x-user"}}));
    pair.world
        .settle(vec![api("HTTPRoute", "app", spec), header])
        .await?;
    let mut sessions = std::collections::BTreeMap::new();
    for user in 0..20 {
        let answer = of_user(&web, user).send().await?;
        let session = answer.headers.get("x-session").context("a session")?;
        sessions.insert(name(&answer), session.to_str()?.to_owned());
    }
    ensure!(sessions.len() == 2, "{sessions:?}");
    for (owner, session) in &sessions {
        for user in 0..10 {
            let answer = of_user(&web, user)
                .header("x-session", session)
                .send()
                .await?;
            ensure!(name(&answer) == *owner, "user {user}, session of {owner}");
        }
    }
    Ok(())
}

/// A request from an address of this machine; returns what is answered.
async fn from(address: Ipv4Addr, port: u16) -> Result<String> {
    let exchange = async {
        let socket = TcpSocket::new_v4()?;
        socket.bind((address, 0).into())?;
        let mut stream = socket.connect((Ipv4Addr::LOCALHOST, port).into()).await?;
        let request = format!("GET /web HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        let (_, body) = text.split_once("\r\n\r\n").context("a body")?;
        Ok(body.to_owned())
    };
    timeout(PATIENCE, exchange).await?
}

/// Waits until every client stays at one endpoint, and returns which.
async fn owners(port: u16) -> Result<Vec<String>> {
    let deadline = Instant::now() + PATIENCE;
    'again: loop {
        ensure!(Instant::now() < deadline, "clients change their endpoint");
        let mut all = Vec::new();
        for client in 1..=16 {
            let address = Ipv4Addr::new(127, 0, 7, client);
            let first = from(address, port).await?;
            for _ in 0..5 {
                if from(address, port).await? != first {
                    continue 'again;
                }
            }
            all.push(first);
        }
        return Ok(all);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_hash_of_the_address_is_the_same_for_requests_and_connections() -> Result<()> {
    let pair = Pair::start("198.18.60.5", "198.18.60.6").await?;
    pair.world
        .settle(vec![hashed(json!({"type": "SourceIP"}))])
        .await?;
    for port in [pair.http, pair.tcp] {
        let all = owners(port).await?;
        let names: BTreeSet<_> = all.iter().map(String::as_str).collect();
        ensure!(
            names == BTreeSet::from(["one", "two"]),
            "clients are spread: {all:?}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_check_takes_an_endpoint_out_and_back() -> Result<()> {
    let pair = Pair::start("198.18.60.7", "198.18.60.8").await?;
    let active = json!({"type": "HTTP", "interval": "2s", "unhealthyThreshold": 1, "http": {"path": "/healthz"}});
    pair.world
        .settle(vec![policy(json!({"healthCheck": {"active": active}}))])
        .await?;
    pair.until_by("/web", &["one", "two"]).await?;
    pair.one.health(503);
    pair.until_by("/web", &["two"]).await?;
    pair.until_by("/other", &["one", "two"]).await?;
    pair.one.health(200);
    pair.until_by("/web", &["one", "two"]).await?;
    ensure!(pair.two.checks() > 0, "both are checked");
    // Without the policy nobody asks.
    pair.one.health(503);
    pair.until_by("/web", &["two"]).await?;
    pair.world.settle(vec![no_policy()]).await?;
    pair.until_by("/web", &["one", "two"]).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn an_endpoint_that_fails_requests_is_taken_out_for_a_while() -> Result<()> {
    let pair = Pair::start("198.18.60.9", "198.18.60.10").await?;
    let passive = json!({"consecutive5XxErrors": 3, "interval": "1s", "baseEjectionTime": "1s"});
    pair.world
        .settle(vec![policy(json!({"healthCheck": {"passive": passive}}))])
        .await?;
    pair.one.answer(500);
    let other = pair.by(&to(pair.http, "/other"), 20).await?;
    ensure!(other.len() == 2, "without a policy it stays: {other:?}");
    pair.until_by("/web", &["two"]).await?;
    pair.one.answer(200);
    pair.until_by("/web", &["one", "two"]).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_circuit_breaker_answers_what_is_too_much() -> Result<()> {
    let http = free_port()?;
    let mut backend = Held::start().await?;
    let mut changes = gateway(&listeners(http, free_port()?));
    changes.extend(service("web", backend.address()));
    changes.extend(service("other", backend.address()));
    changes.push(route(&["web", "other"]));
    changes.push(policy(
        json!({"circuitBreaker": {"maxParallelRequests": 1}}),
    ));
    let world = World::start(changes).await?;
    let test = async {
        let first = tokio::spawn(async move { to(http, "/web").send().await });
        backend.asked().await?;
        let refused = to(http, "/web").send().await?;
        ensure!(refused.status == 503, "answered {}", refused.status);
        let why = name(&refused);
        ensure!(why.contains("overflow"), "{why}");
        // Another Service with the same backend has room.
        let other = tokio::spawn(async move { to(http, "/other").send().await });
        backend.asked().await?;
        backend.answer(2);
        ensure!(first.await??.status == 500, "the backend answers");
        ensure!(other.await??.status == 500, "the backend answers");
        Ok(())
    };
    timeout(PATIENCE, test)
        .await
        .with_context(|| world.envoy.log())?
}

/// A socket to which nobody can connect: its queue is full.
async fn full() -> Result<(TcpListener, Vec<TcpStream>)> {
    let socket = TcpSocket::new_v4()?;
    socket.bind("127.0.0.1:0".parse()?)?;
    let listener = socket.listen(1)?;
    let address = listener.local_addr()?;
    let mut waiting = Vec::new();
    while let Ok(stream) = timeout(Duration::from_millis(500), TcpStream::connect(address)).await {
        waiting.push(stream?);
        ensure!(waiting.len() < 64, "the queue has no end");
    }
    Ok((listener, waiting))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_connection_that_is_not_made_in_time_is_given_up() -> Result<()> {
    let http = free_port()?;
    let (listener, _waiting) = full().await?;
    let mut changes = gateway(&listeners(http, free_port()?));
    changes.extend(service("web", listener.local_addr()?));
    changes.push(route(&["web"]));
    let world = World::start(changes).await?;
    let took = async || -> Result<(u16, Duration)> {
        let begin = Instant::now();
        let answer = to(http, "/web").limit(PATIENCE).send().await?;
        Ok((answer.status, begin.elapsed()))
    };
    let (status, without) = took().await?;
    ensure!(status == 503, "answered {status}");
    ensure!(without > Duration::from_secs(4), "{without:?}");
    world
        .settle(vec![policy(
            json!({"timeout": {"tcp": {"connectTimeout": "200ms"}}}),
        )])
        .await?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (status, with) = took().await?;
        ensure!(status == 503, "answered {status}");
        if with < Duration::from_secs(3) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{with:?}");
        sleep(Duration::from_millis(50)).await;
    }
}
