//! Other writers: foreign objects under our names, objects of Cozystack's controller, edits by
//! people, and a controller that keeps reverting ours.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use e2e::cluster::{Cluster, condition};
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use e2e::tenants::{
    ATTACHED, CERT_MANAGER, CLAIMS, GATEWAY, OWNER, TENANT, cluster, id, listener_name, member,
    namespace, objects, program, quiet, route, tenant, until, until_owned, until_ready,
};

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api cert-manager-crds"]
async fn changes_of_others_are_left_alone_taken_over_or_reverted() -> Result<()> {
    let cluster = cluster().await?;
    let before = before_us(&cluster).await?;
    let mut controller = cluster.controller("one")?;
    controller.line("holding the lease").await?;
    taken_over(&cluster, &before).await?;
    // They are in namespaces of their own; the others count writes.
    tokio::try_join!(
        left_alone(&cluster),
        labels(&cluster),
        claims(&cluster),
        refused(&cluster)
    )?;
    put_right(&cluster).await?;
    fought_over(&cluster).await?;
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    Ok(())
}

const NS: &str = "tenant-before";
const APEX: &str = "before.example.org";

/// Makes the objects of Cozystack's controller: complete objects by PUT instead of apply, with its
/// own defaults and statuses.
async fn before_us(cluster: &Cluster) -> Result<BTreeMap<String, Value>> {
    let server = &cluster.server;
    namespace(server, NS, APEX).await?;
    let made = server
        .put(tenant(
            NS,
            json!({"apex": APEX, "tlsPassthroughServices": ["api"]}),
        ))
        .await?;
    server
        .put(route(NS, "web", NS, &["web.before.example.org"]))
        .await?;
    let owner = json!([{"apiVersion": TENANT, "kind": "TenantGateway", "name": "cozystack", "controller": true,
        "blockOwnerDeletion": true, "uid": made.metadata.uid}]);
    let meta = |name: &str, labels: Value| {
        let mut all = json!({"cozystack.io/managed-by": "cozystack-controller"});
        for (label, value) in labels.as_object().into_iter().flatten() {
            all[label.as_str()] = value.clone();
        }
        json!({"name": name, "namespace": NS, "labels": all, "ownerReferences": owner})
    };
    let per_host = json!({"cozystack.io/tenantgateway": "cozystack", "cozystack.io/per-listener-cert": "true"});
    let hash = |host: &str| e2e_hash(host);
    let kinds = json!([{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute"},
        {"group": "gateway.networking.k8s.io", "kind": "TLSRoute"}]);
    let selector = json!({"from": "Selector", "selector": {"matchLabels": {OWNER: NS}}});
    let https = |host: &str| {
        let name = format!("https-{}", hash(host));
        json!({"name": name, "port": 443, "protocol": "HTTPS", "hostname": host,
            "allowedRoutes": {"kinds": kinds, "namespaces": selector},
            "tls": {"mode": "Terminate", "certificateRefs": [{"name": format!("cozystack-{}-tls", hash(host))}]}})
    };
    let certificate = |host: &str| {
        let name = format!("cozystack-{}-tls", hash(host));
        json!({"apiVersion": CERT_MANAGER, "kind": "Certificate", "metadata": meta(&name, per_host.clone()),
            "spec": {"secretName": name, "dnsNames": [host],
                "issuerRef": {"kind": "Issuer", "name": "cozystack-gateway"}}})
    };
    let parent = json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "cozystack",
        "sectionName": "http"});
    let mut in_ns = parent.clone();
    in_ns["namespace"] = json!(NS);
    let open = json!([{"key": "kubernetes.io/metadata.name", "operator": "In", "values": [NS, "cozy-cert-manager"]}]);
    let all = vec![
        json!({"apiVersion": GATEWAY, "kind": "Gateway",
            "metadata": meta("cozystack", json!({"cozystack.io/gateway": NS})),
            "spec": {"gatewayClassName": "cilium", "listeners": [
                {"name": "http", "port": 80, "protocol": "HTTP",
                    "allowedRoutes": {"namespaces": {"from": "Selector", "selector": {"matchExpressions": open}}}},
                // Upstream terminates the passthrough service as well; the page does not.
                https("api.before.example.org"),
                https("web.before.example.org"),
                {"name": "tls-api", "port": 443, "protocol": "TLS", "hostname": "api.before.example.org",
                    "allowedRoutes": {"kinds": kinds, "namespaces": selector}, "tls": {"mode": "Passthrough"}}]}}),
        json!({"apiVersion": GATEWAY, "kind": "HTTPRoute",
            "metadata": meta("cozystack-http-redirect", json!({"cozystack.io/tenantgateway": "cozystack"})),
            "spec": {"parentRefs": [parent], "rules": [{"filters": [{"type": "RequestRedirect",
                "requestRedirect": {"scheme": "https", "statusCode": 301}}]}]}}),
        json!({"apiVersion": CERT_MANAGER, "kind": "Issuer", "metadata": meta("cozystack-gateway", json!({})),
            "spec": {"acme": {"server": "https://acme-v02.api.letsencrypt.org/directory",
                "privateKeySecretRef": {"name": "cozystack-acme-account"},
                "solvers": [{"http01": {"gatewayHTTPRoute": {"parentRefs": [in_ns]}}}]}}}),
        certificate("api.before.example.org"),
        certificate("web.before.example.org"),
    ];
    for object in all {
        let (api, _) = server.api_of(&object).await?;
        let params = PostParams {
            field_manager: Some("cozystack-controller".to_owned()),
            ..PostParams::default()
        };
        api.create(&params, &serde_json::from_value(object)?)
            .await?;
    }
    program(server, "Gateway", NS, "cozystack").await?;
    let status = json!({"status": {"observedGeneration": 1, "conditions": [{"type": "Ready", "status": "True",
            "reason": "Reconciled", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        "listeners": [{"name": "https-left-behind", "ready": true}]}});
    let api = server.api(TENANT, "TenantGateway", NS).await?;
    api.patch_status("cozystack", &PatchParams::default(), &Patch::Merge(status))
        .await?;
    let api = server.api(GATEWAY, "HTTPRoute", NS).await?;
    api.patch_status(
        "web",
        &PatchParams::default(),
        &Patch::Merge(told_of_another()),
    )
    .await?;
    Ok(objects(server, NS)
        .await?
        .into_iter()
        .map(|object| (id(&object), object))
        .collect())
}

/// The status of a route with an entry of a parent that it does not have any more.
pub(crate) fn told_of_another() -> Value {
    json!({"status": {"parents": [{"controllerName": CLAIMS, "parentRef": {"name": "gone"}, "conditions": [
        {"type": "Accepted", "status": "True", "reason": "Accepted", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]}]}})
}

/// Returns true if a route's status has its Gateway and no other parent.
pub(crate) fn is_told_of_its_own_alone(route: &Value) -> bool {
    let parents = route["status"]["parents"].as_array().map(Vec::as_slice);
    matches!(parents, Some([one]) if one["parentRef"]["name"] == "cozystack")
}

/// Returns first label and hash, as on the page.
pub(crate) fn e2e_hash(host: &str) -> String {
    let listener = listener_name(host);
    listener.trim_start_matches("https-").to_owned()
}

/// Same names, same UIDs; correct specs have not even a new generation, and upstream's additions to
/// the page are removed.
async fn taken_over(cluster: &Cluster, before: &BTreeMap<String, Value>) -> Result<()> {
    let server = &cluster.server;
    let fixed = ["http", "https-web", "tls-api"];
    let is_right = |gateway: &Value| {
        let listeners = gateway["spec"]["listeners"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let name = |listener: &Value| listener["name"].as_str().unwrap_or_default().to_owned();
        listeners.len() == fixed.len()
            && fixed.iter().all(|prefix| {
                listeners
                    .iter()
                    .any(|listener| name(listener).starts_with(prefix))
            })
    };
    cluster
        .until(GATEWAY, "Gateway", NS, "cozystack", is_right)
        .await?;
    program(server, "Gateway", NS, "cozystack").await?;
    until_ready(cluster, NS, "Reconciled").await?;
    quiet(cluster, 0).await?;
    let after = objects(server, NS).await?;
    for object in &after {
        let old = before
            .get(&id(object))
            .with_context(|| format!("{} is new", id(object)))?;
        assert_eq!(
            old["metadata"]["uid"],
            object["metadata"]["uid"],
            "{}",
            id(object)
        );
        if object["kind"] != "Gateway" {
            assert_eq!(old["spec"], object["spec"]);
            assert_eq!(
                old["metadata"]["generation"],
                object["metadata"]["generation"],
                "{}",
                id(object)
            );
        }
    }
    assert_eq!(
        after.len(),
        before.len(),
        "nothing is deleted, not even what is wanted no more"
    );
    let deleted = cluster
        .writes()?
        .into_iter()
        .filter(|request| request.verb == "delete")
        .count();
    assert_eq!(deleted, 0);
    // Old statuses are updated.
    cluster
        .until(TENANT, "TenantGateway", NS, "cozystack", |o| {
            o["status"]["listeners"].as_array().map(Vec::len) == Some(fixed.len())
        })
        .await?;
    cluster
        .until(GATEWAY, "HTTPRoute", NS, "web", is_told_of_its_own_alone)
        .await
        .map(drop)
}

/// Six guards: foreign objects under derived names, and a label that somebody else wrote.
async fn left_alone(cluster: &Cluster) -> Result<()> {
    let rules = json!([{"backendRefs": [{"name": "theirs", "port": 80}]}]);
    let certificate = |name: &str| {
        json!({"apiVersion": CERT_MANAGER, "kind": "Certificate", "metadata": {"name": name},
            "spec": {"secretName": "theirs", "dnsNames": ["theirs.example.org"], "issuerRef": {"name": "theirs"}}})
    };
    let web = format!("cozystack-{}-tls", e2e_hash("web.foreign0.example.org"));
    let cases = [
        (
            "foreign4",
            "Gateway",
            json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "cozystack"},
                "spec": {"gatewayClassName": "theirs", "listeners": [{"name": "x", "port": 80, "protocol": "HTTP"}]}}),
        ),
        (
            "foreign3",
            "HTTPRoute",
            json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": "cozystack-http-redirect"},
                "spec": {"hostnames": ["theirs.example.org"], "rules": rules}}),
        ),
        (
            "foreign2",
            "Issuer",
            json!({"apiVersion": CERT_MANAGER, "kind": "Issuer", "metadata": {"name": "cozystack-gateway"},
                "spec": {"selfSigned": {}}}),
        ),
        (
            "foreign1",
            "Certificate",
            certificate("cozystack-gateway-tls"),
        ),
        ("foreign0", "Certificate", certificate(&web)),
    ];
    let all = cases.map(|(name, kind, object)| left_alone_is(cluster, name, kind, object));
    futures::future::try_join_all(all).await.map(drop)
}

/// Checks one of them, in a namespace of its own.
async fn left_alone_is(cluster: &Cluster, name: &str, kind: &str, mut object: Value) -> Result<()> {
    let server = &cluster.server;
    let space = format!("tenant-{name}");
    let apex = format!("{name}.example.org");
    namespace(server, &space, &apex).await?;
    object["metadata"]["namespace"] = json!(space);
    let theirs = server.put(object.clone()).await?;
    let mut spec = json!({"apex": apex});
    if name == "foreign1" {
        spec["certMode"] = json!("dns01");
        spec["dns01"] = json!({"cloudflare": {"apiTokenSecretRef": {"name": "token", "key": "k"}}});
    }
    server.put(tenant(&space, spec)).await?;
    server
        .put(route(&space, "web", &space, &[&format!("web.{apex}")]))
        .await?;
    server
        .put(route(&space, "good", &space, &[&format!("good.{apex}")]))
        .await?;
    let told = until_ready(cluster, &space, "ForeignObject").await?;
    let text = told["message"].as_str().unwrap_or_default();
    assert!(
        text.contains(kind) && text.contains("not owned by TenantGateway"),
        "{text}"
    );
    let (api, object_name) = server.api_of(&object).await?;
    let now = api.get(&object_name).await?;
    assert_eq!(
        theirs.metadata.resource_version, now.metadata.resource_version,
        "{kind} of others is untouched"
    );
    // The other objects are made all the same.
    if kind != "Gateway" {
        cluster
            .until(GATEWAY, "Gateway", &space, "cozystack", |gateway| {
                gateway["spec"].is_object()
            })
            .await?;
    }
    // Once it is deleted, ours is made in its place.
    api.delete(&object_name, &Default::default()).await?;
    let api_version = object["apiVersion"].as_str().unwrap_or_default();
    cluster
        .until(api_version, kind, &space, &object_name, |object| {
            object["metadata"]["ownerReferences"][0]["kind"] == "TenantGateway"
        })
        .await?;
    Ok(())
}

/// A label of others is never changed; one of ours is restored, and removed with its annotation.
async fn labels(cluster: &Cluster) -> Result<()> {
    let server = &cluster.server;
    let space = "tenant-labels";
    namespace(server, space, "labels.example.org").await?;
    member(server, "cozy-theirs", "tenant-other", "other.example.org").await?;
    server
        .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "cozy-ours"}}))
        .await?;
    let attached = json!(["cozy-theirs", "cozy-ours", "cozy-late"]);
    let mut object = tenant(
        space,
        json!({"apex": "labels.example.org", "attachedNamespaces": attached}),
    );
    server.put(object.clone()).await?;
    let ours = |object: &Value| {
        object["metadata"]["labels"][OWNER] == space
            && object["metadata"]["annotations"][ATTACHED] == space
    };
    cluster
        .until("v1", "Namespace", "", "cozy-ours", ours)
        .await?;
    let told = until_ready(cluster, space, "NamespaceAttachedElsewhere").await?;
    assert!(
        told["message"]
            .as_str()
            .unwrap_or_default()
            .contains("cozy-theirs"),
        "{told}"
    );
    // A later namespace is attached when it is made.
    server
        .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "cozy-late"}}))
        .await?;
    cluster
        .until("v1", "Namespace", "", "cozy-late", ours)
        .await?;
    // Somebody removes the label.
    let api = server.api("v1", "Namespace", "").await?;
    let away = json!({"metadata": {"labels": {OWNER: null}}});
    api.patch("cozy-ours", &PatchParams::default(), &Patch::Merge(&away))
        .await?;
    cluster
        .until("v1", "Namespace", "", "cozy-ours", ours)
        .await?;
    object["spec"]["attachedNamespaces"] = json!(["cozy-late"]);
    server.put(object).await?;
    cluster
        .until("v1", "Namespace", "", "cozy-ours", |object| {
            object["metadata"]["labels"][OWNER].is_null()
                && object["metadata"]["annotations"][ATTACHED].is_null()
        })
        .await?;
    let theirs = api.get("cozy-theirs").await?;
    assert_eq!(
        theirs
            .metadata
            .labels
            .unwrap_or_default()
            .get(OWNER)
            .map(String::as_str),
        Some("tenant-other")
    );
    assert!(
        !theirs
            .metadata
            .annotations
            .unwrap_or_default()
            .contains_key(ATTACHED)
    );
    Ok(())
}

/// Edits by people are reverted once; fields that are not ours stay.
async fn put_right(cluster: &Cluster) -> Result<()> {
    let server = &cluster.server;
    let start = cluster.writes()?.len();
    let start = start + quiet(cluster, start).await?.len();
    let api = server.api(GATEWAY, "Gateway", NS).await?;
    let by_hand = PatchParams {
        field_manager: Some("kubectl-edit".to_owned()),
        ..PatchParams::default()
    };
    let edit = json!([
        {"op": "replace", "path": "/spec/gatewayClassName", "value": "theirs"},
        {"op": "add", "path": "/spec/listeners/-", "value": {"name": "extra", "port": 8443, "protocol": "HTTPS",
            "hostname": "x.before.example.org", "tls": {"certificateRefs": [{"name": "x"}]}}},
        {"op": "add", "path": "/metadata/annotations", "value": {"note": "theirs"}}]);
    api.patch(
        "cozystack",
        &by_hand,
        &Patch::Json::<()>(serde_json::from_value(edit)?),
    )
    .await?;
    let right = cluster
        .until(GATEWAY, "Gateway", NS, "cozystack", |gateway| {
            gateway["spec"]["gatewayClassName"] == "cilium"
                && gateway["spec"]["listeners"]
                    .as_array()
                    .is_some_and(|listeners| listeners.len() == 3)
        })
        .await?;
    assert_eq!(
        right["metadata"]["annotations"]["note"], "theirs",
        "an annotation is nobody's business"
    );
    program(server, "Gateway", NS, "cozystack").await?;
    let written = quiet(cluster, start).await?;
    let gateway = written
        .iter()
        .filter(|request| request.resource == "gateways")
        .count();
    assert!(gateway <= 2, "put right once: {written:#?}");
    // Others write their own fields, and we write nothing.
    let start = cluster.writes()?.len();
    for number in 0..5 {
        let note = json!({"metadata": {"annotations": {"note": number.to_string()}, "labels": {"theirs": "x"}}});
        api.patch("cozystack", &PatchParams::default(), &Patch::Merge(&note))
            .await?;
    }
    assert_eq!(quiet(cluster, start).await?, []);
    Ok(())
}

/// Two routes of different namespaces claim one hostname: the loser's status says so, in every
/// mode, and others' entries stay.
async fn claims(cluster: &Cluster) -> Result<()> {
    let server = &cluster.server;
    let space = "tenant-claims";
    namespace(server, space, "claims.example.org").await?;
    member(server, "tenant-claims-z", space, "claims.example.org").await?;
    let spec = json!({"apex": "claims.example.org", "certMode": "existingSecret",
        "wildcardSecretRef": {"name": "wildcard"}});
    server.put(tenant(space, spec)).await?;
    server
        .put(route(space, "web", space, &["web.claims.example.org"]))
        .await?;
    let hosts = ["web.claims.example.org", "own.claims.example.org"];
    server
        .put(route("tenant-claims-z", "web", space, &hosts))
        .await?;
    let grpc = json!({"apiVersion": GATEWAY, "kind": "GRPCRoute", "metadata": {"name": "rpc", "namespace": "tenant-claims-z"},
        "spec": {"parentRefs": [{"name": "cozystack", "namespace": space}], "hostnames": ["web.claims.example.org"]}});
    server.put(grpc).await?;
    for kind in ["HTTPRoute", "GRPCRoute"] {
        let name = if kind == "GRPCRoute" { "rpc" } else { "web" };
        let told = cluster
            .until(GATEWAY, kind, "tenant-claims-z", name, |object| {
                let accepted = &object["status"]["parents"][0]["conditions"][0];
                accepted["reason"] == "HostnameConflict" && accepted["observedGeneration"] == 1
            })
            .await?;
        let text = told["status"]["parents"][0]["conditions"][0]["message"]
            .as_str()
            .unwrap_or_default();
        assert!(
            text.contains("web.claims.example.org") && !text.contains("tenant-claims/web"),
            "{text}"
        );
    }
    // An Event reports it once, too.
    let events = async || {
        let all = server
            .api("events.k8s.io/v1", "Event", "tenant-claims-z")
            .await?
            .list(&Default::default())
            .await?;
        anyhow::Ok(
            all.iter()
                .filter(|event| {
                    event.data["reason"] == "HostnameConflict"
                        && event.data["regarding"]["name"] == "web"
                })
                .count(),
        )
    };
    until("an Event tells it", async || Ok(events().await? == 1)).await?;
    // The winner is deleted, and the other gets the hostname.
    server
        .api(GATEWAY, "HTTPRoute", space)
        .await?
        .delete("web", &Default::default())
        .await?;
    cluster
        .until(GATEWAY, "HTTPRoute", "tenant-claims-z", "web", |object| {
            object["status"]["parents"][0]["conditions"][0]["status"] == "True"
        })
        .await?;
    Ok(())
}

/// A refusal by the API server affects nothing else, and its message is in the status.
async fn refused(cluster: &Cluster) -> Result<()> {
    let server = &cluster.server;
    let space = "tenant-refused";
    namespace(server, space, "refused.example.org").await?;
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "no-bad"}, "spec": {"failurePolicy": "Fail", "matchConstraints": {"resourceRules": [{
            "apiGroups": ["cert-manager.io"], "apiVersions": ["v1"], "operations": ["CREATE"],
            "resources": ["certificates"]}]},
            "validations": [{"expression": "!object.spec.dnsNames.exists(n, n.startsWith('bad.'))",
                "message": "bad names are not certified here"}]}});
    server.put(policy).await?;
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "no-bad"}, "spec": {"policyName": "no-bad", "validationActions": ["Deny"]}});
    server.put(binding).await?;
    let bad = json!({"apiVersion": CERT_MANAGER, "kind": "Certificate", "metadata": {"name": "probe", "namespace": space},
        "spec": {"secretName": "probe", "dnsNames": ["bad.example.org"], "issuerRef": {"name": "probe"}}});
    until("the policy is enforced", async || {
        Ok(server.dry_run(bad.clone()).await.is_err())
    })
    .await?;
    server
        .put(tenant(space, json!({"apex": "refused.example.org"})))
        .await?;
    server
        .put(route(space, "bad", space, &["bad.refused.example.org"]))
        .await?;
    server
        .put(route(space, "good", space, &["good.refused.example.org"]))
        .await?;
    let good = format!(
        "Certificate cozystack-{}-tls",
        e2e_hash("good.refused.example.org")
    );
    let owned = [
        &good,
        "Gateway cozystack",
        "HTTPRoute cozystack-http-redirect",
        "Issuer cozystack-gateway",
    ];
    until_owned(server, space, &owned).await?;
    let told = until_ready(cluster, space, "ReconcileError").await?;
    let text = told["message"].as_str().unwrap_or_default();
    assert!(
        text.contains("bad names are not certified here")
            && text.contains("Certificate tenant-refused"),
        "{text}"
    );
    server
        .api(GATEWAY, "HTTPRoute", space)
        .await?
        .delete("bad", &Default::default())
        .await?;
    until_ready(cluster, space, "GatewayNotAccepted").await?;
    Ok(())
}

/// Two conflicting writers end in a condition and not in a loop.
async fn fought_over(cluster: &Cluster) -> Result<()> {
    let server = &cluster.server;
    let start = cluster.writes()?.len();
    let api = server.api(GATEWAY, "Gateway", NS).await?;
    let theirs = json!({"spec": {"gatewayClassName": "theirs"}});
    let rival = PatchParams {
        field_manager: Some("rival".to_owned()),
        ..PatchParams::default()
    };
    let tenants = server.api(TENANT, "TenantGateway", NS).await?;
    let deadline = Instant::now() + Duration::from_secs(120);
    let mut edits = 0;
    let is_told = |object: &DynamicObject| {
        condition(&object.data["status"], "Ready")
            .is_some_and(|ready| ready["reason"] == "ContestedByAnotherWriter")
    };
    while !is_told(&tenants.get("cozystack").await?) {
        assert!(
            Instant::now() < deadline,
            "{edits} edits, and nothing is told"
        );
        api.patch("cozystack", &rival, &Patch::Merge(&theirs))
            .await?;
        edits += 1;
        sleep(Duration::from_millis(100)).await;
    }
    let told = until_ready(cluster, NS, "ContestedByAnotherWriter").await?;
    assert!(
        told["message"]
            .as_str()
            .unwrap_or_default()
            .contains("Gateway tenant-before/cozystack"),
        "{told}"
    );
    let all = cluster.writes()?;
    let count = all[start..]
        .iter()
        .filter(|request| request.resource == "gateways")
        .count();
    assert!(
        (1..=8).contains(&count),
        "{count} writes against {edits} edits"
    );
    cluster
        .until(GATEWAY, "Gateway", NS, "cozystack", |object| {
            object["spec"]["gatewayClassName"] == "cilium"
        })
        .await?;
    // The other one has stopped: the message disappears soon.
    let stopped = Instant::now();
    while is_told(&tenants.get("cozystack").await?) {
        assert!(
            stopped.elapsed() < Duration::from_secs(60),
            "it is told for {:?} already",
            stopped.elapsed()
        );
        sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}
