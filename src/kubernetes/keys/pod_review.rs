//! Verifies which pod a token is bound to: takes the review of the token and the pod as the API
//! server returns them, and returns an identity or the reason of the refusal. Pure.

use gatewright_control::envoy_certificates::{AUDIENCE, Refusal};
use gatewright_control::envoy_identity::{EnvoyPod, PodIdentity};
use gatewright_core::model::EnvoyFleet;
use k8s_openapi::api::authentication::v1::{TokenReviewStatus, UserInfo};

use super::accounts::{EnvoyAccounts, account_of};
use super::pod::Pod;

/// Keys of `extra` of a token that is bound to a pod (Kubernetes, "Managing Service Accounts",
/// "Bound service account tokens").
const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";
/// Present since Kubernetes 1.32, and by a feature gate since 1.29.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// The claims of a token, from its review by the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) fleet: EnvoyFleet,
    pub(super) name: String,
    uid: String,
    node: Option<String>,
}

/// Returns the claims of a reviewed token, if it is bound to a pod of a fleet.
///
/// # Errors
/// The reason for which it is not.
pub(super) fn claim(
    status: TokenReviewStatus,
    namespace: &str,
    accounts: &EnvoyAccounts,
) -> Result<Claim, Refusal> {
    let TokenReviewStatus {
        audiences,
        authenticated,
        error,
        user,
    } = status;
    let Some(UserInfo {
        username: Some(user),
        extra,
        ..
    }) = user.filter(|_| authenticated == Some(true))
    else {
        let why = error
            .filter(|text| !text.is_empty())
            .unwrap_or_else(|| "it is not known".to_owned());
        return Err(Refusal::Unauthenticated(format!(
            "the API server does not take the token: {why}"
        )));
    };
    // An API server that does not support audiences accepts tokens for its own audience.
    if !audiences
        .unwrap_or_default()
        .iter()
        .any(|audience| audience == AUDIENCE)
    {
        return Err(Refusal::Unauthenticated(format!(
            "the token is not meant for the audience {AUDIENCE}"
        )));
    }
    let account = user
        .strip_prefix("system:serviceaccount:")
        .and_then(|rest| rest.strip_prefix(namespace)?.strip_prefix(':'));
    let Some(fleet) = account.and_then(|account| accounts.fleet(account)) else {
        let expected = accounts.expected(namespace);
        return Err(Refusal::Forbidden(format!(
            "the token is of {user}: expected {expected}, or the account of a Gateway that has Envoys of its own"
        )));
    };
    let extra = extra.unwrap_or_default();
    let one = |key: &str| match extra.get(key).map(Vec::as_slice) {
        Some([value]) if !value.is_empty() => Some(value.clone()),
        _ => None,
    };
    let (Some(name), Some(uid)) = (one(POD_NAME), one(POD_UID)) else {
        let why = "the token is bound to no pod: it has to come from a projected volume of the pod";
        return Err(Refusal::Forbidden(format!("{why} (serviceAccountToken)")));
    };
    Ok(Claim {
        fleet,
        name,
        uid,
        node: one(NODE_NAME),
    })
}

/// Returns the identity of the pod of a claim, as the API server knows it now.
///
/// # Errors
/// The reason for which it is not the pod that the token is bound to.
pub(super) fn confirm(
    claim: Claim,
    pod: Option<Pod>,
    namespace: &str,
) -> Result<PodIdentity, Refusal> {
    let Claim {
        fleet,
        name,
        uid,
        node,
    } = claim;
    let refused = |why: String| {
        Err(Refusal::Forbidden(format!(
            "pod {namespace}/{name} (UID {uid}): {why}"
        )))
    };
    let Some(pod) = pod else {
        return refused("it is gone".to_owned());
    };
    let spec = pod.spec;
    let phase = pod.status.and_then(|status| status.phase);
    let account = spec.service_account_name.unwrap_or_default();
    if pod.metadata.uid.as_ref() != Some(&uid) {
        return refused("it is gone, and another one has its name".to_owned());
    }
    if account != account_of(&fleet) {
        return refused(format!(
            "it runs as service account {account}: expected {}",
            account_of(&fleet)
        ));
    }
    if matches!(phase.as_deref(), Some("Succeeded" | "Failed")) {
        return refused("it has ended".to_owned());
    }
    let Some(runs_on) = spec.node_name.filter(|name| !name.is_empty()) else {
        return refused("it runs on no node".to_owned());
    };
    if let Some(node) = node.filter(|node| *node != runs_on) {
        return refused(format!(
            "it runs on node {runs_on}, and the token is of node {node}"
        ));
    }
    let pod = EnvoyPod {
        namespace: namespace.to_owned(),
        name: name.clone(),
        uid: uid.clone(),
        node: runs_on,
    };
    if pod.is_plain() {
        Ok(PodIdentity { fleet, pod })
    } else {
        refused("its name, UID or node cannot stand in a certificate".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use gatewright_control::envoy_access::EnvoyAccess;

    use super::*;

    const HERE: &str = "gatewright-system";
    fn accounts(fleets: &[EnvoyFleet]) -> EnvoyAccounts {
        EnvoyAccounts {
            fleets: fleets.to_vec(),
            access: EnvoyAccess::default(),
        }
    }

    fn both() -> EnvoyAccounts {
        accounts(&EnvoyFleet::OF_MANY)
    }

    fn review(change: impl FnOnce(&mut Value)) -> TokenReviewStatus {
        let mut status = json!({"authenticated": true, "audiences": [AUDIENCE],
            "user": {"username": "system:serviceaccount:gatewright-system:gatewright-envoy",
                "extra": {POD_NAME: ["envoy-a"], POD_UID: ["u-1"], NODE_NAME: ["node-a"]}}});
        change(&mut status);
        serde_json::from_value(status).expect("a status")
    }

    fn pod(change: impl FnOnce(&mut Value)) -> Option<Pod> {
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "envoy-a", "namespace": HERE, "uid": "u-1"},
            "spec": {"serviceAccountName": "gatewright-envoy", "nodeName": "node-a", "containers": []},
            "status": {"phase": "Pending"}});
        change(&mut pod);
        Some(serde_json::from_value(pod).expect("a pod"))
    }

    fn claimed() -> Claim {
        claim(review(|_| ()), HERE, &both()).expect("a claim")
    }

    #[test]
    fn a_bound_token_of_a_fleets_account_names_its_pod() {
        fn node(claim: Claim) -> Option<String> {
            claim.node
        }
        assert_eq!(node(claimed()), Some("node-a".to_owned()));
        let old = claim(
            review(|s| {
                s["user"]["extra"]
                    .as_object_mut()
                    .expect("a map")
                    .remove(NODE_NAME);
            }),
            HERE,
            &both(),
        );
        for claim in [claimed(), old.expect("of a server that tells no nodes")] {
            let identity = confirm(claim, pod(|_| ()), HERE).expect("it is that pod");
            let uri = "spiffe://gatewright.io/fleet/shared/ns/gatewright-system/pod/envoy-a/u-1/node/node-a";
            assert_eq!(identity.to_string(), uri);
        }
        let dedicated = "system:serviceaccount:gatewright-system:gatewright-envoy-dedicated";
        let other = claim(
            review(|s| s["user"]["username"] = dedicated.into()),
            HERE,
            &both(),
        )
        .expect("a claim");
        assert_eq!(other.fleet, EnvoyFleet::Dedicated);
        assert!(
            confirm(other, pod(|_| ()), HERE).is_err(),
            "the pod runs as another account"
        );
    }

    #[test]
    fn a_token_that_proves_anything_else_is_refused_and_told_why() {
        type Change = fn(&mut Value);
        let cases: [(Change, &str); 9] = [
            (
                |s| s["authenticated"] = false.into(),
                "does not take the token: it is not known",
            ),
            (
                |s| *s = json!({"authenticated": false, "error": "invalid bearer token"}),
                "invalid bearer token",
            ),
            (|s| s["user"] = Value::Null, "does not take the token"),
            (
                |s| s["audiences"] = json!(["https://kubernetes.default.svc"]),
                "not meant for the audience",
            ),
            (
                |s| s["audiences"] = Value::Null,
                "not meant for the audience",
            ),
            (
                |s| s["user"]["username"] = "system:serviceaccount:tenant:gatewright-envoy".into(),
                "the token is of",
            ),
            (
                |s| s["user"]["username"] = "admin".into(),
                "the token is of admin",
            ),
            (|s| s["user"]["extra"] = Value::Null, "bound to no pod"),
            (
                |s| s["user"]["extra"][POD_UID] = json!(["a", "b"]),
                "bound to no pod",
            ),
        ];
        for (change, expected) in cases {
            let (Refusal::Unauthenticated(why) | Refusal::Forbidden(why)) =
                claim(review(change), HERE, &both()).expect_err(expected)
            else {
                panic!("{expected}: it is not the question")
            };
            assert!(why.contains(expected), "{why}");
        }
        let dedicated = "system:serviceaccount:gatewright-system:gatewright-envoy-dedicated";
        let told = claim(
            review(|s| s["user"]["username"] = dedicated.into()),
            HERE,
            &accounts(&[EnvoyFleet::Shared]),
        );
        assert!(
            matches!(told, Err(Refusal::Forbidden(_))),
            "that fleet has no Envoys of its own: {told:?}"
        );
    }

    #[test]
    fn a_pod_that_is_not_the_tokens_is_refused_and_told_why() {
        type Change = fn(&mut Value);
        let cases: [(Change, &str); 6] = [
            (
                |p| p["metadata"]["uid"] = "u-2".into(),
                "another one has its name",
            ),
            (
                |p| p["spec"]["serviceAccountName"] = "other".into(),
                "runs as service account other",
            ),
            (
                |p| p["spec"]["nodeName"] = "node-b".into(),
                "runs on node node-b, and the token is of node node-a",
            ),
            (|p| p["spec"]["nodeName"] = Value::Null, "runs on no node"),
            (|p| p["status"]["phase"] = "Failed".into(), "it has ended"),
            (
                |p| p["status"]["phase"] = "Succeeded".into(),
                "it has ended",
            ),
        ];
        for (change, expected) in cases {
            let told = confirm(claimed(), pod(change), HERE);
            assert!(
                matches!(&told, Err(Refusal::Forbidden(why)) if why.contains(expected)),
                "{expected}: {told:?}"
            );
        }
        let told = confirm(claimed(), None, HERE);
        assert!(
            matches!(&told, Err(Refusal::Forbidden(why)) if why.contains("it is gone")),
            "{told:?}"
        );
    }
}
