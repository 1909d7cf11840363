//! The objects of a conversion.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::Converted;
use super::document::Name;

/// The group of the Gateway API, and its version here.
pub(super) const GATEWAY_API: &str = "gateway.networking.k8s.io/v1";
/// The group of our kinds, and its version.
pub(super) const OURS: &str = "gatewright.io/v1alpha1";

/// The most targets of a policy.
const TARGETS: usize = 16;

/// A permission to refer to an object of another namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Grant {
    pub(super) from: (&'static str, &'static str, String),
    pub(super) to: (&'static str, Name),
}

/// The objects of a conversion.
#[derive(Default)]
pub(super) struct Output {
    objects: Vec<Converted>,
    /// The names that are taken: kind, namespace, name.
    names: BTreeSet<(String, String, String)>,
    grants: BTreeSet<Grant>,
    /// The settings of Services, and the object that each is of.
    services: BTreeMap<Name, BTreeMap<&'static str, (Value, String)>>,
}

impl Output {
    /// Returns a name of the kind that no other object has: the wanted one, perhaps with a number.
    pub(super) fn name(&mut self, kind: &str, namespace: &str, wanted: &str) -> String {
        let mut names = std::iter::once(wanted.to_owned())
            .chain((2_u32..).map(|number| format!("{wanted}-{number}")));
        names
            .find(|name| {
                let key = (kind.to_owned(), namespace.to_owned(), name.clone());
                self.names.insert(key)
            })
            .expect("there is always another number")
    }

    /// Adds an object.
    pub(super) fn add(&mut self, version: &str, kind: &str, name: (&str, &str), spec: &Value) {
        self.add_with(version, kind, name, &json!({"spec": spec}));
    }

    /// Adds an object with fields beside its metadata.
    pub(super) fn add_with(
        &mut self,
        version: &str,
        kind: &str,
        (namespace, name): (&str, &str),
        fields: &Value,
    ) {
        let mut object = json!({
            "apiVersion": version, "kind": kind, "metadata": {"namespace": namespace, "name": name},
        });
        for (field, value) in fields.as_object().into_iter().flatten() {
            object[field] = value.clone();
        }
        let comments = Vec::new();
        self.objects.push(Converted {
            comments,
            value: object,
        });
    }

    /// The number of objects so far.
    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    /// Puts comments above the object that was added after so many others.
    pub(super) fn comment(&mut self, after: usize, comments: &[String]) {
        if let Some(object) = self.objects.get_mut(after) {
            object.comments = comments.to_vec();
        }
    }

    /// Adds a policy of our own, in parts of as many targets as one may have.
    pub(super) fn policy(
        &mut self,
        kind: &str,
        (namespace, wanted): (&str, &str),
        targets: &[Value],
        spec: &Value,
    ) {
        for targets in targets.chunks(TARGETS) {
            let name = self.name(kind, namespace, wanted);
            let mut spec = spec.clone();
            spec["targetRefs"] = json!(targets);
            self.add(OURS, kind, (namespace, &name), &spec);
        }
    }

    /// Adds a permission, written at the end.
    pub(super) fn grant(&mut self, grant: Grant) {
        self.grants.insert(grant);
    }

    /// Closes targets until a person deletes the policy.
    pub(super) fn close(&mut self, (namespace, name): (&str, &str), targets: &[Value]) {
        // An address is always in one of them.
        let spec = json!({"clientAddress": {"deny": ["0.0.0.0/0", "::/0"]}});
        let wanted = format!("{name}-closed");
        self.policy("AccessPolicy", (namespace, &wanted), targets, &spec);
    }

    /// Sets a field of the TrafficPolicy of a Service. Another value of somebody else stays.
    ///
    /// # Errors
    /// The one who said otherwise.
    pub(super) fn service(
        &mut self,
        service: Name,
        (field, value): (&'static str, Value),
        by: &str,
    ) -> Result<(), String> {
        let fields = self.services.entry(service).or_default();
        match fields.get(field) {
            Some((other, by)) if *other != value => Err(by.clone()),
            Some(_) => Ok(()),
            None => {
                fields.insert(field, (value, by.to_owned()));
                Ok(())
            }
        }
    }

    /// Writes what was collected: policies of Services, and permissions. The objects that were
    /// added after so many others come first.
    pub(super) fn finish(mut self, first: usize) -> Vec<Converted> {
        self.objects.rotate_left(first);
        for ((namespace, service), fields) in std::mem::take(&mut self.services) {
            let mut spec = Map::new();
            for (field, (value, _)) in fields {
                spec.insert(field.to_owned(), value);
            }
            let target = json!({"group": "", "kind": "Service", "name": service});
            self.policy(
                "TrafficPolicy",
                (&namespace, &service),
                &[target],
                &Value::Object(spec),
            );
        }
        for grant in std::mem::take(&mut self.grants) {
            let Grant {
                from: (group, kind, namespace),
                to: (to, (there, object)),
            } = grant;
            let wanted = format!("{}-{namespace}-{object}", kind.to_lowercase());
            let name = self.name("ReferenceGrant", &there, &wanted);
            let spec = json!({
                "from": [{"group": group, "kind": kind, "namespace": namespace}],
                "to": [{"group": "", "kind": to, "name": object}],
            });
            self.add(GATEWAY_API, "ReferenceGrant", (&there, &name), &spec);
        }
        self.objects
    }
}
