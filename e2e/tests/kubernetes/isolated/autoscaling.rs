//! A Gateway's own Envoys with a HorizontalPodAutoscaler: Kubernetes' own controller scales them,
//! and no write of ours changes their number meanwhile.

use anyhow::Result;
use e2e::cluster::{ACCOUNT, NAMESPACE};
use e2e::echo::Echo;
use serde_json::{Value, json};

use super::{
    DEPLOYMENT, GATEWAY, LIMIT, class, deployed, gateway, name_of, parameters, tenant, until_gone,
    until_pods, until_programmed,
};

const AUTOSCALER: (&str, &str, &str) = ("autoscaling/v2", "HorizontalPodAutoscaler", NAMESPACE);

/// Returns the field managers of the number of replicas.
fn owners(deployment: &Value) -> Vec<&str> {
    let managers = deployment["metadata"]["managedFields"]
        .as_array()
        .into_iter()
        .flatten();
    let of = managers.filter(|manager| manager.pointer("/fieldsV1/f:spec/f:replicas").is_some());
    of.filter_map(|manager| manager["manager"].as_str())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Kubernetes and Envoy, and root for the network of pods: e2e/tools install"]
async fn their_number_is_the_autoscalers_as_long_as_there_is_one() -> Result<()> {
    let (server, kubelet) = deployed().await?;
    let echo = Echo::start_on("web", &kubelet.host().to_string()).await?;
    tenant(&server, &kubelet, "bank", &echo).await?;
    let isolated = async |isolated: Value| {
        server
            .put(parameters(
                NAMESPACE,
                "isolated",
                json!({"fleet": "Isolated", "isolated": isolated}),
            ))
            .await
    };
    let name = name_of("bank");
    let wait = LIMIT;
    isolated(json!({"replicas": 2})).await?;
    server.put(class("isolated")).await?;
    server.put(gateway("bank", "isolated", None)).await?;
    until_programmed(&server, "bank").await?;
    let before = until_pods(&server, "bank", 2).await?;

    // From a number to an autoscaler: the pods stay, and no applier owns the number any more.
    isolated(json!({"autoscaling": {"minReplicas": 1, "maxReplicas": 4}})).await?;
    let there = server
        .until(AUTOSCALER, &name, wait, |o| o["spec"]["maxReplicas"] == 4)
        .await?;
    assert_eq!(
        there["spec"]["minReplicas"],
        json!(1),
        "the least number is the class's"
    );
    assert_eq!(
        there["spec"]["scaleTargetRef"]["name"],
        json!(name),
        "it scales the Deployment"
    );
    server
        .until(DEPLOYMENT, &name, wait, |o| {
            owners(o) == ["gatewright-replicas"]
        })
        .await?;
    assert_eq!(
        until_pods(&server, "bank", 2).await?,
        before,
        "no pod came or went"
    );

    // The autoscaler's controller raises it, and owns the number; a rollout does not change it, and
    // neither does a lower minimum.
    isolated(json!({"autoscaling": {"minReplicas": 3, "maxReplicas": 4}})).await?;
    let scaled = |o: &Value| o["spec"]["replicas"] == 3 && owners(o) == ["kube-controller-manager"];
    server.until(DEPLOYMENT, &name, wait, scaled).await?;
    until_pods(&server, "bank", 3).await?;
    isolated(json!({"autoscaling": {"minReplicas": 1, "maxReplicas": 4}, "labels": {"team": "a"}}))
        .await?;
    let there = server
        .until(DEPLOYMENT, &name, wait, |o| {
            o["spec"]["template"]["metadata"]["labels"]["team"] == "a"
                && o["status"]["updatedReplicas"] == 3
        })
        .await?;
    assert!(scaled(&there), "{there}");
    until_pods(&server, "bank", 3).await?;

    // Back to a number.
    isolated(json!({"replicas": 1})).await?;
    server
        .until(AUTOSCALER, &name, wait, Value::is_null)
        .await?;
    until_pods(&server, "bank", 1).await?;

    // Once more from nothing: the first pods are as many as the minimum.
    server
        .api(GATEWAY, "Gateway", "bank")
        .await?
        .delete("edge", &Default::default())
        .await?;
    until_gone(&server, "bank").await?;
    isolated(json!({"autoscaling": {"maxReplicas": 4}})).await?;
    server.put(gateway("bank", "isolated", None)).await?;
    until_programmed(&server, "bank").await?;
    server
        .until(DEPLOYMENT, &name, wait, |o| {
            owners(o) == ["gatewright-replicas"]
        })
        .await?;
    until_pods(&server, "bank", 2).await?;
    server
        .api(GATEWAY, "Gateway", "bank")
        .await?
        .delete("edge", &Default::default())
        .await?;
    until_gone(&server, "bank").await?;
    assert_eq!(
        server.denied(ACCOUNT)?,
        [],
        "every right that is needed is given"
    );
    Ok(())
}
