//! `explain` of the program with a directory and a real Envoy: authorization servers, and
//! preflights.

use e2e::private_dir::private_dir;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result, ensure};
use e2e::auth::AuthServer;
use e2e::echo::Echo;
use e2e::gatewright::Gatewright;
use e2e::grpc::Grpc;
use e2e::probe::Probe;
use e2e_inside::served::PATIENCE;
use e2e_inside::world::free_port;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;

const HOST: &str = "guarded.example.org";

struct Site {
    program: Gatewright,
    manifests: TempDir,
    state: TempDir,
    port: u16,
    echo: Echo,
}

fn object(api: &str, kind: &str, name: &str, body: Value) -> Value {
    let mut object = json!({"apiVersion": api, "kind": kind, "metadata": {"name": name}});
    object
        .as_object_mut()
        .expect("an object")
        .extend(body.as_object().expect("fields").clone());
    object
}

fn gateway_api(kind: &str, name: &str, spec: Value) -> Value {
    object(
        "gateway.networking.k8s.io/v1",
        kind,
        name,
        json!({"spec": spec}),
    )
}

/// A Service with an endpoint, or without any.
fn service(name: &str, address: Option<SocketAddr>) -> [Value; 2] {
    let endpoints = address.map(|address| json!({"addresses": [address.ip()]}));
    let port = address.map_or(1, |address| address.port());
    let mut slice = object(
        "discovery.k8s.io/v1",
        "EndpointSlice",
        name,
        json!({"addressType": "IPv4", "endpoints": endpoints.into_iter().collect::<Vec<_>>(), "ports": [{"port": port}]}),
    );
    slice["metadata"]["labels"] = json!({"kubernetes.io/service-name": name});
    [
        object(
            "v1",
            "Service",
            name,
            json!({"spec": {"ports": [{"port": 80}]}}),
        ),
        slice,
    ]
}

impl Site {
    async fn start() -> Result<Self> {
        let port = free_port()?;
        let echo = Echo::start("web").await?;
        let manifests = tempfile::tempdir()?;
        let state = private_dir()?;
        let channel = ["--set", "gatewayApi.channel=Experimental"];
        let program = Gatewright::standalone(manifests.path(), state.path(), &channel)?;
        Ok(Self {
            program,
            manifests,
            state,
            port,
            echo,
        })
    }

    /// Serves these rules, with an authorization server at an address, and waits until a path is
    /// answered so.
    async fn serve(
        &self,
        rules: Value,
        guard: Option<SocketAddr>,
        path: &str,
        status: u16,
    ) -> Result<()> {
        let listeners = json!([{"name": "http", "port": self.port, "protocol": "HTTP"}]);
        let mut all = vec![
            gateway_api(
                "GatewayClass",
                "ours",
                json!({"controllerName": "gatewright.io/gateway-controller"}),
            ),
            gateway_api(
                "Gateway",
                "edge",
                json!({"gatewayClassName": "ours", "listeners": listeners}),
            ),
            gateway_api(
                "HTTPRoute",
                "app",
                json!({"parentRefs": [{"name": "edge"}], "hostnames": [HOST], "rules": rules}),
            ),
        ];
        all.extend(service("web", Some(self.echo.address())));
        all.extend(service("guard", guard));
        let text: Vec<String> = all.iter().map(Value::to_string).collect();
        let new = self.manifests.path().join(".all.yaml.new");
        fs::write(&new, text.join("\n---\n"))?;
        fs::rename(new, self.manifests.path().join("all.yaml"))?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let probe = Probe::http(address, HOST).path(path);
        let answer = probe.until(status, PATIENCE).await;
        answer.with_context(|| self.program.output()).map(drop)
    }

    fn explain(&self, path: &str, more: &[&str]) -> Result<(bool, String)> {
        let private = self.state.path().display().to_string();
        let url = format!("http://{HOST}:{}{path}", self.port);
        let output =
            Gatewright::run(&[&["explain", &url, "--state-dir", &private], more].concat())?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        Ok((output.status.code().context("it was killed")? == 0, text))
    }
}

/// Rules with a filter of this protocol behind `path`, which is new each time so that its answer is
/// of this version.
fn guarded(path: &str, protocol: &str) -> Value {
    let mut filter = json!({"protocol": protocol, "backendRef": {"name": "guard", "port": 80}});
    if protocol == "HTTP" {
        filter["http"] = json!({"path": "/check"});
    }
    json!([{"matches": [{"path": {"value": path}}], "filters": [{"type": "ExternalAuth", "externalAuth": filter}],
        "backendRefs": [{"name": "web", "port": 80}]}])
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn an_authorization_server_without_an_answer_is_named() -> Result<()> {
    let site = Site::start().await?;
    let good = AuthServer::start().await?;
    let rpc = Grpc::start("guard").await?;
    let refusing = TcpListener::bind("127.0.0.1:0").await?.local_addr()?;
    let silent = TcpListener::bind("127.0.0.1:0").await?;
    for (path, protocol, guard, expected) in [
        ("/none", "HTTP", None, "no endpoint"),
        ("/refused", "HTTP", Some(refusing), "refused"),
        (
            "/silent",
            "HTTP",
            Some(silent.local_addr()?),
            "no answer within 5 seconds",
        ),
        (
            "/grpc-asked-by-http",
            "HTTP",
            Some(rpc.address()),
            "gives no answer",
        ),
        (
            "/http-asked-by-grpc",
            "GRPC",
            Some(silent.local_addr()?),
            "no answer within 5 seconds",
        ),
        (
            "/no-such-service",
            "GRPC",
            Some(site.echo.address()),
            "gives no answer",
        ),
        ("/refused-grpc", "GRPC", Some(refusing), "refused"),
    ] {
        site.serve(guarded(path, protocol), guard, path, 403)
            .await?;
        let (ok, text) = site.explain(path, &[])?;
        assert!(!ok, "{path}: {text}");
        let last = text.lines().last().unwrap_or_default();
        assert!(
            last.starts_with("FAILS") && last.contains("default/guard:80"),
            "{path}: {text}"
        );
        assert!(text.contains(expected), "{path}: {text}");
    }
    for (path, protocol, guard, status) in [
        ("/http", "HTTP", good.address(), 401),
        ("/grpc", "GRPC", rpc.address(), 200),
    ] {
        site.serve(guarded(path, protocol), Some(guard), path, status)
            .await?;
        let (ok, text) = site.explain(path, &[])?;
        assert!(
            ok && text.contains("and answers") && text.contains("endpoints"),
            "{path}: {text}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_server_of_keys_without_an_endpoint_is_named() -> Result<()> {
    let site = Site::start().await?;
    let target = json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "app"});
    let keys = json!({"uri": "https://id.example.org/keys",
        "backendRef": {"name": "guard", "port": 80}});
    let jwt = json!({"issuer": "https://id.example.org", "jwks": {"remote": keys}});
    let policy = object(
        "gatewright.io/v1alpha1",
        "AccessPolicy",
        "people",
        json!({"spec": {"targetRefs": [target], "jwt": jwt}}),
    );
    fs::write(
        site.manifests.path().join("policy.yaml"),
        policy.to_string(),
    )?;
    let to = |path: &str| json!([{"matches": [{"path": {"value": path}}], "backendRefs": [{"name": "web", "port": 80}]}]);
    site.serve(to("/none"), None, "/none", 401).await?;
    let (ok, text) = site.explain("/none", &[])?;
    let told = "Service default/guard:80 has no endpoint";
    ensure!(!ok && text.contains(told), "{text}");
    let server = Some(site.echo.address());
    site.serve(to("/some"), server, "/some", 401).await?;
    let (ok, text) = site.explain("/some", &[])?;
    let told = "Service default/guard:80 has endpoints (1)";
    ensure!(ok && text.contains(told), "{text}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_preflight_is_explained_by_the_rule_that_answers_it() -> Result<()> {
    let site = Site::start().await?;
    let cors = json!([{"type": "CORS", "cors": {"allowOrigins": ["https://a.example"]}}]);
    let rules = json!([{"name": "ours", "matches": [{"path": {"value": "/cors"}, "method": "GET"}], "filters": cors,
        "backendRefs": [{"name": "web", "port": 80}]}]);
    site.serve(rules, None, "/cors", 200).await?;
    let (ok, text) = site.explain("/cors", &["--method", "OPTIONS"])?;
    assert!(
        ok && text.contains("answered by filter CORS of httproute/default/app/ours"),
        "{text}"
    );
    let (ok, text) = site.explain("/other", &["--method", "OPTIONS"])?;
    assert!(!ok && text.contains("matches no rule"), "{text}");
    Ok(())
}

/// Headers of a request.
type Headers = &'static [(&'static str, &'static str)];

/// Requests that meet conditions on headers and queries, and such that do not, in ways in which a
/// proxy may read them otherwise.
const REQUESTS: [(&str, Headers); 16] = [
    ("/header", &[("x-canary", "1")]),
    ("/header", &[("x-canary", " 1 ")]),
    ("/header", &[("x-canary", "2")]),
    ("/header", &[("x-canary", "1"), ("x-canary", "2")]),
    ("/header", &[("x-canary", "2"), ("x-canary", "1")]),
    ("/header", &[("x-canary", "1,1")]),
    ("/header", &[("x-other", "1")]),
    ("/regex", &[("x-version", "v12")]),
    ("/regex", &[("x-version", "v12b")]),
    ("/query?beta=1", &[("x-other", "1")]),
    ("/query?a=b&beta=1&beta=2", &[("x-other", "1")]),
    ("/query?beta=2&beta=1", &[("x-other", "1")]),
    ("/query?beta=%31", &[("x-other", "1")]),
    ("/query?Beta=1", &[("x-other", "1")]),
    ("/query?beta", &[("x-other", "1")]),
    ("/query", &[("x-other", "1")]),
];

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn conditions_of_a_known_request_are_judged_as_envoy_judges_them() -> Result<()> {
    let site = Site::start().await?;
    let backend = json!([{"name": "web", "port": 80}]);
    let matches = json!([
        {"path": {"value": "/header"}, "headers": [{"name": "X-Canary", "value": "1"}]},
        {"path": {"value": "/regex"},
            "headers": [{"name": "X-Version", "type": "RegularExpression", "value": "v[0-9]+"}]},
        {"path": {"value": "/query"}, "queryParams": [{"name": "beta", "value": "1"}]},
        {"path": {"value": "/ready"}},
    ]);
    let rules = json!([{"matches": matches, "backendRefs": backend}]);
    site.serve(rules, None, "/ready", 200).await?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, site.port));
    for (path, headers) in REQUESTS {
        let mut probe = Probe::http(address, HOST).path(path);
        let mut options = Vec::new();
        for (name, value) in headers {
            probe = probe.header(name, value);
            options.push(format!("--header={name}:{value}"));
        }
        let status = probe.send().await?.status;
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let (ok, text) = site.explain(path, &options)?;
        assert_eq!(ok, status == 200, "{path} {headers:?}: {status}\n{text}");
    }
    let (ok, text) = site.explain("/header", &[])?;
    assert!(
        ok && text.contains("if its header conditions hold"),
        "{text}"
    );
    let (ok, text) = site.explain("/ready", &["--header", "no colon"])?;
    assert!(!ok && text.contains("expected NAME:VALUE"), "{text}");
    Ok(())
}
