//! The settings of TrafficPolicies at a place: of each, those of the nearest policy that has it.

use super::super::attachments::{Attachments, Way};
use super::{AttachedPolicies, Effect, JudgedAttachment, Place};
use crate::key::Verdict;
use crate::state::parent::Parent;
use gatewright_objects::inputs::{AttachmentTarget, Kind, ObjectKey, RouteKind};
use gatewright_objects::model::{ObjectName, Reason};
use gatewright_objects::settings::{PolicyField, TrafficSettings};

impl AttachedPolicies {
    /// The settings of a place. At a default Gateway that the route does not name, those of other
    /// namespaces are nothing that it asked for, and their memory has no quota.
    pub(crate) fn traffic(&self, place: Place<'_>, attachments: &Attachments) -> TrafficSettings {
        let mut settings = TrafficSettings::default();
        if self.is_empty() {
            return settings;
        }
        for level in place.levels().into_iter().rev().flatten() {
            let mut of_level = TrafficSettings::default();
            for (_, own) in self.traffic_at(&level) {
                of_level.add(own);
            }
            of_level.retain(|_, policy| self.is_allowed(policy, place.parent));
            settings.add(&of_level);
        }
        if settings.is_empty() {
            return settings;
        }
        let Place {
            listener, route, ..
        } = place;
        let is_default = attachments
            .of(route)
            .iter()
            .any(|(way, at, _)| *way == Way::Default && *at == listener.parent);
        settings.retain(|field, policy| {
            let has_use = route.kind != RouteKind::Grpc || field.uses().not_on_calls.is_none();
            has_use && (!is_default || policy.namespace == route.name.namespace)
        });
        settings
    }

    /// Ok if a TrafficPolicy decides about all its settings at a target.
    pub(crate) fn takes_effect(
        &self,
        judged: &JudgedAttachment,
        target: &AttachmentTarget,
    ) -> Verdict {
        let rivals = self.rivals(judged, target);
        let Some((_, first)) = rivals.first() else {
            return Ok(());
        };
        let fields: Vec<&str> = rivals.iter().map(|(field, _)| field.as_str()).collect();
        let section = target.section.as_deref();
        let place = section.map_or_else(
            || target.object.to_string(),
            |section| format!("{section:?} of {}", target.object),
        );
        let text = format!(
            "{}: {place} has {} {}, which takes precedence (older, or first by name)",
            fields.join(", "),
            Kind::TrafficPolicy.as_str(),
            first.name.name
        );
        Err((Reason::Conflicted, text))
    }

    /// The TrafficPolicies by which fields of one have no effect at a target of both: the field,
    /// and the older policy, or the first by name.
    fn rivals(
        &self,
        judged: &JudgedAttachment,
        target: &AttachmentTarget,
    ) -> Vec<(PolicyField, ObjectKey)> {
        let Effect::Traffic(settings) = &judged.effect else {
            return Vec::new();
        };
        let own = judged.policy.key();
        settings
            .fields()
            .filter_map(|field| {
                let (first, _) = self
                    .traffic_at(target)
                    .find(|(_, other)| other.fields().any(|other| other == field))?;
                Some((field, first.policy.key())).filter(|(_, key)| *key != own)
            })
            .collect()
    }

    /// The TrafficPolicies with exactly this target, the oldest first, with their settings.
    fn traffic_at<'a>(
        &'a self,
        level: &AttachmentTarget,
    ) -> impl Iterator<Item = (&'a JudgedAttachment, &'a TrafficSettings)> {
        self.at_level(level)
            .filter_map(|judged| match &judged.effect {
                Effect::Traffic(settings) => Some((judged, settings)),
                Effect::Admit(_) | Effect::Close | Effect::Nothing => None,
            })
    }

    fn is_allowed(&self, policy: &ObjectName, parent: &Parent) -> bool {
        let key = ObjectKey::new(Kind::TrafficPolicy, policy.clone());
        self.get(&key)
            .is_some_and(|judged| parent.allows(judged).is_ok())
    }
}
