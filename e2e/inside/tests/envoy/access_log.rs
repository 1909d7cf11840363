//! Access logs of a real Envoy: which requests have a line, what is in it, and what no client can
//! write into it.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result};
use e2e::echo::Echo;
use e2e::held::Held;
use e2e::probe::Probe;
use e2e_inside::world::{World, api, class, edge_route, free_port, object, secret, service};
use gatewright_core::request_outcome::{Evidence, outcome};
use gatewright_core::translate::Change;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

const HOST: &str = "app.example.org";
/// Envoy writes its lines at least every ten seconds.
const WRITTEN: Duration = Duration::from_secs(30);

/// A site on a port for HTTP and one for HTTPS, and the backend that answers.
struct Site {
    http: u16,
    https: u16,
    web: Echo,
    _held: Held,
}

impl Site {
    async fn new() -> Result<Self> {
        Ok(Self {
            http: free_port()?,
            https: free_port()?,
            web: Echo::start("web").await?,
            _held: Held::start().await?,
        })
    }

    fn objects(&self, log: Value) -> Result<Vec<Change>> {
        let tls = json!({"certificateRefs": [{"name": "app"}]});
        let listeners = json!([
            {"name": "http", "port": self.http, "protocol": "HTTP", "hostname": "*.example.org",
                "allowedRoutes": {"namespaces": {"from": "All"}}},
            {"name": "app", "port": self.https, "protocol": "HTTPS", "hostname": HOST, "tls": tls,
                "allowedRoutes": {"namespaces": {"from": "All"}}},
            {"name": "two", "port": self.https, "protocol": "HTTPS", "hostname": "two.example.org", "tls": tls},
        ]);
        let parameters = json!({"parametersRef": {"group": "gatewright.io", "kind": "GatewayParameters", "name": "logged"}});
        let refusing = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let to = |path: &str, name: &str| json!({"matches": [{"path": {"value": path}}], "backendRefs": [{"name": name, "port": 80}]});
        let mut slow = to("/slow", "held");
        slow["timeouts"] = json!({"request": "300ms"});
        let sorry = json!({"type": "ExtensionRef",
            "extensionRef": {"group": "gatewright.io", "kind": "DirectResponse", "name": "sorry"}});
        let rules = json!([
            to("/ok", "web"),
            slow,
            to("/refused", "refusing"),
            to("/empty", "empty"),
            to("/missing", "missing"),
            to("/status", "web"),
            json!({"matches": [{"path": {"value": "/sorry"}}], "filters": [sorry]}),
        ]);
        let maintenance = object(
            json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "DirectResponse",
            "metadata": {"namespace": "default", "name": "sorry"}, "spec": {"statusCode": 503}}),
        );
        let of_blue = |kind: &str, version: &str, name: &str, spec: Value| {
            object(
                json!({"apiVersion": version, "kind": kind, "metadata": {"namespace": "default", "name": name}, "spec": spec}),
            )
        };
        let empty = of_blue("Service", "v1", "empty", json!({"ports": [{"port": 80}]}));
        let mut all = vec![
            class(),
            secret("app", "*.example.org")?,
            parameters_of(log),
            api(
                "Gateway",
                "edge",
                json!({"gatewayClassName": "ours", "listeners": listeners, "infrastructure": parameters}),
            ),
            edge_route("app", HOST, rules),
            empty,
            maintenance,
        ];
        all.extend(service("web", self.web.address()));
        all.extend(service("held", self._held.address()));
        all.extend(service("refusing", refusing));
        Ok(all)
    }

    fn to(&self, host: &str, path: &str) -> Probe {
        Probe::http(SocketAddr::from((Ipv4Addr::LOCALHOST, self.http)), host).path(path)
    }

    fn over_tls(&self, host: &str) -> Probe {
        Probe::https(SocketAddr::from((Ipv4Addr::LOCALHOST, self.https)), host).alpn(&["h2"])
    }
}

fn parameters_of(log: Value) -> Change {
    object(
        json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
        "metadata": {"namespace": "default", "name": "logged"}, "spec": {"accessLog": log}}),
    )
}

/// The reason that a line has by the table.
fn reason(line: &Value) -> Option<&'static str> {
    let evidence = Evidence {
        status: u16::try_from(line["status"].as_u64()?).ok()?,
        details: line["details"].as_str()?,
        route: line["route"].as_str().unwrap_or_default(),
        has_host: line["hostname"].is_string(),
    };
    outcome(&evidence).map(|outcome| outcome.reason)
}

/// Waits until a line is written that has this path, and returns all lines.
async fn lines_until(world: &World, path: &str) -> Result<Vec<Value>> {
    let deadline = Instant::now() + WRITTEN;
    loop {
        let found = world.access_log();
        if found.iter().any(|line| line["path"] == path) {
            return Ok(found);
        }
        anyhow::ensure!(
            Instant::now() < deadline,
            "no line with path {path} in {found:#?}\n{}",
            world.envoy.log()
        );
        sleep(Duration::from_millis(100)).await;
    }
}

fn line<'a>(lines: &'a [Value], path: &str) -> Result<&'a Value> {
    let mut found = lines.iter().filter(|line| line["path"] == path);
    let line = found.next().with_context(|| format!("no line of {path}"))?;
    anyhow::ensure!(found.next().is_none(), "two lines of {path}");
    Ok(line)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn each_error_has_a_line_that_says_why() -> Result<()> {
    let site = Site::new().await?;
    let world = World::start(site.objects(json!({}))?).await?;
    for (host, path, status) in [
        (HOST, "/ok", 200),
        (HOST, "/status/404", 404),
        (HOST, "/status/503?token=secret", 503),
        ("other.test", "/no-host", 404),
        (HOST, "/no-route?token=secret", 404),
        (HOST, "/slow", 504),
        (HOST, "/refused", 503),
        (HOST, "/empty", 503),
        (HOST, "/missing", 500),
        (HOST, "/sorry", 503),
    ] {
        let answer = site.to(host, path).send().await?;
        assert_eq!(answer.status, status, "{path}\n{}", world.envoy.log());
    }
    let mut connection = site.over_tls(HOST).connect().await?;
    let strayed = site.over_tls("two.example.org").path("/strayed");
    assert_eq!(connection.ask(&strayed).await?.status, 421, "misdirected");
    let many = "x".repeat(70_000);
    let large = site.to(HOST, "/large").header("x-large", &many);
    assert_eq!(large.send().await?.status, 431, "headers too large");
    let last = site.over_tls(HOST).path("/last").send().await?;
    assert_eq!(last.status, 404, "no route, over TLS");
    let found = lines_until(&world, "/last").await?;
    for (path, status, expected, route) in [
        ("/no-host", 404, "NoHost", None),
        ("/slow", 504, "TimedOut", Some("httproute/default/app/1")),
        (
            "/refused",
            503,
            "BackendRefused",
            Some("httproute/default/app/2"),
        ),
        (
            "/empty",
            503,
            "NoEndpoints",
            Some("httproute/default/app/3"),
        ),
        (
            "/missing",
            500,
            "BrokenRule",
            Some("httproute/default/app/4"),
        ),
        (
            "/sorry",
            503,
            "DirectResponse",
            Some("httproute/default/app/6/direct-response"),
        ),
        ("/strayed", 421, "Misdirected", Some("misdirected")),
        ("/last", 404, "NoRoute", Some("no-route")),
    ] {
        let line = line(&found, path)?;
        assert_eq!(line["status"], status, "{line:#}");
        assert_eq!(reason(line), Some(expected), "{line:#}");
        assert_eq!(line["route"].as_str(), route, "{line:#}");
    }
    let unmatched = line(&found, "/no-route")?;
    assert_eq!(reason(unmatched), Some("NoRoute"), "{unmatched:#}");
    assert_eq!(unmatched["hostname"], HOST, "{unmatched:#}");
    assert_eq!(unmatched["gateway"], "default/edge", "{unmatched:#}");
    assert_eq!(unmatched["listener"], "http", "{unmatched:#}");
    assert_eq!(unmatched["namespace"], "default", "{unmatched:#}");
    assert_eq!(unmatched["port"], format!("default/edge:{}", site.http));
    let refused = line(&found, "/refused")?;
    assert_eq!(refused["backend"], "default/refusing:80", "{refused:#}");
    assert!(
        refused["backend_address"]
            .as_str()
            .is_some_and(|address| address.starts_with("127.0.0.1:")),
        "{refused:#}"
    );
    let of_backend = line(&found, "/status/503")?;
    assert_eq!(of_backend["details"], "via_upstream", "{of_backend:#}");
    assert_eq!(reason(of_backend), None, "{of_backend:#}");
    let too_large = found
        .iter()
        .find(|line| line["status"] == 431)
        .context("the line of 431")?;
    assert_eq!(reason(too_large), Some("HeadersTooLarge"), "{too_large:#}");
    for path in ["/ok", "/status/404"] {
        assert!(line(&found, path).is_err(), "{path} is no error of ours");
    }
    assert!(
        !world.envoy.log().contains("token=secret"),
        "query strings are left out"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn no_client_writes_more_than_its_own_values() -> Result<()> {
    let site = Site::new().await?;
    let log = json!({"mode": "All", "query": "Keep", "requestHeaders": ["User-Agent", "x-absent"],
        "responseHeaders": ["content-type"]});
    let world = World::start(site.objects(log)?).await?;
    let forged = r#"curl","details":"forged","x":{"route":"httproute/blue/shop/0"#;
    let long = "y".repeat(3000);
    let sent = site
        .to(HOST, "/ok?%22,%22details%22:%22x")
        .header("user-agent", forged)
        .header("x-envoy-original-path", "/forged")
        .header("x-envoy-original-host", "forged.test")
        .header("x-gw-sni", "forged.test")
        .send()
        .await?;
    assert_eq!(sent.status, 200, "{}", world.envoy.log());
    let odd = site.to(r#"a"b,\c.example.org"#, "/odd").send().await?;
    assert!((400..500).contains(&odd.status), "{}", odd.status);
    let path = format!("/ok/{long}");
    assert_eq!(site.to(HOST, &path).send().await?.status, 200);
    assert_eq!(site.to(HOST, "/ok/last").send().await?.status, 200);
    let found = lines_until(&world, "/ok/last").await?;
    let first = found
        .iter()
        .find(|line| line["request_headers"]["user-agent"] == forged)
        .with_context(|| format!("{found:#?}"))?;
    assert_eq!(first["details"], "via_upstream", "{first:#}");
    assert_eq!(first["status"], 200, "{first:#}");
    assert_eq!(first["route"], "httproute/default/app/0", "{first:#}");
    assert_eq!(first["host"], HOST, "{first:#}");
    assert_eq!(first["path"], "/ok?%22,%22details%22:%22x", "{first:#}");
    assert_eq!(
        first["response_headers"]["content-type"], "application/json",
        "{first:#}"
    );
    assert!(
        first["request_headers"].get("x-absent").is_none(),
        "{first:#}"
    );
    let cut = found
        .iter()
        .find(|line| {
            line["path"]
                .as_str()
                .is_some_and(|path| path.starts_with("/ok/yyy"))
        })
        .context("the line of the long path")?;
    assert_eq!(
        cut["path"].as_str().map(str::len),
        Some(1024),
        "long values are cut"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_change_of_the_log_fails_no_request() -> Result<()> {
    let site = Site::new().await?;
    let world = World::start(site.objects(json!({"mode": "Off"}))?).await?;
    let probe = site.to(HOST, "/ok");
    let mut held = probe.connect().await?;
    assert_eq!(held.ask(&probe).await?.status, 200, "before");
    world
        .settle(vec![parameters_of(json!({"mode": "All"}))])
        .await?;
    let after = held.ask(&probe.clone().path("/ok/after")).await?;
    assert_eq!(after.status, 200, "on the connection from before");
    assert_eq!(site.to(HOST, "/ok/new").send().await?.status, 200, "anew");
    let found = lines_until(&world, "/ok/new").await?;
    let paths: Vec<&Value> = found.iter().map(|line| &line["path"]).collect();
    assert_eq!(
        paths,
        ["/ok/new"],
        "connections keep the log they began with"
    );
    Ok(())
}
