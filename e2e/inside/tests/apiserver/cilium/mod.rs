//! Tests with Cilium's own controllers, built from its module: they process the Gateways,
//! ListenerSets and routes of tenants as tenancy decided.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use e2e::apiserver::{ApiServer, Definitions};
use e2e::cilium::{CONTROLLER, Cilium, backends};
use e2e::cluster::{condition, is_true, tls_secret};
use gatewright::offline;
use gatewright_core::inputs::Object;
use gatewright_core::tenancy;
use gatewright_core::translate::Settings;
use serde_json::{Value, json};

mod refused;

const LIMIT: Duration = Duration::from_secs(180);
const GATEWAY: &str = "gateway.networking.k8s.io/v1";
const SYSTEM: &str = "gatewright-system";
const CHALLENGES: &str = "gatewright-challenges";

/// A cluster with Cilium's controllers, and the objects that tenants wrote into it.
struct Site {
    server: ApiServer,
    cilium: Cilium,
    objects: Vec<Value>,
    /// The derived objects.
    made: BTreeSet<(String, String)>,
    secrets: BTreeSet<String>,
    settings: tenancy::Settings,
    /// The statuses of routes by the last run of tenancy.
    statuses: Vec<Value>,
}

impl Site {
    async fn start(spec: Value) -> Result<Self> {
        Self::start_with(spec, tenancy::Settings::default()).await
    }

    async fn start_with(spec: Value, settings: tenancy::Settings) -> Result<Self> {
        let server = ApiServer::with(&[Definitions::GatewayApi]).await?;
        let cilium = Cilium::start(&server).await?;
        let objects = Vec::new();
        let made = BTreeSet::new();
        let secrets = BTreeSet::new();
        let mut site = Self {
            server,
            cilium,
            objects,
            made,
            secrets,
            settings,
            statuses: Vec::new(),
        };
        for name in ["tenant-a", "tenant-b"] {
            let labels = json!({"namespace.cozystack.io/gateway": "tenant-a", "namespace.cozystack.io/host": "a.org"});
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
            site.put(namespace).await?;
            site.put(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": name},
                "spec": {"ports": [{"name": "http", "port": 80}]}}))
                .await?;
        }
        // A kind of ours only; Cilium ignores it.
        site.objects.push(json!({"apiVersion": "gateway.cozystack.io/v1alpha1", "kind": "TenantGateway",
            "metadata": {"namespace": "tenant-a", "name": "cozystack", "uid": "7e41fe05-0000-4000-8000-000000000001"},
            "spec": spec}));
        Ok(site)
    }

    /// Writes an object of a tenant.
    async fn put(&mut self, mut object: Value) -> Result<()> {
        self.server.put(object.clone()).await?;
        if object["kind"] == "Namespace" {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let there = self
                .server
                .api("v1", "Namespace", "")
                .await?
                .get(name)
                .await?;
            object["metadata"]["uid"] = json!(there.metadata.uid);
        }
        let is = |other: &Value| {
            ["/kind", "/metadata/namespace", "/metadata/name"]
                .iter()
                .all(|p| other.pointer(p) == object.pointer(p))
        };
        self.objects.retain(|other| !is(other));
        self.objects.push(object);
        Ok(())
    }

    async fn route(
        &mut self,
        namespace: &str,
        name: &str,
        parents: Value,
        hostnames: &[&str],
    ) -> Result<()> {
        self.put(json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"namespace": namespace, "name": name},
            "spec": {"parentRefs": parents, "hostnames": hostnames,
                "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}}))
            .await
    }

    /// Writes the derived objects of tenancy, and deletes earlier ones that are not wanted any
    /// more.
    async fn settle(&mut self) -> Result<()> {
        let objects = self
            .objects
            .iter()
            .cloned()
            .map(Object::parse)
            .collect::<Result<Vec<_>, _>>()?;
        let settings = Settings::new("gatewright.io/gateway-controller", Vec::new());
        let told = offline::translate(objects, settings, self.settings.clone(), SystemTime::now())?;
        self.statuses = told.statuses;
        let mut made = BTreeSet::new();
        for object in told.desired {
            let text = |field: &str| {
                object["metadata"][field]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned()
            };
            let kind = object["kind"].as_str().context("a kind")?.to_owned();
            // cert-manager's kinds are irrelevant here.
            if !matches!(&*kind, "Gateway" | "ListenerSet" | "HTTPRoute") {
                continue;
            }
            for listener in object["spec"]["listeners"].as_array().into_iter().flatten() {
                let Some(secret) = listener["tls"]["certificateRefs"][0]["name"].as_str() else {
                    continue;
                };
                if self.secrets.insert(secret.to_owned()) {
                    let hostname = listener["hostname"].as_str().context("it has a hostname")?;
                    self.server
                        .put(tls_secret("tenant-a", secret, &[hostname])?)
                        .await?;
                }
            }
            made.insert((kind, text("name")));
            self.server.put(object).await?;
        }
        for (kind, name) in self.made.difference(&made) {
            let namespace = if name.ends_with(".acme-challenges") {
                SYSTEM
            } else {
                "tenant-a"
            };
            self.server
                .api(GATEWAY, kind, namespace)
                .await?
                .delete(name, &Default::default())
                .await?;
        }
        self.made = made;
        Ok(())
    }

    /// Waits until an object satisfies a predicate.
    async fn until(
        &self,
        api: (&str, &str, &str),
        name: &str,
        good: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        self.server
            .until(api, name, LIMIT, good)
            .await
            .with_context(|| self.cilium.log())
    }

    async fn config(&self, good: impl Fn(&Value) -> bool) -> Result<Value> {
        self.until(
            ("cilium.io/v2", "CiliumEnvoyConfig", "tenant-a"),
            "cilium-gateway-cozystack",
            good,
        )
        .await
    }

    /// Waits for Cilium's `Accepted` reason of a route at a parent.
    async fn accepted(&self, namespace: &str, route: &str, wanted: &str) -> Result<()> {
        self.accepted_of("HTTPRoute", namespace, route, wanted)
            .await
    }

    async fn accepted_of(
        &self,
        kind: &str,
        namespace: &str,
        route: &str,
        wanted: &str,
    ) -> Result<()> {
        let reason = |route: &Value| -> Vec<String> {
            let parents = route["status"]["parents"].as_array().into_iter().flatten();
            let ours = parents.filter(|parent| parent["controllerName"] == CONTROLLER);
            let conditions = ours.filter_map(|parent| condition(parent, "Accepted"));
            conditions
                .filter_map(|condition| condition["reason"].as_str().map(str::to_owned))
                .collect()
        };
        self.until((GATEWAY, kind, namespace), route, |route| {
            reason(route).iter().all(|reason| reason == wanted) && !reason(route).is_empty()
        })
        .await
        .map(drop)
    }
}

/// Returns true if every listener of a Gateway or ListenerSet is accepted and programmed, in the
/// current generation.
fn is_served(object: &Value) -> bool {
    let listeners = object["status"]["listeners"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let current = condition(&object["status"], "Programmed").is_some_and(|programmed| {
        programmed["observedGeneration"] == object["metadata"]["generation"]
    });
    listeners.len() == object["spec"]["listeners"].as_array().map_or(0, Vec::len)
        && listeners
            .iter()
            .all(|listener| is_true(listener, "Accepted") && is_true(listener, "Programmed"))
        && is_true(&object["status"], "Programmed")
        && current
}

fn gateway() -> Value {
    json!([{"name": "cozystack", "namespace": "tenant-a"}])
}

fn web(namespace: &str) -> Vec<String> {
    vec![format!("{namespace}:web:80")]
}

#[tokio::test]
#[ignore = "needs Kubernetes and Cilium's controllers: e2e/tools install"]
async fn cilium_takes_what_is_made_for_a_tenant_and_keeps_a_loser_off() -> Result<()> {
    let mut site = Site::start(json!({"apex": "a.org", "tlsPassthroughServices": ["api"]})).await?;
    site.route(
        "tenant-a",
        "app",
        gateway(),
        &["app.a.org", "contested.a.org"],
    )
    .await?;
    site.route("tenant-b", "thief", gateway(), &["contested.a.org"])
        .await?;
    let rpc = json!({"apiVersion": GATEWAY, "kind": "GRPCRoute", "metadata": {"namespace": "tenant-a", "name": "rpc"},
        "spec": {"parentRefs": gateway(), "hostnames": ["rpc.a.org"],
            "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}});
    site.put(rpc).await?;
    site.settle().await?;
    site.cilium
        .give_address(&site.server, "tenant-a", "cozystack")
        .await?;

    // Every listener is accepted: `http`, two hosts, and one for passthrough.
    site.until((GATEWAY, "Gateway", "tenant-a"), "cozystack", |gateway| {
        is_served(gateway) && gateway["spec"]["listeners"][3]["name"] == "tls-api"
    })
    .await?;
    site.accepted("tenant-a", "app", "Accepted").await?;
    site.accepted("tenant-a", "cozystack-http-redirect", "Accepted")
        .await?;
    // No listener admits a GRPCRoute, not even that of plain HTTP.
    site.accepted_of("GRPCRoute", "tenant-a", "rpc", "NotAllowedByListeners")
        .await?;

    // The winner of the conflict is the only one with the host.
    site.accepted("tenant-b", "thief", "NotAllowedByListeners")
        .await?;
    let config = site
        .config(|config| backends(config, "app.a.org") == web("tenant-a"))
        .await?;
    assert_eq!(backends(&config, "contested.a.org"), web("tenant-a"));
    assert!(
        !config.to_string().contains("tenant-b"),
        "nothing leads to the loser: {config:#}"
    );

    // When it is deleted, the next one gets the host, and vice versa.
    site.route("tenant-a", "app", gateway(), &["app.a.org"])
        .await?;
    site.settle().await?;
    site.accepted("tenant-b", "thief", "Accepted").await?;
    site.config(|config| backends(config, "contested.a.org") == web("tenant-b"))
        .await?;
    Ok(())
}

/// Under the wildcard listener of a Gateway with one certificate, a contested host has a listener
/// of its own.
#[tokio::test]
#[ignore = "needs Kubernetes and Cilium's controllers: e2e/tools install"]
async fn under_a_wildcard_listener_a_contested_host_is_its_owners_at_cilium_too() -> Result<()> {
    let spec = json!({"apex": "a.org", "certMode": "existingSecret", "wildcardSecretRef": {"name": "wildcard"}});
    let mut site = Site::start(spec).await?;
    site.route("tenant-a", "app", gateway(), &["contested.a.org"])
        .await?;
    site.route("tenant-b", "thief", gateway(), &["contested.a.org"])
        .await?;
    site.route("tenant-b", "own", gateway(), &["own.a.org"])
        .await?;
    site.settle().await?;
    site.cilium
        .give_address(&site.server, "tenant-a", "cozystack")
        .await?;
    site.until((GATEWAY, "Gateway", "tenant-a"), "cozystack", is_served)
        .await?;
    let config = site
        .config(|config| backends(config, "own.a.org") == web("tenant-b"))
        .await?;
    assert_eq!(backends(&config, "contested.a.org"), web("tenant-a"));
    // The wildcard listener admits the loser's namespace, but does not serve a name of another
    // listener.
    site.accepted("tenant-b", "thief", "NotAllowedByListeners")
        .await?;

    // The owner of the wildcard has all names below it, and the wildcard listener admits its
    // namespace only.
    site.route("tenant-a", "wide", gateway(), &["*.a.org"])
        .await?;
    site.settle().await?;
    let config = site
        .config(|config| backends(config, "own.a.org") == web("tenant-a"))
        .await?;
    assert_eq!(backends(&config, "anything.a.org"), web("tenant-a"));
    assert!(
        !config.to_string().contains("tenant-b"),
        "nothing leads to the losers: {config:#}"
    );
    site.accepted("tenant-b", "own", "NotAllowedByListeners")
        .await
}

/// Hosts beyond the limit of a Gateway are in ListenerSets, which routes have to name at Cilium.
#[tokio::test]
#[ignore = "needs Kubernetes and Cilium's controllers: e2e/tools install"]
async fn cilium_takes_the_listener_sets_that_hosts_spill_into() -> Result<()> {
    let mut site = Site::start(json!({"apex": "a.org"})).await?;
    let hosts: Vec<String> = (10..90).map(|n| format!("h{n}.a.org")).collect();
    for (n, chunk) in hosts.chunks(16).enumerate() {
        let set = json!({"kind": "ListenerSet", "group": "gateway.networking.k8s.io", "name": "cozystack-overflow-1",
            "namespace": "tenant-a"});
        let parents = json!([{"name": "cozystack", "namespace": "tenant-a"}, set]);
        let chunk: Vec<&str> = chunk.iter().map(String::as_str).collect();
        site.route("tenant-b", &format!("r{n}"), parents, &chunk)
            .await?;
    }
    site.settle().await?;
    site.cilium
        .give_address(&site.server, "tenant-a", "cozystack")
        .await?;
    site.until((GATEWAY, "Gateway", "tenant-a"), "cozystack", |gateway| {
        let listeners = gateway["spec"]["listeners"].as_array().map(Vec::len);
        is_served(gateway)
            && listeners == Some(64)
            && gateway["status"]["attachedListenerSets"] == 1
    })
    .await?;
    site.until(
        (GATEWAY, "ListenerSet", "tenant-a"),
        "cozystack-overflow-1",
        |set| is_served(set) && set["spec"]["listeners"].as_array().map(Vec::len) == Some(17),
    )
    .await?;
    site.config(|config| {
        hosts
            .iter()
            .all(|host| backends(config, host) == web("tenant-b"))
    })
    .await?;
    Ok(())
}

/// Returns the clusters and redirects of plain HTTP for a hostname, by path.
fn plain(config: &Value, hostname: &str) -> BTreeSet<(String, String)> {
    let resources = config["spec"]["resources"].as_array().into_iter().flatten();
    let plain = resources.filter(|resource| resource["name"] == "listener-insecure");
    let hosts =
        plain.flat_map(|resource| resource["virtualHosts"].as_array().into_iter().flatten());
    let routes = hosts
        .filter(|host| {
            host["domains"]
                .as_array()
                .into_iter()
                .flatten()
                .any(|domain| domain == hostname)
        })
        .flat_map(|host| host["routes"].as_array().into_iter().flatten());
    routes
        .map(|route| {
            let path = ["prefix", "pathSeparatedPrefix", "path"]
                .map(|kind| route["match"][kind].as_str().unwrap_or_default());
            let to = route["route"]["cluster"]
                .as_str()
                .or(route["redirect"]["schemeRedirect"].as_str());
            (path.concat(), to.unwrap_or_default().to_owned())
        })
        .collect()
}

/// HTTP-01 challenges reach us through routes, and Cilium still serves all that it served before.
#[tokio::test]
#[ignore = "needs Kubernetes and Cilium's controllers: e2e/tools install"]
async fn cilium_leads_challenges_to_us_and_keeps_the_redirect() -> Result<()> {
    let solver = tenancy::SolverService {
        namespace: SYSTEM.into(),
        name: CHALLENGES.to_owned(),
        port: 80,
        answers: true,
    };
    let certificates = tenancy::Source::Acme;
    let settings = tenancy::Settings {
        certificates,
        solver: Some(solver),
        ..tenancy::Settings::default()
    };
    let mut site = Site::start_with(json!({"apex": "a.org"}), settings).await?;
    site.server
        .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}}))
        .await?;
    site.server
        .put(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": CHALLENGES, "namespace": SYSTEM},
            "spec": {"ports": [{"name": "http", "port": 80}]}}))
        .await?;
    site.route("tenant-a", "app", gateway(), &["app.a.org"])
        .await?;
    site.route("tenant-b", "other", gateway(), &["other.a.org"])
        .await?;
    let secure = json!([{"name": "cozystack", "namespace": "tenant-a", "port": 443}]);
    site.route("tenant-a", "secure", secure, &["secure.a.org"])
        .await?;
    site.settle().await?;
    site.cilium
        .give_address(&site.server, "tenant-a", "cozystack")
        .await?;
    site.until((GATEWAY, "Gateway", "tenant-a"), "cozystack", is_served)
        .await?;
    site.accepted("tenant-a", "cozystack-http-redirect", "Accepted")
        .await?;
    let names: Vec<String> = site.made.iter().map(|(_, name)| name.clone()).collect();
    let solvers: Vec<&String> = names
        .iter()
        .filter(|name| name.ends_with(".acme-challenges"))
        .collect();
    assert_eq!(solvers.len(), 2, "{names:?}");
    for solver in solvers {
        site.accepted(SYSTEM, solver, "Accepted").await?;
    }
    let pair = |path: &str, to: &str| (path.to_owned(), to.to_owned());
    let ours = pair(
        "/.well-known/acme-challenge",
        &format!("{SYSTEM}:{CHALLENGES}:80"),
    );
    let all = BTreeSet::from([ours.clone(), pair("/", "https")]);
    let config = site
        .config(|config| plain(config, "*") == all && !plain(config, "app.a.org").is_empty())
        .await?;
    // A route of the Gateway's own namespace is on port 80, and takes its host from the redirect,
    // but not from the challenges.
    assert_eq!(
        plain(&config, "app.a.org"),
        BTreeSet::from([ours, pair("/", "tenant-a:web:80")])
    );
    assert_eq!(
        plain(&config, "other.a.org"),
        BTreeSet::new(),
        "nothing of ours takes the redirect away"
    );
    // With the port of TLS in its parentRef it is not, and needs no route of ours.
    let config = site
        .config(|config| backends(config, "secure.a.org") == web("tenant-a"))
        .await?;
    assert_eq!(plain(&config, "secure.a.org"), BTreeSet::new());
    Ok(())
}
