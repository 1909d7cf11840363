//! CORS (GEP-1767) on a real Envoy: preflights of rules with any kind of match, and origins.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Result, ensure};
use e2e::echo::Echo;
use e2e::probe::{Answer, Probe};
use e2e_inside::world::{World, class, edge, edge_route, free_port, service};
use hyper::Method;
use serde_json::{Value, json};

const HOST: &str = "cors.example.org";
const ORIGIN: &str = "https://www.site.example";

/// A Gateway with these rules before the backend `web`.
struct Site {
    world: World,
    echo: Echo,
    port: u16,
}

impl Site {
    async fn start(rules: Value) -> Result<Self> {
        let port = free_port()?;
        let echo = Echo::start("web").await?;
        let listeners = json!([{"name": "http", "port": port, "protocol": "HTTP"}]);
        let mut changes = vec![class(), edge(listeners), edge_route("app", HOST, rules)];
        changes.extend(service("web", echo.address()));
        Ok(Self {
            world: World::start(changes).await?,
            echo,
            port,
        })
    }

    fn get(&self, path: &str) -> Probe {
        Probe::http(SocketAddr::from((Ipv4Addr::LOCALHOST, self.port)), HOST).path(path)
    }

    /// A preflight that asks for a request of this method.
    fn preflight(&self, path: &str, method: &str) -> Probe {
        self.from(ORIGIN, path, method)
    }

    fn from(&self, origin: &str, path: &str, method: &str) -> Probe {
        let options = self.get(path).method(Method::OPTIONS);
        options
            .header("origin", origin)
            .header("access-control-request-method", method)
    }

    /// Sends a preflight that is answered and not forwarded; returns the allowed methods.
    async fn methods(&self, preflight: Probe) -> Result<Option<String>> {
        let before = self.echo.requests();
        let answer = preflight.send().await?;
        ensure!(
            answer.status == 200,
            "{preflight:?}: {}\n{}",
            answer.status,
            self.world.envoy.log()
        );
        ensure!(
            self.echo.requests() == before,
            "{preflight:?} reached the backend"
        );
        Ok(header(&answer, "access-control-allow-methods"))
    }

    /// Sends a request, and returns the status, and whether a backend got it.
    async fn forwarded(&self, probe: Probe) -> Result<(u16, bool)> {
        let before = self.echo.requests();
        let answer = probe.send().await?;
        Ok((answer.status, self.echo.requests() > before))
    }
}

fn header(answer: &Answer, name: &str) -> Option<String> {
    Some(answer.headers.get(name)?.to_str().ok()?.to_owned())
}

/// The filter, which its methods tell from others.
fn filter(methods: &[&str]) -> Value {
    json!([{"type": "CORS", "cors": {"allowOrigins": [ORIGIN], "allowMethods": methods}}])
}

fn rule(matches: Value, filters: Value) -> Value {
    json!({"matches": [matches], "filters": filters, "backendRefs": [{"name": "web", "port": 80}]})
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_preflight_is_answered_whatever_a_rule_matches() -> Result<()> {
    let path = |path: &str| json!({"value": path});
    let with_header = |name: &str| json!([{"name": name, "value": "1"}]);
    let redirect = json!([{"type": "RequestRedirect", "requestRedirect": {"scheme": "https"}},
        {"type": "CORS", "cors": {"allowOrigins": [ORIGIN], "allowMethods": ["GET"]}}]);
    let site = Site::start(json!([
        rule(json!({"path": path("/method"), "method": "GET"}), filter(&["GET"])),
        rule(json!({"path": path("/method"), "method": "PUT"}), filter(&["PUT"])),
        rule(json!({"path": path("/method"), "method": "DELETE"}), json!([])),
        rule(json!({"path": path("/both"), "method": "GET"}), filter(&["GET"])),
        rule(json!({"path": path("/both")}), json!([])),
        rule(json!({"path": path("/header"), "headers": with_header("x-tenant")}), filter(&["GET"])),
        rule(json!({"path": path("/header")}), json!([])),
        rule(json!({"path": path("/two"), "headers": with_header("x-tenant")}), filter(&["GET"])),
        rule(json!({"path": path("/two")}), filter(&["PUT"])),
        rule(json!({"path": path("/cookie"), "headers": with_header("cookie")}), filter(&["GET"])),
        rule(json!({"path": path("/query"), "queryParams": with_header("a")}), filter(&["GET"])),
        rule(json!({"path": path("/all"), "method": "POST", "headers": with_header("x-a"),
            "queryParams": with_header("b")}), filter(&["POST"])),
        {"matches": [{"path": path("/redirect")}], "filters": redirect},
        {"matches": [{"path": path("/nobody")}], "filters": filter(&["GET"])},
        rule(json!({"path": path("/plain")}), json!([])),
    ]))
    .await?;
    for (path, method, headers, expected) in [
        ("/method", "GET", "", "GET"),
        ("/method", "PUT", "", "PUT"),
        ("/both", "GET", "", "GET"),
        ("/header", "PATCH", "", "GET"),
        ("/header", "PATCH", "content-type,x-tenant", "GET"),
        ("/two", "PATCH", "x-tenant", "GET"),
        ("/two", "PATCH", "X-Other, X-Tenant", "GET"),
        ("/two", "PATCH", "x-tenant-two", "PUT"),
        ("/two", "PATCH", "", "PUT"),
        ("/cookie", "GET", "", "GET"),
        ("/query?a=1", "GET", "", "GET"),
        ("/all?b=1", "POST", "x-a", "POST"),
        ("/all?b=1", "POST", "", "POST"),
        ("/redirect", "GET", "", "GET"),
        ("/nobody", "GET", "", "GET"),
    ] {
        let preflight = site.preflight(path, method);
        let preflight = if headers.is_empty() {
            preflight
        } else {
            preflight.header("access-control-request-headers", headers)
        };
        assert_eq!(
            site.methods(preflight).await?.as_deref(),
            Some(expected),
            "{path} {method} {headers}"
        );
    }

    // Requests match as strictly as before, and OPTIONS reaches backends where no rule with the
    // filter matches.
    let options = |path: &str| site.get(path).method(Method::OPTIONS);
    for (probe, expected) in [
        (site.get("/method").method(Method::POST), (404, false)),
        (site.get("/method"), (200, true)),
        (site.get("/cookie"), (404, false)),
        (site.get("/query"), (404, false)),
        (site.get("/all?b=1").method(Method::POST), (404, false)),
        (options("/method"), (404, false)),
        (options("/method").header("origin", ORIGIN), (404, false)),
        (site.preflight("/method", "DELETE"), (404, false)),
        (site.preflight("/query", "GET"), (404, false)),
        (site.preflight("/both", "PUT"), (200, true)),
        (options("/both"), (200, true)),
        (site.preflight("/plain", "GET"), (200, true)),
    ] {
        assert_eq!(site.forwarded(probe.clone()).await?, expected, "{probe:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn origins_are_compared_as_origins_and_strangers_are_told_nothing() -> Result<()> {
    let cors = |origins: &[&str]| {
        json!([{"type": "CORS", "cors": {"allowOrigins": origins, "allowMethods": ["GET"], "allowHeaders": ["x-a"],
            "allowCredentials": true, "exposeHeaders": ["*", "x-b"]}}])
    };
    let at = |path: &str, origins: &[&str]| rule(json!({"path": {"value": path}}), cors(origins));
    let site = Site::start(json!([
        at("/wild", &["https://*.dom.example"]),
        at("/port", &["https://*.dom.example:8443"]),
        at(
            "/exact",
            &[
                "https://a.example:443",
                "http://b.example",
                "https://c.example:8443"
            ]
        ),
        at("/star", &["*"]),
        rule(
            json!({"path": {"value": "/match"}, "method": "GET"}),
            cors(&["https://a.example"])
        ),
    ]))
    .await?;
    for (path, origin, expected) in [
        ("/wild", "https://x.dom.example", true),
        ("/wild", "https://x.y.dom.example:443", true),
        ("/wild", "https://X.Dom.example", true),
        ("/wild", "https://x.dom.example:9443", false),
        ("/wild", "http://x.dom.example", false),
        ("/wild", "https://dom.example", false),
        ("/port", "https://x.dom.example:8443", true),
        ("/port", "https://x.dom.example", false),
        ("/exact", "https://a.example", true),
        ("/exact", "https://a.example:443", true),
        ("/exact", "http://b.example:80", true),
        ("/exact", "http://b.example:443", false),
        ("/exact", "https://c.example:8443", true),
        ("/exact", "https://c.example", false),
        ("/exact", "https://evil.example", false),
        ("/star", "https://evil.example", true),
        ("/match", "https://a.example", true),
        ("/match", "https://evil.example", false),
    ] {
        let own = |answer: &Answer| {
            let names = answer.headers.keys().map(ToString::to_string);
            names
                .filter(|name| name.starts_with("access-control-"))
                .collect::<Vec<_>>()
        };
        let before = site.echo.requests();
        let preflight = site.from(origin, path, "GET").send().await?;
        assert_eq!(preflight.status, 200, "{path} {origin}");
        assert_eq!(site.echo.requests(), before, "{path} {origin}");
        let request = site.get(path).header("origin", origin).send().await?;
        assert_eq!(request.status, 200, "{path} {origin}");
        for answer in [preflight, request] {
            let allowed = header(&answer, "access-control-allow-origin");
            assert_eq!(
                allowed.as_deref(),
                Some(origin).filter(|_| expected),
                "{path} {origin}"
            );
            assert_eq!(
                own(&answer).is_empty(),
                !expected,
                "{path} {origin}: {:?}",
                answer.headers
            );
            let star = answer.headers.values().any(|value| value == "*");
            assert!(!star, "{path} {origin}: {:?}", answer.headers);
        }
    }
    let exposed = site
        .get("/wild")
        .header("origin", "https://x.dom.example")
        .send()
        .await?;
    assert_eq!(
        header(&exposed, "access-control-expose-headers").as_deref(),
        Some("x-b")
    );
    Ok(())
}
