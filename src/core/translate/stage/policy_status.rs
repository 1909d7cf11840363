//! Statuses of policies, by each Gateway whose hosts, or whose routes to Services, they are about.
//! A target that does not exist is its own ancestor.

use std::collections::BTreeMap;
use std::time::Duration;

use super::login_ways::{LoginWays, ways};
use super::report::Report;
use super::verdict::condition;
use crate::key::{ListenerId, ParentKey, RouteKey, Verdict};
use crate::rule::protocol::Protocol;
use crate::state::attachments::Attachment;
use crate::state::datagrams;
use crate::state::parent::Parent;
use crate::state::policies::judged::{Effect, Judged};
use crate::state::policies::place::{has_rule, places};
use gatewright_objects::cost::{TOKEN_TIME, milliseconds};
use gatewright_objects::inputs::{Kind, ObjectKey, PolicyTarget, Route};
use gatewright_objects::model::{
    BackendSettings, BackendTransport, Condition, ConditionType, Reason, Status, Transport,
};
use gatewright_objects::settings::Access;
use gatewright_objects::status::{ObjectStatus, PolicyStatus, StatusBody};

impl Report<'_> {
    pub(crate) fn policy_status(self, key: &ObjectKey) -> Option<ObjectStatus> {
        let judged = self.policies.get(key)?;
        let mut ancestors: BTreeMap<ObjectKey, Verdict> = BTreeMap::new();
        for target in &judged.policy.targets {
            for (ancestor, verdict) in self.ancestors(judged, target) {
                let known = ancestors.entry(ancestor).or_insert(Ok(()));
                *known = std::mem::replace(known, Ok(())).and(verdict);
            }
        }
        if ancestors.is_empty() {
            return None;
        }
        let (works, notes) = self.works(judged);
        let resolved = self.resolved(judged);
        let ancestors = ancestors.into_iter().map(|(ancestor, verdict)| {
            let accepted = accepted(judged, verdict.and(works.clone()), &notes);
            let conditions = std::iter::once(accepted).chain(resolved.clone());
            (ancestor, conditions.collect())
        });
        let mut ancestors: Vec<(ObjectKey, Vec<Condition>)> = ancestors.collect();
        // Where there is no room for all, those of its own namespace are told of.
        let namespace = &key.name.namespace;
        ancestors.sort_by_key(|(ancestor, _)| ancestor.name.namespace != *namespace);
        Some(ObjectStatus {
            generation: judged.policy.meta.generation,
            body: StatusBody::Policy(PolicyStatus { ancestors }),
        })
    }

    /// Ok if a policy works as a whole, wherever it is: one on Services at all of these, and one
    /// that admits clients if these can pass it. With what else there is to know.
    pub(crate) fn works(self, judged: &Judged) -> (Verdict, Vec<String>) {
        match &judged.effect {
            Effect::Admit(access) => self.admits(judged, access),
            Effect::Backend(settings) => {
                let notes = self.hash_over_zones(judged, settings).into_iter();
                let notes = notes.chain(self.without_effect_on_datagrams(judged, settings));
                (self.has_services(judged), notes.collect())
            }
            _ => (self.has_services(judged), Vec::new()),
        }
    }

    /// Ok if clients that a policy is to admit can pass it: the servers that it names can be asked,
    /// and logins end. With what else there is to know.
    fn admits(self, judged: &Judged, access: &Access) -> (Verdict, Vec<String>) {
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

    /// Ok if the Services of a policy, and their ports, are there, and it is the first policy of
    /// each.
    fn has_services(self, judged: &Judged) -> Verdict {
        let services = judged.policy.targets.iter();
        services
            .filter(|target| target.object.kind == Kind::Service)
            .try_for_each(|target| {
                self.policies.takes_effect(judged, target)?;
                let section = target.section.as_ref();
                let service = self.store.service(&target.object.name);
                let has_port = service.is_some_and(|service| {
                    section.is_none_or(|name| service.ports.iter().any(|port| port.name == *name))
                });
                if has_port {
                    return Ok(());
                }
                let text = format!("{} does not exist", target.named());
                Err((Reason::TargetNotFound, text))
            })
    }

    /// `ResolvedRefs`, with a note where spans that are sent do not arrive.
    fn resolved(self, judged: &Judged) -> Option<Condition> {
        let resolved = judged.resolved.clone()?;
        let mut resolved = condition(ConditionType::ResolvedRefs, resolved, Reason::ResolvedRefs);
        if let Effect::Trace {
            tracing: Some(tracing),
            ..
        } = &judged.effect
            && let Err((_, text)) = self.collectors().reached(&tracing.collector)
        {
            resolved.message = format!("{text}; spans are lost");
        }
        Some(resolved)
    }

    /// A note on a policy whose hash leaves `trafficDistribution` of a target without effect.
    fn hash_over_zones(self, judged: &Judged, settings: &BackendSettings) -> Option<String> {
        settings.hash()?;
        let zoned = judged.policy.services().find(|name| {
            self.store
                .service(name)
                .is_some_and(|service| service.prefers_zone())
        })?;
        Some(format!(
            "trafficDistribution of Service {} has no effect: a consistent hash goes by no zone",
            zoned.name
        ))
    }

    /// A note on the fields of a policy that its UDP ports do not go by.
    fn without_effect_on_datagrams(
        self,
        judged: &Judged,
        settings: &BackendSettings,
    ) -> Option<String> {
        judged.policy.targets.iter().find_map(|target| {
            let name = &target.object.name;
            let service = self.store.service(name)?;
            let mut ports = service.ports.iter().filter(|port| {
                let is_meant = target
                    .section
                    .as_ref()
                    .is_none_or(|name| port.name == *name);
                port.transport == Transport::Udp && is_meant
            });
            let port = ports.next()?;
            let is_checked = datagrams::is_checked(service, port);
            let fields = datagrams::without_effect(settings, is_checked);
            (!fields.is_empty()).then(|| {
                format!(
                    "no effect on datagrams to Service {}: {}",
                    name.name,
                    fields.join(", ")
                )
            })
        })
    }

    /// The policies that have an effect on an object as its target, at a Gateway (GEP-713).
    pub(crate) fn affected(self, object: &ObjectKey, parent: &Parent) -> Option<Condition> {
        let all = self.policies.on(object);
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

    fn affects(self, judged: &Judged, object: &ObjectKey, parent: &Parent) -> bool {
        let mut targets = judged.policy.targets.iter();
        judged.policy.is_on_requests()
            && *judged.effect_at(parent) != Effect::Nothing
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
                is_there && self.policies.takes_effect(judged, target).is_ok()
            })
    }

    /// Ok if a token takes no more time at the rules of a route than it may, by the policy and all
    /// others there; else the rules are closed.
    fn in_time(
        self,
        judged: &Judged,
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
                let time = self.policies.token_time(place);
                if time > TOKEN_TIME {
                    return Err((Reason::LimitReached, beyond(time)));
                }
            }
        }
        Ok(())
    }

    /// The Gateways of ours whose hosts a target has, or with routes to it; and whether it is
    /// there, the policy allowed, and no other one before it.
    fn ancestors(self, judged: &Judged, target: &PolicyTarget) -> Vec<(ObjectKey, Verdict)> {
        let PolicyTarget { object, section } = target;
        let section = section.as_deref();
        if object.kind == Kind::Service {
            let gateways = self.policies.gateways(std::iter::once(&object.name));
            let gateways = gateways.into_iter().cloned();
            return gateways
                .map(|gateway| (ObjectKey::new(Kind::Gateway, gateway), Ok(())))
                .collect();
        }
        let effect = self.policies.takes_effect(judged, target);
        if let Some(route) = RouteKey::of(object) {
            let Some(known) = self.store.route(&route) else {
                return vec![missing(judged, target)];
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
                    (gateway(parent), verdict.and(effect.clone()))
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
                let verdict = verdict.and(parent.allows(judged)).and(effect);
                vec![(gateway(parent), verdict)]
            }
            // It belongs to another controller.
            None if is_there => Vec::new(),
            None => vec![missing(judged, target)],
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

fn missing(judged: &Judged, target: &PolicyTarget) -> (ObjectKey, Verdict) {
    let object = &target.object;
    let text = if judged.policy.is_on_requests() {
        format!("{object} does not exist")
    } else {
        format!("{} does not exist", target.named())
    };
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

fn accepted(judged: &Judged, verdict: Verdict, notes: &[String]) -> Condition {
    let accepted = judged.accepted.clone().and(verdict);
    let mut accepted = condition(ConditionType::Accepted, accepted, Reason::Accepted);
    if accepted.status == Status::True {
        let others = others(judged);
        let notes: Vec<&str> = others
            .iter()
            .chain(&judged.notes)
            .chain(notes)
            .map(String::as_str)
            .collect();
        accepted.message = notes.join("; ");
    }
    accepted
}

/// A note on the targets that a policy cannot be about.
fn others(judged: &Judged) -> Option<String> {
    let others = &judged.policy.others;
    let supported = match judged.policy.kind() {
        Kind::XTelemetryPolicy => "Gateways",
        _ => "core Services",
    };
    (!others.is_empty()).then(|| {
        format!(
            "no effect on {}: only {supported} are supported",
            others.join(", ")
        )
    })
}

#[cfg(test)]
mod traces;
