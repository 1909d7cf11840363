//! DNS-01 with a tenant's own credential: its Secret is not watched, but read by name.

use anyhow::Result;
use e2e::bind::{Bind, BindKey, BindZone};
use e2e::pebble::Options;
use serde_json::json;

use super::place::{APEX, HOST, Place, SPACE};
use e2e::tenants::{tenant, until_ready};

const SECRET: &str = "Zm9yIHRlc3RzIG9ubHk6IGZvcnR5LWVpZ2h0IGJ5dGVzIG9mIGEga2V5IQ==";

#[tokio::test]
#[ignore = "needs Kubernetes, Envoy, Pebble and BIND: e2e/tools install"]
async fn a_wildcard_is_got_with_the_tenants_credential() -> Result<()> {
    let key = BindKey {
        name: "k".to_owned(),
        algorithm: "hmac-sha256".to_owned(),
        secret: SECRET.to_owned(),
    };
    let bind = Bind::start(&[key], &[BindZone::new(APEX).open_to("k")]).await?;
    let place = Place::with(Options {
        resolver: Some(bind.address()),
        ..Options::default()
    })
    .await?;
    // The installation's settings for the directory: its roots, and its resolver. Its credential is
    // not lent to tenants.
    let files = tempfile::tempdir()?;
    let issuers = files.path().join("issuers.yaml");
    let installed = files.path().join("key");
    std::fs::write(&installed, SECRET)?;
    let dns = json!({"rfc2136": {"nameserver": "127.0.0.1:1", "keyName": "x", "keyFile": installed},
        "authorityPort": bind.address().port()});
    let pebble = json!({"directory": place.pebble.directory(), "caBundle": place.bundle(), "agreeToTerms": true,
        "preflight": "skip", "resolvers": [bind.address()], "dns": dns});
    std::fs::write(&issuers, json!({"issuers": {"pebble": pebble}}).to_string())?;
    let issuers = issuers.display().to_string();
    // The name server of this test is on loopback.
    let arguments = [
        "--certificates",
        "own",
        "--issuers",
        &issuers,
        "--tenant-denied-networks",
        "169.254.0.0/16",
    ];
    let mut controller = place.cluster.controller_with("one", &arguments)?;
    controller.line("xDS at").await?;
    let _envoy = place.envoy().await?;

    let server = &place.cluster.server;
    server
        .put(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "tsig", "namespace": SPACE},
            "stringData": {"key": SECRET}}))
        .await?;
    let provider = json!({"provider": "rfc2136", "rfc2136": {"nameserver": bind.address(), "tsigKeyName": "k",
        "tsigAlgorithm": "HMACSHA256", "tsigSecretSecretRef": {"name": "tsig", "key": "key"}}});
    let mut object = tenant(
        SPACE,
        json!({"apex": APEX, "gatewayClassName": "gatewright", "certMode": "dns01", "dns01": provider}),
    );
    object["metadata"]["annotations"] =
        json!({"gatewright.io/acme-directory": place.pebble.directory()});
    server.put(object).await?;
    place.route("web", HOST).await?;
    place
        .until_served(HOST, &place.pebble.issuing_root(0).await?)
        .await?;
    until_ready(&place.cluster, SPACE, "Reconciled").await?;
    let secret = server
        .api("v1", "Secret", SPACE)
        .await?
        .get("cozystack-gateway-tls")
        .await?;
    assert!(
        secret
            .metadata
            .annotations
            .is_some_and(|all| all.contains_key("gatewright.io/issuer"))
    );
    assert_eq!(place.pebble.issued(), 1, "one wildcard certificate");
    assert_eq!(place.installs()?.len(), 1, "one wildcard certificate");
    assert!(!controller.output().contains(SECRET));
    assert_eq!(
        place.cluster.denied()?,
        [],
        "every right that is needed is given"
    );
    Ok(())
}
