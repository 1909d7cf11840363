//! Stores an entry of the storage as an object of the controller's namespace: keys in Secrets, the
//! rest in ConfigMaps. Pure.

use acme::storage::{Key, Kind};
use k8s_openapi::ByteString;
use kube::core::DynamicObject;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::format;

/// The label of all entries; its value is their kind.
pub(crate) const LABEL: &str = "gatewright.io/keeps";
const KEY: &str = "gatewright.io/key";
const FIELD: &str = "entry";
/// The type of the Secrets, which keeps them out of the watch of certificates that listeners may
/// refer to.
const TYPE: &str = "gatewright.io/acme";
/// The maximum length of the readable part of an object's name.
const READABLE: usize = 100;

/// The kind of object that stores an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Shape {
    /// For entries with private keys.
    Secret,
    /// For entries that every reader of the namespace may see.
    ConfigMap,
}

impl Shape {
    pub(super) fn of(kind: Kind) -> Self {
        match kind {
            Kind::Account | Kind::Order | Kind::Certificate | Kind::Authority => Self::Secret,
            Kind::Budget | Kind::Attempts | Kind::Renewal => Self::ConfigMap,
        }
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Secret => "Secret",
            Self::ConfigMap => "ConfigMap",
        }
    }
}

/// Returns the name of the object of an entry: a readable part of the key, and a digest that makes
/// it unique.
pub(super) fn name(key: &Key) -> String {
    let digest = Sha256::digest(key.to_string());
    let hash: String = digest
        .iter()
        .take(5)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let readable: String = key
        .name()
        .to_ascii_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .take(READABLE)
        .collect();
    let noun = match key.kind() {
        Kind::Account => "account",
        Kind::Order => "order",
        Kind::Certificate => "certificate",
        Kind::Budget => "budget",
        Kind::Attempts => "attempts",
        Kind::Renewal => "renewal",
        Kind::Authority => "ca",
    };
    format!("gatewright-{noun}-{}-{hash}", readable.trim_matches('-'))
}

/// Returns the object of an entry; with `version` it replaces that resource version only.
pub(super) fn document(namespace: &str, key: &Key, bytes: &[u8], version: Option<&str>) -> Value {
    let shape = Shape::of(key.kind());
    let mut document = json!({
        "apiVersion": "v1", "kind": shape.as_str(),
        "metadata": {
            "name": name(key), "namespace": namespace,
            "labels": {LABEL: key.kind().as_str(), "app.kubernetes.io/managed-by": "gatewright"},
            "annotations": {KEY: key.name(), format::ANNOTATION: format::FORMAT.to_string()},
        },
    });
    match shape {
        Shape::Secret => {
            document["type"] = json!(TYPE);
            document["data"] = json!({FIELD: ByteString(bytes.to_vec())});
        }
        Shape::ConfigMap => document["data"] = json!({FIELD: String::from_utf8_lossy(bytes)}),
    }
    if let Some(version) = version {
        document["metadata"]["resourceVersion"] = json!(version);
    }
    document
}

/// Parses the entry of an object; `None` where it is not ours.
pub(super) fn read(shape: Shape, object: &DynamicObject) -> Option<(Key, Zeroizing<Vec<u8>>)> {
    let label = object.metadata.labels.as_ref()?.get(LABEL)?;
    // Certificates are not entries here: they are stored in the Secrets of the listeners.
    let mut kinds = Kind::ALL
        .into_iter()
        .filter(|kind| *kind != Kind::Certificate && Shape::of(*kind) == shape);
    let kind = kinds.find(|kind| kind.as_str() == label)?;
    let key = Key::named(kind, object.metadata.annotations.as_ref()?.get(KEY)?)?;
    // A copy under another name is not the entry.
    if object.metadata.name.as_deref() != Some(&name(&key)) {
        return None;
    }
    let field = object.data.get("data")?.get(FIELD)?;
    let bytes = match shape {
        Shape::Secret => ByteString::deserialize(field).ok()?.0,
        Shape::ConfigMap => field.as_str()?.as_bytes().to_vec(),
    };
    Some((key, Zeroizing::new(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_as_it_was_written_and_no_two_meet() {
        let mut names = std::collections::BTreeSet::new();
        for kind in [
            Kind::Account,
            Kind::Order,
            Kind::Budget,
            Kind::Attempts,
            Kind::Renewal,
            Kind::Authority,
        ] {
            for name in [
                "acme@ca.example:14000",
                "tenant-a/edge@ca.example",
                "_x.",
                "A.example",
                "a.example",
            ] {
                let key = Key::new(kind, name);
                let document = document("ns", &key, br#"{"a": 1}"#, Some("7"));
                let object: DynamicObject = serde_json::from_value(document).expect("an object");
                let object_name = object.metadata.name.clone().expect("a name");
                assert!(
                    object_name.len() < 254
                        && object_name
                            .bytes()
                            .all(|b| b.is_ascii_alphanumeric() || b == b'-')
                );
                assert!(names.insert(object_name));
                let (found, bytes) = read(Shape::of(kind), &object).expect("an entry");
                assert_eq!(found, key, "the key is read");
                assert_eq!(
                    bytes.as_slice(),
                    br#"{"a": 1}"#.as_slice(),
                    "the bytes are read"
                );
                let mut copy = object.clone();
                copy.metadata.name = Some("copy".to_owned());
                assert!(read(Shape::of(kind), &copy).is_none());
            }
        }
    }
}
