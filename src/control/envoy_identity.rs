//! Who an Envoy of a cluster is, as its certificate says: one of a fleet, and, by a certificate of its own, which pod. Pure.
//!
//! ```text
//! spiffe://gatewright.io/fleet/shared                                             any Envoy of the fleet
//! spiffe://gatewright.io/fleet/shared/ns/NAMESPACE/pod/NAME/UID/node/NODE         one pod of it
//! ```

use std::fmt;

use gatewright_core::model::EnvoyFleet;
use serde::{Deserialize, Serialize};
use xds::Instance;

/// Who an Envoy of a fleet is.
pub const fn identity_of(fleet: EnvoyFleet) -> &'static str {
    match fleet {
        EnvoyFleet::Shared => "spiffe://gatewright.io/fleet/shared",
        EnvoyFleet::Dedicated => "spiffe://gatewright.io/fleet/dedicated",
    }
}

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
        write!(f, "{}/ns/{namespace}/pod/{name}/{uid}/node/{node}", identity_of(self.fleet))
    }
}

impl PodIdentity {
    /// Reads the URI of a certificate; `None` where it is another one, or a part of it is no name of Kubernetes.
    pub fn parse(uri: &str) -> Option<Self> {
        let of = |fleet: EnvoyFleet| Some((fleet, uri.strip_prefix(identity_of(fleet))?));
        let (fleet, rest) = EnvoyFleet::ALL.into_iter().find_map(of)?;
        let parts: Vec<&str> = rest.split('/').collect();
        let ["", "ns", namespace, "pod", name, uid, "node", node] = parts[..] else { return None };
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
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
        let parts = [&self.namespace, &self.name, &self.uid, &self.node];
        parts.into_iter().all(|part| !part.is_empty() && part.len() <= 253 && part.bytes().all(plain))
    }
}

/// Which identity the URI of a certificate is an instance of, for the xDS server. The node is called as its pod.
pub fn instance_of(uri: &str) -> Option<(&str, Instance)> {
    let PodIdentity { fleet, pod } = PodIdentity::parse(uri)?;
    Some((identity_of(fleet), Instance { name: uri.into(), node: pod.name.into() }))
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
        for fleet in EnvoyFleet::ALL {
            let identity = PodIdentity { fleet, pod: pod() };
            let uri = identity.to_string();
            assert_eq!(PodIdentity::parse(&uri), Some(identity));
            let (of, instance) = instance_of(&uri).expect("an instance");
            assert_eq!((of, &*instance.name, &*instance.node), (identity_of(fleet), &*uri, "gatewright-envoy-x7k2p"));
        }
    }

    #[test]
    fn what_is_not_exactly_one_pod_is_none() {
        let uri = PodIdentity { fleet: EnvoyFleet::Shared, pod: pod() }.to_string();
        for wrong in [
            identity_of(EnvoyFleet::Shared).to_owned(),
            uri.replace("/fleet/shared/", "/fleet/other/"),
            uri.replace("/fleet/shared/", "/fleet/shared2/"),
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
