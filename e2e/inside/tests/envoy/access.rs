//! AccessPolicies on a real Envoy: who may send requests by the client's address, on plain HTTP and
//! over HTTP/2, and what becomes of a policy that cannot be carried out.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::echo::Echo;
use e2e::probe::{Answer, Probe};
use e2e_inside::world::{
    World, api, class, edge_route, free_port, gatewright, object, secret, service,
};
use gatewright_core::inputs::{Kind, ObjectKey};
use gatewright_core::model::ObjectName;
use gatewright_core::request_outcome::{Evidence, outcome};
use gatewright_core::translate::Change;
use hyper::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

pub(super) const HOST: &str = "shop.example.org";
pub(super) const OTHER: &str = "other.example.org";
/// Envoy writes its lines at least every ten seconds.
const WRITTEN: Duration = Duration::from_secs(30);

/// A site on a port for HTTP and one for HTTPS behind one proxy, whose word counts for the client.
pub(super) struct Site {
    pub(super) world: World,
    pub(super) http: u16,
    pub(super) https: u16,
    _web: Echo,
}

impl Site {
    /// Sends a request with these headers by each version of HTTP, and expects this status.
    pub(super) async fn each(
        &self,
        client: &str,
        (host, path): (&str, &str),
        headers: &[(&'static str, &str)],
        status: u16,
    ) -> Result<Vec<Answer>> {
        let mut answers = Vec::new();
        for probe in self.by(client, host, path) {
            let probe = headers
                .iter()
                .fold(probe, |probe, &(name, value)| probe.header(name, value));
            let answer = probe.answered(status).await;
            answers.push(answer.with_context(|| self.world.envoy.log())?);
        }
        Ok(answers)
    }

    pub(super) async fn start(policies: Vec<Change>) -> Result<Self> {
        let (http, https) = (free_port()?, free_port()?);
        let web = Echo::start("web").await?;
        let tls = json!({"certificateRefs": [{"name": "app"}]});
        let listeners = json!([
            {"name": "http", "port": http, "protocol": "HTTP", "hostname": "*.example.org"},
            {"name": "https", "port": https, "protocol": "HTTPS", "hostname": "*.example.org", "tls": tls},
        ]);
        let reference =
            json!({"group": "gatewright.io", "kind": "GatewayParameters", "name": "edge"});
        let backends = json!([{"name": "web", "port": 80}]);
        let cors = json!({"type": "CORS", "cors": {"allowOrigins": ["https://www.site.example"]}});
        let rules = json!([
            {"name": "admin", "matches": [{"path": {"value": "/admin"}}, {"path": {"value": "/root"}}], "backendRefs": backends,
                "filters": [cors]},
            {"backendRefs": backends},
        ]);
        let mut changes = vec![
            class(),
            secret("app", "*.example.org")?,
            parameters([http, https], "Omit"),
            api(
                "Gateway",
                "edge",
                json!({"gatewayClassName": "ours", "listeners": listeners,
                    "infrastructure": {"parametersRef": reference}}),
            ),
            edge_route("shop", HOST, rules),
            api(
                "HTTPRoute",
                "other",
                json!({"parentRefs": [{"name": "edge"}], "hostnames": [OTHER],
                    "rules": [{"backendRefs": backends}]}),
            ),
        ];
        changes.extend(service("web", web.address()));
        changes.extend(policies);
        Ok(Self {
            world: World::start(changes).await?,
            http,
            https,
            _web: web,
        })
    }

    /// Requests for a path of a host by a client at this address: on plain HTTP, there with the
    /// host in upper case, and over TLS by both versions of HTTP.
    pub(super) fn by(&self, client: &str, host: &str, path: &str) -> [Probe; 4] {
        let plain = SocketAddr::from((Ipv4Addr::LOCALHOST, self.http));
        let tls = SocketAddr::from((Ipv4Addr::LOCALHOST, self.https));
        [
            Probe::http(plain, host),
            Probe::http(plain, &host.to_ascii_uppercase()),
            Probe::https(tls, host).alpn(&["http/1.1"]),
            Probe::https(tls, host).alpn(&["h2"]),
        ]
        .map(|probe| probe.path(path).header("x-forwarded-for", client))
    }

    async fn expect(&self, client: &str, host: &str, path: &str, status: u16) -> Result<()> {
        for probe in self.by(client, host, path) {
            let answer = probe.send().await?;
            ensure!(
                answer.status == status,
                "{client} for {host}{path} was answered {}, not {status}: {probe:?}\n{}",
                answer.status,
                self.world.envoy.log()
            );
        }
        Ok(())
    }

    /// Waits until a request with this path is logged, and returns its reason by the table.
    pub(super) async fn reason(&self, path: &str) -> Result<Option<&'static str>> {
        let deadline = Instant::now() + WRITTEN;
        loop {
            let lines = self.world.access_log();
            if let Some(line) = lines.iter().find(|line| line["path"] == path) {
                return reason(line).with_context(|| format!("{line}"));
            }
            ensure!(
                Instant::now() < deadline,
                "no line with {path} in {lines:#?}"
            );
            sleep(Duration::from_millis(100)).await;
        }
    }
}

/// The GatewayParameters of a site with these ports, whose log has every request, with or without
/// queries.
pub(super) fn parameters(ports: [u16; 2], query: &str) -> Change {
    let clients = json!([{"ports": ports, "forwardedFor": {"hops": 1}}]);
    object(
        json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
        "metadata": {"namespace": "default", "name": "edge"},
        "spec": {"accessLog": {"mode": "All", "query": query}, "clients": clients}}),
    )
}

fn reason(line: &Value) -> Option<Option<&'static str>> {
    let evidence = Evidence {
        status: u16::try_from(line["status"].as_u64()?).ok()?,
        details: line["details"].as_str()?,
        route: line["route"].as_str().unwrap_or_default(),
        has_host: line["hostname"].is_string(),
    };
    Some(outcome(&evidence).map(|outcome| outcome.reason))
}

pub(super) fn policy(name: &str, target: Value, addresses: Value) -> Change {
    policy_with(name, target, json!({"clientAddress": addresses}))
}

/// A policy with this and its target in its `spec`.
pub(super) fn policy_with(name: &str, mut target: Value, mut spec: Value) -> Change {
    target["group"] = json!("gateway.networking.k8s.io");
    spec["targetRefs"] = json!([target]);
    gatewright("AccessPolicy", name, spec)
}

/// The same on the rule `admin` of the route.
pub(super) fn admin_with(name: &str, spec: Value) -> Change {
    let rule = json!({"kind": "HTTPRoute", "name": "shop", "sectionName": "admin"});
    policy_with(name, rule, spec)
}

fn admin(addresses: Value) -> Change {
    admin_with("admin", json!({"clientAddress": addresses}))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn clients_are_admitted_by_their_address_and_policies_add_up() -> Result<()> {
    let site = Site::start(vec![
        policy(
            "edge",
            json!({"kind": "Gateway", "name": "edge"}),
            json!({"deny": ["203.0.113.0/24", "10.9.0.0/16"]}),
        ),
        admin(json!({"allow": ["10.0.0.0/8", "2001:db8::/32"], "deny": ["10.1.0.0/16"]})),
    ])
    .await?;
    site.expect("192.0.2.1", HOST, "/", 200).await?;
    site.expect("10.2.0.1", HOST, "/admin", 200).await?;
    site.expect("2001:db8::1", HOST, "/admin", 200).await?;
    for client in ["192.0.2.1", "10.1.2.3", "2001:db9::1"] {
        site.expect(client, HOST, "/admin/denied", 403).await?;
    }
    // The rule allows what the Gateway denies.
    site.expect("10.9.0.1", HOST, "/admin", 403).await?;
    site.expect("203.0.113.5", HOST, "/", 403).await?;
    site.expect("203.0.113.5", OTHER, "/", 403).await?;
    site.expect("10.1.2.3", OTHER, "/admin", 200).await?;
    ensure!(
        site.reason("/admin/denied").await? == Some("AddressDenied"),
        "the log has the reason"
    );
    for preflight in site.by("192.0.2.1", HOST, "/admin") {
        let preflight = preflight
            .method(Method::OPTIONS)
            .header("origin", "https://www.site.example")
            .header("access-control-request-method", "GET");
        let answer = preflight.send().await?;
        ensure!(answer.status == 200, "{preflight:?}: {}", answer.status);
        ensure!(
            answer.headers.contains_key("access-control-allow-origin"),
            "filter CORS answers: {preflight:?}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_policy_that_cannot_be_carried_out_closes_its_targets_alone() -> Result<()> {
    let site = Site::start(vec![admin(json!({"allow": ["10.0.0.1/8"]}))]).await?;
    site.expect("10.2.0.1", HOST, "/admin/closed", 500).await?;
    site.expect("10.2.0.1", HOST, "/", 200).await?;
    site.expect("10.2.0.1", OTHER, "/admin", 200).await?;
    ensure!(
        site.reason("/admin/closed").await? == Some("AccessClosed"),
        "the log has the reason"
    );
    site.world
        .settle(vec![admin(json!({"allow": ["10.0.0.0/8"]}))])
        .await?;
    site.expect("10.2.0.1", HOST, "/admin", 200).await?;
    site.expect("192.0.2.1", HOST, "/admin", 403).await?;
    let key = ObjectKey::new(Kind::AccessPolicy, ObjectName::new("default", "admin"));
    site.world.settle(vec![Change::delete(key)]).await?;
    site.expect("192.0.2.1", HOST, "/admin", 200).await
}
