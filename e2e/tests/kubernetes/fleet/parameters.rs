//! Parameters that choose a fleet: missing, invalid, and corrected.

use e2e::apiserver::Definitions;
use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use e2e::cluster::{Cluster, condition, is_true};
use serde_json::{Value, json};

use super::{GATEWAY, class, gateway, parameters};

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api"]
async fn parameters_are_checked_told_and_put_right() -> Result<()> {
    let cluster = Cluster::start().await?;
    let server = &cluster.server;
    server.install(Definitions::Ours).await?;
    let mut controller = cluster.controller("one")?;
    controller.line("holding the lease").await?;

    // The server rejects parameters that could never work.
    for (spec, text) in [
        (json!({"fleet": "Orbital"}), "Unsupported value"),
        (
            json!({"fleet": "Shared", "service": {}}),
            "spec.service belongs to fleet Dedicated",
        ),
        (
            json!({"service": {"type": "ClusterIP", "loadBalancerClass": "a.org/b"}}),
            "belongs to type LoadBalancer",
        ),
        (
            json!({"service": {"loadBalancerClass": "x".repeat(400)}}),
            "Too long",
        ),
        (
            json!({"service": {"type": "ClusterIP", "externalTrafficPolicy": "Local"}}),
            "belongs to types LoadBalancer and NodePort",
        ),
        (
            json!({"service": {"externalTrafficPolicy": "local"}}),
            "Unsupported value",
        ),
        (
            json!({"service": {"name": "web", "externalTrafficPolicy": "Local"}}),
            "has a type and a load balancer of its own",
        ),
        (
            json!({"service": {"name": "web", "type": "ClusterIP"}}),
            "has a type and a load balancer of its own",
        ),
        (
            json!({"service": {"name": "web"}, "namedServices": "Allow"}),
            "belongs to the parameters of a Gateway",
        ),
        (json!({"service": {"name": "Web.a"}}), "should match"),
    ] {
        let refused = format!(
            "{:#}",
            server
                .put(parameters("bad", spec))
                .await
                .expect_err("refused")
        );
        assert!(refused.contains(text), "{refused}");
    }

    server
        .put(class("lost", Some(("GatewayParameters", "mine"))))
        .await?;
    server
        .put(class("odd", Some(("Deployment", "mine"))))
        .await?;
    server.put(class("plain", None)).await?;
    server
        .put(gateway("default", "lost", 8443, &["a.example.org"]))
        .await?;
    let reason = |o: &Value, kind: &str| {
        condition(&o["status"], kind)
            .map(|c| c["reason"].clone())
            .unwrap_or_default()
    };
    let refused = |o: &Value| reason(o, "Accepted") == "InvalidParameters";
    let lost = cluster
        .until(GATEWAY, "GatewayClass", "", "lost", refused)
        .await?;
    let text = condition(&lost["status"], "Accepted").context("it has one")?["message"].to_string();
    assert!(
        text.contains("GatewayParameters default/mine is not there: create it"),
        "{text}"
    );
    let odd = cluster
        .until(GATEWAY, "GatewayClass", "", "odd", refused)
        .await?;
    let text = condition(&odd["status"], "Accepted").context("it has one")?["message"].to_string();
    assert!(text.contains("refer to GatewayParameters"), "{text}");
    assert_eq!(
        odd["status"]["supportedFeatures"]
            .as_array()
            .map_or(0, Vec::len),
        0
    );
    cluster
        .until(GATEWAY, "Gateway", "default", "edge", refused)
        .await?;

    // They are created: all objects that reference them recover.
    server
        .put(parameters("mine", json!({"fleet": "Shared"})))
        .await?;
    cluster
        .until(GATEWAY, "GatewayClass", "", "lost", |o| {
            is_true(&o["status"], "Accepted")
        })
        .await?;
    cluster
        .until(GATEWAY, "Gateway", "default", "edge", |o| {
            is_true(&o["status"], "Accepted")
        })
        .await?;
    // They are deleted.
    server
        .api("gatewright.io/v1alpha1", "GatewayParameters", "default")
        .await?
        .delete("mine", &Default::default())
        .await?;
    cluster
        .until(GATEWAY, "Gateway", "default", "edge", refused)
        .await?;

    // The features of a class are names of the release.
    let plain = cluster
        .until(GATEWAY, "GatewayClass", "", "plain", |o| {
            is_true(&o["status"], "Accepted")
        })
        .await?;
    let features = plain["status"]["supportedFeatures"]
        .as_array()
        .context("features")?;
    let names: Vec<&str> = features
        .iter()
        .filter_map(|feature| feature["name"].as_str())
        .collect();
    assert!(names.is_sorted() && !names.is_empty(), "{names:?}");
    let known = released()?;
    for name in names {
        assert!(
            known.contains(name),
            "{name} is no feature of the Gateway API"
        );
    }
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    Ok(())
}

/// Returns the names of all features of the Gateway API's release.
fn released() -> Result<BTreeSet<String>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/gateway-api/pkg/features");
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(&folder)
        .with_context(|| format!("{}: e2e/tools install", folder.display()))?
    {
        for line in std::fs::read_to_string(entry?.path())?.lines() {
            if let Some((_, name)) = line.split_once("= \"") {
                names.extend(name.split_once('"').map(|(name, _)| name.to_owned()));
            }
        }
    }
    ensure!(names.len() > 50, "only {} features were found", names.len());
    Ok(names)
}
