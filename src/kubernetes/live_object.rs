//! The observed state of a derived object of a TenantGateway, and the action that it needs. Pure.

use std::collections::BTreeMap;

use kube::core::DynamicObject;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::adoption::{Marks, Ownership, judge};
use crate::compact_json::CompactJson;
use crate::defaults::Defaults;
use crate::deviation::Deviation;
use crate::managed_fields;
use crate::write::as_written::{applied, differences_of_applied, differences_of_spec};
use crate::write::object_write::{self, ObjectWrite};
use gatewright_core::inputs::{Kind, MANAGED_BY, MANAGER, ObjectKey};
use gatewright_core::model::Hostname;
use gatewright_core::tenancy::{Derived, DerivedKind, Existing, names};

/// An observed object whose name may be that of a derived object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveObject {
    /// `metadata.uid`
    pub uid: Box<str>,
    /// `metadata.resourceVersion`
    pub version: Box<str>,
    /// True if the object is being deleted (`deletionTimestamp` is set).
    deleting: bool,
    /// The UID of the controlling owner reference; empty where there is none.
    owner: Box<str>,
    /// The fields that we applied and still own.
    ours: LastApplied,
    /// The other field managers that own fields of the spec.
    others: Box<[String]>,
    /// What it is judged by if it has lost its owner.
    orphan: Option<Box<Orphan>>,
}

/// An object without a controlling owner that has the label of derived objects.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Orphan {
    labels: BTreeMap<String, String>,
    spec: CompactJson,
}

/// The fields that we applied to an object and still own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum LastApplied {
    /// We never applied any.
    #[default]
    Nothing,
    /// The fields, and the whole specification.
    Json(CompactJson, CompactJson),
    /// The digest of the desired manifest that the fields were equal to. Only the digest is kept,
    /// since there are many objects.
    Wanted(Digest),
}

type Digest = [u8; 16];

fn digest(wanted: &Value) -> Digest {
    let hash = Sha256::digest(wanted.to_string().as_bytes());
    hash[..16].try_into().expect("it has 32 bytes")
}

impl LiveObject {
    /// Extracts the state of an object, and the part of it that tenancy reads.
    pub fn new(object: &DynamicObject) -> (Self, Existing) {
        let meta = &object.metadata;
        let managed = managed_fields::of(object);
        let owner = meta
            .owner_references
            .iter()
            .flatten()
            .find(|owner| owner.controller == Some(true));
        let owner = owner.map(|owner| owner.uid.clone()).unwrap_or_default();
        let orphan = if owner.is_empty() {
            Orphan::of(object).map(Box::new)
        } else {
            None
        };
        let is_orphan = orphan.is_some();
        let ours = applied(object, &managed).map_or(LastApplied::Nothing, |ours| {
            LastApplied::Json(
                CompactJson::new(&ours),
                CompactJson::new(&object.data["spec"]),
            )
        });
        let held = Self {
            uid: meta.uid.as_deref().unwrap_or_default().into(),
            version: meta.resource_version.as_deref().unwrap_or_default().into(),
            deleting: meta.deletion_timestamp.is_some(),
            owner: owner.as_str().into(),
            ours,
            others: managed_fields::others(&managed).into(),
            orphan,
        };
        let class = object.data["spec"]["gatewayClassName"]
            .as_str()
            .map(Into::into);
        (
            held,
            Existing {
                owner,
                hosts: hosts(&object.data["spec"]),
                class,
                is_orphan,
            },
        )
    }

    /// Returns the UID of the controlling owner reference; empty where there is none.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// Returns whether we applied the object.
    pub fn is_ours(&self) -> bool {
        self.ours != LastApplied::Nothing
    }

    /// Returns the other field managers of the spec.
    pub fn others(&self) -> &[String] {
        &self.others
    }

    /// Returns the write that brings an object to the desired state; `None` where it needs none.
    /// `decided` tells whether a TenantGateway of this UID exists and its derived objects are
    /// decided, so that an unwanted object of it may be deleted. `defaults` are those of the schema,
    /// if it is known.
    pub(crate) fn step(
        derived: &Derived,
        held: Option<&Self>,
        wanted: Option<&Value>,
        decided: &dyn Fn(&str) -> bool,
        defaults: Option<&Defaults>,
    ) -> Option<ObjectWrite> {
        let (held, wanted) = match (held, wanted) {
            (None, wanted) => return wanted.cloned().map(ObjectWrite::Create),
            (Some(held), wanted) => (held, wanted),
        };
        let is_own = match wanted {
            Some(wanted) => held.ownership(wanted, defaults) != Ownership::Foreign,
            None => !held.owner.is_empty() && decided(&held.owner),
        };
        if held.deleting || !is_own {
            return None;
        }
        let uid = held.uid.to_string();
        match wanted {
            Some(wanted) if !held.others.is_empty() => {
                Some(ObjectWrite::TakeOver(wanted.clone(), uid))
            }
            Some(wanted) => held
                .differences(wanted, defaults)
                .map(|_| ObjectWrite::Apply(wanted.clone(), uid)),
            // Positive ownership: the owner reference is right, and we applied the object.
            None => held.is_ours().then(|| {
                let kind = kind(derived.kind);
                ObjectWrite::Delete(object_write::Existing {
                    api_version: kind.api_version(),
                    kind: kind.as_str(),
                    name: derived.name.clone(),
                    uid,
                    version: Some(held.version.to_string()),
                })
            }),
        }
    }

    /// Returns whose the object is, where this manifest is wanted.
    pub(crate) fn ownership(&self, wanted: &Value, defaults: Option<&Defaults>) -> Ownership {
        let nothing = BTreeMap::new();
        let marks = Marks {
            owner: &self.owner,
            labels: self
                .orphan
                .as_ref()
                .map_or(&nothing, |orphan| &orphan.labels),
            is_applied: self.is_ours(),
        };
        judge(wanted, marks, || {
            self.deviation_of_orphan(wanted, defaults).is_none()
        })
    }

    /// Returns the first difference of the specification of an object without an owner from the
    /// desired one.
    pub(crate) fn deviation_of_orphan(
        &self,
        wanted: &Value,
        defaults: Option<&Defaults>,
    ) -> Option<Deviation> {
        let spec = self.orphan.as_ref().map(|orphan| orphan.spec.value());
        differences_of_spec(&wanted["spec"], &spec.unwrap_or_default(), defaults)
            .into_iter()
            .next()
    }

    /// Returns whether both are the same version of one object.
    pub fn is_version_of(&self, other: &Self) -> bool {
        (&self.uid, &self.version) == (&other.uid, &other.version)
    }

    /// Replaces the fields by the digest of the desired manifest, if they are equal to it.
    pub(crate) fn keep_digest(&mut self, wanted: &Value, defaults: Option<&Defaults>) {
        if matches!(self.ours, LastApplied::Json(..))
            && self.differences(wanted, defaults).is_none()
        {
            self.ours = LastApplied::Wanted(digest(wanted));
        }
    }

    /// Returns the differences from the desired manifest, as far as they are known; `None` where
    /// the object is as desired.
    pub(crate) fn differences(
        &self,
        wanted: &Value,
        defaults: Option<&Defaults>,
    ) -> Option<Vec<Deviation>> {
        let all = match &self.ours {
            LastApplied::Nothing => return Some(Vec::new()),
            LastApplied::Json(ours, spec) => {
                differences_of_applied(wanted, &ours.value(), &spec.value(), defaults)
            }
            LastApplied::Wanted(known) => return (*known != digest(wanted)).then(Vec::new),
        };
        (!all.is_empty()).then_some(all)
    }
}

impl Orphan {
    fn of(object: &DynamicObject) -> Option<Self> {
        let labels = object.metadata.labels.clone()?;
        let is_marked = [(names::MANAGED_BY, names::MANAGER), (MANAGED_BY, MANAGER)]
            .iter()
            .any(|(label, manager)| labels.get(*label).is_some_and(|by| by == manager));
        is_marked.then(|| Self {
            labels,
            spec: CompactJson::new(&object.data["spec"]),
        })
    }
}

/// Returns the hostnames of the listeners other than HTTP, by listener name.
fn hosts(spec: &Value) -> BTreeMap<String, Hostname> {
    let listeners = spec["listeners"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|l| l["protocol"] != "HTTP");
    listeners
        .filter_map(|listener| {
            let hostname = Hostname::parse(listener["hostname"].as_str()?).ok()?;
            Some((listener["name"].as_str()?.to_owned(), hostname))
        })
        .collect()
}

/// Returns the kind of a derived object.
pub(crate) fn kind(kind: DerivedKind) -> Kind {
    match kind {
        DerivedKind::Gateway => Kind::Gateway,
        DerivedKind::ListenerSet => Kind::ListenerSet,
        DerivedKind::HttpRoute => Kind::HTTPRoute,
        DerivedKind::Issuer => Kind::Issuer,
        DerivedKind::Certificate => Kind::Certificate,
    }
}

/// Returns the derived object that an object may be, by its kind and name.
pub fn derived(key: &ObjectKey) -> Option<Derived> {
    let name = &key.name.name;
    let kind = match key.kind {
        Kind::Gateway => DerivedKind::Gateway,
        Kind::ListenerSet if names::overflow_of(name).is_some() => DerivedKind::ListenerSet,
        Kind::HTTPRoute
            if name.ends_with(names::REDIRECT) || names::challenges_of(name).is_some() =>
        {
            DerivedKind::HttpRoute
        }
        Kind::Issuer if name.ends_with("-gateway") => DerivedKind::Issuer,
        Kind::Certificate if name.ends_with("-tls") => DerivedKind::Certificate,
        _ => return None,
    };
    Some(Derived {
        kind,
        name: key.name.clone(),
    })
}

#[cfg(test)]
mod tests {
    use gatewright_core::model::ObjectName;
    use serde_json::json;

    use super::*;
    use crate::defaults::SpecDefaults;

    const OWNER: &str = "u-1";

    fn wanted() -> Value {
        json!({"apiVersion": "g/v1", "kind": "Gateway", "metadata": {"name": "g", "namespace": "a", "labels": {"l": "x"},
            "ownerReferences": [{"uid": OWNER, "controller": true, "kind": "TenantGateway", "name": "g",
                "apiVersion": "t/v1", "blockOwnerDeletion": true}]},
            "spec": {"gatewayClassName": "c", "listeners": [
                {"name": "a", "port": 443, "protocol": "HTTPS", "hostname": "a.b", "tls": {"certificateRefs": [{"name": "s"}]}},
                {"name": "b", "port": 80, "protocol": "HTTP"}]}})
    }

    fn tree(value: &Value, field: &str) -> Value {
        match value {
            Value::Object(fields) => fields
                .iter()
                .map(|(name, value)| (format!("f:{name}"), tree(value, name)))
                .collect(),
            Value::Array(items) if matches!(field, "listeners" | "ownerReferences") => {
                let key = if field == "listeners" { "name" } else { "uid" };
                items
                    .iter()
                    .map(|item| (format!("k:{}", json!({key: item[key]})), tree(item, "")))
                    .collect()
            }
            _ => json!({}),
        }
    }

    /// Returns the object as the server stores it after we applied `applied`.
    fn server(applied: &Value) -> Value {
        let mut there = applied.clone();
        let owned = json!({"metadata": {"labels": applied["metadata"]["labels"],
            "ownerReferences": applied["metadata"]["ownerReferences"]}, "spec": applied["spec"]});
        there["metadata"]["uid"] = json!("u");
        there["metadata"]["resourceVersion"] = json!("5");
        there["metadata"]["managedFields"] = json!([{"manager": crate::FIELD_MANAGER,
            "operation": "Apply", "apiVersion": "g/v1", "fieldsType": "FieldsV1", "fieldsV1": tree(&owned, "")}]);
        there["spec"]["listeners"][0]["tls"]["certificateRefs"][0]["kind"] = json!("Secret");
        there["spec"]["listeners"][0]["allowedRoutes"] = json!({"namespaces": {"from": "Same"}});
        there
    }

    fn held(value: Value) -> LiveObject {
        LiveObject::new(&serde_json::from_value(value).expect("an object")).0
    }

    /// The write for an object that may be there.
    fn write(
        there: Option<&LiveObject>,
        wanted: Option<&Value>,
        owner: &str,
    ) -> Option<ObjectWrite> {
        let name = ObjectName::new("a", "g");
        let derived = Derived {
            kind: DerivedKind::Gateway,
            name,
        };
        LiveObject::step(&derived, there, wanted, &|uid| uid == owner, None)
    }

    fn step(there: Value, wanted: Option<&Value>, owner: &str) -> Option<ObjectWrite> {
        write(Some(&held(there)), wanted, owner)
    }

    fn apply(wanted: &Value) -> Option<ObjectWrite> {
        Some(ObjectWrite::Apply(wanted.clone(), "u".to_owned()))
    }

    fn take_over(wanted: &Value) -> Option<ObjectWrite> {
        Some(ObjectWrite::TakeOver(wanted.clone(), "u".to_owned()))
    }

    /// The deletion of the object in the version that was seen.
    fn deletion() -> Option<ObjectWrite> {
        Some(ObjectWrite::Delete(object_write::Existing {
            api_version: "gateway.networking.k8s.io/v1".to_owned(),
            kind: "Gateway",
            name: ObjectName::new("a", "g"),
            uid: "u".to_owned(),
            version: Some("5".to_owned()),
        }))
    }

    #[test]
    fn an_object_with_defaults_and_another_order_is_not_written() {
        let mut there = server(&wanted());
        there["spec"]["listeners"]
            .as_array_mut()
            .expect("a list")
            .reverse();
        assert_eq!(step(there, Some(&wanted()), OWNER), None);
        assert_eq!(
            write(None, Some(&wanted()), OWNER),
            Some(ObjectWrite::Create(wanted()))
        );
    }

    #[test]
    fn a_compared_object_is_remembered_by_its_digest() {
        let mut there = held(server(&wanted()));
        let json = there.clone();
        there.keep_digest(&wanted(), None);
        assert_ne!(there, json);
        assert!(there.is_version_of(&json));
        assert_eq!(write(Some(&there), Some(&wanted()), OWNER), None);
        let mut less = wanted();
        less["spec"]["listeners"]
            .as_array_mut()
            .expect("a list")
            .pop();
        assert_eq!(write(Some(&there), Some(&less), OWNER), apply(&less));
        assert_eq!(write(Some(&there), None, OWNER), deletion());
        // An object that differs keeps its fields.
        let mut other = json.clone();
        other.keep_digest(&less, None);
        assert_eq!(other, json);
    }

    #[test]
    fn a_difference_of_ours_is_applied() {
        let mut less = wanted();
        less["spec"]["listeners"]
            .as_array_mut()
            .expect("a list")
            .pop();
        assert_eq!(step(server(&wanted()), Some(&less), OWNER), apply(&less));
        assert_eq!(
            step(server(&less), Some(&wanted()), OWNER),
            apply(&wanted())
        );
        // We do not own a field any more that another manager changed.
        let mut edited = server(&wanted());
        edited["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]
            .as_object_mut()
            .expect("a tree")
            .remove("f:gatewayClassName");
        edited["metadata"]["managedFields"].as_array_mut().expect("a list").push(json!({"manager": "kubectl-edit",
            "operation": "Update", "apiVersion": "g/v1", "fieldsV1": {"f:spec": {"f:gatewayClassName": {}}}}));
        let there = held(edited);
        assert_eq!(
            write(Some(&there), Some(&wanted()), OWNER),
            take_over(&wanted())
        );
        assert_eq!(there.others(), ["kubectl-edit"]);
    }

    #[test]
    fn what_admission_changes_or_adds_is_a_difference_and_defaults_are_none() {
        let listener = json!({"properties": {
            "tls": {"properties": {"certificateRefs": {"items": {"properties": {"kind": {"default": "Secret"}}}}}},
            "allowedRoutes": {"default": {"namespaces": {"from": "Same"}}}}});
        let spec = json!({"properties": {"listeners": {"items": listener}}});
        let schema = json!({"x-kubernetes-group-version-kind": [{"group": Kind::Gateway.group(), "kind": "Gateway"}],
            "properties": {"spec": spec}});
        let defaults = SpecDefaults::read(
            &[json!({"components": {"schemas": {"g": schema}}})],
            &[Kind::Gateway],
        );
        let mut right = server(&wanted());
        right["spec"]["listeners"][1]["allowedRoutes"] = json!({"namespaces": {"from": "Same"}});
        fn found(there: &Value, defaults: &SpecDefaults) -> Vec<String> {
            let all = held(there.clone())
                .differences(&wanted(), defaults.of(Kind::Gateway))
                .unwrap_or_default();
            all.iter().map(ToString::to_string).collect::<Vec<_>>()
        }
        assert_eq!(
            found(&right, &defaults),
            Vec::<String>::new(),
            "defaults are no differences"
        );
        right["metadata"]["labels"]["theirs"] = json!("x");
        right["metadata"]["annotations"] = json!({"theirs": "x"});
        assert_eq!(
            found(&right, &defaults),
            Vec::<String>::new(),
            "labels and annotations of others are theirs"
        );
        for (pointer, value, told) in [
            (
                "/spec/gatewayClassName",
                json!("d"),
                r#"spec.gatewayClassName is "d" in place of "c""#,
            ),
            (
                "/spec/listeners/0/port",
                json!(1),
                "spec.listeners[a].port is 1 in place of 443",
            ),
            (
                "/spec/listeners/0/allowedRoutes/namespaces/from",
                json!("All"),
                r#"from is "All" in place of "Same""#,
            ),
            (
                "/metadata/labels/l",
                json!("y"),
                r#"metadata.labels.l is "y" in place of "x""#,
            ),
        ] {
            let mut changed = right.clone();
            *changed.pointer_mut(pointer).expect("it is there") = value;
            assert!(
                found(&changed, &defaults)[0].ends_with(told),
                "{:?}",
                found(&changed, &defaults)
            );
        }
        for (pointer, field, told) in [
            ("/spec", "infrastructure", "spec.infrastructure was added"),
            (
                "/spec/listeners/1",
                "hostname",
                "spec.listeners[b].hostname was added",
            ),
            (
                "/spec/listeners/0/tls/certificateRefs/0",
                "namespace",
                "certificateRefs[s].namespace was added",
            ),
        ] {
            let mut changed = right.clone();
            changed.pointer_mut(pointer).expect("it is there")[field] = json!("x");
            assert!(
                found(&changed, &defaults)[0].ends_with(told),
                "{:?}",
                found(&changed, &defaults)
            );
        }
    }

    #[test]
    fn foreign_objects_are_neither_written_nor_deleted() {
        let mut anew = wanted();
        anew["metadata"]["ownerReferences"][0]["uid"] = json!("u-2");
        assert_eq!(step(server(&wanted()), Some(&anew), "u-2"), None);
        assert_eq!(step(server(&wanted()), None, "u-2"), None);
        let mut by_upstream = server(&wanted());
        by_upstream["metadata"]["managedFields"][0]["manager"] = json!("cozystack-controller");
        assert_eq!(
            step(by_upstream.clone(), None, OWNER),
            None,
            "we never wrote it"
        );
        assert_eq!(
            step(by_upstream, Some(&wanted()), OWNER),
            take_over(&wanted())
        );
        assert_eq!(step(server(&wanted()), None, OWNER), deletion());
        let mut deleting = server(&wanted());
        deleting["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(step(deleting, Some(&wanted()), OWNER), None);
    }
}
