//! Parses name and addresses of pods and nodes. The rest of a pod (some kilobytes) is skipped
//! during parsing, so that a cluster of thousands of pods costs little memory.

use std::borrow::Cow;
use std::net::IpAddr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::api::ApiResource;
use kube::core::DynamicResourceScope;
use serde::Deserialize;

use gatewright_core::inputs::{Kind, Located, Node, Object, Pod};
use gatewright_core::model::ObjectName;

/// The field selector of pods that still have their address: the address of a terminated pod may
/// belong to another one.
pub(super) const RUNNING: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// The fields of a pod or a node that are parsed.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Raw")]
pub(super) struct LocatedObject {
    pub(super) metadata: ObjectMeta,
    addresses: Box<[IpAddr]>,
}

impl LocatedObject {
    /// Converts it to an input object.
    pub(super) fn into_object(self, kind: Kind, name: ObjectName) -> Object {
        let located = Located {
            name,
            addresses: self.addresses,
        };
        if kind == Kind::Node {
            Node(located).into()
        } else {
            Pod(located).into()
        }
    }
}

impl Resource for LocatedObject {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn group(of: &ApiResource) -> Cow<'_, str> {
        of.group.as_str().into()
    }

    fn version(of: &ApiResource) -> Cow<'_, str> {
        of.version.as_str().into()
    }

    fn kind(of: &ApiResource) -> Cow<'_, str> {
        of.kind.as_str().into()
    }

    fn api_version(of: &ApiResource) -> Cow<'_, str> {
        of.api_version.as_str().into()
    }

    fn plural(of: &ApiResource) -> Cow<'_, str> {
        of.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[derive(Deserialize)]
struct Raw {
    #[serde(default)]
    metadata: RawMeta,
    #[serde(default)]
    status: RawStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawMeta {
    name: Option<String>,
    namespace: Option<String>,
    resource_version: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawStatus {
    #[serde(rename = "podIPs")]
    pod_ips: Option<Vec<PodIp>>,
    addresses: Option<Vec<NodeAddress>>,
}

#[derive(Deserialize)]
struct PodIp {
    ip: Option<String>,
}

#[derive(Deserialize)]
struct NodeAddress {
    address: Option<String>,
}

impl From<Raw> for LocatedObject {
    fn from(raw: Raw) -> Self {
        let Raw {
            metadata:
                RawMeta {
                    name,
                    namespace,
                    resource_version,
                },
            status: RawStatus { pod_ips, addresses },
        } = raw;
        let of_pod = pod_ips.into_iter().flatten().filter_map(|at| at.ip);
        // Addresses of nodes include hostnames.
        let of_node = addresses.into_iter().flatten().filter_map(|at| at.address);
        let addresses = of_pod
            .chain(of_node)
            .filter_map(|text| text.parse::<IpAddr>().ok());
        Self {
            metadata: ObjectMeta {
                name,
                namespace,
                resource_version,
                ..ObjectMeta::default()
            },
            addresses: addresses.map(|ip| ip.to_canonical()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(value: Value) -> (ObjectName, Vec<String>) {
        let object: LocatedObject = serde_json::from_value(value).expect("a pod or a node");
        fn text(field: &Option<String>) -> String {
            field.clone().unwrap_or_default()
        }
        let name = ObjectName::new(
            text(&object.metadata.namespace),
            text(&object.metadata.name),
        );
        (
            name,
            object.addresses.iter().map(ToString::to_string).collect(),
        )
    }

    #[test]
    fn name_and_addresses_are_read() {
        let pod = json!({"metadata": {"name": "web-1", "namespace": "a", "resourceVersion": "7", "labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
            "status": {"phase": "Running", "hostIP": "192.0.2.1", "podIP": "10.0.0.1",
                "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}, {"ip": "none"}]}});
        assert_eq!(
            read(pod),
            (
                ObjectName::new("a", "web-1"),
                vec!["10.0.0.1".to_owned(), "fd00::1".to_owned()]
            )
        );
        let node = json!({"metadata": {"name": "n1"}, "status": {"addresses": [
            {"type": "InternalIP", "address": "192.0.2.1"}, {"type": "Hostname", "address": "n1"},
            {"type": "ExternalIP", "address": "203.0.113.1"}], "images": [{"names": ["i"]}]}});
        let both = vec!["192.0.2.1".to_owned(), "203.0.113.1".to_owned()];
        assert_eq!(read(node), (ObjectName::new("", "n1"), both));
        assert_eq!(
            read(json!({"metadata": {"name": "new"}, "status": {"podIPs": null}})).1,
            Vec::<String>::new()
        );
    }
}
