//! Statuses of policies on Gateways, ListenerSets and routes, by each Gateway whose hosts they are
//! about. A target that does not exist is its own ancestor.

use std::collections::BTreeMap;
use std::time::Duration;

use super::login_ways::{LoginWays, ways};
use super::report::Report;
use super::verdict::condition;
use crate::key::{ListenerId, ParentKey, RouteKey, Verdict};
use crate::rule::protocol::Protocol;
use crate::state::attached_policies::{Effect, JudgedAttachment, has_rule, places};
use crate::state::attachments::Attachment;
use crate::state::parent::Parent;
use gatewright_objects::cost::{TOKEN_TIME, milliseconds};
use gatewright_objects::inputs::{AttachmentTarget, Kind, ObjectKey, Route};
use gatewright_objects::model::{BackendTransport, Condition, ConditionType, Reason, Status};
use gatewright_objects::status::{AttachedStatus, ObjectStatus, StatusBody};

impl Report<'_> {
    pub(crate) fn attached_status(self, key: &ObjectKey) -> Option<ObjectStatus> {
        let judged = self.attached.get(key)?;
        let mut ancestors: BTreeMap<ObjectKey, Verdict> = BTreeMap::new();
        for target in &judged.policy.targets {
            let effect = self.attached.takes_effect(judged, target);
            for (ancestor, verdict) in self.ancestors(judged, target) {
                let verdict = verdict.and(effect.clone());
                let known = ancestors.entry(ancestor).or_insert(Ok(()));
                *known = std::mem::replace(known, Ok(())).and(verdict);
            }
        }
        if ancestors.is_empty() {
            return None;
        }
        let (works, notes) = self.works(judged);
        let ancestors = ancestors.into_iter().map(|(ancestor, verdict)| {
            let verdict = verdict.and(works.clone());
            (ancestor, vec![accepted(judged, verdict, &notes)])
        });
        let mut ancestors: Vec<(ObjectKey, Vec<Condition>)> = ancestors.collect();
        // Where there is no room for all, those of its own namespace are told of.
        let namespace = &key.name.namespace;
        ancestors.sort_by_key(|(ancestor, _)| ancestor.name.namespace != *namespace);
        Some(ObjectStatus {
            generation: judged.policy.meta.generation,
            body: StatusBody::Attached(AttachedStatus { ancestors }),
        })
    }

    /// Ok if clients that a policy is to admit can pass it: the servers that it names can be asked,
    /// and logins end. With what else there is to know.
    pub(crate) fn works(self, judged: &JudgedAttachment) -> (Verdict, Vec<String>) {
        let Effect::Admit(access) = &judged.effect else {
            return (Ok(()), Vec::new());
        };
        let refused = access
            .servers()
            .find(|server| self.policies.transport(server) == BackendTransport::Refused);
        let reached = refused.map_or(Ok(()), |server| {
            let comes_of_it = match &access.oidc {
                Some(login) if login.server == *server => "oidc.provider: nobody can log in",
                _ if access.external_auth.as_ref().is_some_and(|auth| auth.server == *server) => {
                    "externalAuth: requests are answered 403"
                }
                Some(_) | None => "jwt.jwks.remote: tokens are answered 401",
            };
            let text = format!(
                "{comes_of_it}: the BackendTLSPolicy of Service {} cannot be carried out: see its status",
                server.port.service
            );
            Err((Reason::Invalid, text))
        });
        let login = access.oidc.as_ref();
        let ways = login.and_then(|login| ways(judged, login, self.store, self.attachments));
        match ways {
            Some(LoginWays { back, notes }) => (reached.and(back), notes),
            None => (reached, Vec::new()),
        }
    }

    /// The policies that have an effect on an object as its target, at a Gateway (GEP-713).
    pub(crate) fn affected(self, object: &ObjectKey, parent: &Parent) -> Option<Condition> {
        let all = self.attached.on(object);
        let affecting = all.filter(|judged| self.affects(judged, object, parent));
        let names: Vec<String> = affecting
            .map(|judged| judged.policy.key().to_string())
            .collect();
        (!names.is_empty()).then(|| Condition {
            kind: ConditionType::PolicyAffected,
            status: Status::True,
            reason: Reason::PolicyAffected,
            message: names.join(", "),
        })
    }

    fn affects(self, judged: &JudgedAttachment, object: &ObjectKey, parent: &Parent) -> bool {
        let mut targets = judged.policy.targets.iter();
        *judged.effect_at(parent) != Effect::Nothing
            && targets.any(|target| {
                let section = target.section.as_deref();
                let is_there = target.object == *object
                    && match RouteKey::of(object).and_then(|key| self.store.route(&key)) {
                        Some(route) => {
                            at_rule(route, object, section).is_ok()
                                || judged.closes_route(object, &route.rules)
                        }
                        None => {
                            at_listener(parent, object, section).is_ok()
                                || judged.closes_parent(object, parent)
                        }
                    };
                is_there && self.attached.takes_effect(judged, target).is_ok()
            })
    }

    /// Ok if a token takes no more time at the rules of a route than it may, by the policy and all
    /// others there; else the rules are closed.
    fn in_time(
        self,
        judged: &JudgedAttachment,
        (parent, attachment): (&Parent, &Attachment),
        (key, route): (&RouteKey, &Route),
        section: Option<&str>,
    ) -> Verdict {
        let enforces_tokens = match &judged.effect {
            Effect::Admit(access) => access.jwt.is_some() && !access.only_reports(),
            _ => false,
        };
        if !enforces_tokens {
            return Ok(());
        }
        for attached in &attachment.listeners {
            let listener = ListenerId {
                parent: parent.key.clone(),
                name: attached.listener.clone(),
            };
            let rules = places(parent, &listener, (key, route))
                .filter(|(rule, _)| section.is_none() || rule.name.as_deref() == section);
            for (_, place) in rules {
                let time = self.attached.token_time(place);
                if time > TOKEN_TIME {
                    return Err((Reason::LimitReached, beyond(time)));
                }
            }
        }
        Ok(())
    }

    /// The Gateways of ours whose hosts a target has, and whether it is there and the policy
    /// allowed.
    fn ancestors(
        self,
        judged: &JudgedAttachment,
        target: &AttachmentTarget,
    ) -> Vec<(ObjectKey, Verdict)> {
        let AttachmentTarget { object, section } = target;
        let section = section.as_deref();
        if let Some(route) = RouteKey::of(object) {
            let Some(known) = self.store.route(&route) else {
                return vec![missing(object)];
            };
            let closes = judged.closes_route(object, &known.rules);
            let verdict = told(at_rule(known, object, section), closes);
            let accepted = self
                .attachments
                .of(&route)
                .iter()
                .filter(|(.., attachment)| attachment.accepted.is_ok());
            let parents = accepted.filter_map(|(_, parent, attachment)| {
                Some((self.parents.get(parent)?, attachment))
            });
            return parents
                .map(|(parent, attachment)| {
                    let at = (parent, attachment);
                    let verdict = verdict.clone().and(parent.allows(judged));
                    let verdict = verdict
                        .and_then(|()| self.in_time(judged, at, (&route, known.as_ref()), section));
                    (gateway(parent), verdict)
                })
                .collect();
        }
        let Some(key) = ParentKey::of(object) else {
            return Vec::new();
        };
        let is_there = match &key {
            ParentKey::Gateway(name) => self.store.gateway(name).is_some(),
            ParentKey::ListenerSet(set) => self.store.listener_set(set).is_some(),
        };
        match self.parents.get(&key) {
            Some(parent) => {
                let closes = judged.closes_parent(object, parent);
                let verdict = told(at_listener(parent, object, section), closes);
                vec![(gateway(parent), verdict.and(parent.allows(judged)))]
            }
            // It belongs to another controller.
            None if is_there => Vec::new(),
            None => vec![missing(object)],
        }
    }
}

fn beyond(time: Duration) -> String {
    format!(
        "jwt: one token may take {} of an Envoy's worker by all policies with jwt at a rule, at most {} are allowed: use \
         fewer policies or keys, or keys of RSA or P-256; requests are answered 500",
        milliseconds(time),
        milliseconds(TOKEN_TIME)
    )
}

fn gateway(parent: &Parent) -> ObjectKey {
    ObjectKey::new(Kind::Gateway, parent.placement.gateway.clone())
}

fn missing(object: &ObjectKey) -> (ObjectKey, Verdict) {
    let text = format!("{object} does not exist");
    (object.clone(), Err((Reason::TargetNotFound, text)))
}

/// The same with what comes of a section that is not there.
fn told(verdict: Verdict, closes: bool) -> Verdict {
    verdict.map_err(|(reason, text)| match reason {
        Reason::TargetNotFound if closes => {
            let text = format!("{text}: until it has, all requests of it are answered 500");
            (reason, text)
        }
        _ => (reason, text),
    })
}

/// Ok if a policy is attached to a route, or to a rule that it has.
fn at_rule(route: &Route, object: &ObjectKey, section: Option<&str>) -> Verdict {
    let Some(section) = section else {
        return Ok(());
    };
    if has_rule(&route.rules, section) {
        return Ok(());
    }
    let text = format!("{object} has no rule of name {section:?}");
    Err((Reason::TargetNotFound, text))
}

/// Ok if a policy is attached to a listener that has hosts of HTTP.
fn at_listener(parent: &Parent, object: &ObjectKey, section: Option<&str>) -> Verdict {
    let Some(section) = section else {
        return Ok(());
    };
    let Some(listener) = parent.listener(section) else {
        let text = format!("{object} has no listener of name {section:?}");
        return Err((Reason::TargetNotFound, text));
    };
    match listener.protocol {
        Some(Protocol::Http | Protocol::Https) | None => Ok(()),
        Some(protocol) => {
            let text = format!(
                "no effect on listener {section:?} of {object}: it has no requests of HTTP ({protocol:?})"
            );
            Err((Reason::Invalid, text))
        }
    }
}

fn accepted(judged: &JudgedAttachment, verdict: Verdict, notes: &[String]) -> Condition {
    let accepted = judged.accepted.clone().and(verdict);
    let mut accepted = condition(ConditionType::Accepted, accepted, Reason::Accepted);
    if accepted.status == Status::True {
        let own = judged.notes.iter().copied();
        let notes: Vec<&str> = own.chain(notes.iter().map(String::as_str)).collect();
        accepted.message = notes.join("; ");
    }
    accepted
}
