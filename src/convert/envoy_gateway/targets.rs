//! What a policy is about: objects by name and by labels, and the rules of routes.

use serde_json::{Value, json};

use super::site::{Policy, Site};
use super::{GATEWAY_GROUP, group, name_of};
use crate::convert::document::Name;
use crate::convert::{Document, Verdict};

/// An object, or a part of one, that a policy is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) kind: String,
    pub(super) name: Name,
    pub(super) section: Option<String>,
}

impl Target {
    /// True if our policies can have it.
    pub(super) fn is_ours(&self) -> bool {
        ["Gateway", "ListenerSet", "HTTPRoute", "GRPCRoute"].contains(&self.kind.as_str())
    }

    /// True for the parents of routes.
    pub(super) fn is_parent(&self) -> bool {
        ["Gateway", "ListenerSet"].contains(&self.kind.as_str())
    }

    /// The target, as policies name it.
    pub(super) fn reference(&self) -> Value {
        let mut target = json!({"group": GATEWAY_GROUP, "kind": self.kind, "name": self.name.1});
        if let Some(section) = &self.section {
            target["sectionName"] = json!(section);
        }
        target
    }

    /// How near it is to a rule.
    fn level(&self) -> usize {
        let level = match self.kind.as_str() {
            "Gateway" => 0,
            "ListenerSet" => 2,
            _ => 4,
        };
        level + usize::from(self.section.is_some())
    }
}

/// The targets of a policy, each once.
pub(super) fn targets(documents: &[Document], policy: &Value) -> Vec<Target> {
    let spec = &policy["spec"];
    let (namespace, _) = name_of(policy);
    let mut targets: Vec<Target> = std::iter::once(&spec["targetRef"])
        .chain(spec["targetRefs"].as_array().into_iter().flatten())
        .filter_map(|target| {
            Some(Target {
                kind: target["kind"].as_str()?.to_owned(),
                name: (namespace.clone(), target["name"].as_str()?.to_owned()),
                section: target["sectionName"].as_str().map(str::to_owned),
            })
        })
        .collect();
    for selector in spec["targetSelectors"].as_array().into_iter().flatten() {
        for document in documents {
            let value = &document.value;
            let name = name_of(value);
            let is_target = value["kind"] == selector["kind"]
                && group(value) == selector["group"].as_str().unwrap_or(GATEWAY_GROUP)
                && selects(selector, &value["metadata"]["labels"])
                && is_near(documents, &selector["namespaces"], &namespace, &name.0);
            if is_target {
                targets.push(Target {
                    kind: value["kind"].as_str().unwrap_or_default().to_owned(),
                    name,
                    section: None,
                });
            }
        }
    }
    let mut once: Vec<Target> = Vec::new();
    for target in targets {
        if !once.contains(&target) {
            once.push(target);
        }
    }
    once
}

/// True for the namespaces of a selector. One that is not in the input is taken for one of them.
fn is_near(documents: &[Document], namespaces: &Value, own: &str, namespace: &str) -> bool {
    if own == namespace {
        return true;
    }
    match namespaces["from"].as_str() {
        Some("All") => true,
        Some("Selector") => documents
            .iter()
            .find(|document| {
                document.value["kind"] == "Namespace"
                    && document.value["metadata"]["name"] == namespace
            })
            .is_none_or(|document| {
                selects(
                    &namespaces["selector"],
                    &document.value["metadata"]["labels"],
                )
            }),
        _ => false,
    }
}

/// True if a selector of Kubernetes selects these labels.
fn selects(selector: &Value, labels: &Value) -> bool {
    let mut pairs = selector["matchLabels"].as_object().into_iter().flatten();
    let mut expressions = selector["matchExpressions"]
        .as_array()
        .into_iter()
        .flatten();
    pairs.all(|(name, value)| labels[name] == *value)
        && expressions.all(|expression| {
            let label = &labels[expression["key"].as_str().unwrap_or_default()];
            let mut values = expression["values"].as_array().into_iter().flatten();
            match expression["operator"].as_str() {
                Some("In") => values.any(|value| value == label),
                Some("NotIn") => values.all(|value| value != label),
                Some("DoesNotExist") => label.is_null(),
                _ => !label.is_null(),
            }
        })
}

/// A rule of a route: its document, and its index.
pub(super) type Rule = (usize, usize);

impl Site<'_> {
    /// The routes of the input below a target.
    pub(super) fn routes(&self, target: &Target) -> Vec<usize> {
        (0..self.documents.len())
            .filter(|index| {
                let value = &self.documents[*index].value;
                let kind = value["kind"].as_str().unwrap_or_default();
                group(value) == GATEWAY_GROUP
                    && kind.ends_with("Route")
                    && if target.is_parent() {
                        self.is_below(*index, target)
                    } else {
                        kind == target.kind && name_of(value) == target.name
                    }
            })
            .collect()
    }

    /// True if a route has a parent, or a ListenerSet of it. Without a section a route is at all
    /// listeners, and below none of them alone.
    fn is_below(&self, route: usize, parent: &Target) -> bool {
        let (namespace, _) = self.name(route);
        self.spec(route)["parentRefs"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|reference| {
                let kind = reference["kind"].as_str().unwrap_or("Gateway");
                let name = name_in(reference, &namespace);
                if kind == parent.kind && name == parent.name {
                    return parent.section.is_none()
                        || reference["sectionName"].as_str() == parent.section.as_deref();
                }
                kind == "ListenerSet"
                    && parent.section.is_none()
                    && self.find(GATEWAY_GROUP, kind, &name).is_some_and(|set| {
                        let gateway = &self.spec(set)["parentRef"];
                        name_in(gateway, &name.0) == parent.name
                    })
            })
    }

    /// The rules for which a policy decides about a field: no policy of its kind is nearer that
    /// replaces it.
    pub(super) fn rules(&self, policy: &Policy<'_>, field: &str) -> Vec<Rule> {
        let mut rules = Vec::new();
        for target in &policy.targets {
            for route in self.routes(target) {
                let list = self.spec(route)["rules"].as_array();
                for (index, rule) in list.into_iter().flatten().enumerate() {
                    let name = rule["name"].as_str();
                    let is_meant = target.is_parent()
                        || target.section.is_none()
                        || target.section.as_deref() == name;
                    let is_decided = is_meant
                        && !self.policies.iter().any(|other| {
                            other.kind == policy.kind
                                && other.document != policy.document
                                && (other.spec["mergeType"].is_null()
                                    || !other.spec[field].is_null())
                                && other.targets.iter().any(|near| {
                                    near.level() > target.level() && self.has(near, route, name)
                                })
                        });
                    if is_decided && !rules.contains(&(route, index)) {
                        rules.push((route, index));
                    }
                }
            }
        }
        rules
    }

    /// True if a rule is below a target.
    fn has(&self, target: &Target, route: usize, rule: Option<&str>) -> bool {
        if target.is_parent() {
            return self.is_below(route, target);
        }
        self.name(route) == target.name
            && self.documents[route].value["kind"] == *target.kind
            && (target.section.is_none() || target.section.as_deref() == rule)
    }

    /// Notes which policies of the same kind Envoy Gateway has a policy replace: `note` makes the
    /// sentence of their names.
    pub(super) fn say_replaced(&mut self, document: usize, note: impl FnOnce(&str) -> String) {
        let replaced = self.replaced(self.policy(document));
        if !replaced.is_empty() {
            let sentence = note(&replaced.join(" and "));
            self.report
                .say(document, "targetRefs", Verdict::Differs, sentence);
        }
    }

    /// The policies of the same kind at parents of a policy's routes, which Envoy Gateway has it
    /// replace.
    fn replaced(&self, policy: &Policy<'_>) -> Vec<String> {
        if !policy.spec["mergeType"].is_null() {
            return Vec::new();
        }
        self.policies
            .iter()
            .filter(|other| other.kind == policy.kind && other.document != policy.document)
            .filter(|other| {
                other.targets.iter().any(|parent| {
                    policy.targets.iter().any(|target| {
                        target.level() > parent.level()
                            && self
                                .routes(target)
                                .into_iter()
                                .any(|route| self.has(parent, route, None))
                    })
                })
            })
            .map(|other| format!("{}/{}", other.name.0, other.name.1))
            .collect()
    }
}

/// The name in a reference, of this namespace without one.
pub(super) fn name_in(reference: &Value, namespace: &str) -> Name {
    let namespace = reference["namespace"].as_str().unwrap_or(namespace);
    let name = reference["name"].as_str().unwrap_or_default();
    (namespace.to_owned(), name.to_owned())
}
