//! The identity of an Envoy in a cluster, from its certificate: a fleet, and in a certificate of
//! its own also the pod. Pure.
//!
//! ```text
//! spiffe://gatewright.io/fleet/shared                                             any Envoy of the fleet
//! spiffe://gatewright.io/fleet/shared/ns/NAMESPACE/pod/NAME/UID/node/NODE         one pod of it
//! spiffe://gatewright.io/fleet/isolated/NAMESPACE/GATEWAY/ns/...                  one pod of a Gateway's own
//! ```

use std::fmt;

use gatewright_core::model::{EnvoyFleet, ObjectName};
use serde::{Deserialize, Serialize};
use xds::Instance;

/// Returns the identity of the Envoys of a fleet.
pub fn identity_of(fleet: &EnvoyFleet) -> String {
    format!("{FLEETS}{fleet}")
}

/// The prefix of all identities.
const FLEETS: &str = "spiffe://gatewright.io/fleet/";

/// A pod, as verified by an API server: its name may be reused, its UID is not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EnvoyPod {
    /// The namespace of the pod.
    pub namespace: String,
    /// The name of the pod.
    pub name: String,
    /// The UID of the pod.
    pub uid: String,
    /// The node that it runs on.
    pub node: String,
}

/// A pod with an Envoy of a fleet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodIdentity {
    /// The fleet.
    pub fleet: EnvoyFleet,
    /// The pod.
    pub pod: EnvoyPod,
}

/// Writes the URI in its certificate.
impl fmt::Display for PodIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EnvoyPod {
            namespace,
            name,
            uid,
            node,
        } = &self.pod;
        write!(
            f,
            "{}/ns/{namespace}/pod/{name}/{uid}/node/{node}",
            identity_of(&self.fleet)
        )
    }
}

impl PodIdentity {
    /// Parses the URI of a certificate; `None` where it is another URI, or a part of it is not a
    /// valid name in Kubernetes.
    pub fn parse(uri: &str) -> Option<Self> {
        let parts: Vec<&str> = uri.strip_prefix(FLEETS)?.split('/').collect();
        let (fleet, rest) = match &parts[..] {
            ["shared", rest @ ..] => (EnvoyFleet::Shared, rest),
            ["dedicated", rest @ ..] => (EnvoyFleet::Dedicated, rest),
            ["isolated", namespace, name, rest @ ..] if is_plain(namespace) && is_plain(name) => (
                EnvoyFleet::Isolated(ObjectName::new(*namespace, *name)),
                rest,
            ),
            _ => return None,
        };
        let ["ns", namespace, "pod", name, uid, "node", node] = *rest else {
            return None;
        };
        let pod = EnvoyPod {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            node: node.to_owned(),
        };
        pod.is_plain().then_some(Self { fleet, pod })
    }
}

impl EnvoyPod {
    /// Returns whether all parts consist of the characters of names in Kubernetes, so that none can
    /// be confused with another part of a URI.
    pub fn is_plain(&self) -> bool {
        [&self.namespace, &self.name, &self.uid, &self.node]
            .into_iter()
            .all(|part| is_plain(part))
    }
}

fn is_plain(part: &str) -> bool {
    !part.is_empty()
        && part.len() <= 253
        && part.bytes().all(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.')
        })
}

/// Returns the identity that the URI of a certificate is an instance of, for the xDS server. The
/// node name is that of the pod.
pub fn instance_of(uri: &str) -> Option<(&str, Instance)> {
    let PodIdentity { fleet, pod } = PodIdentity::parse(uri)?;
    let identity = uri.get(..identity_of(&fleet).len())?;
    Some((
        identity,
        Instance {
            name: uri.into(),
            node: pod.name.into(),
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> EnvoyPod {
        EnvoyPod {
            namespace: "gatewright-system".to_owned(),
            name: "gatewright-envoy-x7k2p".to_owned(),
            uid: "0d5fb1a5-5b2b-4b0f-8a5a-52d9f7a4a4a1".to_owned(),
            node: "node-a.example.org".to_owned(),
        }
    }

    #[test]
    fn a_written_identity_is_parsed_again_and_names_its_fleet() {
        // A namespace or a Gateway may have the name of a fixed part of the URI.
        let isolated = [
            ("a", "edge"),
            ("ns", "pod"),
            ("fleet", "ns"),
            ("a.b", "node"),
        ];
        let isolated = isolated
            .map(|(namespace, name)| EnvoyFleet::Isolated(ObjectName::new(namespace, name)));
        for fleet in EnvoyFleet::OF_MANY.into_iter().chain(isolated) {
            let identity = PodIdentity {
                fleet: fleet.clone(),
                pod: pod(),
            };
            let uri = identity.to_string();
            assert_eq!(PodIdentity::parse(&uri), Some(identity));
            let (of, instance) = instance_of(&uri).expect("an instance");
            assert_eq!(of, &*identity_of(&fleet), "the fleet is named");
            assert_eq!(&*instance.name, &*uri, "the instance is the URI");
            assert_eq!(
                &*instance.node, "gatewright-envoy-x7k2p",
                "the node is the pod"
            );
        }
    }

    #[test]
    fn a_uri_of_anything_but_one_pod_is_rejected() {
        let uri = PodIdentity {
            fleet: EnvoyFleet::Shared,
            pod: pod(),
        }
        .to_string();
        for wrong in [
            identity_of(&EnvoyFleet::Shared),
            uri.replace("/fleet/shared/", "/fleet/other/"),
            uri.replace("/fleet/shared/", "/fleet/shared2/"),
            uri.replace("/fleet/shared/", "/fleet/isolated/"),
            uri.replace("/fleet/shared/", "/fleet/isolated/a/"),
            uri.replace("/fleet/shared/", "/fleet/isolated/a/b/c/"),
            uri.replace("/fleet/shared/", "/fleet/isolated//b/"),
            uri.replace("/fleet/shared/", "/fleet/isolated/a/B/"),
            uri.replace("gatewright-envoy-x7k2p", ""),
            uri.replace("node-a", "Node A"),
            uri.replace("/node/", "/nodes/"),
            format!("{uri}/"),
            format!("{uri}/node/b"),
            format!("x{uri}"),
        ] {
            assert_eq!(PodIdentity::parse(&wrong), None, "{wrong}");
        }
        let slash = EnvoyPod {
            name: "a/b".to_owned(),
            ..pod()
        };
        assert!(!slash.is_plain() && pod().is_plain());
    }
}
