//! XListenerSet, the ListenerSet of bundles up to v1.4 (GEP-1713): read as a ListenerSet.

use std::sync::Arc;

use serde_json::{Value, json};

use super::manifest::Manifest;
use super::{ListenerSet, ParseError, SetKind};

/// Reads an XListenerSet. A listener without a port, or with port 0, asks for a port that the
/// controller chooses, which we do not support: it has port 0, and is not served.
pub(super) fn read(manifest: Manifest<'_>) -> Result<ListenerSet, ParseError> {
    let mut value = manifest.value.clone();
    let mut unassigned = Vec::new();
    let listeners = value
        .pointer_mut("/spec/listeners")
        .and_then(Value::as_array_mut);
    for listener in listeners.into_iter().flatten() {
        let is_unassigned = listener.get("port").is_none_or(|port| *port == 0);
        unassigned.push(is_unassigned);
        if let Some(fields) = listener.as_object_mut().filter(|_| is_unassigned) {
            // The schema that it is read by requires one.
            fields.insert("port".to_owned(), json!(1));
        }
    }
    let manifest = Manifest {
        value: &value,
        ..manifest
    };
    let mut set = ListenerSet {
        kind: SetKind::Experimental,
        ..manifest.spec(ListenerSet::read)?
    };
    for (listener, _) in set
        .listeners
        .iter_mut()
        .zip(unassigned)
        .filter(|(_, is_unassigned)| *is_unassigned)
    {
        let listener = Arc::make_mut(listener);
        listener.port = 0;
        listener.unreadable = Some("has no port, and ports are not assigned: set its port".into());
    }
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::{Object, SetKey};

    #[test]
    fn it_is_a_listener_set_of_its_own_kind() {
        let listeners = json!([{"name": "set", "port": 80, "protocol": "HTTP"}, {"name": "none", "protocol": "HTTP"},
            {"name": "zero", "port": 0, "protocol": "HTTP"}]);
        let object = json!({"apiVersion": "gateway.networking.x-k8s.io/v1alpha1", "kind": "XListenerSet",
            "metadata": {"namespace": "a", "name": "x"}, "spec": {"parentRef": {"name": "g"}, "listeners": listeners}});
        let object = Object::parse(object).expect("it is valid");
        let Object::ListenerSet(set) = &object else {
            panic!("a ListenerSet")
        };
        assert_eq!(SetKey::of(&object.key()), Some(set.key()));
        let ports: Vec<_> = set
            .listeners
            .iter()
            .map(|l| (&*l.name, l.port, l.unreadable.is_some()))
            .collect();
        assert_eq!(
            ports,
            [("set", 80, false), ("none", 0, true), ("zero", 0, true)]
        );
        for spec in [
            json!(["listeners"]),
            json!("listeners"),
            json!(null),
            json!({"listeners": 1}),
        ] {
            let object = json!({"apiVersion": "gateway.networking.x-k8s.io/v1alpha1", "kind": "XListenerSet",
                "metadata": {"namespace": "a", "name": "x"}, "spec": &spec});
            assert!(Object::parse(object).is_err(), "{spec}");
        }
    }
}
