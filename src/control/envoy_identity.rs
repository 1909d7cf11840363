//! Who an Envoy of a cluster is, as its certificate says: one of a fleet, and, by a certificate of its own, which pod. Pure.
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

/// Who an Envoy of a fleet is.
pub fn identity_of(fleet: &EnvoyFleet) -> String {
    format!("{FLEETS}{fleet}")
}

/// What identities begin with.
const FLEETS: &str = "spiffe://gatewright.io/fleet/";

/// A pod, as an API server proves it: its name may come again, its UID does not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EnvoyPod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
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

/// The URI in its certificate.
impl fmt::Display for PodIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EnvoyPod { namespace, name, uid, node } = &self.pod;
        write!(f, "{}/ns/{namespace}/pod/{name}/{uid}/node/{node}", identity_of(&self.fleet))
    }
}

impl PodIdentity {
    /// Reads the URI of a certificate; `None` where it is another one, or a part of it is no name of Kubernetes.
    pub fn parse(uri: &str) -> Option<Self> {
        let parts: Vec<&str> = uri.strip_prefix(FLEETS)?.split('/').collect();
        let (fleet, rest) = match &parts[..] {
            ["shared", rest @ ..] => (EnvoyFleet::Shared, rest),
            ["dedicated", rest @ ..] => (EnvoyFleet::Dedicated, rest),
            ["isolated", namespace, name, rest @ ..] if is_plain(namespace) && is_plain(name) => {
                (EnvoyFleet::Isolated(ObjectName::new(*namespace, *name)), rest)
            }
            _ => return None,
        };
        let ["ns", namespace, "pod", name, uid, "node", node] = *rest else { return None };
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
    /// Whether all of it is what names of Kubernetes consist of: nothing of it can be taken for another part of a URI.
    pub fn is_plain(&self) -> bool {
        [&self.namespace, &self.name, &self.uid, &self.node].into_iter().all(|part| is_plain(part))
    }
}

fn is_plain(part: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    !part.is_empty() && part.len() <= 253 && part.bytes().all(plain)
}

/// Which identity the URI of a certificate is an instance of, for the xDS server. The node is called as its pod.
pub fn instance_of(uri: &str) -> Option<(&str, Instance)> {
    let PodIdentity { fleet, pod } = PodIdentity::parse(uri)?;
    let identity = uri.get(..identity_of(&fleet).len())?;
    Some((identity, Instance { name: uri.into(), node: pod.name.into() }))
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
    fn what_is_written_is_read_and_names_its_fleet() {
        // A namespace or a Gateway may be called as a part of the URI is.
        let isolated = [("a", "edge"), ("ns", "pod"), ("fleet", "ns"), ("a.b", "node")];
        let isolated = isolated.map(|(namespace, name)| EnvoyFleet::Isolated(ObjectName::new(namespace, name)));
        for fleet in EnvoyFleet::OF_MANY.into_iter().chain(isolated) {
            let identity = PodIdentity { fleet: fleet.clone(), pod: pod() };
            let uri = identity.to_string();
            assert_eq!(PodIdentity::parse(&uri), Some(identity));
            let (of, instance) = instance_of(&uri).expect("an instance");
            assert_eq!(
                (of, &*instance.name, &*instance.node),
                (&*identity_of(&fleet), &*uri, "gatewright-envoy-x7k2p")
            );
        }
    }

    #[test]
    fn what_is_not_exactly_one_pod_is_none() {
        let uri = PodIdentity { fleet: EnvoyFleet::Shared, pod: pod() }.to_string();
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
        let slash = EnvoyPod { name: "a/b".to_owned(), ..pod() };
        assert!(!slash.is_plain() && pod().is_plain());
    }
}
