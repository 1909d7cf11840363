//! GRPCRoutes on a real Envoy, with gRPC clients and backends: the backend of each call, and
//! requests that are no gRPC.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::echo::Echo;
use e2e::grpc::{Grpc, SENT, SERVED_BY};
use e2e::probe::Probe;
use e2e_inside::world::{World, api, class, edge, free_port, gatewright, object, service};
use envoy_types::pb::envoy::service::auth::v3::CheckRequest;
use envoy_types::pb::envoy::service::auth::v3::authorization_client::AuthorizationClient;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use gatewright_core::translate::Change;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

const AUTHORIZATION: &str = "envoy.service.auth.v3.Authorization";
const RATE_LIMIT: &str = "envoy.service.ratelimit.v3.RateLimitService";
const HOST: &str = "rpc.example.org";

fn route(kind: &str, name: &str, rules: Value) -> Change {
    api(
        kind,
        name,
        json!({"parentRefs": [{"name": "edge"}], "hostnames": [HOST], "rules": rules}),
    )
}

fn to(backend: &str) -> Value {
    json!([{"name": backend, "port": 80}])
}

async fn client(port: u16) -> Result<Channel> {
    let origin = format!("http://{HOST}").parse()?;
    Ok(Endpoint::from_shared(format!("http://127.0.0.1:{port}"))?
        .origin(origin)
        .connect()
        .await?)
}

fn request<T>(message: T, headers: &[(&'static str, &str)]) -> Result<Request<T>> {
    let mut request = Request::new(message);
    for (name, value) in headers {
        request.metadata_mut().insert(*name, value.parse()?);
    }
    Ok(request)
}

async fn check(
    channel: &Channel,
    headers: &[(&'static str, &str)],
) -> Result<Result<MetadataMap, Status>> {
    let mut client = AuthorizationClient::new(channel.clone());
    let answer = client
        .check(request(CheckRequest::default(), headers)?)
        .await;
    Ok(answer.map(|answer| answer.metadata().clone()))
}

async fn limit(channel: &Channel) -> Result<Result<MetadataMap, Status>> {
    let mut client = RateLimitServiceClient::new(channel.clone());
    let answer = client
        .should_rate_limit(request(RateLimitRequest::default(), &[])?)
        .await;
    Ok(answer.map(|answer| answer.metadata().clone()))
}

fn said(metadata: &MetadataMap, name: &str) -> Option<String> {
    Some(metadata.get(name)?.to_str().ok()?.to_owned())
}

fn by(answer: Result<MetadataMap, Status>) -> Result<String> {
    said(&answer?, SERVED_BY).context("a backend of gRPC says whose the answer is")
}

/// A Gateway for plain HTTP with two backends for gRPC and one for HTTP.
async fn world(port: u16, more: Vec<Change>) -> Result<(World, [Grpc; 2], Echo)> {
    let backends = [Grpc::start("one").await?, Grpc::start("two").await?];
    let echo = Echo::start("web").await?;
    let listeners = json!([{"name": "http", "port": port, "protocol": "HTTP"}]);
    let mut changes = vec![class(), edge(listeners)];
    for (name, address) in [
        ("one", backends[0].address()),
        ("two", backends[1].address()),
        ("web", echo.address()),
    ] {
        changes.extend(service(name, address));
    }
    changes.extend(more);
    Ok((World::start(changes).await?, backends, echo))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn calls_go_by_method_and_header_beside_http() -> Result<()> {
    let port = free_port()?;
    let methods = json!([
        {"matches": [{"method": {"service": AUTHORIZATION}}], "backendRefs": to("one")},
        {"matches": [{"method": {"service": AUTHORIZATION, "method": "Check"},
            "headers": [{"name": "x-canary", "value": "yes"}]}], "backendRefs": to("two")},
    ]);
    // The HTTPRoute matches every path of the hostname; longer matches and gRPC calls still take
    // precedence.
    let rest = json!([{"backendRefs": to("web")}]);
    let routes = vec![
        route("GRPCRoute", "methods", methods),
        route("HTTPRoute", "rest", rest),
    ];
    let (world, backends, _echo) = world(port, routes).await?;
    let channel = client(port).await?;
    assert_eq!(
        by(check(&channel, &[]).await?)?,
        "one",
        "{}",
        world.envoy.log()
    );
    assert_eq!(by(check(&channel, &[("x-canary", "yes")]).await?)?, "two");
    let path = format!("/{AUTHORIZATION}/Check");
    let plain = Probe::http(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), HOST)
        .path(&path)
        .send()
        .await?;
    assert_eq!(plain.status, 200);
    assert!(
        String::from_utf8_lossy(&plain.body).contains("\"web\""),
        "what is not gRPC is the HTTPRoute's"
    );
    assert_eq!(backends[0].calls(), 1, "the first backend has its call");
    assert_eq!(backends[1].calls(), 1, "the second backend has its call");

    // A call without a matching route is unimplemented (gRPC status 12), and one with a missing
    // backend unavailable.
    world
        .settle(vec![Change::delete(key("HTTPRoute", "rest"))])
        .await?;
    let unmatched = limit(&channel).await?.expect_err("no rule takes it");
    assert_eq!(unmatched.code(), Code::Unimplemented, "{unmatched:?}");
    let gone = json!([{"backendRefs": to("nowhere")}]);
    world
        .settle(vec![route("GRPCRoute", "methods", gone)])
        .await?;
    let invalid = limit(&channel)
        .await?
        .expect_err("its backend is not there");
    assert_eq!(invalid.code(), Code::Unavailable, "{invalid:?}");

    // A method of any service, and one by a regular expression.
    let patterns = json!([
        {"matches": [{"method": {"method": "ShouldRateLimit"}}], "backendRefs": to("two")},
        {"matches": [{"method": {"type": "RegularExpression", "service": "envoy[.]service[.]auth.*|x", "method": "C.*"}}],
            "backendRefs": to("one")},
    ]);
    world
        .settle(vec![route("GRPCRoute", "methods", patterns)])
        .await?;
    assert_eq!(by(limit(&channel).await?)?, "two");
    assert_eq!(by(check(&channel, &[]).await?)?, "one");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn filters_mirrors_and_weights_are_those_of_http() -> Result<()> {
    let port = free_port()?;
    let set = |value: &str| json!({"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": SENT, "value": value}]}});
    let mirror = json!({"type": "RequestMirror", "requestMirror": {"backendRef": {"name": "two", "port": 80}}});
    let answer = json!({"type": "ResponseHeaderModifier", "responseHeaderModifier": {"add": [{"name": "x-edge", "value": "yes"}]}});
    let rules = json!([{"matches": [{"method": {"service": RATE_LIMIT}}], "filters": [set("rule"), mirror, answer],
        "backendRefs": [{"name": "one", "port": 80}]}]);
    let (world, backends, _echo) = world(port, vec![route("GRPCRoute", "filters", rules)]).await?;
    let channel = client(port).await?;
    let told = limit(&channel).await??;
    assert_eq!(
        said(&told, SERVED_BY).as_deref(),
        Some("one"),
        "{}",
        world.envoy.log()
    );
    assert_eq!(
        said(&told, SENT).as_deref(),
        Some("rule"),
        "the filter of the rule applies"
    );
    assert_eq!(
        said(&told, "x-edge").as_deref(),
        Some("yes"),
        "the header of the answer is set"
    );
    let deadline = Instant::now() + Duration::from_secs(30);
    while backends[1].calls() == 0 {
        ensure!(Instant::now() < deadline, "no copy came");
        sleep(Duration::from_millis(10)).await;
    }

    let shares = json!([{"backendRefs": [{"name": "one", "port": 80, "weight": 0},
        {"name": "two", "port": 80, "weight": 3, "filters": [set("share")]}]}]);
    world
        .settle(vec![route("GRPCRoute", "filters", shares)])
        .await?;
    for _ in 0..10 {
        let told = limit(&channel).await??;
        assert_eq!(
            said(&told, SERVED_BY).as_deref(),
            Some("two"),
            "the weighted backend answers"
        );
        assert_eq!(
            said(&told, SENT).as_deref(),
            Some("share"),
            "the filter of the share applies"
        );
    }
    Ok(())
}

/// A policy of a kind on the route.
fn policy(kind: &str, mut spec: Value) -> Change {
    spec["targetRefs"] =
        json!([{"group": "gateway.networking.k8s.io", "kind": "GRPCRoute", "name": "calls"}]);
    gatewright(kind, "limits", spec)
}

/// Clients of gRPC do not read statuses of HTTP: whatever a policy refuses has a status of theirs.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn what_policies_refuse_is_told_as_a_status_of_grpc() -> Result<()> {
    let port = free_port()?;
    let calls = json!([{"backendRefs": to("one")}]);
    let users = json!({"apiVersion": "v1", "kind": "Secret", "type": "gatewright.io/htpasswd",
        "metadata": {"namespace": "default", "name": "users"},
        "stringData": {".htpasswd": "alice:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ="}});
    let more = vec![route("GRPCRoute", "calls", calls), object(users)];
    let (world, backends, _echo) = world(port, more).await?;
    let channel = client(port).await?;
    ensure!(by(check(&channel, &[]).await?)? == "one", "no policy yet");
    let keys = json!({"keys": [{"kty": "EC", "crv": "P-256",
        "x": "axfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpY",
        "y": "T-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU"}]});
    let login = json!({"clientID": "calls", "clientSecret": {"name": "nowhere"},
        "redirectURL": format!("https://{HOST}/callback"),
        "provider": {"issuer": "https://id.example.org",
            "authorizationEndpoint": "https://id.example.org/authorize",
            "tokenEndpoint": "https://id.example.org/token", "backendRef": {"name": "one", "port": 80}}});
    let refused = [
        (
            json!({"basicAuth": {"users": {"name": "users"}}}),
            Code::Unauthenticated,
        ),
        (
            json!({"jwt": {"issuer": "https://id.example.org", "jwks": {"inline": keys.to_string()}}}),
            Code::Unauthenticated,
        ),
        (
            json!({"clientAddress": {"deny": ["127.0.0.0/8"]}}),
            Code::PermissionDenied,
        ),
        // It is closed, since its Secrets are not there.
        (json!({"oidc": login}), Code::Unknown),
    ];
    for (spec, code) in refused {
        let field = spec.to_string();
        world.settle(vec![policy("AccessPolicy", spec)]).await?;
        let status = check(&channel, &[]).await?.expect_err("it is refused");
        ensure!(status.code() == code, "{field}: {status:?}");
    }
    world
        .settle(vec![Change::delete(key("AccessPolicy", "limits"))])
        .await?;
    let once = json!({"rateLimit": [{"limit": {"requests": 1, "per": "Hour"}, "by": {"type": "ClientAddress"}}]});
    world.settle(vec![policy("TrafficPolicy", once)]).await?;
    ensure!(by(check(&channel, &[]).await?)? == "one", "the first one");
    let status = check(&channel, &[]).await?.expect_err("the second one");
    ensure!(status.code() == Code::ResourceExhausted, "{status:?}");
    ensure!(backends[0].calls() == 2, "refused calls reach no backend");
    Ok(())
}

fn key(kind: &str, name: &str) -> gatewright_core::inputs::ObjectKey {
    use gatewright_core::inputs::{Kind, ObjectKey};
    let kind = *Kind::READ
        .iter()
        .find(|known| known.as_str() == kind)
        .expect("a kind that is parsed");
    ObjectKey::new(
        kind,
        gatewright_core::model::ObjectName::new("default", name),
    )
}
