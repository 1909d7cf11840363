//! Policies on Gateways, ListenerSets and routes (GEP-713). What one is attached to is read in the
//! same way, whatever it asks for.
//!
//! A new kind of such policies gets a variant of [`AttachedRules`], and its own file that reads
//! `spec`; a new setting of one is a row of `settings/mod.rs`.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::document::text;
use super::manifest::Manifest;
use super::{Kind, LocalRef, Meta, ObjectKey, ParseError};
use crate::gateway_api::backendtlspolicies::BackendTlsPolicyTargetRefs;
use crate::model::{Enforcement, ObjectName};
use crate::settings::{AccessRules, TrafficRules};

/// The most targets of a policy.
const TARGETS: usize = 16;

/// The most targets of a policy that cannot be read as a whole.
const SALVAGED_TARGETS: usize = 1024;

/// The kinds that a policy can be attached to.
const ATTACHABLE: [Kind; 4] = [
    Kind::Gateway,
    Kind::ListenerSet,
    Kind::HTTPRoute,
    Kind::GRPCRoute,
];

/// True for a reference to a kind that a policy can be attached to.
pub(super) fn is_attachable(group: &str, kind: &str) -> bool {
    ATTACHABLE
        .into_iter()
        .any(|known| known.as_str() == kind && known.group() == group)
}

/// A policy on Gateways, ListenerSets and routes of its namespace.
#[derive(Clone, Debug, PartialEq)]
pub struct AttachedPolicy {
    /// Its metadata.
    pub meta: Meta,
    /// The objects that it is attached to, sorted.
    pub targets: Vec<AttachmentTarget>,
    /// Its rules.
    pub rules: AttachedRules,
}

/// The rules of a policy, by its kind; or the reason why they cannot be determined.
#[derive(Clone, Debug, PartialEq)]
pub enum AttachedRules {
    /// AccessPolicy: who may send requests. Where it cannot be told, nobody may, unless the policy
    /// only reports.
    Access(Enforcement, Result<AccessRules, String>),
    /// TrafficPolicy: what becomes of requests and responses. Where it cannot be told the policy
    /// has no effect.
    Traffic(Result<TrafficRules, String>),
}

/// What a policy is attached to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AttachmentTarget {
    /// The Gateway, ListenerSet, HTTPRoute or GRPCRoute.
    pub object: ObjectKey,
    /// The name of its listener or rule; `None` for all of them.
    pub section: Option<Arc<str>>,
}

impl AttachedPolicy {
    /// A policy as written.
    ///
    /// # Errors
    /// If it has no target, too many, or one of a kind that it cannot be attached to.
    pub(super) fn new(
        meta: Meta,
        written: Vec<BackendTlsPolicyTargetRefs>,
        rules: AttachedRules,
    ) -> Result<Self, ParseError> {
        if written.is_empty() || written.len() > TARGETS {
            return Err(ParseError::Schema(format!(
                "spec.targetRefs: 1 to {TARGETS} are needed"
            )));
        }
        let targets: Result<Vec<_>, _> = written
            .into_iter()
            .enumerate()
            .map(|(index, one)| {
                target(&meta, &one).ok_or_else(|| {
                    let expected = ATTACHABLE.map(Kind::as_str).join(", ");
                    ParseError::Schema(format!(
                        "spec.targetRefs[{index}]: expected one of {expected} of group {}, found {} \
                         of group {:?}",
                        Kind::Gateway.group(),
                        one.kind,
                        one.group
                    ))
                })
            })
            .collect();
        Ok(Self::on(meta, targets?, rules))
    }

    /// A policy whose specification cannot be read as a whole, `why` not. What it is attached to is
    /// known all the same: that is not to be served unguarded.
    pub(super) fn salvage(manifest: Manifest<'_>, why: &ParseError) -> Option<Self> {
        let why = format!("the specification cannot be read ({why})");
        let rules = match manifest.kind {
            Kind::AccessPolicy => {
                let written = Enforcement::deserialize(&manifest.value["spec"]["enforcement"]);
                AttachedRules::Access(written.unwrap_or_default(), Err(why))
            }
            Kind::TrafficPolicy => AttachedRules::Traffic(Err(why)),
            _ => return None,
        };
        let meta = manifest.meta()?;
        let found =
            written_targets(manifest.value).flat_map(|one| meant(&meta, one).unwrap_or_default());
        let targets = found.take(SALVAGED_TARGETS).collect();
        Some(Self::on(meta, targets, rules))
    }

    /// True if a policy that cannot be read as a whole may be attached to something that
    /// [`Self::salvage`] does not know.
    pub(super) fn hides_targets(&self, value: &Value) -> bool {
        let mut written = written_targets(value);
        self.targets.is_empty() || written.any(|one| meant(&self.meta, one).is_none())
    }

    fn on(meta: Meta, mut targets: Vec<AttachmentTarget>, rules: AttachedRules) -> Self {
        targets.sort();
        targets.dedup();
        Self {
            meta,
            targets,
            rules,
        }
    }

    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self.rules {
            AttachedRules::Access(..) => Kind::AccessPolicy,
            AttachedRules::Traffic(_) => Kind::TrafficPolicy,
        }
    }

    /// The objects that it refers to, beside its targets.
    pub fn references(&self) -> impl Iterator<Item = &LocalRef> {
        let (access, traffic) = match &self.rules {
            AttachedRules::Access(_, rules) => (rules.as_ref().ok(), None),
            AttachedRules::Traffic(rules) => (None, rules.as_ref().ok()),
        };
        let access = access.into_iter().flat_map(AccessRules::references);
        access.chain(traffic.into_iter().flat_map(TrafficRules::references))
    }

    /// The Services that it sends requests to.
    pub fn servers(&self) -> impl Iterator<Item = &ObjectName> {
        self.references()
            .filter(|reference| reference.kind == Kind::Service.as_str())
            .map(|reference| &reference.name)
    }

    /// Kind and name.
    pub fn key(&self) -> ObjectKey {
        ObjectKey::new(self.kind(), self.meta.name.clone())
    }
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
fn meant(meta: &Meta, written: &Value) -> Option<Vec<AttachmentTarget>> {
    let name = match written.get("name")? {
        Value::String(name) if !name.is_empty() => name.clone(),
        Value::Number(name) => name.to_string(),
        _ => return None,
    };
    let kind = text(written, "kind").unwrap_or_default();
    let is_kind = |known: &Kind| known.as_str().eq_ignore_ascii_case(kind);
    let kinds: Vec<Kind> = match ATTACHABLE.into_iter().find(is_kind) {
        Some(known) => vec![known],
        None if Kind::READ.iter().any(is_kind) => Vec::new(),
        None => ATTACHABLE.to_vec(),
    };
    let section = text(written, "sectionName").map(Arc::from);
    let name = ObjectName::new(meta.name.namespace.clone(), name);
    let targets = kinds.into_iter().map(|kind| AttachmentTarget {
        object: ObjectKey::new(kind, name.clone()),
        section: section.clone(),
    });
    Some(targets.collect())
}

fn target(meta: &Meta, written: &BackendTlsPolicyTargetRefs) -> Option<AttachmentTarget> {
    let kind = ATTACHABLE
        .into_iter()
        .find(|kind| kind.as_str() == written.kind && kind.group() == written.group)?;
    let name = ObjectName::new(meta.name.namespace.clone(), written.name.as_str());
    let section = written
        .section_name
        .as_deref()
        .filter(|section| !section.is_empty());
    Some(AttachmentTarget {
        object: ObjectKey::new(kind, name),
        section: section.map(Arc::from),
    })
}
