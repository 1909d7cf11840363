//! A mutating admission policy that changes the objects of a Gateway's own Envoys: the change is
//! told at the Gateway while it lasts, and corrected when the policy is removed.

use anyhow::{Context, Result};
use e2e::cluster::{ACCOUNT, NAMESPACE, condition};
use e2e::echo::Echo;
use serde_json::{Value, json};

use super::super::admission_changes::{ACCEPTED, DENIED, Mutation, touch};
use super::{
    GATEWAY, LIMIT, class, deployed, gateway, name_of, parameters, tenant, until_programmed,
};

/// A change by the policy: the object, the place with its new value in CEL, and what is told of it.
struct Case {
    resource: (&'static str, &'static str),
    object: (&'static str, &'static str),
    path: &'static str,
    value: &'static str,
    told: &'static str,
}

const ACCOUNTS: (&str, &str) = ("", "serviceaccounts");
const SERVICES: (&str, &str) = ("", "services");
const BUDGETS: (&str, &str) = ("policy", "poddisruptionbudgets");
const DEPLOYMENTS: (&str, &str) = ("apps", "deployments");
const AUTOSCALERS: (&str, &str) = ("autoscaling", "horizontalpodautoscalers");

const CASES: [Case; 7] = [
    Case {
        resource: ACCOUNTS,
        object: ("v1", "ServiceAccount"),
        path: "/automountServiceAccountToken",
        value: "true",
        told: "automountServiceAccountToken is true",
    },
    Case {
        resource: SERVICES,
        object: ("v1", "Service"),
        path: "/spec/selector",
        value: "{'app': 'theirs'}",
        told: "spec.selector",
    },
    Case {
        resource: SERVICES,
        object: ("v1", "Service"),
        path: "/spec/ports/0/port",
        value: "8099",
        // A second port of the same name is refused.
        told: "Duplicate value",
    },
    Case {
        resource: BUDGETS,
        object: ("policy/v1", "PodDisruptionBudget"),
        path: "/spec/maxUnavailable",
        value: "2",
        told: "spec.maxUnavailable is 2",
    },
    Case {
        resource: DEPLOYMENTS,
        object: ("apps/v1", "Deployment"),
        path: "/spec/strategy/rollingUpdate/maxSurge",
        value: "2",
        told: "maxSurge is 2",
    },
    Case {
        resource: DEPLOYMENTS,
        object: ("apps/v1", "Deployment"),
        path: "/spec/paused",
        value: "true",
        told: "spec.paused was added",
    },
    Case {
        resource: AUTOSCALERS,
        object: ("autoscaling/v2", "HorizontalPodAutoscaler"),
        path: "/spec/maxReplicas",
        value: "9",
        told: "spec.maxReplicas is 9",
    },
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Kubernetes and Envoy, and root for the network of pods: e2e/tools install"]
async fn what_admission_makes_of_the_objects_of_own_envoys_is_told_and_corrected() -> Result<()> {
    let (server, kubelet) = deployed().await?;
    let echo = Echo::start_on("web", &kubelet.host().to_string()).await?;
    tenant(&server, &kubelet, "bank", &echo).await?;
    let isolated = json!({"autoscaling": {"minReplicas": 1, "maxReplicas": 2}});
    server
        .put(parameters(
            NAMESPACE,
            "isolated",
            json!({"fleet": "Isolated", "isolated": isolated}),
        ))
        .await?;
    server.put(class("isolated")).await?;
    server.put(gateway("bank", "isolated", None)).await?;
    until_programmed(&server, "bank").await?;
    let name = name_of("bank");
    let message = |gateway: &Value| {
        let said = condition(&gateway["status"], "Programmed")
            .and_then(|condition| condition["message"].as_str());
        said.unwrap_or_default().to_owned()
    };
    for Case {
        resource,
        object: (api_version, kind),
        path,
        value,
        told,
    } in CASES
    {
        let place = (api_version, kind, NAMESPACE);
        let right = server
            .until(place, &name, LIMIT, |object| !object.is_null())
            .await?;
        let patch = format!("JSONPatch{{op: 'add', path: '{path}', value: {value}}}").leak();
        let mutation = Mutation {
            resource,
            namespace: NAMESPACE,
            patch,
        };
        let mut probe = json!({"apiVersion": api_version, "kind": kind,
            "metadata": {"name": "probe", "namespace": NAMESPACE}});
        for part in ["spec", "automountServiceAccountToken"] {
            if !right[part].is_null() {
                probe[part] = right[part].clone();
            }
        }
        mutation
            .begin(&server, probe, path)
            .await
            .with_context(|| format!("{kind} {path}"))?;
        touch(&server, api_version, kind, NAMESPACE, &name).await?;
        let is_told = |text: &str| {
            text.contains(told) && [ACCEPTED, "Duplicate"].iter().any(|why| text.contains(why))
                || text.contains(DENIED)
        };
        server
            .until((GATEWAY, "Gateway", "bank"), "edge", LIMIT, |gateway| {
                is_told(&message(gateway))
            })
            .await?;
        mutation.end(&server).await?;
        // No event of ours brings the correction: the write is tried again by itself.
        server
            .until(place, &name, LIMIT, |object| {
                ["spec", "automountServiceAccountToken"]
                    .iter()
                    .all(|part| object[part] == right[part])
            })
            .await
            .with_context(|| format!("{kind} {path}"))?;
        server
            .until((GATEWAY, "Gateway", "bank"), "edge", LIMIT, |gateway| {
                !is_told(&message(gateway))
            })
            .await?;
    }
    until_programmed(&server, "bank").await?;
    assert_eq!(
        server.denied(ACCOUNT)?,
        [],
        "every right that is needed is given"
    );
    Ok(())
}
