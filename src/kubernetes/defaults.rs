//! The defaults that the API server fills into objects of a kind, from the schema of its
//! definition. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use gatewright_core::inputs::Kind;
use serde_json::Value;

/// The kinds of derived objects of TenantGateways, whose defaults are read.
pub(crate) const DERIVED: [Kind; 5] = [
    Kind::Gateway,
    Kind::ListenerSet,
    Kind::HTTPRoute,
    Kind::Issuer,
    Kind::Certificate,
];

/// The defaults of the specifications of kinds. Clones share them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpecDefaults(Arc<BTreeMap<Kind, Defaults>>);

/// The defaults of a value and of the parts of it.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Defaults {
    /// The value where the field is absent.
    value: Option<Value>,
    fields: BTreeMap<String, Defaults>,
    items: Option<Box<Defaults>>,
}

impl SpecDefaults {
    /// Reads the schemas of these kinds from the OpenAPI documents of their API groups.
    pub(crate) fn read(documents: &[Value], kinds: &[Kind]) -> Self {
        let all = documents.iter().flat_map(|document| {
            kinds.iter().filter_map(|kind| {
                let schema = spec_schema(document, kind.group(), kind.as_str())?;
                Some((*kind, Defaults::read(schema)))
            })
        });
        Self(Arc::new(all.collect()))
    }

    /// Returns the defaults of the specification of a kind; `None` while its schema is not known.
    pub(crate) fn of(&self, kind: Kind) -> Option<&Defaults> {
        self.0.get(&kind)
    }
}

/// Returns the schema of the `spec` of a kind of a group.
pub(crate) fn spec_schema<'a>(document: &'a Value, group: &str, kind: &str) -> Option<&'a Value> {
    let is_of_kind = |schema: &&Value| {
        let kinds = schema["x-kubernetes-group-version-kind"]
            .as_array()
            .into_iter()
            .flatten();
        kinds
            .into_iter()
            .any(|of| of["kind"] == *kind && of["group"] == *group)
    };
    let schema = document["components"]["schemas"]
        .as_object()?
        .values()
        .find(is_of_kind)?;
    schema["properties"].get("spec")
}

impl Defaults {
    fn read(schema: &Value) -> Self {
        let fields = schema["properties"].as_object().into_iter().flatten();
        let fields = fields.map(|(name, schema)| (name.clone(), Self::read(schema)));
        let items = schema
            .get("items")
            .map(Self::read)
            .filter(|items| !items.is_none());
        Self {
            value: schema.get("default").cloned(),
            fields: fields.filter(|(_, defaults)| !defaults.is_none()).collect(),
            items: items.map(Box::new),
        }
    }

    fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Fills absent fields of a value, as the API server does (structural defaulting).
    pub(crate) fn fill(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for (name, defaults) in &self.fields {
                    if let (None, Some(value)) = (fields.get(name), &defaults.value) {
                        fields.insert(name.clone(), value.clone());
                    }
                    if let Some(value) = fields.get_mut(name) {
                        defaults.fill(value);
                    }
                }
            }
            Value::Array(items) => {
                for item in items {
                    self.items.iter().for_each(|defaults| defaults.fill(item));
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn absent_fields_are_filled_where_their_parent_is_there() {
        let reference = json!({"properties": {"group": {"default": ""}, "name": {}}});
        let matched = json!({"default": [{"path": {"type": "PathPrefix"}}], "items": {"properties": {
            "path": {"properties": {"value": {"default": "/"}}}}}});
        let spec = json!({"properties": {"refs": {"items": reference}, "matches": matched,
            "nested": {"properties": {"from": {"default": "Same"}}}}});
        let document = json!({"components": {"schemas": {
            "other": {"x-kubernetes-group-version-kind": [{"group": "g", "kind": "Gateway"}]},
            "ours": {"x-kubernetes-group-version-kind": [{"group": "gateway.networking.k8s.io", "kind": "Gateway"}],
                "properties": {"spec": spec}}}}});
        let defaults =
            SpecDefaults::read(&[json!({}), document], &[Kind::Gateway, Kind::HTTPRoute]);
        assert_eq!(defaults.of(Kind::HTTPRoute), None);
        let mut value = json!({"refs": [{"name": "x"}, {"name": "y", "group": "g"}]});
        defaults
            .of(Kind::Gateway)
            .expect("its schema is there")
            .fill(&mut value);
        let filled = json!({"refs": [{"name": "x", "group": ""}, {"name": "y", "group": "g"}],
            "matches": [{"path": {"type": "PathPrefix", "value": "/"}}]});
        assert_eq!(
            value, filled,
            "`nested` is absent, and so is the field of it"
        );
    }
}
