//! Mutating admission policies that change what the controller writes: the change is told while it
//! lasts, and corrected when the policy is removed.

use anyhow::{Context, Result};
use e2e::apiserver::ApiServer;
use e2e::cluster::{BACKEND, Cluster, condition};
use e2e::tenants::{
    CERT_MANAGER, GATEWAY, TENANT, cluster, namespace, program, ready, route, tenant, until,
    until_owned, until_ready,
};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::fleet;

const ADMISSION: &str = "admissionregistration.k8s.io/v1";
/// The object is another one than the controller wrote.
pub(super) const ACCEPTED: &str = "accepted what the controller wrote";
/// The changed object is one that the installation's own policies admit from nobody who has the
/// controller's token.
pub(super) const DENIED: &str = "denied request";

/// A policy that changes every object of one resource in one namespace.
pub(super) struct Mutation {
    pub(super) resource: (&'static str, &'static str),
    pub(super) namespace: &'static str,
    /// The operation of a JSON Patch, in CEL.
    pub(super) patch: &'static str,
}

impl Mutation {
    /// Writes the policy, and waits until it changes `probe`: an object of the resource, which is
    /// not created. `path` is the place that it changes.
    pub(super) async fn begin(&self, server: &ApiServer, probe: Value, path: &str) -> Result<()> {
        let (group, resource) = self.resource;
        let rules = json!([{"apiGroups": [group], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"],
            "resources": [resource]}]);
        let only = format!("request.namespace == '{}'", self.namespace);
        let policy = json!({"apiVersion": ADMISSION, "kind": "MutatingAdmissionPolicy", "metadata": {"name": "theirs"},
            "spec": {"failurePolicy": "Fail", "reinvocationPolicy": "Never",
                "matchConstraints": {"resourceRules": rules},
                "matchConditions": [{"name": "namespace", "expression": only}],
                "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": format!("[{}]", self.patch)}}]}});
        server.put(policy).await?;
        let binding = json!({"apiVersion": ADMISSION, "kind": "MutatingAdmissionPolicyBinding",
            "metadata": {"name": "theirs"}, "spec": {"policyName": "theirs"}});
        server.put(binding).await?;
        let before = probe.pointer(path).cloned();
        until("the policy takes effect", async || {
            let answer = serde_json::to_value(server.dry_run(probe.clone()).await?)?;
            Ok(answer
                .pointer(path)
                .is_some_and(|value| Some(value) != before.as_ref()))
        })
        .await
    }

    pub(super) async fn end(&self, server: &ApiServer) -> Result<()> {
        for kind in ["MutatingAdmissionPolicyBinding", "MutatingAdmissionPolicy"] {
            server
                .api(ADMISSION, kind, "")
                .await?
                .delete("theirs", &DeleteParams::default())
                .await?;
        }
        Ok(())
    }
}

/// Changes an annotation, so that policies see the object.
pub(super) async fn touch(
    server: &ApiServer,
    api_version: &str,
    kind: &str,
    namespace: &str,
    name: &str,
) -> Result<()> {
    let note = json!({"metadata": {"annotations": {"note": "touched"}}});
    let api = server.api(api_version, kind, namespace).await?;
    api.patch(name, &PatchParams::default(), &Patch::Merge(note))
        .await?;
    let none = json!({"metadata": {"annotations": {"note": null}}});
    api.patch(name, &PatchParams::default(), &Patch::Merge(none))
        .await?;
    Ok(())
}

fn has_listeners(gateway: &Value, count: usize) -> bool {
    gateway["spec"]["listeners"]
        .as_array()
        .is_some_and(|listeners| listeners.len() == count)
}

/// An object of the same kind that a dry run may create.
fn probe_of(object: &Value) -> Value {
    json!({"apiVersion": object["apiVersion"], "kind": object["kind"],
        "metadata": {"name": "probe", "namespace": object["metadata"]["namespace"]}, "spec": object["spec"]})
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install"]
async fn what_admission_makes_of_a_derived_object_is_told_and_corrected() -> Result<()> {
    const NS: &str = "tenant-changed";
    let cluster = cluster().await?;
    let server = &cluster.server;
    let mut controller = cluster.controller("one")?;
    controller.line("xDS at").await?;
    namespace(server, NS, "changed.example.org").await?;
    server
        .put(tenant(NS, json!({"apex": "changed.example.org"})))
        .await?;
    server
        .put(route(NS, "web", NS, &["web.changed.example.org"]))
        .await?;
    let certificate = format!(
        "cozystack-{}-tls",
        super::tenancy::others::e2e_hash("web.changed.example.org")
    );
    let named = format!("Certificate {certificate}");
    until_owned(
        server,
        NS,
        &[
            named.as_str(),
            "Gateway cozystack",
            "HTTPRoute cozystack-http-redirect",
            "Issuer cozystack-gateway",
        ],
    )
    .await?;
    cluster
        .until(GATEWAY, "Gateway", NS, "cozystack", |o| has_listeners(o, 2))
        .await?;
    program(server, "Gateway", NS, "cozystack").await?;
    until_ready(&cluster, NS, "Reconciled").await?;

    const GATEWAYS: (&str, &str) = ("gateway.networking.k8s.io", "gateways");
    const ROUTES: (&str, &str) = ("gateway.networking.k8s.io", "httproutes");
    const ISSUERS: (&str, &str) = ("cert-manager.io", "issuers");
    const CERTIFICATES: (&str, &str) = ("cert-manager.io", "certificates");
    let cases = [
        (
            GATEWAYS,
            "replace",
            "/spec/gatewayClassName",
            "'theirs'",
            "spec.gatewayClassName is \"theirs\"",
        ),
        (
            GATEWAYS,
            "replace",
            "/spec/listeners/0/port",
            "8099",
            "].port is 8099",
        ),
        (
            GATEWAYS,
            "add",
            "/spec/listeners/1/tls/certificateRefs/0/namespace",
            "'kube-system'",
            "namespace was added",
        ),
        (
            GATEWAYS,
            "add",
            "/spec/infrastructure",
            "Object.spec.infrastructure{labels: {'a': 'b'}}",
            "infrastructure was",
        ),
        (
            ROUTES,
            "add",
            "/spec/hostnames",
            "['theirs.example.org']",
            "spec.hostnames was added",
        ),
        (
            ISSUERS,
            "replace",
            "/spec/acme/server",
            "'https://theirs.example.org/'",
            "spec.acme.server is",
        ),
        (
            CERTIFICATES,
            "replace",
            "/spec/secretName",
            "'theirs'",
            "spec.secretName is \"theirs\"",
        ),
        (
            CERTIFICATES,
            "add",
            "/spec/usages",
            "['client auth']",
            "spec.usages was added",
        ),
    ];
    for (resource, operation, path, value, told) in cases {
        let (api_version, kind, name) = match resource.1 {
            "gateways" => (GATEWAY, "Gateway", "cozystack"),
            "httproutes" => (GATEWAY, "HTTPRoute", "cozystack-http-redirect"),
            "issuers" => (CERT_MANAGER, "Issuer", "cozystack-gateway"),
            _ => (CERT_MANAGER, "Certificate", certificate.as_str()),
        };
        let api = server.api(api_version, kind, NS).await?;
        let right = serde_json::to_value(api.get(name).await?)?;
        let patch =
            format!("JSONPatch{{op: '{operation}', path: '{path}', value: {value}}}").leak();
        let mutation = Mutation {
            resource,
            namespace: NS,
            patch,
        };
        mutation
            .begin(server, probe_of(&right), path)
            .await
            .with_context(|| format!("{kind} {path}"))?;
        touch(server, api_version, kind, NS, name).await?;
        let is_told = |object: &Value| {
            let text = ready(object)
                .and_then(|ready| ready["message"].as_str())
                .unwrap_or_default();
            text.contains(told) && text.contains(ACCEPTED) || text.contains(DENIED)
        };
        let object = cluster
            .until(TENANT, "TenantGateway", NS, "cozystack", is_told)
            .await?;
        let told_of = ready(&object).context("it has one")?;
        let is_denied = told_of["message"]
            .as_str()
            .is_some_and(|text| text.contains(DENIED));
        // A problem of one host leaves the others ready.
        let reason = match kind {
            "Certificate" => "Reconciled",
            _ if is_denied => "ReconcileError",
            _ => "ContestedByAnotherWriter",
        };
        assert_eq!(told_of["reason"], reason, "{kind} {path}: {told_of}");
        mutation.end(server).await?;
        // No event of ours brings the correction: the write is tried again by itself.
        cluster
            .until(api_version, kind, NS, name, |object| {
                object["spec"] == right["spec"]
            })
            .await?;
        if kind == "Gateway" {
            program(server, "Gateway", NS, "cozystack").await?;
        }
        cluster
            .until(TENANT, "TenantGateway", NS, "cozystack", |object| {
                ready(object).is_some_and(|ready| {
                    let text = ready["message"].as_str().unwrap_or_default();
                    ready["status"] == "True" && !text.contains(told) && !text.contains(DENIED)
                })
            })
            .await?;
    }
    // Defaults of the schema, and labels and annotations of others, are nobody's business.
    cluster.quiet().await?;
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    Ok(())
}

/// A class of another controller has the Gateway, and the conditions are about that class.
#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install"]
async fn a_tenant_gateway_is_not_ready_over_a_gateway_of_another_class_or_an_earlier_generation()
-> Result<()> {
    const NS: &str = "tenant-elsewhere";
    let cluster = cluster().await?;
    let server = &cluster.server;
    let mut controller = cluster.controller("one")?;
    controller.line("xDS at").await?;
    namespace(server, NS, "elsewhere.example.org").await?;
    server
        .put(tenant(NS, json!({"apex": "elsewhere.example.org"})))
        .await?;
    server
        .put(route(NS, "web", NS, &["web.elsewhere.example.org"]))
        .await?;
    cluster
        .until(GATEWAY, "Gateway", NS, "cozystack", |o| has_listeners(o, 2))
        .await?;
    program(server, "Gateway", NS, "cozystack").await?;
    until_ready(&cluster, NS, "Reconciled").await?;

    let gateways = server.api(GATEWAY, "Gateway", NS).await?;
    let right = serde_json::to_value(gateways.get("cozystack").await?)?;
    let patch = "JSONPatch{op: 'replace', path: '/spec/gatewayClassName', value: 'theirs'}";
    let mutation = Mutation {
        resource: ("gateway.networking.k8s.io", "gateways"),
        namespace: NS,
        patch,
    };
    mutation
        .begin(server, probe_of(&right), "/spec/gatewayClassName")
        .await?;
    touch(server, GATEWAY, "Gateway", NS, "cozystack").await?;
    // The controller of that class accepts it, in its present generation.
    program(server, "Gateway", NS, "cozystack").await?;
    let told = until_ready(&cluster, NS, "ContestedByAnotherWriter").await?;
    assert_eq!(told["status"], "False");
    mutation.end(server).await?;
    cluster
        .until(GATEWAY, "Gateway", NS, "cozystack", |object| {
            object["spec"] == right["spec"]
        })
        .await?;
    program(server, "Gateway", NS, "cozystack").await?;
    until_ready(&cluster, NS, "Reconciled").await?;

    // Its controller never writes conditions of the next generation.
    server
        .put(route(NS, "more", NS, &["more.elsewhere.example.org"]))
        .await?;
    cluster
        .until(GATEWAY, "Gateway", NS, "cozystack", |o| has_listeners(o, 3))
        .await?;
    let told = until_ready(&cluster, NS, "GatewayNotAccepted").await?;
    assert!(
        told["message"]
            .as_str()
            .unwrap_or_default()
            .contains("earlier generation"),
        "{told}"
    );
    program(server, "Gateway", NS, "cozystack").await?;
    until_ready(&cluster, NS, "Reconciled").await?;
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn what_admission_makes_of_a_service_and_its_slices_is_told_and_corrected() -> Result<()> {
    const NS: &str = "exposed";
    let cluster = Cluster::start().await?;
    let server = &cluster.server;
    fleet::dedicated(&cluster).await?;
    let mut controller = cluster.controller("one")?;
    controller.line("xDS at").await?;
    let (_envoy, _tls) = cluster.envoy("envoy-a").await?;
    fleet::tenant(&cluster, NS, "own", 443, &["web.example.org"]).await?;
    cluster
        .until("v1", "Service", NS, "edge-own", |o| {
            fleet::target(o).is_some()
        })
        .await?;
    fleet::give(&cluster, NS, "edge-own", BACKEND).await?;
    let slice = ("discovery.k8s.io/v1", "EndpointSlice", "edge-own-v4");
    cluster
        .until(slice.0, slice.1, NS, slice.2, |o| {
            o["endpoints"][0]["addresses"] == json!([BACKEND])
        })
        .await?;
    for (resource, (api_version, kind, name), path, value, told) in [
        (
            ("", "services"),
            ("v1", "Service", "edge-own"),
            "/spec/selector",
            "{'app': 'theirs'}",
            "spec.selector was",
        ),
        (
            ("", "services"),
            ("v1", "Service", "edge-own"),
            "/spec/ports/0/targetPort",
            "1",
            "].targetPort is 1",
        ),
        (
            ("", "services"),
            ("v1", "Service", "edge-own"),
            "/spec/ports/0/port",
            "8099",
            "Duplicate value",
        ),
        (
            ("discovery.k8s.io", "endpointslices"),
            slice,
            "/endpoints/0/conditions/ready",
            "false",
            ".ready is false",
        ),
    ] {
        let api = server.api(api_version, kind, NS).await?;
        let right = serde_json::to_value(api.get(name).await?)?;
        let patch = format!("JSONPatch{{op: 'add', path: '{path}', value: {value}}}").leak();
        let mutation = Mutation {
            resource,
            namespace: NS,
            patch,
        };
        let mut probe = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "probe", "namespace": NS}});
        match kind {
            "Service" => probe["spec"] = json!({"ports": [{"port": 443, "targetPort": 2}]}),
            _ => {
                for field in ["addressType", "ports", "endpoints"] {
                    probe[field] = right[field].clone();
                }
            }
        }
        mutation
            .begin(server, probe, path)
            .await
            .with_context(|| format!("{kind} {path}"))?;
        touch(server, api_version, kind, NS, name).await?;
        let message = |o: &Value| {
            condition(&o["status"], "Programmed")
                .and_then(|c| c["message"].as_str())
                .unwrap_or_default()
                .to_owned()
        };
        let is_told = |text: &str| {
            text.contains(told) && [ACCEPTED, "Duplicate"].iter().any(|why| text.contains(why))
                || text.contains(DENIED)
        };
        cluster
            .until(GATEWAY, "Gateway", NS, "edge", |o| is_told(&message(o)))
            .await?;
        mutation.end(server).await?;
        let parts = ["spec", "ports", "endpoints"];
        cluster
            .until(api_version, kind, NS, name, |o| {
                parts.iter().all(|part| o[part] == right[part])
            })
            .await?;
        cluster
            .until(GATEWAY, "Gateway", NS, "edge", |o| !is_told(&message(o)))
            .await?;
    }
    cluster.quiet().await?;
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    Ok(())
}
