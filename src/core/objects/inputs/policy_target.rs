//! What policies are about: Services, Gateways, or whatever has requests.

use std::sync::Arc;

use serde_json::Value;

use super::document::text;
use super::{Kind, Meta, ObjectKey, ParseError};
use crate::gateway_api::backendtlspolicies::BackendTlsPolicyTargetRefs;
use crate::model::{ObjectName, xbackend_of};

/// The most targets of a policy that cannot be read as a whole.
const SALVAGED_TARGETS: usize = 1024;

/// What a policy is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PolicyTarget {
    /// The Service, Gateway, ListenerSet, HTTPRoute or GRPCRoute.
    pub object: ObjectKey,
    /// The name of its port, listener or rule; `None` for all of them.
    pub section: Option<Arc<str>>,
}

impl PolicyTarget {
    /// An object as a whole.
    pub fn whole(object: ObjectKey) -> Self {
        Self {
            object,
            section: None,
        }
    }

    /// The object and its port, as messages about policies of its namespace name them.
    pub fn named(&self) -> String {
        let object = format!("{} {}", self.object.kind.as_str(), self.object.name.name);
        match &self.section {
            Some(section) => format!("port {section} of {object}"),
            None => object,
        }
    }
}

/// What policies of a kind can be about.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Targets {
    /// Services, and their ports.
    Services,
    /// The requests of Gateways, ListenerSets and routes.
    Requests,
    /// Gateways.
    Gateways,
}

/// Targets, and references to anything else as text.
type Read = (Vec<PolicyTarget>, Vec<String>);

impl Targets {
    /// The kinds of these objects.
    fn kinds(self) -> &'static [Kind] {
        match self {
            Self::Services => &[Kind::Service],
            Self::Requests => &[
                Kind::Gateway,
                Kind::ListenerSet,
                Kind::HTTPRoute,
                Kind::GRPCRoute,
            ],
            Self::Gateways => &[Kind::Gateway],
        }
    }

    /// True for a reference to such an object.
    pub(super) fn has(self, group: &str, kind: &str) -> bool {
        self.kind(group, kind).is_some()
    }

    fn kind(self, group: &str, kind: &str) -> Option<Kind> {
        let mut kinds = self.kinds().iter().copied();
        kinds.find(|known| known.as_str() == kind && known.group() == group)
    }

    /// Reads targets. One without requests is an error where a policy is about these.
    pub(super) fn read(
        self,
        meta: &Meta,
        written: &[BackendTlsPolicyTargetRefs],
    ) -> Result<Read, ParseError> {
        let (mut targets, mut others) = Read::default();
        for (index, reference) in written.iter().enumerate() {
            let BackendTlsPolicyTargetRefs {
                group, kind, name, ..
            } = reference;
            match self.target(meta, reference) {
                Some(target) => targets.push(target),
                None if self == Self::Requests => {
                    let expected: Vec<&str> =
                        self.kinds().iter().map(|kind| kind.as_str()).collect();
                    return Err(ParseError::Schema(format!(
                        "spec.targetRefs[{index}]: expected one of {} of group {}, found {kind} of group {group:?}",
                        expected.join(", "),
                        Kind::Gateway.group(),
                    )));
                }
                None => others.push(format!("{kind} {name} of group {group:?}")),
            }
        }
        Ok((targets, others))
    }

    fn target(self, meta: &Meta, written: &BackendTlsPolicyTargetRefs) -> Option<PolicyTarget> {
        let kind = self.kind(&written.group, &written.kind)?;
        let name = ObjectName::new(meta.name.namespace.clone(), written.name.as_str());
        // An XBackend is no target of policies, by whatever name.
        if kind == Kind::Service && xbackend_of(&name).is_some() {
            return None;
        }
        let section = written.section_name.as_deref();
        Some(PolicyTarget {
            object: ObjectKey::new(kind, name),
            section: section.filter(|section| !section.is_empty()).map(Arc::from),
        })
    }
}

/// True for targets that are all Gateways, ListenerSets and routes, by their groups and kinds.
pub(super) fn is_for_requests<'a>(targets: impl Iterator<Item = (&'a str, &'a str)>) -> bool {
    let mut targets = targets.peekable();
    targets.peek().is_some() && targets.all(|(group, kind)| Targets::Requests.has(group, kind))
}

/// The same of a policy that cannot be read as a whole.
pub(super) fn is_written_for_requests(policy: &Value) -> bool {
    let targets = policy["spec"]["targetRefs"].as_array();
    is_for_requests(targets.into_iter().flatten().map(|target| {
        let group = text(target, "group").unwrap_or_default();
        (group, text(target, "kind").unwrap_or_default())
    }))
}

/// The targets of a policy that cannot be read as a whole. Of one on requests these are all that it
/// may have meant.
pub(super) fn salvaged(about: Targets, meta: &Meta, value: &Value) -> Option<Read> {
    if about == Targets::Requests {
        let targets = written_targets(value).flat_map(|one| meant(meta, one).unwrap_or_default());
        return Some((targets.take(SALVAGED_TARGETS).collect(), Vec::new()));
    }
    let written = value["spec"]["targetRefs"].as_array()?.iter();
    let read = written.take(SALVAGED_TARGETS).filter_map(|target| {
        Some(BackendTlsPolicyTargetRefs {
            group: text(target, "group").unwrap_or_default().to_owned(),
            kind: text(target, "kind")?.to_owned(),
            name: text(target, "name")?.to_owned(),
            section_name: text(target, "sectionName").map(str::to_owned),
        })
    });
    about.read(meta, &read.collect::<Vec<_>>()).ok()
}

/// True if something that a policy on requests is about cannot be told.
pub(super) fn hides_targets(meta: &Meta, value: &Value) -> bool {
    written_targets(value).any(|one| meant(meta, one).is_none())
}

/// What a policy that cannot be read as a whole is attached to, as written: one that is no list,
/// or has nearly the name of the field, counts as well.
fn written_targets(value: &Value) -> impl Iterator<Item = &Value> {
    let fields = value["spec"].as_object().into_iter().flatten();
    let lists = fields.filter(|(field, _)| {
        let field = field.to_ascii_lowercase();
        field.starts_with("targetref")
    });
    lists.flat_map(|(_, list)| match list {
        Value::Array(items) => items.as_slice(),
        other => std::slice::from_ref(other),
    })
}

/// Everything that a target may have meant, whose group, kind or section may be wrong; `None` if
/// it cannot be told.
fn meant(meta: &Meta, written: &Value) -> Option<Vec<PolicyTarget>> {
    let name = match written.get("name")? {
        Value::String(name) if !name.is_empty() => name.clone(),
        Value::Number(name) => name.to_string(),
        _ => return None,
    };
    let attachable = Targets::Requests.kinds();
    let kind = text(written, "kind").unwrap_or_default();
    let kinds = match attachable.iter().position(|known| is_called(*known, kind)) {
        Some(at) => &attachable[at..=at],
        None if Kind::READ.iter().any(|known| is_called(*known, kind)) => &[],
        None => attachable,
    };
    let section = text(written, "sectionName").map(Arc::from);
    let name = ObjectName::new(meta.name.namespace.clone(), name);
    let targets = kinds.iter().map(|kind| PolicyTarget {
        object: ObjectKey::new(*kind, name.clone()),
        section: section.clone(),
    });
    Some(targets.collect())
}

/// True if this is the name of a kind, but for upper case.
fn is_called(kind: Kind, name: &str) -> bool {
    kind.as_str().eq_ignore_ascii_case(name)
}
