//! The settings of TrafficPolicies at a place: of each, those of the nearest policy that has it.

use super::Policies;
use super::judged::Judged;
use super::place::Place;
use crate::state::attachments::{Attachments, Way};
use crate::state::parent::Parent;
use gatewright_objects::inputs::{Kind, ObjectKey, PolicyTarget, RouteKind};
use gatewright_objects::model::ObjectName;
use gatewright_objects::settings::{PolicyField, TrafficSettings};

impl Policies {
    /// The settings of a place. At a default Gateway that the route does not name, those of other
    /// namespaces are nothing that it asked for, and their memory has no quota.
    pub(crate) fn traffic(&self, place: Place<'_>, attachments: &Attachments) -> TrafficSettings {
        let mut settings = TrafficSettings::default();
        if self.guard_nothing() {
            return settings;
        }
        for level in place.levels().into_iter().rev().flatten() {
            let mut of_level = TrafficSettings::default();
            for own in self.traffic_at(&level) {
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

    /// The fields of a TrafficPolicy that have no effect at a target, because an older policy has
    /// them, or the first by name: these, and where, in words; and the first of these policies.
    pub(super) fn rivals(
        &self,
        judged: &Judged,
        target: &PolicyTarget,
    ) -> Option<(String, &ObjectKey)> {
        let settings = judged.effect.traffic()?;
        let own = judged.policy.key();
        let rivals: Vec<(&str, &ObjectKey)> = settings
            .fields()
            .filter_map(|field| {
                let first = self.first_with(field, target)?;
                Some((field.as_str(), first)).filter(|(_, first)| **first != own)
            })
            .collect();
        let (_, first) = rivals.first()?;
        let fields: Vec<&str> = rivals.iter().map(|(field, _)| *field).collect();
        let section = target.section.as_deref();
        let place = section.map_or_else(
            || target.object.to_string(),
            |section| format!("{section:?} of {}", target.object),
        );
        Some((format!("{}: {place}", fields.join(", ")), first))
    }

    /// The TrafficPolicy by which a field goes at a target.
    fn first_with(&self, field: PolicyField, target: &PolicyTarget) -> Option<&ObjectKey> {
        let mut ranks = self.ranked.of(&(target.clone(), Kind::TrafficPolicy));
        let first = ranks.find(|(_, key)| {
            let settings = self.get(key).and_then(|judged| judged.effect.traffic());
            settings.is_some_and(|settings| settings.fields().any(|other| other == field))
        });
        first.map(|(_, key)| key)
    }

    /// The settings of the TrafficPolicies with exactly this target, the oldest first.
    fn traffic_at<'a>(
        &'a self,
        level: &PolicyTarget,
    ) -> impl Iterator<Item = &'a TrafficSettings> + use<'a> {
        self.at_level(Kind::TrafficPolicy, level)
            .filter_map(|judged| judged.effect.traffic())
    }

    fn is_allowed(&self, policy: &ObjectName, parent: &Parent) -> bool {
        let key = ObjectKey::new(Kind::TrafficPolicy, policy.clone());
        self.get(&key)
            .is_some_and(|judged| parent.allows(judged).is_ok())
    }
}
