//! The features of a GatewayClass follow the definitions of the Gateway API that are installed.

use anyhow::Result;
use e2e::apiserver::{ApiServer, Definitions};
use e2e::cluster::{Cluster, is_true};
use e2e::helm::Helm;
use serde_json::{Value, json};

use e2e::tenants::GATEWAY;

/// A feature that is always supported, and one whose field is in the experimental channel only.
const STANDARD: &str = "HTTPRoute";
const EXPERIMENTAL: &str = "GatewayListenerFilters";

fn lists(class: &Value, feature: &str) -> bool {
    let features = class["status"]["supportedFeatures"].as_array();
    features.is_some_and(|all| all.iter().any(|one| one["name"] == feature))
}

#[tokio::test]
#[ignore = "needs Kubernetes and Helm: e2e/tools install"]
async fn a_class_lists_the_features_whose_fields_are_defined() -> Result<()> {
    let cluster = Cluster::start().await?;
    let server = &cluster.server;
    Helm::new(None)?.grant_experimental_channel(server).await?;
    server
        .apply(include_str!("../../../../deploy/gatewayclass.yaml"))
        .await?;
    let mut controller =
        cluster.controller_with("one", &["--set", "gatewayApi.channel=Experimental"])?;
    controller.line("xDS at").await?;
    let class = async |good: &dyn Fn(&Value) -> bool| {
        cluster
            .until(GATEWAY, "GatewayClass", "", "gatewright", good)
            .await
    };
    let told = class(&|class| lists(class, STANDARD)).await?;
    assert!(
        !lists(&told, EXPERIMENTAL) && is_true(&told["status"], "Accepted"),
        "{told:#}"
    );

    // With the definitions of the other channel, and without them again.
    server.install(Definitions::ExperimentalGatewayApi).await?;
    let told = class(&|class| lists(class, EXPERIMENTAL)).await?;
    assert!(lists(&told, "GatewayAddressRoutability"), "{told:#}");
    server.install(Definitions::GatewayApi).await?;
    let told = class(&|class| !lists(class, EXPERIMENTAL)).await?;
    assert!(
        lists(&told, STANDARD)
            && lists(&told, "TLSRoute")
            && !lists(&told, "GatewayAddressRoutability"),
        "{told:#}"
    );

    // A kind that is not served has no features.
    let definitions = server
        .api("apiextensions.k8s.io/v1", "CustomResourceDefinition", "")
        .await?;
    definitions
        .delete("tlsroutes.gateway.networking.k8s.io", &Default::default())
        .await?;
    class(&|class| lists(class, STANDARD) && !lists(class, "TLSRoute")).await?;
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes, Helm and the older definitions: e2e/tools install"]
async fn a_class_does_not_list_what_an_older_bundle_lacks() -> Result<()> {
    let server = ApiServer::with(&[Definitions::OlderGatewayApi]).await?;
    let cluster = Cluster::over(server).await?;
    Helm::new(None)?
        .grant_experimental_channel(&cluster.server)
        .await?;
    let class = json!({"apiVersion": GATEWAY, "kind": "GatewayClass", "metadata": {"name": "gatewright"},
        "spec": {"controllerName": "gatewright.io/gateway-controller"}});
    cluster.server.put(class).await?;
    let mut controller =
        cluster.controller_with("one", &["--set", "gatewayApi.channel=Experimental"])?;
    controller.line("xDS at").await?;
    let told = cluster
        .until(GATEWAY, "GatewayClass", "", "gatewright", |class| {
            lists(class, STANDARD)
        })
        .await?;
    assert!(
        lists(&told, "TLSRoute") && !lists(&told, "ListenerSet") && !lists(&told, EXPERIMENTAL),
        "{told:#}"
    );
    Ok(())
}
