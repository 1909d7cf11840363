//! Selection of namespaces by listeners and Gateways.

use std::collections::BTreeMap;

/// `namespaces.from`, with its selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamespaceRule {
    /// Any namespace.
    All,
    /// The namespace of the object with the rule.
    Same,
    /// Namespaces whose labels match.
    Selector(Box<Selector>),
    /// No namespace.
    None,
}

impl NamespaceRule {
    /// True if an object in namespace `own` admits `namespace`, which has `labels`.
    pub fn admits(&self, own: &str, namespace: &str, labels: &BTreeMap<String, String>) -> bool {
        match self {
            NamespaceRule::All => true,
            NamespaceRule::Same => own == namespace,
            NamespaceRule::Selector(selector) => selector.matches(namespace, labels),
            NamespaceRule::None => false,
        }
    }
}

/// A label selector (Kubernetes `LabelSelector`): all requirements must hold; an empty one selects
/// everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// Labels that must be equal.
    pub labels: BTreeMap<String, String>,
    /// Key, operator, values.
    pub expressions: Vec<(String, String, Vec<String>)>,
}

impl Selector {
    /// True if a namespace with these labels is selected. Every namespace has
    /// `kubernetes.io/metadata.name`, as the API server sets it. An unknown operator selects
    /// nothing.
    pub fn matches(&self, namespace: &str, labels: &BTreeMap<String, String>) -> bool {
        self.labels
            .iter()
            .all(|(key, wanted)| value(key, namespace, labels) == Some(wanted))
            && self.expressions.iter().all(|(key, operator, values)| {
                let found = value(key, namespace, labels);
                let among = found.is_some_and(|found| values.iter().any(|v| v == found));
                match operator.as_str() {
                    "In" => among,
                    "NotIn" => !among,
                    "Exists" => found.is_some(),
                    "DoesNotExist" => found.is_none(),
                    _ => false,
                }
            })
    }
}

fn value<'a>(
    key: &str,
    namespace: &'a str,
    labels: &'a BTreeMap<String, String>,
) -> Option<&'a str> {
    match key {
        "kubernetes.io/metadata.name" => Some(namespace),
        _ => labels.get(key).map(String::as_str),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn every_operator_selects_as_kubernetes_does() {
        fn check(operator: &str, values: &[&str]) -> [bool; 2] {
            let values = values.iter().map(|v| (*v).to_owned()).collect();
            let selector = Selector {
                expressions: vec![("team".into(), operator.into(), values)],
                ..Selector::default()
            };
            [
                selector.matches("ns", &labels(&[("team", "a")])),
                selector.matches("ns", &labels(&[])),
            ]
        }
        assert_eq!(check("In", &["a", "b"]), [true, false]);
        assert_eq!(check("NotIn", &["a"]), [false, true]);
        assert_eq!(check("Exists", &[]), [true, false]);
        assert_eq!(check("DoesNotExist", &[]), [false, true]);
        assert_eq!(check("Near", &["a"]), [false, false]);
    }

    #[test]
    fn a_namespace_is_selected_by_its_name() {
        let selector = Selector {
            labels: labels(&[("kubernetes.io/metadata.name", "shop")]),
            ..Selector::default()
        };
        assert!(selector.matches("shop", &labels(&[])) && !selector.matches("other", &labels(&[])));
    }
}
