//! End to end on real parts: a TenantGateway of our class is applied, its Gateway written, Envoy
//! serves the host with the tenant's certificate, and the status reports it. The loser of a
//! hostname is not served under it.

use std::net::SocketAddr;

use anyhow::Result;
use e2e::cluster::{BACKEND, is_true, service, tls_secret};
use e2e::echo::Echo;
use e2e::port::own_address;
use e2e::probe::{Answer, Probe};
use hyper::Method;
use serde_json::{Value, json};

use e2e::tenants::{
    GATEWAY, TENANT, cluster, member, namespace, route, tenant, until, until_ready,
};

/// Returns true if an answer is from this backend.
fn says(answer: &Answer, name: &str) -> bool {
    String::from_utf8_lossy(&answer.body).contains(name)
}

#[tokio::test]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn from_a_tenant_gateway_to_https_and_ready() -> Result<()> {
    // A loopback address of its own: other tests use the well-known ports of 127.0.0.1.
    let address = own_address();
    let cluster = cluster().await?.reached_at(address.into());
    let server = &cluster.server;
    let winner = Echo::start_on("winner", BACKEND).await?;
    let loser = Echo::start_on("loser", BACKEND).await?;
    let mut controller = cluster.controller("one")?;
    controller.line("xDS at").await?;
    let (mut envoy, _tls) = cluster.envoy("envoy-a").await?;
    server
        .apply(include_str!("../../../../deploy/gatewayclass.yaml"))
        .await?;

    let apex = "own.example.org";
    namespace(server, "tenant-own", apex).await?;
    member(server, "tenant-own-a", "tenant-own", apex).await?;
    member(server, "tenant-own-b", "tenant-own", apex).await?;
    server
        .put(tls_secret(
            "tenant-own",
            "wildcard",
            &[apex, "*.own.example.org"],
        )?)
        .await?;
    for (space, echo) in [("tenant-own-b", &winner), ("tenant-own-a", &loser)] {
        for object in service(space, "web", echo.address().port()) {
            server.put(object).await?;
        }
    }
    let object = tenant(
        "tenant-own",
        json!({"apex": apex, "certMode": "existingSecret", "wildcardSecretRef": {"name": "wildcard"},
            "gatewayClassName": "gatewright"}),
    );
    server.put(object).await?;
    let host = "web.own.example.org";
    server
        .put(route("tenant-own-b", "web", "tenant-own", &[host]))
        .await?;
    let reason_of = |object: &Value| {
        let parents = object["status"]["parents"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        parents
            .first()
            .map(|parent| parent["conditions"][0]["reason"].clone())
    };
    cluster
        .until(GATEWAY, "HTTPRoute", "tenant-own-b", "web", |object| {
            reason_of(object) == Some(json!("Accepted"))
        })
        .await?;
    // It keeps the name against a smaller one.
    server
        .put(route("tenant-own-a", "web", "tenant-own", &[host]))
        .await?;

    until_ready(&cluster, "tenant-own", "Reconciled").await?;
    let gateway = cluster
        .until(GATEWAY, "Gateway", "tenant-own", "cozystack", |o| {
            is_true(&o["status"], "Programmed")
        })
        .await?;
    assert_eq!(
        gateway["metadata"]["ownerReferences"][0]["kind"],
        "TenantGateway"
    );
    envoy.ready().await?;
    let https: SocketAddr = format!("{address}:443").parse()?;
    until("the host is served", async || {
        let answer = Probe::https(https, host).send().await;
        Ok(answer.is_ok_and(|answer| answer.status == 200 && says(&answer, "winner")))
    })
    .await?;
    let told = cluster
        .until(GATEWAY, "HTTPRoute", "tenant-own-a", "web", |object| {
            reason_of(object) == Some(json!("HostnameConflict"))
        })
        .await?;
    let parents = told["status"]["parents"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    assert_eq!(parents.len(), 1, "one controller tells it: {parents:?}");
    let http: SocketAddr = format!("{address}:80").parse()?;
    assert_eq!(
        Probe::http(http, host).send().await?.status,
        301,
        "plain HTTP leads to HTTPS"
    );

    // Ready=True was written once, and in the steady state nothing is written.
    cluster.quiet().await?;

    // The winner is deleted, and the other gets the host.
    server
        .api(GATEWAY, "HTTPRoute", "tenant-own-b")
        .await?
        .delete("web", &Default::default())
        .await?;
    until("the other is served", async || {
        let answer = Probe::https(https, host).send().await;
        Ok(answer.is_ok_and(|answer| answer.status == 200 && says(&answer, "loser")))
    })
    .await?;
    server
        .api(TENANT, "TenantGateway", "tenant-own")
        .await?
        .delete("cozystack", &Default::default())
        .await?;
    until("nothing is served", async || {
        Ok(Probe::https(https, host).send().await.is_err())
    })
    .await?;
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    Ok(())
}

/// A GRPCRoute claims a hostname like an HTTPRoute: its host gets a listener and a certificate, and
/// calls reach its backend.
#[tokio::test]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn a_grpc_route_has_its_host_with_a_listener_and_a_certificate() -> Result<()> {
    let address = own_address();
    let cluster = cluster().await?.reached_at(address.into());
    let server = &cluster.server;
    let calls = Echo::start_on("calls", BACKEND).await?;
    let pages = Echo::start_on("pages", BACKEND).await?;
    let mut controller = cluster.controller("one")?;
    controller.line("xDS at").await?;
    let (_envoy, _tls) = cluster.envoy("envoy-a").await?;
    server
        .apply(include_str!("../../../../deploy/gatewayclass.yaml"))
        .await?;

    let apex = "rpc.example.org";
    namespace(server, "tenant-rpc", apex).await?;
    for (space, echo) in [("tenant-rpc-a", &calls), ("tenant-rpc-b", &pages)] {
        member(server, space, "tenant-rpc", apex).await?;
        for object in service(space, "web", echo.address().port()) {
            server.put(object).await?;
        }
    }
    let mut object = tenant(
        "tenant-rpc",
        json!({"apex": apex, "gatewayClassName": "gatewright"}),
    );
    object["metadata"]["annotations"] = json!({"gatewright.io/issuer": "internal-ca"});
    server.put(object).await?;
    let host = "api.rpc.example.org";
    let mut grpc = route("tenant-rpc-a", "api", "tenant-rpc", &[host]);
    grpc["kind"] = json!("GRPCRoute");
    server.put(grpc).await?;

    let gateway = cluster
        .until(GATEWAY, "Gateway", "tenant-rpc", "cozystack", |o| {
            listener_of(o, host).is_some()
        })
        .await?;
    let secret = listener_of(&gateway, host).unwrap_or_default();
    cluster
        .until("v1", "Secret", "tenant-rpc", &secret, |o| {
            o["type"] == "kubernetes.io/tls" && o["data"]["tls.key"].is_string()
        })
        .await?;
    let https: SocketAddr = format!("{address}:443").parse()?;
    let call = || {
        let call = Probe::https(https, host)
            .alpn(&["h2"])
            .method(Method::POST)
            .path("/shop.Cart/Add");
        call.header("content-type", "application/grpc")
            .body(vec![0; 5])
    };
    until("calls are answered", async || {
        Ok(call()
            .send()
            .await
            .is_ok_and(|answer| answer.status == 200 && says(&answer, "calls")))
    })
    .await?;
    until_ready(&cluster, "tenant-rpc", "Reconciled").await?;

    // An HTTPRoute of another namespace does not get the same name, and no call is misrouted.
    server
        .put(route("tenant-rpc-b", "web", "tenant-rpc", &[host]))
        .await?;
    cluster
        .until(GATEWAY, "HTTPRoute", "tenant-rpc-b", "web", |o| {
            let parents = o["status"]["parents"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            parents
                .iter()
                .any(|parent| parent["conditions"][0]["reason"] == "HostnameConflict")
        })
        .await?;
    let answer = call().send().await?;
    assert!(
        answer.status == 200 && says(&answer, "calls"),
        "{}",
        String::from_utf8_lossy(&answer.body)
    );

    // It is deleted, and the other gets the host.
    server
        .api(GATEWAY, "GRPCRoute", "tenant-rpc-a")
        .await?
        .delete("api", &Default::default())
        .await?;
    until("the other is served", async || {
        let answer = Probe::https(https, host).send().await;
        Ok(answer.is_ok_and(|answer| answer.status == 200 && says(&answer, "pages")))
    })
    .await?;
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    Ok(())
}

/// Returns the Secret of a Gateway's listener for a host.
fn listener_of(gateway: &Value, host: &str) -> Option<String> {
    let listeners = gateway["spec"]["listeners"].as_array()?;
    let listener = listeners
        .iter()
        .find(|listener| listener["hostname"] == host)?;
    Some(
        listener["tls"]["certificateRefs"][0]["name"]
            .as_str()?
            .to_owned(),
    )
}

/// Gateways of the shared fleet have one address: the hostnames of plain HTTP decide which redirect
/// applies, also below the apex of another.
#[tokio::test]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn tenants_that_share_an_address_each_redirect_their_own_hosts() -> Result<()> {
    let address = own_address();
    let cluster = cluster().await?.reached_at(address.into());
    let server = &cluster.server;
    let mut controller = cluster.controller("one")?;
    controller.line("xDS at").await?;
    let (_envoy, _tls) = cluster.envoy("envoy-a").await?;
    server
        .apply(include_str!("../../../../deploy/gatewayclass.yaml"))
        .await?;
    let apexes = [
        "one.example.org",
        "two.example.org",
        "child.one.example.org",
    ];
    let space = |apex: &str| {
        format!(
            "tenant-{}",
            apex.trim_end_matches(".example.org").replace('.', "-")
        )
    };
    let http: SocketAddr = format!("{address}:80").parse()?;
    for apex in apexes {
        let space = space(apex);
        namespace(server, &space, apex).await?;
        server
            .put(tls_secret(
                &space,
                "wildcard",
                &[apex, &format!("*.{apex}")],
            )?)
            .await?;
        let spec = json!({"apex": apex, "certMode": "existingSecret", "wildcardSecretRef": {"name": "wildcard"},
            "gatewayClassName": "gatewright"});
        server.put(tenant(&space, spec)).await?;
    }
    for apex in apexes {
        until_ready(&cluster, &space(apex), "Reconciled").await?;
        let gateway = cluster
            .until(GATEWAY, "Gateway", &space(apex), "cozystack", |o| {
                is_true(&o["status"], "Programmed")
            })
            .await?;
        for listener in gateway["status"]["listeners"]
            .as_array()
            .into_iter()
            .flatten()
        {
            assert!(
                is_true(listener, "Programmed") && !is_true(listener, "Conflicted"),
                "{apex}: {listener:#}"
            );
        }
        for host in [
            apex.to_owned(),
            format!("web.{apex}"),
            format!("a.b.{apex}"),
        ] {
            let answer = Probe::http(http, &host).send().await?;
            assert_eq!(answer.status, 301, "{host}");
            assert_eq!(answer.headers["location"], format!("https://{host}/"));
        }
    }
    assert_eq!(
        Probe::http(http, "nobody.example.org").send().await?.status,
        404
    );

    // One is deleted with its redirect, and the others' stay.
    server
        .api(TENANT, "TenantGateway", "tenant-two")
        .await?
        .delete("cozystack", &Default::default())
        .await?;
    until("its redirect is gone", async || {
        Ok(Probe::http(http, "web.two.example.org")
            .send()
            .await
            .is_ok_and(|answer| answer.status == 404))
    })
    .await?;
    assert_eq!(
        Probe::http(http, "web.one.example.org")
            .send()
            .await?
            .status,
        301
    );
    assert_eq!(
        Probe::http(http, "web.child.one.example.org")
            .send()
            .await?
            .status,
        301
    );
    Ok(())
}

/// A ListenerSet may have listeners for plain HTTP: these are claims as well, and take no name of
/// another tenant, in particular not the path of its challenges.
#[tokio::test]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn a_listener_set_takes_no_plain_http_of_another_tenant() -> Result<()> {
    let address = own_address();
    let cluster = cluster().await?.reached_at(address.into());
    let server = &cluster.server;
    let alice = Echo::start_on("alice", BACKEND).await?;
    let mallory = Echo::start_on("mallory", BACKEND).await?;
    let mut controller = cluster.controller("one")?;
    controller.line("xDS at").await?;
    let (_envoy, _tls) = cluster.envoy("envoy-a").await?;
    server
        .apply(include_str!("../../../../deploy/gatewayclass.yaml"))
        .await?;
    let apex = "plain.example.org";
    let host = "web.plain.example.org";
    namespace(server, "tenant-plain", apex).await?;
    member(server, "tenant-plain-a", "tenant-plain", apex).await?;
    member(server, "tenant-plain-m", "tenant-plain", apex).await?;
    server
        .put(tls_secret(
            "tenant-plain",
            "wildcard",
            &[apex, "*.plain.example.org"],
        )?)
        .await?;
    for (space, echo) in [("tenant-plain-a", &alice), ("tenant-plain-m", &mallory)] {
        for object in service(space, "web", echo.address().port()) {
            server.put(object).await?;
        }
    }
    let spec = json!({"apex": apex, "certMode": "existingSecret", "wildcardSecretRef": {"name": "wildcard"},
        "gatewayClassName": "gatewright"});
    server.put(tenant("tenant-plain", spec)).await?;
    server
        .put(route("tenant-plain-a", "web", "tenant-plain", &[host]))
        .await?;
    let (http, https): (SocketAddr, SocketAddr) = (
        format!("{address}:80").parse()?,
        format!("{address}:443").parse()?,
    );
    until("the host is served", async || {
        Ok(Probe::https(https, host)
            .send()
            .await
            .is_ok_and(|answer| answer.status == 200 && says(&answer, "alice")))
    })
    .await?;

    // One name that is granted, and alice's over plain HTTP, in the namespace of mallory and in
    // that of the TenantGateway.
    server
        .put(tls_secret(
            "tenant-plain-m",
            "cert",
            &["m.plain.example.org"],
        )?)
        .await?;
    let listeners = json!([
        {"name": "mine", "protocol": "HTTPS", "port": 443, "hostname": "m.plain.example.org",
            "tls": {"certificateRefs": [{"name": "cert"}]}},
        {"name": "plain", "protocol": "HTTP", "port": 80, "hostname": host},
    ]);
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "ListenerSet", "metadata": {"name": "set", "namespace": "tenant-plain-m"},
            "spec": {"parentRef": {"name": "cozystack", "namespace": "tenant-plain"}, "listeners": listeners}}))
        .await?;
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": "set", "namespace": "tenant-plain-m"},
            "spec": {"parentRefs": [{"kind": "ListenerSet", "name": "set"}],
                "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}}))
        .await?;
    cluster
        .until(GATEWAY, "ListenerSet", "tenant-plain-m", "set", |o| {
            o["status"]["conditions"].is_array() && !is_true(&o["status"], "Accepted")
                || o["status"]["listeners"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .any(|l| l["name"] == "plain" && !is_true(l, "Accepted"))
        })
        .await?;
    for path in ["/", "/.well-known/acme-challenge/token"] {
        let answer = Probe::http(http, host).path(path).send().await?;
        assert!(!says(&answer, "mallory"), "{path}");
    }
    assert_eq!(
        Probe::http(http, host).send().await?.status,
        301,
        "plain HTTP leads to HTTPS as ever"
    );
    assert!(says(&Probe::https(https, host).send().await?, "alice"));
    assert_eq!(mallory.requests(), 0);
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    Ok(())
}
