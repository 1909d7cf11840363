//! The manifests of `deploy/`: a strict server accepts every manifest, every pod conforms to its namespace's security
//! level, and our command line to every argument; and the policies admit and reject the right requests.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use clap::Parser;
use e2e::apiserver::ApiServer;
use e2e::apiserver::manifests::documents;
use e2e::deploy::{folder, kustomized, manifests};
use gatewright::cli::{Cli, Command};
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::discovery::{Scope, pinned_kind};
use serde_json::{Value, json};

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api"]
async fn what_is_deployed_is_taken_and_the_policies_decide() -> Result<()> {
    let server = ApiServer::start().await?;
    server.install_gateway_api().await?;
    strict(&server).await?;
    policies(&server).await
}

async fn strict(server: &ApiServer) -> Result<()> {
    let mut all = manifests(&folder())?;
    // The rest needs the namespace and the service accounts.
    let order = ["Namespace", "ServiceAccount"];
    all.sort_by_key(|(_, object)| order.iter().position(|kind| object["kind"] == *kind).unwrap_or(order.len()));
    let crds = all.iter().filter(|(_, object)| object["kind"] == "CustomResourceDefinition").count();
    assert!(crds >= 2, "every folder is looked at");
    for (path, object) in all {
        server.dry_run(object.clone()).await.with_context(|| path.display().to_string())?;
        if matches!(object["kind"].as_str(), Some("Namespace" | "ServiceAccount")) {
            server.put(object.clone()).await?;
        }
        if object["spec"]["template"].is_object() {
            pod_of(server, &object["metadata"], &object["spec"]["template"]).await?;
        }
        if object["kind"] == "PodTemplate" {
            pod_of(server, &object["metadata"], &object["template"]).await?;
        }
    }
    Ok(())
}

/// The controllers that make pods do not run: the pod itself is checked against the security level.
async fn pod_of(server: &ApiServer, metadata: &Value, template: &Value) -> Result<()> {
    let mut pod = template.clone();
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["name"] = metadata["name"].clone();
    pod["metadata"]["namespace"] = metadata["namespace"].clone();
    if pod["spec"]["serviceAccountName"] == "gatewright-envoy-isolated" {
        // The controller makes one for each Gateway.
        pod["spec"]["serviceAccountName"] = json!("gatewright-envoy");
    }
    server.dry_run(pod.clone()).await?;
    // The level is really enforced.
    for index in 0..pod["spec"]["containers"].as_array().map_or(0, Vec::len) {
        let mut open = pod.clone();
        open["spec"]["containers"][index]["securityContext"] = json!({});
        let refused = server.dry_run(open).await.expect_err("a pod without its own limits");
        assert!(format!("{refused:#}").contains("violates PodSecurity"), "{refused:#}");
    }
    Ok(())
}

/// Returns all deployed objects of a kind.
fn deployed(kind: &str) -> Result<Vec<Value>> {
    Ok(kustomized(&folder())?.into_iter().filter(|object| object["kind"] == kind).collect())
}

/// Returns the pod templates that a selector selects, including those of the component for Envoys of the dedicated
/// fleet; at least one.
fn selected(labels: &Value) -> Result<Vec<Value>> {
    let mut all = deployed("Deployment")?;
    all.extend(deployed("DaemonSet")?);
    let dedicated = std::fs::read_to_string(folder().join("dedicated/envoy.yaml"))?;
    all.extend(documents(&dedicated)?.into_iter().filter(|object| object["kind"] == "Deployment"));
    let wanted = labels.as_object().context("labels")?;
    all.retain(|object| {
        let has = &object["spec"]["template"]["metadata"]["labels"];
        wanted.iter().all(|(name, value)| has[name] == *value)
    });
    anyhow::ensure!(!all.is_empty(), "{labels} selects nothing");
    Ok(all.into_iter().map(|object| object["spec"]["template"]["spec"].clone()).collect())
}

/// Returns the ports of a pod by name.
fn ports(pod: &Value) -> BTreeMap<String, u64> {
    let containers = pod["containers"].as_array().into_iter().flatten();
    let ports = containers.flat_map(|container| container["ports"].as_array().into_iter().flatten());
    ports.filter_map(|port| Some((port["name"].as_str()?.to_owned(), port["containerPort"].as_u64()?))).collect()
}

/// Returns the parsed command line of a container of ours.
fn said(pod: &Value, name: &str) -> Result<Command> {
    let all = ["initContainers", "containers"].map(|field| pod[field].as_array().cloned().unwrap_or_default());
    let container =
        all.into_iter().flatten().find(|c| c["name"] == name).with_context(|| format!("container {name}"))?;
    let given = container["args"].as_array().context("args")?.iter().filter_map(Value::as_str);
    // As set by the kubelet.
    let given: Vec<String> = given.map(|text| text.replace("$(MEMORY_LIMIT)", "2147483648")).collect();
    let given = std::iter::once("gatewright").chain(given.iter().map(String::as_str));
    Ok(Cli::try_parse_from(given).with_context(|| container.to_string())?.command)
}

#[test]
fn what_speaks_of_pods_and_ports_speaks_of_those_that_are_there() -> Result<()> {
    for policy in deployed("NetworkPolicy")? {
        let mut open = BTreeSet::new();
        for rule in policy["spec"]["ingress"].as_array().into_iter().flatten() {
            for from in rule["from"].as_array().into_iter().flatten() {
                selected(&from["podSelector"]["matchLabels"])?;
            }
            let ports = rule["ports"].as_array().into_iter().flatten();
            open.extend(ports.filter_map(|port| port["port"].as_str().map(str::to_owned)));
        }
        for pod in selected(&policy["spec"]["podSelector"]["matchLabels"])? {
            let has: BTreeSet<String> = ports(&pod).into_keys().collect();
            assert_eq!(open, has, "{}", policy["metadata"]["name"]);
        }
    }
    for service in deployed("Service")? {
        for pod in selected(&service["spec"]["selector"])? {
            for port in service["spec"]["ports"].as_array().into_iter().flatten() {
                assert!(ports(&pod).contains_key(port["targetPort"].as_str().unwrap_or_default()), "{service}");
            }
        }
    }
    for budget in deployed("PodDisruptionBudget")? {
        selected(&budget["spec"]["selector"]["matchLabels"])?;
    }
    Ok(())
}

#[test]
fn what_programs_are_told_fits_to_what_is_said_of_them() -> Result<()> {
    let controller = deployed("Deployment")?.pop().context("a Deployment")?["spec"]["template"]["spec"].clone();
    let envoy = deployed("DaemonSet")?.pop().context("a DaemonSet")?["spec"]["template"]["spec"].clone();
    let Command::Controller(options) = said(&controller, "gatewright")? else { anyhow::bail!("no controller") };
    let identity = options.credentials.envoy_credentials.of_pods().then_some(options.credentials.envoy_identity);
    let listens = [
        ("xds", Some(options.xds)),
        ("identity", identity),
        ("probes", Some(options.probes)),
        ("challenges", options.challenges),
    ];
    let listens = listens.into_iter().filter_map(|(name, at)| Some((name.to_owned(), u64::from(at?.port()))));
    assert_eq!(ports(&controller), listens.collect());

    let Command::Bootstrap(bootstrap) = said(&envoy, "bootstrap")? else { anyhow::bail!("no bootstrap") };
    let services = deployed("Service")?;
    let xds = services.iter().find(|service| service["metadata"]["name"] == "gatewright-xds").context("a Service")?;
    let (name, namespace) = (&xds["metadata"]["name"], &xds["metadata"]["namespace"]);
    let at =
        format!("{}.{}.svc:{}", name.as_str().unwrap(), namespace.as_str().unwrap(), xds["spec"]["ports"][0]["port"]);
    assert_eq!(bootstrap.xds.as_deref(), Some(at.as_str()));
    assert_eq!(bootstrap.ready.map(|at| u64::from(at.port())), ports(&envoy).get("ready").copied());

    // Envoy gets its own SIGTERM after the drain, and before the pod's grace period is over.
    let Command::Drain(drain) = said(&envoy, "drain")? else { anyhow::bail!("no drain") };
    assert_eq!(bootstrap.envoy_admin.as_ref(), Some(&drain.envoy_admin));
    let main =
        envoy["containers"].as_array().and_then(|all| all.iter().find(|c| c["name"] == "envoy")).context("Envoy")?;
    let sleep = main["lifecycle"]["preStop"]["sleep"]["seconds"].as_u64().context("it waits")?;
    let grace = envoy["terminationGracePeriodSeconds"].as_u64().context("it has time")?;
    assert!(drain.serve + drain.drain < sleep && sleep < grace, "{drain:?}, {sleep}, {grace}");
    let args: Vec<&str> = main["args"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let time = args.iter().position(|arg| *arg == "--drain-time-s").and_then(|at| args[at + 1].parse::<u64>().ok());
    assert!(time.context("Envoy's own drain time")? <= drain.drain);
    Ok(())
}

#[test]
fn every_manifest_is_in_a_kustomization_and_every_image_has_a_tag() -> Result<()> {
    for folder in [folder(), folder().join("policies"), folder().join("certificates")] {
        let index = std::fs::read_to_string(folder.join("kustomization.yaml"))?;
        for entry in std::fs::read_dir(&folder)? {
            let (path, name) = (entry.as_ref().unwrap().path(), entry?.file_name().to_string_lossy().into_owned());
            let listed = name == "kustomization.yaml" || index.contains(&format!("- {name}\n"));
            let manifest = path.extension().is_some_and(|extension| extension == "yaml");
            assert!(!manifest || listed, "{name} is in no kustomization");
        }
    }
    for object in kustomized(&folder())? {
        for field in ["initContainers", "containers"] {
            for container in object["spec"]["template"]["spec"][field].as_array().into_iter().flatten() {
                let image = container["image"].as_str().unwrap_or_default();
                assert!(image.contains(':'), "{image} has no tag: is it in images?");
            }
        }
    }
    Ok(())
}

struct Case {
    what: &'static str,
    /// Group of the user who makes the request; empty for an ordinary user.
    group: &'static str,
    object: Value,
    /// A word of the refusal; `None` if it is admitted.
    refused: Option<&'static str>,
}

const GATEWAY: &str = "gateway.networking.k8s.io/v1";

fn gateway(namespace: &str, protocol: &str, hostname: Option<&str>) -> Value {
    let mut listener = json!({"name": "l", "port": 443, "protocol": protocol});
    if protocol == "HTTPS" {
        listener["tls"] = json!({"certificateRefs": [{"name": "c"}]});
    }
    if let Some(hostname) = hostname {
        listener["hostname"] = json!(hostname);
    }
    json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "g", "namespace": namespace},
        "spec": {"gatewayClassName": "c", "listeners": [listener]}})
}

fn listener_set(namespace: &str, hostname: &str) -> Value {
    let mut set = gateway(namespace, "HTTPS", Some(hostname));
    set["kind"] = json!("ListenerSet");
    set["spec"].as_object_mut().expect("an object").remove("gatewayClassName");
    set["spec"]["parentRef"] = json!({"name": "g"});
    set
}

fn route(kind: &str, namespace: &str, hostnames: &[&str]) -> Value {
    let mut route = json!({"apiVersion": GATEWAY, "kind": kind, "metadata": {"name": "r", "namespace": namespace},
        "spec": {"parentRefs": [{"name": "g"}], "hostnames": hostnames, "rules": [{"backendRefs": [{"name": "b", "port": 1}]}]}});
    if hostnames.is_empty() {
        route["spec"].as_object_mut().expect("an object").remove("hostnames");
    }
    route
}

fn namespace(name: &str, labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
}

/// A namespace with the annotation of an attached namespace.
fn attached(name: &str) -> Value {
    let annotations = json!({"cozystack.io/gateway-attached-by": "tenant-a"});
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "annotations": annotations}})
}

fn tenant(host: Option<&str>) -> Value {
    json!({"apiVersion": "apps.cozystack.io/v1alpha1", "kind": "Tenant",
        "metadata": {"name": "t", "namespace": "tenant-a"}, "spec": {"host": host.unwrap_or_default()}})
}

const HOST: &str = "namespace.cozystack.io/host";
const OWNER: &str = "namespace.cozystack.io/gateway";

fn cases() -> Vec<Case> {
    let case = |what, object, refused| Case { what, group: "tenants", object, refused };
    let by = |group, what, object, refused| Case { what, group, object, refused };
    vec![
        case("own apex", gateway("tenant-a", "HTTPS", Some("a.example.org")), None),
        case("below it", gateway("tenant-a", "HTTPS", Some("*.a.example.org")), None),
        case("another's", gateway("tenant-a", "HTTPS", Some("b.example.org")), Some("must equal a.example.org")),
        case("no dot before it", gateway("tenant-a", "HTTPS", Some("evila.example.org")), Some("must equal")),
        case("TLS without a hostname", gateway("tenant-a", "HTTPS", None), Some("must name a hostname")),
        case("HTTP without one, for challenges", gateway("tenant-a", "HTTP", None), None),
        case("a namespace without host", gateway("tenant-none", "HTTPS", Some("x.org")), Some("has no label")),
        case("the platform's own", gateway("infra", "HTTPS", Some("anything.org")), None),
        case("a set, own", listener_set("tenant-a", "x.a.example.org"), None),
        case("a set, another's", listener_set("tenant-a", "b.example.org"), Some("must equal")),
        by("system:masters", "even masters", gateway("tenant-a", "HTTPS", Some("b.org")), Some("must equal")),
        case("route, own", route("HTTPRoute", "tenant-a", &["a.example.org", "x.a.example.org"]), None),
        case("route, another's", route("HTTPRoute", "tenant-a", &["b.example.org"]), Some("must equal")),
        case("route, one of two", route("HTTPRoute", "tenant-a", &["a.example.org", "b.org"]), Some("b.org")),
        case(
            "route without hostnames",
            route("HTTPRoute", "tenant-a", &[]),
            Some("must name a host: a.example.org or"),
        ),
        case("who is told so", route("HTTPRoute", "tenant-a", &[]), Some("user user-")),
        case("gRPC without hostnames", route("GRPCRoute", "tenant-a", &[]), Some("must name a host")),
        case("redirect of a tenant", redirect(route("HTTPRoute", "tenant-a", &[])), Some("must name a host")),
        by(
            "system:serviceaccounts:gatewright-system",
            "redirect of a TenantGateway",
            redirect(route("HTTPRoute", "tenant-a", &[])),
            None,
        ),
        by(
            "system:serviceaccounts:gatewright-system",
            "no redirect",
            route("HTTPRoute", "tenant-a", &[]),
            Some("must name a host"),
        ),
        case(
            "route of a Service",
            parent(route("HTTPRoute", "tenant-a", &[]), json!({"group": "", "kind": "Service"})),
            None,
        ),
        case("route, no label", route("HTTPRoute", "tenant-none", &["x.org"]), Some("has no label")),
        case("gRPC, another's", route("GRPCRoute", "tenant-a", &["b.org"]), Some("must equal")),
        case("TLS, another's", route("TLSRoute", "tenant-a", &["b.org"]), Some("must equal")),
        case("TLS, own", route("TLSRoute", "tenant-a", &["x.a.example.org"]), None),
        case("route of the platform", route("HTTPRoute", "infra", &["b.org"]), None),
        case("host label set", namespace("tenant-none", json!({HOST: "x.org"})), Some("immutable")),
        case("host label changed", namespace("tenant-a", json!({HOST: "b.example.org"})), Some("immutable")),
        case("host label the same", namespace("tenant-a", json!({HOST: "a.example.org", "x": "y"})), None),
        case("gateway label set", namespace("infra", json!({OWNER: "tenant-a"})), Some("immutable")),
        case("endpoints label set", namespace("infra", json!({"gatewright.io/endpoints": "any"})), Some("immutable")),
        case("gateway label set to nothing", namespace("infra", json!({OWNER: ""})), Some("immutable")),
        case("who attached it", attached("infra"), Some("immutable")),
        case("new with label", namespace("tenant-new", json!({HOST: "n.org"})), Some("immutable")),
        case("new without", namespace("new", json!({})), None),
        by(
            "system:serviceaccounts:cozy-fluxcd",
            "by the platform",
            namespace("tenant-none", json!({HOST: "n.org"})),
            None,
        ),
        case("on plain HTTP too", route("HTTPRoute", "owner", &["x.org"]), Some("add port 443")),
        case(
            "by name",
            parent(route("HTTPRoute", "owner", &["x.org"]), json!({"sectionName": "http"})),
            Some("port 443"),
        ),
        case("over TLS only", parent(route("HTTPRoute", "owner", &["x.org"]), json!({"port": 443})), None),
        case(
            "one listener for TLS",
            parent(route("HTTPRoute", "owner", &["x.org"]), json!({"sectionName": "https-x"})),
            None,
        ),
        case("at another's", parent(route("HTTPRoute", "owner", &["x.org"]), json!({"namespace": "infra"})), None),
        case("of another", parent(route("HTTPRoute", "infra", &["x.org"]), json!({"namespace": "owner"})), None),
        case(
            "a redirect",
            rules(json!([{"filters": [{"type": "RequestRedirect",
            "requestRedirect": {"scheme": "https", "statusCode": 301}}]}])),
            None,
        ),
        case(
            "a challenge",
            rules(json!([{"matches": [{"path": {"type": "Exact",
            "value": "/.well-known/acme-challenge/token"}}], "backendRefs": [{"name": "solver", "port": 8089}]}])),
            None,
        ),
        case(
            "a challenge and more",
            rules(json!([
            {"matches": [{"path": {"type": "Exact", "value": "/.well-known/acme-challenge/token"}},
                {"path": {"type": "PathPrefix", "value": "/"}}], "backendRefs": [{"name": "web", "port": 80}]}])),
            Some("add port 443"),
        ),
        case("a tenant's host", tenant(Some("evil.org")), Some("spec.host can only be set")),
        case("no host", tenant(None), None),
        case("a Service that looks like ours", dedicated("new", 20_001), Some("belongs to its controller")),
        case("the port of one", dedicated("edge", 20_002), Some("belongs to its controller")),
        case("something else of one", labelled(dedicated("edge", 20_001), "team", "blue"), None),
        case("what makes it ours", labelled(dedicated("edge", 20_001), MANAGED_BY, "x"), Some("belongs to its")),
        case("any other Service", labelled(dedicated("new", 20_001), MANAGED_BY, "Helm"), None),
        case("a slice that looks like ours", lent("new", 20_001), Some("leads Service web to a Gateway belongs to")),
        case("the port of a slice", lent("edge-web-v4", 20_002), Some("belongs to its controller")),
        case("something else of a slice", labelled(lent("edge-web-v4", 20_001), "team", "blue"), None),
        case("what makes a slice ours", labelled(lent("edge-web-v4", 20_001), SLICES_BY, "x"), Some("belongs to its")),
        case("any other slice", labelled(lent("new", 20_001), SLICES_BY, "somebody"), None),
        by("system:serviceaccounts:gatewright-system", "a slice by the controller", lent("edge-web-v4", 20_003), None),
        by("system:serviceaccounts:gatewright-system", "a Service by the controller", dedicated("edge", 20_003), None),
        by("system:serviceaccounts:cozy-system", "host by the platform", tenant(Some("good.org")), None),
    ]
}

const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// The Service of a dedicated Gateway.
fn dedicated(name: &str, target: u16) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "tenant-a",
        "labels": {MANAGED_BY: "gatewright"}, "annotations": {"gatewright.io/gateway": "edge"}},
        "spec": {"ports": [{"name": "p443", "port": 443, "targetPort": target, "protocol": "TCP"}]}})
}

const SLICES_BY: &str = "endpointslice.kubernetes.io/managed-by";

/// The slice that makes somebody's Service lead to a Gateway.
fn lent(name: &str, target: u16) -> Value {
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": name, "namespace": "tenant-a",
            "labels": {SLICES_BY: "gatewright", "kubernetes.io/service-name": "web"},
            "annotations": {"gatewright.io/stands-on": "web"}},
        "endpoints": [], "ports": [{"name": "p443", "port": target, "protocol": "TCP"}]})
}

fn labelled(mut object: Value, name: &str, value: &str) -> Value {
    object["metadata"]["labels"][name] = json!(value);
    object
}

/// Adds fields to the parentRef of a route.
fn parent(mut route: Value, more: Value) -> Value {
    for (field, value) in more.as_object().into_iter().flatten() {
        route["spec"]["parentRefs"][0][field] = value.clone();
    }
    route
}

/// Makes a route the redirect of a TenantGateway from plain HTTP to HTTPS.
fn redirect(mut route: Value) -> Value {
    route["metadata"]["name"] = json!("cozystack-http-redirect");
    route["spec"]["rules"] = json!([{"filters": [{"type": "RequestRedirect",
        "requestRedirect": {"scheme": "https", "statusCode": 301}}]}]);
    route
}

/// A route at a Gateway, with these rules.
fn rules(rules: Value) -> Value {
    let mut route = route("HTTPRoute", "owner", &[]);
    route["spec"]["rules"] = rules;
    route
}

async fn policies(server: &ApiServer) -> Result<()> {
    // The kind that layer 3 checks, with the fields that it reads.
    server
        .put(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "tenants.apps.cozystack.io"},
            "spec": {"group": "apps.cozystack.io", "scope": "Namespaced",
                "names": {"plural": "tenants", "singular": "tenant", "kind": "Tenant"},
                "versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}))
        .await?;
    for (name, labels) in [
        ("tenant-a", json!({HOST: "a.example.org"})),
        ("tenant-none", json!({})),
        ("infra", json!({})),
        ("owner", json!({OWNER: "owner"})),
    ] {
        server.put(namespace(name, labels)).await?;
    }
    server.put(dedicated("edge", 20_001)).await?;
    server.put(lent("edge-web-v4", 20_001)).await?;
    // RBAC allows these users everything.
    server
        .put(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "everybody"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"}]}))
        .await?;
    for object in kustomized(&folder().join("policies"))? {
        server.put(object).await?;
    }
    // A policy takes effect a moment after it was written.
    let canary = gateway("tenant-a", "HTTPS", Some("b.example.org"));
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(120);
    let tenants = server.client_as("canary", &["tenants"]).await?;
    while attempt(&tenants, &canary).await?.is_none() {
        assert!(tokio::time::Instant::now() < deadline, "the policies do not take effect");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    // Existing routes at Cilium stay valid until a parameter changes that.
    let plain = route("HTTPRoute", "owner", &["x.org"]);
    assert_eq!(attempt(&tenants, &plain).await?, None);
    let parameters = server.api("v1", "ConfigMap", "kube-system").await?;
    let deny = Patch::Merge(json!({"data": {"plainHttp": "deny"}}));
    parameters.patch("gatewright-policies", &PatchParams::default(), &deny).await?;
    while attempt(&tenants, &plain).await?.is_none() {
        assert!(tokio::time::Instant::now() < deadline, "the parameter does not take effect");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    // Each takes effect at its own time.
    let mut left = cases();
    while !left.is_empty() {
        let mut wrong = Vec::new();
        for (number, case) in std::mem::take(&mut left).into_iter().enumerate() {
            let client = server.client_as(&format!("user-{number}"), &[case.group]).await?;
            let told = attempt(&client, &case.object).await?;
            let right = match (&told, case.refused) {
                (None, None) => true,
                (Some(told), Some(word)) => told.contains(word),
                _ => false,
            };
            if !right {
                wrong.push(format!("{}: expected {:?}, got {told:?}", case.what, case.refused));
                left.push(case);
            }
        }
        assert!(left.is_empty() || tokio::time::Instant::now() < deadline, "{}", wrong.join("\n"));
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    labels(server, &tenants).await?;
    without_parameters(server, &tenants).await
}

/// The label of a namespace cannot bypass the policy, and the platform's list of groups may contain spaces.
async fn labels(server: &ApiServer, tenants: &Client) -> Result<()> {
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    let namespaces = |client: &Client| Api::<k8s_openapi::api::core::v1::Namespace>::all(client.clone());
    let without = Patch::Merge(json!({"metadata": {"labels": {HOST: null}}}));
    let (all, name) = (namespaces(tenants), "tenant-a");
    for outcome in [all.patch(name, &dry, &without).await, all.patch_status(name, &dry, &without).await] {
        let told = outcome.expect_err("it is the platform's").to_string();
        assert!(told.contains("immutable"), "{told}");
    }
    let parameters = server.api("v1", "ConfigMap", "kube-system").await?;
    let groups = Patch::Merge(json!({"data": {"trustedGroups": "system:masters, platform ,others"}}));
    parameters.patch("gatewright-policies", &PatchParams::default(), &groups).await?;
    let platform = namespaces(&server.client_as("somebody", &["platform"]).await?);
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(120);
    while platform.patch(name, &dry, &without).await.is_err() {
        assert!(tokio::time::Instant::now() < deadline, "the platform may not");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Emptied or deleted parameters block no namespace.
async fn without_parameters(server: &ApiServer, tenants: &Client) -> Result<()> {
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    let all: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(tenants.clone());
    let parameters = server.api("v1", "ConfigMap", "kube-system").await?;
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(120);
    let wait = || async {
        assert!(tokio::time::Instant::now() < deadline, "the parameters do not take effect");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    };
    let ordinary = Patch::Merge(json!({"metadata": {"labels": {"team": "blue"}}}));
    let guarded = Patch::Merge(json!({"metadata": {"labels": {HOST: null}}}));
    let finalize = || async {
        let there = all.get("tenant-a").await?;
        let params = kube::api::PostParams { dry_run: true, ..Default::default() };
        all.replace_subresource("finalize", "tenant-a", &params, &there).await?;
        anyhow::Ok(())
    };

    // Missing parameters have their defaults, and nobody is the platform.
    let masters = Api::<k8s_openapi::api::core::v1::Namespace>::all(server.client_as("m", &["system:masters"]).await?);
    let none = Patch::Merge(json!({"data": null}));
    parameters.patch("gatewright-policies", &PatchParams::default(), &none).await?;
    while masters.patch("tenant-a", &dry, &guarded).await.is_ok() {
        wait().await;
    }
    all.patch("tenant-a", &dry, &ordinary).await?;
    all.patch_status("tenant-a", &dry, &ordinary).await?;
    finalize().await?;
    let told = all.patch("tenant-a", &dry, &guarded).await.expect_err("the label is the platform's").to_string();
    assert!(told.contains("immutable"), "{told}");
    for (object, word) in [
        (route("HTTPRoute", "tenant-a", &[]), "must name a host"),
        (route("HTTPRoute", "tenant-a", &["b.org"]), "must equal"),
        (gateway("tenant-a", "HTTPS", None), "must name a hostname"),
        (gateway("tenant-none", "HTTPS", Some("x.org")), "has no label"),
    ] {
        let told = attempt(tenants, &object).await?.unwrap_or_default();
        assert!(told.contains(word), "{word}: {told}");
    }

    // Without the object the policies are inactive, and block none of the requests that they match.
    parameters.delete("gatewright-policies", &Default::default()).await?;
    while all.patch("tenant-a", &dry, &guarded).await.is_err() {
        wait().await;
    }
    all.patch("tenant-a", &PatchParams::default(), &ordinary).await?;
    all.patch_status("tenant-a", &dry, &ordinary).await?;
    finalize().await?;
    for object in [
        namespace("tenant-new", json!({})),
        route("HTTPRoute", "infra", &["b.org"]),
        gateway("infra", "HTTPS", Some("anything.org")),
    ] {
        assert_eq!(attempt(tenants, &object).await?, None);
    }
    Ok(())
}

/// Returns the message of the refusal; `None` if it is admitted.
async fn attempt(client: &Client, object: &Value) -> Result<Option<String>> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (group, version) = text("/apiVersion").rsplit_once('/').unwrap_or(("", text("/apiVersion")));
    let wanted = kube::api::GroupVersionKind::gvk(group, version, text("/kind"));
    let (resource, capabilities) = pinned_kind(client, &wanted).await?;
    let api: Api<DynamicObject> = match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => Api::namespaced_with(client.clone(), text("/metadata/namespace"), &resource),
    };
    let params = PatchParams { dry_run: true, ..PatchParams::apply("case").force() };
    match api.patch(text("/metadata/name"), &params, &Patch::Apply(object)).await {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) => Ok(Some(status.message)),
        Err(error) => Err(error.into()),
    }
}
