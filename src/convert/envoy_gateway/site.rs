//! The objects of a source, and what becomes of them so far.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::targets::{Target, targets};
use super::{ENVOY_GROUP, GATEWAY_GROUP, group, name_of};
use crate::convert::document::Name;
use crate::convert::objects::Objects;
use crate::convert::output::Output;
use crate::convert::report::Report;
use crate::convert::{Document, Options};

/// The name of Envoy Gateway in GatewayClasses.
pub(super) const CONTROLLER: &str = "gateway.envoyproxy.io/gatewayclass-controller";
/// The class of its quick start, for input without GatewayClasses.
const CLASS: &str = "eg";
/// Our own group.
const OURS: &str = "gatewright.io";
/// What the API server writes into metadata.
const WRITTEN: [&str; 6] = [
    "creationTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
];
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// A policy of Envoy Gateway.
pub(super) struct Policy<'a> {
    /// The index of its document.
    pub(super) document: usize,
    pub(super) kind: &'a str,
    pub(super) name: Name,
    pub(super) targets: Vec<Target>,
    pub(super) spec: &'a Value,
}

/// The objects of a source, and what becomes of them.
pub(super) struct Site<'a> {
    pub(super) documents: &'a [Document],
    /// The documents of objects: group, kind and name.
    index: BTreeMap<(String, String, Name), usize>,
    /// The objects that stay what they are, by document.
    pub(super) passed: BTreeMap<usize, Value>,
    /// Services, Secrets and ConfigMaps.
    pub(super) objects: Objects,
    /// The policies, in the order of the source.
    pub(super) policies: Vec<Policy<'a>>,
    /// The Service and the port of each Backend, or why it has none.
    pub(super) backends: BTreeMap<Name, Result<(String, u64), String>>,
    /// The Services of hosts outside of the cluster: namespace, host and port.
    pub(super) hosts: BTreeMap<(String, String, u64), String>,
    /// The GatewayClasses of Envoy Gateway.
    pub(super) classes: BTreeSet<String>,
    /// Our GatewayClass.
    pub(super) gateway_class: String,
    pub(super) output: Output,
    pub(super) report: Report,
}

impl<'a> Site<'a> {
    /// Reads the documents of a source.
    pub(super) fn read(documents: &'a [Document], options: &Options) -> Self {
        let mut report = Report::default();
        let objects = Objects::read(documents, &mut report);
        let mut output = Output::default();
        let mut passed = BTreeMap::new();
        let mut places = BTreeMap::new();
        for (index, document) in documents.iter().enumerate() {
            let kind = document.value["kind"].as_str().unwrap_or_default();
            let (namespace, name) = name_of(&document.value);
            let group = group(&document.value);
            let key = (
                group.to_owned(),
                kind.to_owned(),
                (namespace.clone(), name.clone()),
            );
            places.entry(key).or_insert(index);
            // Names of the source are taken, but that of a Backend becomes that of a Service.
            if group != ENVOY_GROUP {
                output.name(kind, &namespace, &name);
            }
            let is_class = kind == "GatewayClass";
            if [GATEWAY_GROUP, OURS].contains(&group) && !is_class {
                passed.insert(index, stripped(&document.value));
            }
        }
        let mut site = Self {
            documents,
            index: places,
            passed,
            objects,
            policies: Vec::new(),
            backends: BTreeMap::new(),
            hosts: BTreeMap::new(),
            classes: classes(documents, options),
            gateway_class: options.gateway_class.clone(),
            output,
            report,
        };
        site.policies = (0..documents.len())
            .filter_map(|document| policy(documents, document))
            .collect();
        site.name_backends();
        site
    }

    /// The spec of a document.
    pub(super) fn spec(&self, document: usize) -> &'a Value {
        &self.documents[document].value["spec"]
    }

    /// Namespace and name of a document.
    pub(super) fn name(&self, document: usize) -> Name {
        name_of(&self.documents[document].value)
    }

    /// The document of an object.
    pub(super) fn find(&self, of: &str, kind: &str, name: &Name) -> Option<usize> {
        let key = (of.to_owned(), kind.to_owned(), name.clone());
        self.index.get(&key).copied()
    }

    /// The policy of a document.
    pub(super) fn policy(&self, document: usize) -> &Policy<'a> {
        self.policies
            .iter()
            .find(|policy| policy.document == document)
            .expect("every policy is read")
    }
}

fn policy(documents: &[Document], document: usize) -> Option<Policy<'_>> {
    let value = &documents[document].value;
    let kind = value["kind"].as_str()?;
    let is_policy = group(value) == ENVOY_GROUP && kind.ends_with("Policy");
    is_policy.then(|| Policy {
        document,
        kind,
        name: name_of(value),
        targets: targets(documents, value),
        spec: &value["spec"],
    })
}

/// The classes of Envoy Gateway: the one of the options, otherwise those of the source.
fn classes(documents: &[Document], options: &Options) -> BTreeSet<String> {
    if let Some(class) = &options.class {
        return BTreeSet::from([class.clone()]);
    }
    let of_source: BTreeSet<String> = documents
        .iter()
        .filter(|document| document.value["kind"] == "GatewayClass")
        .filter(|document| document.value["spec"]["controllerName"] == CONTROLLER)
        .map(|document| name_of(&document.value).1)
        .collect();
    if of_source.is_empty() {
        return BTreeSet::from([CLASS.to_owned()]);
    }
    of_source
}

/// An object without what the API server and controllers write.
fn stripped(value: &Value) -> Value {
    let mut value = value.clone();
    if let Some(fields) = value.as_object_mut() {
        fields.remove("status");
    }
    let metadata = value.get_mut("metadata").and_then(Value::as_object_mut);
    if let Some(metadata) = metadata {
        metadata.retain(|name, _| !WRITTEN.contains(&name.as_str()));
        let annotations = metadata.get_mut("annotations");
        if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
            annotations.remove(LAST_APPLIED);
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
    }
    value
}
