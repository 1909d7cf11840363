//! Hostnames that the platform granted to a namespace: the domain in its label and the names below
//! it, and those that `allowedHostnames` of a class gives to one namespace by its name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::rule::gateway_parameters::class_parameters;
use gatewright_objects::inputs::{AllowedHostnames, HOST_LABEL, Selector};
use gatewright_objects::model::Hostname;
use gatewright_objects::multimap::MultiMap;
use gatewright_objects::store::Store;

/// The label by which the API server selects one namespace.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// A hostname or wildcard, and a namespace that has it.
type Grant = (Hostname, Arc<str>);

/// Who granted it: a label of the namespace, or a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum By {
    Label,
    Class,
}

/// The labels of a namespace by which the platform grants names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GrantingLabels {
    /// The domain.
    pub(crate) domain: Hostname,
    /// The namespace whose Gateway serves the namespace.
    pub(crate) server: Option<Arc<str>>,
}

/// All granted names.
#[derive(Debug, Default)]
pub(crate) struct GrantedNames {
    all: MultiMap<Hostname, (Arc<str>, By)>,
    /// The labels of each namespace.
    labels: BTreeMap<Arc<str>, GrantingLabels>,
    /// The namespaces whose Gateways serve a name for the namespace that has it: both, the server
    /// first.
    servers: MultiMap<Hostname, (Arc<str>, Arc<str>)>,
    of_classes: BTreeSet<Grant>,
}

impl GrantedNames {
    /// Sets the labels of a namespace. Returns the names whose grants changed.
    pub(crate) fn set_labels(
        &mut self,
        namespace: &Arc<str>,
        labels: Option<GrantingLabels>,
    ) -> BTreeSet<Hostname> {
        let before = match labels.clone() {
            Some(labels) => self.labels.insert(namespace.clone(), labels),
            None => self.labels.remove(namespace),
        };
        if before == labels {
            return BTreeSet::new();
        }
        let mut changed = BTreeSet::new();
        for (labels, there) in [(before, false), (labels, true)] {
            let Some(GrantingLabels { domain, server }) = labels else {
                continue;
            };
            for name in at_and_below(&domain) {
                self.all.set(&name, &(namespace.clone(), By::Label), there);
                if let Some(server) = &server {
                    self.servers
                        .set(&name, &(server.clone(), namespace.clone()), there);
                }
                changed.insert(name);
            }
        }
        changed
    }

    /// Sets the names that classes grant. Returns the names whose grants changed.
    pub(crate) fn set_of_classes(&mut self, grants: BTreeSet<Grant>) -> BTreeSet<Hostname> {
        let before = std::mem::replace(&mut self.of_classes, grants);
        let gone = before
            .difference(&self.of_classes)
            .map(|grant| (grant, false));
        let come = self
            .of_classes
            .difference(&before)
            .map(|grant| (grant, true));
        let mut changed = BTreeSet::new();
        for ((name, namespace), there) in gone.chain(come) {
            self.all.set(name, &(namespace.clone(), By::Class), there);
            changed.insert(name.clone());
        }
        changed
    }

    /// The first namespace that has a name by a grant of just this name.
    pub(crate) fn first(&self, name: &Hostname) -> Option<&Arc<str>> {
        self.all.first(name).map(|(namespace, _)| namespace)
    }

    /// True if a namespace has a name by a grant of just this name.
    pub(crate) fn has(&self, name: &Hostname, namespace: &str) -> bool {
        self.all.of(name).any(|(other, _)| **other == *namespace)
    }

    /// True if wildcard and catch-all listeners of a namespace answer for a name by a grant of just
    /// this name: it has the name, or its Gateway serves who has it.
    pub(crate) fn lets_answer(&self, name: &Hostname, namespace: &str) -> bool {
        self.has(name, namespace)
            || self
                .servers
                .of(name)
                .any(|(server, _)| **server == *namespace)
    }

    /// The most specific grant of a name: of the name itself, or of a wildcard over it.
    pub(crate) fn over(&self, name: &Hostname) -> Option<Hostname> {
        self.levels(name).next()
    }

    /// True if a name was granted, and to none of these namespaces, by whatever grant over it.
    pub(crate) fn withholds(&self, name: &Hostname, namespaces: [&str; 2]) -> bool {
        self.over(name).is_some()
            && !self.levels(name).any(|level| {
                namespaces
                    .iter()
                    .any(|namespace| self.has(&level, namespace))
            })
    }

    /// The granted names below a wildcard, or below the catch-all.
    pub(crate) fn below<'a>(&'a self, wide: &'a Hostname) -> impl Iterator<Item = &'a Hostname> {
        self.all
            .keys()
            .filter(move |name| *name != wide && wide.covers(name))
    }

    fn levels(&self, name: &Hostname) -> impl Iterator<Item = Hostname> {
        std::iter::once(name.clone())
            .chain(name.covering())
            .filter(|level| self.first(level).is_some())
    }
}

/// The labels of a namespace that grant names.
pub(crate) fn granting_labels(namespace: &str, store: &Store) -> Option<GrantingLabels> {
    let domain = labelled_domain(namespace, store)?;
    Some(GrantingLabels {
        domain,
        server: store.gateway_of_platform(namespace).map(Arc::from),
    })
}

/// The domain in the label of a namespace.
pub(crate) fn labelled_domain(namespace: &str, store: &Store) -> Option<Hostname> {
    let host = store.labels(namespace).get(HOST_LABEL)?;
    Hostname::parse(&host.to_ascii_lowercase())
        .ok()
        .filter(Hostname::is_exact)
}

/// The names that classes of a controller grant to one namespace.
pub(crate) fn granted_by_classes(store: &Store, controller: &str) -> BTreeSet<Grant> {
    let ours = store
        .classes()
        .filter(|class| class.controller == controller);
    let parameters = ours.filter_map(|class| class_parameters(class, store).ok().flatten());
    let rules: Vec<Arc<[AllowedHostnames]>> = parameters
        .filter_map(|of_class| of_class.allowed_hostnames)
        .collect();
    let mut grants = BTreeSet::new();
    let mut shared = BTreeSet::new();
    for rule in rules.iter().flat_map(|rules| rules.iter()) {
        let names = rule.hostnames.iter().filter(|name| !name.is_any()).cloned();
        match named(&rule.namespaces) {
            Some(namespace) => grants.extend(names.map(|name| (name, Arc::from(namespace)))),
            None => shared.extend(names),
        }
    }
    grants.retain(|(name, _)| !shared.contains(name));
    grants
}

/// The namespace that a selector selects by its name.
fn named(selector: &Selector) -> Option<&str> {
    let by_label = selector.labels.get(NAME_LABEL).map(String::as_str);
    let mut expressions = selector.expressions.iter();
    by_label.or_else(|| {
        expressions.find_map(|(key, operator, values)| {
            match (key.as_str(), operator.as_str(), values.as_slice()) {
                (NAME_LABEL, "In", [only]) => Some(only.as_str()),
                _ => None,
            }
        })
    })
}

/// A domain, and the wildcard over all names below it.
fn at_and_below(domain: &Hostname) -> Vec<Hostname> {
    let below = Hostname::parse(&format!("*.{domain}"));
    std::iter::once(domain.clone()).chain(below).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Hostname {
        Hostname::parse(text).expect("a hostname")
    }

    fn labels(domain: &str, server: Option<&str>) -> Option<GrantingLabels> {
        Some(GrantingLabels {
            domain: name(domain),
            server: server.map(Arc::from),
        })
    }

    fn granted() -> GrantedNames {
        let mut granted = GrantedNames::default();
        granted.set_labels(&"root".into(), labels("x.org", None));
        granted.set_labels(&"team".into(), labels("t.x.org", Some("root")));
        granted
    }

    #[test]
    fn the_most_specific_grant_of_a_name_counts() {
        let granted = granted();
        for (host, over) in [
            ("x.org", Some("x.org")),
            ("a.b.x.org", Some("*.x.org")),
            ("a.t.x.org", Some("*.t.x.org")),
            ("*.t.x.org", Some("*.t.x.org")),
            ("y.org", None),
        ] {
            assert_eq!(granted.over(&name(host)), over.map(name), "{host}");
        }
    }

    #[test]
    fn a_name_is_withheld_from_namespaces_without_any_grant_over_it() {
        let granted = granted();
        assert!(
            granted.withholds(&name("a.t.x.org"), ["mallory", "mallory"]),
            "nobody gave it to mallory"
        );
        assert!(
            !granted.withholds(&name("a.t.x.org"), ["shop", "root"]),
            "at a Gateway of the wider domain's"
        );
        assert!(
            !granted.withholds(&name("y.org"), ["mallory", "mallory"]),
            "nobody granted it"
        );
    }

    #[test]
    fn the_gateway_that_serves_a_namespace_answers_for_its_names_and_does_not_have_them() {
        let mut granted = granted();
        let below = name("*.t.x.org");
        assert!(granted.lets_answer(&below, "root") && granted.lets_answer(&below, "team"));
        assert!(!granted.lets_answer(&below, "mallory") && !granted.has(&below, "root"));
        granted.set_labels(&"team".into(), labels("t.x.org", None));
        assert!(
            !granted.lets_answer(&below, "root"),
            "it serves the namespace no more"
        );
    }

    #[test]
    fn a_changed_label_tells_the_names_of_both_domains() {
        let mut granted = granted();
        let changed = granted.set_labels(&"team".into(), labels("u.org", None));
        let expected = ["*.t.x.org", "*.u.org", "t.x.org", "u.org"].map(name);
        assert_eq!(changed, BTreeSet::from(expected));
        assert!(
            granted
                .set_labels(&"team".into(), labels("u.org", None))
                .is_empty(),
            "nothing changed"
        );
        let below: Vec<_> = granted.below(&name("*.org")).cloned().collect();
        assert_eq!(
            below,
            ["*.u.org", "*.x.org", "u.org", "x.org"].map(name),
            "what is granted now"
        );
    }
}
