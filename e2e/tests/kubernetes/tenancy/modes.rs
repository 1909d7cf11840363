//! Every certificate mode leads to exactly the objects on the page; a change of the mode deletes
//! unwanted ones.

use anyhow::Result;
use e2e::apiserver::ApiServer;
use e2e::cluster::{Cluster, tls_secret};
use serde_json::{Value, json};

use e2e::tenants::{
    ATTACHED, CERT_MANAGER, CLAIMS, GATEWAY, OWNER, TENANT, cluster, member, namespace, program,
    ready, route, tenant, until_owned, until_ready,
};

struct Case {
    mode: &'static str,
    spec: Value,
    annotations: Value,
    /// Kind and name of all owned objects of the mode.
    owned: &'static [&'static str],
    /// The listeners of the Gateway: name, hostname, Secret.
    listeners: &'static [(&'static str, &'static str, &'static str)],
    /// A field of an object: kind, name, pointer, value.
    fields: Vec<(&'static str, &'static str, &'static str, Value)>,
}

fn cases() -> Vec<Case> {
    vec![
        Case {
            mode: "http01",
            spec: json!({"apex": "http01.example.org", "tlsPassthroughServices": ["api"]}),
            annotations: json!({}),
            owned: &[
                "Certificate cozystack-web-3b0b22b4-tls",
                "Gateway cozystack",
                "HTTPRoute cozystack-http-redirect",
                "Issuer cozystack-gateway",
            ],
            listeners: &[
                ("http", "", ""),
                (
                    "https-web-3b0b22b4",
                    "web.http01.example.org",
                    "cozystack-web-3b0b22b4-tls",
                ),
                ("tls-api", "api.http01.example.org", ""),
            ],
            fields: vec![
                (
                    "Issuer",
                    "cozystack-gateway",
                    "/spec/acme/privateKeySecretRef/name",
                    json!("cozystack-acme-account"),
                ),
                (
                    "Issuer",
                    "cozystack-gateway",
                    "/spec/acme/server",
                    json!("https://acme-v02.api.letsencrypt.org/directory"),
                ),
                (
                    "Issuer",
                    "cozystack-gateway",
                    "/spec/acme/solvers/0/http01/gatewayHTTPRoute/parentRefs/0/sectionName",
                    json!("http"),
                ),
                (
                    "Certificate",
                    "cozystack-web-3b0b22b4-tls",
                    "/spec",
                    json!({"secretName": "cozystack-web-3b0b22b4-tls", "dnsNames": ["web.http01.example.org"],
                        "issuerRef": {"kind": "Issuer", "name": "cozystack-gateway"}}),
                ),
                (
                    "HTTPRoute",
                    "cozystack-http-redirect",
                    "/spec/rules/0/filters/0/requestRedirect",
                    json!({"scheme": "https", "statusCode": 301}),
                ),
            ],
        },
        Case {
            mode: "dns01",
            spec: json!({"apex": "dns01.example.org", "certMode": "dns01", "issuerName": "letsencrypt-stage",
                "dns01": {"provider": "cloudflare", "cloudflare": {"apiTokenSecretRef": {"name": "token", "key": "k"}}}}),
            annotations: json!({}),
            owned: &[
                "Certificate cozystack-gateway-tls",
                "Gateway cozystack",
                "HTTPRoute cozystack-http-redirect",
                "Issuer cozystack-gateway",
            ],
            listeners: &[
                ("http", "", ""),
                ("https", "*.dns01.example.org", "cozystack-gateway-tls"),
                ("https-apex", "dns01.example.org", "cozystack-gateway-tls"),
                (
                    "https-child-child-e4b27044",
                    "*.child.dns01.example.org",
                    "cozystack-gateway-tls",
                ),
            ],
            fields: vec![
                (
                    "Certificate",
                    "cozystack-gateway-tls",
                    "/spec/dnsNames",
                    json!([
                        "dns01.example.org",
                        "*.dns01.example.org",
                        "child.dns01.example.org",
                        "*.child.dns01.example.org"
                    ]),
                ),
                (
                    "Issuer",
                    "cozystack-gateway",
                    "/spec/acme/solvers/0/dns01/cloudflare/apiTokenSecretRef",
                    json!({"name": "token", "key": "k"}),
                ),
            ],
        },
        Case {
            mode: "existing",
            spec: json!({"apex": "existing.example.org", "certMode": "existingSecret",
                "wildcardSecretRef": {"name": "wildcard"}}),
            annotations: json!({}),
            owned: &["Gateway cozystack", "HTTPRoute cozystack-http-redirect"],
            listeners: &[
                ("http", "", ""),
                ("https", "*.existing.example.org", "wildcard"),
                ("https-apex", "existing.example.org", "wildcard"),
                (
                    "https-child-child-f8167b92",
                    "*.child.existing.example.org",
                    "wildcard",
                ),
            ],
            fields: vec![],
        },
        Case {
            mode: "internal",
            spec: json!({"apex": "internal.example.org"}),
            annotations: json!({"gatewright.io/issuer": "internal-ca"}),
            owned: &["Gateway cozystack", "HTTPRoute cozystack-http-redirect"],
            listeners: &[
                ("http", "", ""),
                (
                    "https-web-1f43432f",
                    "web.internal.example.org",
                    "cozystack-web-1f43432f-tls",
                ),
            ],
            fields: vec![],
        },
    ]
}

async fn apply(server: &ApiServer, case: &Case) -> Result<String> {
    let space = format!("tenant-{}", case.mode);
    let apex = format!("{}.example.org", case.mode);
    namespace(server, &space, &apex).await?;
    member(
        server,
        &format!("{space}-child"),
        &space,
        &format!("child.{apex}"),
    )
    .await?;
    server
        .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": format!("cozy-{}", case.mode)}}))
        .await?;
    let wildcard = format!("*.{apex}");
    let child = format!("*.child.{apex}");
    server
        .put(tls_secret(&space, "wildcard", &[&apex, &wildcard, &child])?)
        .await?;
    let mut object = tenant(&space, case.spec.clone());
    object["metadata"]["annotations"] = case.annotations.clone();
    object["spec"]["attachedNamespaces"] = json!([format!("cozy-{}", case.mode)]);
    server.put(object).await?;
    server
        .put(route(&space, "web", &space, &[&format!("web.{apex}")]))
        .await?;
    Ok(space)
}

fn listeners(gateway: &Value) -> Vec<(String, String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = gateway["spec"]["listeners"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    all.iter()
        .map(|l| {
            (
                text(&l["name"]),
                text(&l["hostname"]),
                text(&l["tls"]["certificateRefs"][0]["name"]),
            )
        })
        .collect()
}

/// Applies a mode and checks its derived objects, up to `Ready=True`.
async fn led_to(cluster: &Cluster, case: &Case) -> Result<()> {
    let server = &cluster.server;
    let space = apply(server, case).await?;
    until_owned(server, &space, case.owned).await?;
    let expected: Vec<(String, String, String)> = case
        .listeners
        .iter()
        .map(|(n, h, s)| (n.to_string(), h.to_string(), s.to_string()))
        .collect();
    let gateway = cluster
        .until(GATEWAY, "Gateway", &space, "cozystack", |gateway| {
            listeners(gateway) == expected
        })
        .await?;
    assert_eq!(
        gateway["metadata"]["labels"]["cozystack.io/gateway"], space,
        "{}",
        case.mode
    );
    assert_eq!(
        gateway["metadata"]["labels"]["cozystack.io/managed-by"],
        "cozystack-controller"
    );
    for (kind, name, pointer, value) in &case.fields {
        let api_version = if *kind == "HTTPRoute" {
            GATEWAY
        } else {
            CERT_MANAGER
        };
        cluster
            .until(api_version, kind, &space, name, |object| {
                object.pointer(pointer) == Some(value)
            })
            .await?;
    }
    // The attached namespace has the label, and the annotation of its TenantGateway.
    let attached = format!("cozy-{}", case.mode);
    cluster
        .until("v1", "Namespace", "", &attached, |object| {
            let meta = &object["metadata"];
            meta["labels"][OWNER] == *space && meta["annotations"][ATTACHED] == *space
        })
        .await?;
    // A route's status says that it has its hostname, in any mode.
    cluster
        .until(GATEWAY, "HTTPRoute", &space, "web", |object| {
            let parents = object["status"]["parents"].as_array().into_iter().flatten();
            parents.into_iter().any(|parent| {
                let accepted = &parent["conditions"][0];
                parent["controllerName"] == CLAIMS
                    && accepted["type"] == "Accepted"
                    && accepted["status"] == "True"
            })
        })
        .await?;
    until_ready(cluster, &space, "GatewayNotAccepted").await?;
    program(server, "Gateway", &space, "cozystack").await?;
    until_ready(cluster, &space, "Reconciled").await?;
    let object = cluster
        .until(TENANT, "TenantGateway", &space, "cozystack", |o| {
            ready(o).is_some()
        })
        .await?;
    let told = object["status"]["listeners"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    assert!(
        told.iter().all(|listener| listener["ready"] == true),
        "{told:?}"
    );
    assert_eq!(told.len(), expected.len());
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api cert-manager-crds"]
async fn each_mode_leads_to_its_objects_and_a_switch_to_those_of_the_other() -> Result<()> {
    let cluster = cluster().await?;
    let server = &cluster.server;
    let mut controller = cluster.controller("one")?;
    controller.line("holding the lease").await?;
    futures::future::try_join_all(cases().iter().map(|case| led_to(&cluster, case))).await?;

    // Nothing is written any more.
    cluster.quiet().await?;

    // From one certificate for each host to a wildcard, and to a Secret that a user provides.
    let http01 = &cases()[0];
    let mut object = tenant("tenant-http01", cases()[1].spec.clone());
    object["spec"]["apex"] = http01.spec["apex"].clone();
    server.put(object.clone()).await?;
    until_owned(server, "tenant-http01", cases()[1].owned).await?;
    object["spec"] = json!({"apex": "http01.example.org", "certMode": "existingSecret",
        "wildcardSecretRef": {"name": "wildcard"}});
    server.put(object).await?;
    until_owned(server, "tenant-http01", cases()[2].owned).await?;
    // The namespace is not attached any more: its label is removed.
    cluster
        .until("v1", "Namespace", "", "cozy-http01", |object| {
            object["metadata"]["labels"][OWNER].is_null()
                && object["metadata"]["annotations"][ATTACHED].is_null()
        })
        .await?;

    // Deleting a TenantGateway deletes its derived objects.
    server
        .api(TENANT, "TenantGateway", "tenant-dns01")
        .await?
        .delete("cozystack", &Default::default())
        .await?;
    until_owned(server, "tenant-dns01", &[]).await?;
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    Ok(())
}
