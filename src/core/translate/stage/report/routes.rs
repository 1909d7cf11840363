//! Statuses of routes.

use super::super::certificate_condition;
use super::super::default_gateways;
use super::super::plain_http;
use super::super::verdict::condition;
use super::Report;
use crate::key::RouteKey;
use crate::state::attachments::Way;
use crate::state::datagrams;
use gatewright_objects::inputs::RouteKind;
use gatewright_objects::model::{Condition, ConditionType, Reason, Status};
use gatewright_objects::status::{ObjectStatus, RouteStatus, StatusBody};
use gatewright_objects::store::target_ports;

impl Report<'_> {
    pub(super) fn route_status(self, key: &RouteKey) -> Option<ObjectStatus> {
        let route = self.store.route(key)?;
        let resolved = self.resolutions.get(key)?;
        let attachments = self.attachments.get(key)?;
        let references = resolved
            .references
            .clone()
            .and_then(|()| self.service_endpoints.verdict(target_ports(route)));
        let mut parents = Vec::new();
        // A grant may reach several parents by one parentRef: it is accepted if one of them accepts
        // the route.
        for reached in attachments.chunk_by(|(a, ..), (b, ..)| a == b && *a != Way::Default) {
            let (way, parent, first) = &reached[0];
            let verdict = reached
                .iter()
                .map(|(.., attachment)| attachment)
                .find(|a| a.accepted.is_ok());
            let accepted = match (&verdict.unwrap_or(first).accepted, &resolved.invalid) {
                (Ok(()), Some(invalid)) => Err((**invalid).clone()),
                (Ok(()), None) => self.admission().names_verdict(key, reached),
                (verdict, _) => verdict.clone(),
            };
            let is_accepted = accepted.is_ok();
            let allowed = reached
                .iter()
                .filter_map(|(_, parent, _)| self.parents.get(parent))
                .map(|parent| parent.allows_filters(route))
                .find(Result::is_err);
            let mut conditions = vec![
                condition(ConditionType::Accepted, accepted, Reason::Accepted),
                condition(
                    ConditionType::ResolvedRefs,
                    references.clone().and(allowed.unwrap_or(Ok(()))),
                    Reason::ResolvedRefs,
                ),
            ];
            if is_accepted {
                let default =
                    (*way == Way::Default).then(|| default_gateways::note(route, attachments));
                let in_clear = plain_http::note(route, reached, attachments, self.parents);
                let in_clear_alone =
                    plain_http::note_on_clear_alone(route, reached, attachments, self.parents);
                let apart = (route.kind == RouteKind::Udp)
                    .then(|| datagrams::note(route, self.policies))
                    .flatten();
                let notes = default
                    .into_iter()
                    .chain(in_clear)
                    .chain(in_clear_alone)
                    .chain(apart)
                    .chain(resolved.note.as_deref().map(str::to_owned));
                conditions[0].message = notes.collect::<Vec<_>>().join("; ");
            }
            if let (true, Some(text)) = (is_accepted, &resolved.partial) {
                conditions.push(Condition {
                    kind: ConditionType::PartiallyInvalid,
                    status: Status::True,
                    reason: Reason::UnsupportedValue,
                    message: text.to_string(),
                });
            }
            let reference = match way {
                Way::Reference(index) => route.parents[*index].clone(),
                Way::Default => default_gateways::reference(parent.name()),
            };
            let warning =
                certificate_condition::of_route(reached, attachments, self.parents, self.issuance);
            let parent = self.parents.get(parent);
            let affected = parent.and_then(|parent| self.affected(&key.object(), parent));
            let contested = self.hostname_warning(key, reached);
            conditions.extend(
                warning
                    .into_iter()
                    .chain(contested)
                    .chain(affected)
                    .filter(|_| is_accepted),
            );
            parents.push((reference, conditions));
        }
        let body = StatusBody::Route(RouteStatus { parents });
        Some(ObjectStatus {
            generation: route.meta.generation,
            body,
        })
    }
}
