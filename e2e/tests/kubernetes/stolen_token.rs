//! What somebody with the controller's token cannot write: endpoints of Services that are not the
//! controller's, addresses, routes and certificates of others. The controller's own objects of
//! these kinds pass.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::apiserver::{ApiServer, Definitions};
use e2e::cluster::{ACCOUNT, Cluster, NAMESPACE};
use kube::Client;
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

const GATEWAY: &str = "gateway.networking.k8s.io/v1";
const LIMIT: Duration = Duration::from_secs(180);
/// The namespaces of the system, of a tenant, and of the controller.
const EVERYWHERE: [&str; 4] = ["kube-system", "default", "alice", NAMESPACE];

fn api(client: &Client, object: &Value) -> Api<DynamicObject> {
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let kind = GroupVersionKind::gvk(group, version, object["kind"].as_str().unwrap_or_default());
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk(&kind))
}

/// Returns the message of a refusal by an admission policy, or by the schema of a custom resource;
/// `None` if the request was admitted.
fn refusal(answer: kube::Result<DynamicObject>) -> Result<Option<String>> {
    match answer {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status))
            if status.code == 403 && status.message.contains("ValidatingAdmissionPolicy") =>
        {
            Ok(Some(status.message))
        }
        Err(kube::Error::Api(status)) if status.code == 422 => Ok(Some(status.message)),
        Err(error) => Err(error.into()),
    }
}

async fn create(client: &Client, object: &Value) -> Result<Option<String>> {
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let answer = api(client, object)
        .create(&params, &serde_json::from_value(object.clone())?)
        .await;
    refusal(answer).with_context(|| object.to_string())
}

async fn change(client: &Client, object: &Value, patch: Value) -> Result<Option<String>> {
    let params = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    refusal(
        api(client, object)
            .patch(name, &params, &Patch::Merge(patch))
            .await,
    )
    .with_context(|| object.to_string())
}

/// Starts a cluster with a tenant, and returns a client with the controller's token.
async fn stolen() -> Result<(Cluster, Client)> {
    let cluster = Cluster::start().await?;
    let server = &cluster.server;
    server.install(Definitions::Ours).await?;
    server
        .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "alice"}}))
        .await?;
    let groups = [
        "system:serviceaccounts",
        "system:serviceaccounts:gatewright-system",
        "system:authenticated",
    ];
    let thief = server.client_as(ACCOUNT, &groups).await?;
    server
        .until_may(
            ACCOUNT,
            ("create", "discovery.k8s.io", "endpointslices", "alice"),
            true,
        )
        .await?;
    Ok((cluster, thief))
}

/// Waits until each policy decides: one takes effect some time after it was written.
async fn refused_at_last(client: &Client, object: &Value, word: &str) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let told = create(client, object).await?;
        if told.as_ref().is_some_and(|told| told.contains(word)) {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "expected {word:?}, got {told:?}: {object}"
        );
        sleep(Duration::from_millis(100)).await;
    }
}

/// The metadata of an object that belongs to a Gateway, whose uid anybody can look up.
fn of_gateway(namespace: &str, name: &str, gateway: &str, class: &str) -> Value {
    json!({"name": name, "namespace": namespace,
        "labels": {"app.kubernetes.io/managed-by": "gatewright", "gateway.networking.k8s.io/gateway-name": gateway,
            "gateway.networking.k8s.io/gateway-class-name": class},
        "annotations": {"gatewright.io/gateway": gateway},
        "ownerReferences": [{"apiVersion": GATEWAY, "kind": "Gateway", "name": gateway, "uid": "u", "controller": true}]})
}

/// An EndpointSlice like those behind the Service that is made for a Gateway.
fn slice(namespace: &str, gateway: &str, class: &str) -> Value {
    let service = format!("{gateway}-{class}");
    let mut metadata = of_gateway(namespace, &format!("{service}-v4"), gateway, class);
    metadata["labels"]["kubernetes.io/service-name"] = json!(service);
    metadata["labels"]["endpointslice.kubernetes.io/managed-by"] = json!("gatewright");
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata, "addressType": "IPv4",
        "endpoints": [{"addresses": ["192.0.2.66"]}], "ports": [{"name": "p80", "port": 20_001, "protocol": "TCP"}]})
}

/// An EndpointSlice like those behind a Service that a Gateway names.
fn lent(namespace: &str, service: &str) -> Value {
    let mut slice = slice(namespace, "edge", service);
    slice["metadata"]["labels"]["kubernetes.io/service-name"] = json!(service);
    slice["metadata"]["annotations"]["gatewright.io/stands-on"] = json!(service);
    slice
}

fn service(metadata: Value, spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
}

/// A Service like the one that is made for a Gateway.
fn made(namespace: &str, gateway: &str, class: &str) -> Value {
    let ports = json!([{"name": "p80", "port": 80, "targetPort": 20_001, "protocol": "TCP"}]);
    service(
        of_gateway(namespace, &format!("{gateway}-{class}"), gateway, class),
        json!({"type": "ClusterIP", "ports": ports}),
    )
}

/// Returns the object with a value at a path.
fn with(mut object: Value, path: &str, value: Value) -> Value {
    let (parent, field) = path.rsplit_once('/').expect("a path");
    let parent = object.pointer_mut(parent).expect("it is there");
    match (parent, value) {
        (Value::Object(fields), Value::Null) => {
            fields.remove(field);
        }
        (parent, value) => parent[field] = value,
    }
    object
}

/// Puts Services of others: of the system and of a tenant, with pods, with endpoints of their own,
/// and by a name.
async fn put_services_of_others(server: &ApiServer) -> Result<()> {
    for (namespace, name, spec) in [
        (
            "kube-system",
            "kube-dns",
            json!({"selector": {"k8s-app": "kube-dns"}, "ports": [{"name": "dns", "port": 53}]}),
        ),
        (
            "alice",
            "shop-web",
            json!({"selector": {"app": "web"}, "ports": [{"name": "p80", "port": 80}]}),
        ),
        (
            "alice",
            "shop-db",
            json!({"ports": [{"name": "p80", "port": 5432}]}),
        ),
        (
            "alice",
            "shop-far",
            json!({"type": "ExternalName", "externalName": "far.example.org"}),
        ),
        (
            "alice",
            "shop-named",
            json!({"ports": [{"name": "p80", "port": 80, "targetPort": 20_080}]}),
        ),
    ] {
        server
            .put(service(json!({"name": name, "namespace": namespace}), spec))
            .await?;
    }
    server.put(made("alice", "edge", "own")).await?;
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install"]
async fn endpoints_of_a_service_of_others_are_refused() -> Result<()> {
    let (cluster, thief) = stolen().await?;
    put_services_of_others(&cluster.server).await?;
    // The second policy reads Services.
    refused_at_last(&thief, &slice("alice", "shop", "web"), "controller-slices").await?;
    refused_at_last(
        &thief,
        &with(slice("alice", "edge", "own"), "/ports/0/port", json!(53)),
        "controller-objects",
    )
    .await?;
    for (what, object) in [
        (
            "the name server of the cluster",
            slice("kube-system", "kube", "dns"),
        ),
        ("as a named Service", lent("kube-system", "kube-dns")),
        ("any other of the system", lent("kube-system", "metrics")),
        ("the API server", lent("default", "kubernetes")),
        ("a Service with pods", slice("alice", "shop", "web")),
        ("a named Service with pods", lent("alice", "shop-web")),
        (
            "a Service with endpoints of its own",
            slice("alice", "shop", "db"),
        ),
        (
            "a named Service with endpoints of its own",
            lent("alice", "shop-db"),
        ),
        ("a Service by a name", lent("alice", "shop-far")),
        (
            "a named Service, as a Gateway's",
            slice("alice", "shop", "named"),
        ),
        (
            "ports of others",
            with(slice("alice", "edge", "own"), "/ports/0/port", json!(53)),
        ),
        (
            "a port of any number",
            with(slice("alice", "edge", "own"), "/ports/0/port", Value::Null),
        ),
        (
            "all ports",
            with(slice("alice", "edge", "own"), "/ports", Value::Null),
        ),
        (
            "a Gateway that it does not name",
            with(
                slice("alice", "edge", "own"),
                "/metadata/annotations",
                json!({}),
            ),
        ),
        (
            "a Gateway that is not its owner",
            with(
                slice("alice", "edge", "own"),
                "/metadata/ownerReferences/0/name",
                json!("other"),
            ),
        ),
        (
            "no owner",
            with(
                slice("alice", "edge", "own"),
                "/metadata/ownerReferences",
                json!([]),
            ),
        ),
    ] {
        assert!(create(&thief, &object).await?.is_some(), "{what}: admitted");
    }
    for (key, value) in [
        ("kubernetes.io/service-name", json!("web")),
        ("kubernetes.io/service-name", Value::Null),
        (
            "endpointslice.kubernetes.io/managed-by",
            json!("endpointslice-controller.k8s.io"),
        ),
        ("endpointslice.kubernetes.io/managed-by", Value::Null),
        ("gateway.networking.k8s.io/gateway-class-name", Value::Null),
    ] {
        let path = format!("/metadata/labels/{key}");
        let mut object = slice("alice", "edge", "own");
        let labels = object
            .pointer_mut("/metadata/labels")
            .and_then(Value::as_object_mut)
            .context("labels")?;
        match value.clone() {
            Value::Null => {
                labels.remove(key);
            }
            value => {
                labels.insert(key.to_owned(), value);
            }
        }
        assert!(
            create(&thief, &object).await?.is_some(),
            "{path}={value}: admitted"
        );
    }

    // Those of the controller pass, also with the name that a long or dotted one is shortened to.
    assert_eq!(create(&thief, &slice("alice", "edge", "own")).await?, None);
    assert_eq!(create(&thief, &lent("alice", "shop-named")).await?, None);
    let mut short = slice("alice", "a.b", "own");
    short["metadata"]["labels"]["kubernetes.io/service-name"] = json!("gw-a-b-own-0123456789ab");
    assert_eq!(create(&thief, &short).await?, None);

    // One of ours does not become another Service's, and one of others does not become ours.
    cluster.server.put(slice("alice", "edge", "own")).await?;
    let to = |name: &str| json!({"metadata": {"labels": {"kubernetes.io/service-name": name}}});
    for name in ["shop-web", "shop-db", "kubernetes"] {
        assert!(
            change(&thief, &slice("alice", "edge", "own"), to(name))
                .await?
                .is_some(),
            "{name}: admitted"
        );
    }
    let theirs = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "shop-web-abc", "namespace": "alice", "labels": {"kubernetes.io/service-name": "shop-web",
            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}}, "endpoints": [], "ports": []});
    cluster.server.put(theirs.clone()).await?;
    let ours = slice("alice", "edge", "own");
    for patch in [
        json!({"metadata": ours["metadata"]}),
        json!({"endpoints": ours["endpoints"]}),
    ] {
        let mut patch = patch;
        patch["metadata"]["name"] = json!("shop-web-abc");
        assert!(
            change(&thief, &theirs, patch.clone()).await?.is_some(),
            "{patch}: admitted"
        );
    }
    let envoys = json!({"endpoints": [{"addresses": ["192.0.2.7"], "nodeName": "n"}]});
    assert_eq!(
        change(&thief, &slice("alice", "edge", "own"), envoys).await?,
        None,
        "Envoys come and go"
    );
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install"]
async fn addresses_and_pods_of_others_are_refused_to_services() -> Result<()> {
    let (cluster, thief) = stolen().await?;
    let fields = [
        ("externalIPs", json!(["192.0.2.53"])),
        ("selector", json!({"app": "theirs"})),
        ("loadBalancerSourceRanges", json!(["192.0.2.0/24"])),
        ("publishNotReadyAddresses", json!(true)),
    ];
    let taken = |namespace: &str, field: &str, value: &Value| {
        let mut object = made(namespace, "edge", "own");
        object["spec"]["type"] = json!("LoadBalancer");
        object["spec"][field] = value.clone();
        object
    };
    refused_at_last(
        &thief,
        &taken("alice", "selector", &json!({"a": "b"})),
        "controller-objects",
    )
    .await?;
    for namespace in EVERYWHERE {
        for (field, value) in &fields {
            let told = create(&thief, &taken(namespace, field, value)).await?;
            assert!(told.is_some(), "{namespace}: {field} was admitted");
        }
        let mut by_name = made(namespace, "edge", "own");
        by_name["spec"] = json!({"type": "ExternalName", "externalName": "evil.example.org"});
        assert!(
            create(&thief, &by_name).await?.is_some(),
            "{namespace}: a name was admitted"
        );
        // Without these it is a Service like the controller's, which has none in namespaces of
        // Kubernetes.
        for kind in ["LoadBalancer", "NodePort", "ClusterIP"] {
            let told = create(&thief, &taken(namespace, "type", &json!(kind))).await?;
            assert_eq!(
                told.is_some(),
                namespace == "kube-system",
                "{namespace}, {kind}: {told:?}"
            );
        }
    }

    // What users set on the Service of a Gateway stays, and hinders no later write.
    let mut there = taken("alice", "externalIPs", &json!(["192.0.2.1"]));
    there["spec"]["loadBalancerSourceRanges"] = json!(["192.0.2.0/24"]);
    cluster.server.put(there.clone()).await?;
    let ports = json!([{"name": "p443", "port": 443, "targetPort": 20_002, "protocol": "TCP"}]);
    assert_eq!(
        change(
            &thief,
            &there,
            json!({"spec": {"ports": ports, "externalTrafficPolicy": "Local"}})
        )
        .await?,
        None
    );
    for (field, value) in &fields[..3] {
        let told = change(&thief, &there, json!({"spec": {*field: value}})).await?;
        let is_same = *field == "loadBalancerSourceRanges";
        assert_eq!(told.is_none(), is_same, "{field}: {told:?}");
    }
    let more = json!({"spec": {"type": "ExternalName", "externalName": "evil.example.org", "externalIPs": null}});
    assert!(
        change(&thief, &there, more).await?.is_some(),
        "it became a name"
    );
    Ok(())
}

/// A route with an owner.
fn route(namespace: &str, kind: &str, rules: Value) -> Value {
    let version = if kind == "Namespace" {
        "v1"
    } else {
        "gateway.cozystack.io/v1alpha1"
    };
    json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": "made", "namespace": namespace,
        "labels": {"app.kubernetes.io/managed-by": "gatewright"},
        "ownerReferences": [{"apiVersion": version, "kind": kind, "name": "alice", "uid": "u", "controller": true}]},
        "spec": {"parentRefs": [{"name": "edge", "namespace": "alice"}], "hostnames": ["shop.alice.example.org"], "rules": rules}})
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install"]
async fn routes_lead_challenges_to_the_responder_and_nothing_anywhere_else() -> Result<()> {
    let (_cluster, thief) = stolen().await?;
    let path = json!([{"path": {"type": "PathPrefix", "value": "/.well-known/acme-challenge/"}}]);
    let responder = json!([{"name": "gatewright-challenges", "port": 80}]);
    let challenges = json!({"matches": path, "backendRefs": responder});
    let redirect = |field: &str, value: Value| {
        let mut redirect = json!({"scheme": "https", "statusCode": 301});
        redirect[field] = value;
        json!({"filters": [{"type": "RequestRedirect", "requestRedirect": redirect}]})
    };
    let evil = redirect("hostname", json!("evil.example.org"));
    refused_at_last(
        &thief,
        &route("alice", "Namespace", json!([evil])),
        "controller-objects",
    )
    .await?;

    let header = json!({"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "a", "value": "b"}]}});
    let mirror = json!({"type": "RequestMirror", "requestMirror": {"backendRef": {"name": "evil", "port": 80}}});
    let changed = |field: &str, value: Value| {
        let mut rule = challenges.clone();
        rule[field] = value;
        rule
    };
    let to = |field: &str, value: Value| {
        let mut backend = responder[0].clone();
        backend[field] = value;
        changed("backendRefs", json!([responder[0], backend]))
    };
    let at = |path: Value| changed("matches", json!([{"path": path}]));
    for (what, rules) in [
        ("a redirect", json!([evil])),
        ("a redirect beside challenges", json!([challenges, evil])),
        (
            "a redirect of challenges",
            json!([changed("filters", evil["filters"].clone())]),
        ),
        (
            "a changed header",
            json!([changed("filters", json!([header]))]),
        ),
        (
            "a copy to others",
            json!([changed("filters", json!([mirror]))]),
        ),
        ("another Service", json!([to("name", json!("evil"))])),
        (
            "a Service of another namespace",
            json!([to("namespace", json!("alice"))]),
        ),
        (
            "a filter of a backend",
            json!([to("filters", json!([header]))]),
        ),
        (
            "another path",
            json!([at(json!({"type": "PathPrefix", "value": "/"}))]),
        ),
        (
            "a path beside it",
            json!([at(json!({"type": "PathPrefix", "value": "/.well-known/"}))]),
        ),
        (
            "a pattern",
            json!([at(
                json!({"type": "RegularExpression", "value": "/.well-known/acme-challenge/|/.*"})
            )]),
        ),
        ("every path", json!([changed("matches", json!([]))])),
        (
            "a header alone",
            json!([changed(
                "matches",
                json!([{"headers": [{"name": "a", "value": "b"}]}])
            )]),
        ),
        ("no backend", json!([{"matches": path}])),
    ] {
        for namespace in EVERYWHERE {
            let told = create(&thief, &route(namespace, "Namespace", rules.clone())).await?;
            assert!(told.is_some(), "{namespace}: {what} was admitted");
        }
    }
    for namespace in EVERYWHERE {
        let told = create(&thief, &route(namespace, "Namespace", json!([challenges]))).await?;
        assert_eq!(
            told.is_none(),
            namespace == NAMESPACE,
            "{namespace}: {told:?}"
        );
        for (what, rules) in [
            ("a redirect to another host", json!([evil])),
            ("another scheme", json!([redirect("scheme", json!("http"))])),
            (
                "another path",
                json!([redirect(
                    "path",
                    json!({"type": "ReplaceFullPath", "replaceFullPath": "/evil"})
                )]),
            ),
            (
                "a backend",
                json!([{"backendRefs": [{"name": "evil", "port": 80}]}]),
            ),
            ("a copy", json!([{"filters": [mirror]}])),
            ("challenges", json!([challenges])),
            ("nothing", json!([{}])),
        ] {
            let told = create(&thief, &route(namespace, "TenantGateway", rules)).await?;
            assert!(
                told.is_some(),
                "{namespace}: {what} of a TenantGateway was admitted"
            );
        }
        let https = json!([redirect("port", json!(8443))]);
        assert_eq!(
            create(&thief, &route(namespace, "TenantGateway", https)).await?,
            None,
            "{namespace}"
        );
    }
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install"]
async fn certificates_of_other_issuers_are_refused() -> Result<()> {
    let (cluster, thief) = stolen().await?;
    cluster.server.install(Definitions::CertManager).await?;
    let owner = json!([{"apiVersion": "gateway.cozystack.io/v1alpha1", "kind": "TenantGateway", "name": "t", "uid": "u",
        "controller": true}]);
    let object = |kind: &str, spec: &Value| {
        json!({"apiVersion": "cert-manager.io/v1", "kind": kind, "spec": spec,
            "metadata": {"name": "made", "namespace": "alice", "ownerReferences": owner}})
    };
    let own = json!({"secretName": "made", "issuerRef": {"kind": "Issuer", "name": "t"}, "dnsNames": ["a.example.org"]});
    let change = |field: &str, value: Value| {
        let mut spec = own.clone();
        spec[field] = value;
        spec
    };
    let platform = json!({"kind": "ClusterIssuer", "name": "platform"});
    refused_at_last(
        &thief,
        &object("Certificate", &change("issuerRef", platform)),
        "controller-objects",
    )
    .await?;
    for (kind, spec) in [
        ("Certificate", change("issuerRef", json!({"name": "t"}))),
        ("Certificate", change("isCA", json!(true))),
        ("Certificate", change("secretName", json!("theirs"))),
        ("Issuer", json!({"ca": {"secretName": "theirs"}})),
        ("Issuer", json!({"selfSigned": {}})),
        (
            "Issuer",
            json!({"vault": {"path": "p", "server": "https://evil.example.org", "auth": {"tokenSecretRef": {"name": "x"}}}}),
        ),
    ] {
        let told = create(&thief, &object(kind, &spec)).await?;
        assert!(told.is_some(), "{kind} {spec} was admitted");
    }
    assert_eq!(create(&thief, &object("Certificate", &own)).await?, None);
    let acme = json!({"server": "https://ca.example.org/directory", "privateKeySecretRef": {"name": "k"}, "solvers": []});
    assert_eq!(
        create(&thief, &object("Issuer", &json!({"acme": acme}))).await?,
        None
    );
    Ok(())
}
