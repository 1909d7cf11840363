//! The settings of TrafficPolicies at a place: of each, those of the nearest policy that has it.

use std::sync::Arc;

use super::super::attachments::{Attachments, Way};
use super::super::traffic_settings::{FIELDS, Setting, TrafficSettings};
use super::{AttachedPolicies, Effect, JudgedAttachment, Place};
use gatewright_objects::inputs::{AttachmentTarget, ObjectKey, RouteKind};
use gatewright_objects::model::{Bodies, RateLimits};

impl AttachedPolicies {
    /// The rate limits of a place.
    pub(crate) fn rate_limits(
        &self,
        place: Place<'_>,
        attachments: &Attachments,
    ) -> Option<&Arc<RateLimits>> {
        self.nearest(place, attachments, |settings| settings.rate_limits.as_ref())
    }

    /// The changes to bodies at a place.
    pub(crate) fn bodies(&self, place: Place<'_>, attachments: &Attachments) -> Bodies {
        let compression = self.nearest(place, attachments, |settings| {
            settings.bodies.compression.as_ref()
        });
        // A call has its status in trailers, and its messages may come one by one.
        let of_http = Some(place).filter(|place| place.route.kind != RouteKind::Grpc);
        let overrides = of_http.and_then(|place| {
            self.nearest(place, attachments, |settings| {
                settings.bodies.overrides.as_ref()
            })
        });
        let request = of_http.and_then(|place| {
            self.nearest(place, attachments, |settings| {
                settings.bodies.request.as_ref()
            })
        });
        Bodies {
            compression: compression.cloned(),
            overrides: overrides.cloned(),
            request: request.cloned(),
        }
    }

    /// A setting of the nearest policy at a place that has it. At a default Gateway that the route
    /// does not name, the settings of other namespaces are nothing that it asked for, and their
    /// memory has no quota.
    fn nearest<'a, T: Setting>(
        &'a self,
        place: Place<'_>,
        attachments: &Attachments,
        setting: impl Fn(&'a TrafficSettings) -> Option<&'a Arc<T>> + Copy,
    ) -> Option<&'a Arc<T>> {
        if self.is_empty() {
            return None;
        }
        let near = place.levels().into_iter().rev().flatten();
        let (_, found) = near
            .filter_map(|target| self.first(&target, setting))
            .find(|(judged, _)| place.parent.allows(judged).is_ok())?;
        let Place {
            listener, route, ..
        } = place;
        let is_own = found.policy().namespace == route.name.namespace;
        let mut of_route = attachments.of(route).iter();
        let is_asked_for =
            is_own || !of_route.any(|(way, at, _)| *way == Way::Default && *at == listener.parent);
        Some(found).filter(|_| is_asked_for)
    }

    /// The TrafficPolicies by which fields of one have no effect at a target of both: the field,
    /// and the older policy, or the first by name.
    pub(crate) fn rivals(
        &self,
        judged: &JudgedAttachment,
        target: &AttachmentTarget,
    ) -> Vec<(&'static str, ObjectKey)> {
        let Effect::Traffic(settings) = &judged.effect else {
            return Vec::new();
        };
        let own = judged.policy.key();
        let fields = FIELDS.into_iter().filter_map(|(field, has)| {
            if !has(settings) {
                return None;
            }
            let (first, _) = self.first(target, |other| Some(other).filter(|other| has(other)))?;
            Some((field, first.policy.key())).filter(|(_, key)| *key != own)
        });
        fields.collect()
    }

    /// The first TrafficPolicy with exactly this target that has a setting.
    fn first<'a, T>(
        &'a self,
        target: &AttachmentTarget,
        setting: impl Fn(&'a TrafficSettings) -> Option<&'a T>,
    ) -> Option<(&'a JudgedAttachment, &'a T)> {
        self.at_level(target).find_map(|judged| {
            let Effect::Traffic(settings) = &judged.effect else {
                return None;
            };
            Some((judged, setting(settings)?))
        })
    }
}
