//! The AccessPolicies of a route.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::super::key::{ListenerId, RouteKey};
use super::super::state::policies::judged::{Effect, Judged};
use super::{Explainer, Explanation, Question, with_causes};
use crate::settings::{Denial, ExplainedAccess};
use gatewright_objects::cost::{self, TOKEN_TIME, milliseconds};
use gatewright_objects::inputs::{Kind, ObjectKey};
use gatewright_objects::model::{Enforcement, Hostname, Reason, Route};
use gatewright_objects::request_outcome::{ACCESS_CLOSED, UNAUTHENTICATED};
use gatewright_objects::settings::Access;

impl Explainer<'_> {
    /// Adds what AccessPolicies ask of a request of a route, and the servers that are asked for
    /// them, up to the first that refuses it or is not reached.
    pub(super) fn explain_access(
        &self,
        question: &Question,
        route: &Route,
        (hostname, listener): (&Hostname, &ListenerId),
        explanation: &mut Explanation,
    ) {
        if &*route.name == ACCESS_CLOSED {
            let mut causes = self.closing(hostname, listener);
            if causes.is_empty() {
                causes = self.beyond_time(hostname, listener);
            }
            if causes.is_empty() {
                causes = self.logins(hostname, listener);
            }
            explanation.fail_by(
                "access",
                with_causes("answered 500: nobody may send requests".to_owned(), causes),
                Some(ACCESS_CLOSED),
            );
            return;
        }
        for access in &route.rule.access {
            let mut explained = ExplainedAccess::new(question);
            access.visit(&mut explained);
            let asked = words(access, &explained.parts);
            match explained
                .findings
                .into_iter()
                .collect::<Result<Vec<_>, _>>()
            {
                Ok(found) if found.is_empty() => explanation.hold("access", asked),
                Ok(found) => explanation.hold("access", format!("{asked}; {}", found.join(", "))),
                Err(Denial { why, status, .. }) if access.only_reports() => {
                    let text =
                        format!("{asked}; {why}: with enforcement Enforce answered {status}");
                    explanation.hold("access", text);
                }
                Err(Denial { why, status, cause }) => {
                    let text = format!("{asked}; {why}: answered {status}");
                    return explanation.fail_by("access", text, Some(cause));
                }
            }
            self.explain_servers(route, access, explanation);
            if explanation.ok() {
                self.explain_login(access, explanation);
            }
            if let (true, Some(auth)) = (explanation.ok(), &access.external_auth) {
                let field = format!("AccessPolicy {}: externalAuth", access.policy);
                self.explain_authorization(&field, auth, question, explanation);
            }
            if !explanation.ok() {
                return;
            }
        }
    }

    /// Adds why the logins of a policy cannot end, as its status says it.
    fn explain_login(&self, access: &Access, explanation: &mut Explanation) {
        if access.oidc.is_none() {
            return;
        }
        let key = ObjectKey::new(Kind::AccessPolicy, access.policy.clone());
        let judged = self.routing.policies.get(&key);
        if let Some(Err((_, why))) = judged.map(|judged| self.report.works(judged).0) {
            let text = format!("AccessPolicy {}: {why}", access.policy);
            explanation.fail_by("access", text, Some(UNAUTHENTICATED[0]));
        }
    }

    /// The AccessPolicies that cannot be carried out, or are not allowed, and concern a hostname at
    /// a listener.
    fn closing(&self, hostname: &Hostname, listener: &ListenerId) -> Vec<String> {
        let Some(parent) = self.admission().parents.get(&listener.parent) else {
            return Vec::new();
        };
        let policies = self
            .policies(hostname, listener)
            .filter(|judged| *judged.effect_at(parent) == Effect::Close);
        let causes = policies.filter_map(|judged| {
            let accepted = judged.accepted.clone();
            let (reason, text) = accepted.and(parent.allows(judged)).err()?;
            let key = judged.policy.key();
            Some(format!("{key}: {}: {text}", reason.as_str()))
        });
        let objects = self.attached_to(hostname, listener).into_iter();
        let missing = objects.flat_map(|object| {
            let closing = self.closing_by_section(&object, listener);
            let reason = Reason::TargetNotFound.as_str();
            let what = "has no rule or listener of its sectionName";
            let told =
                closing.map(|judged| format!("{}: {reason}: {object} {what}", judged.policy.key()));
            told.collect::<Vec<String>>()
        });
        sorted(causes.chain(missing))
    }

    /// The AccessPolicies on an object that name a section which it does not have.
    fn closing_by_section<'a>(
        &'a self,
        object: &'a ObjectKey,
        listener: &ListenerId,
    ) -> impl Iterator<Item = &'a Judged> {
        let parent = self.admission().parents.get(&listener.parent);
        let parent = parent.filter(|parent| parent.key.object() == *object);
        let route = RouteKey::of(object).and_then(|key| self.routing.store.route(&key));
        self.routing.policies.on(object).filter(move |judged| {
            route.is_some_and(|route| judged.closes_route(object, &route.rules))
                || parent.is_some_and(|parent| judged.closes_parent(object, parent))
        })
    }

    /// The AccessPolicies with tokens that concern a hostname at a listener, if together they may
    /// close it: one of them alone has its keys within the bound.
    fn beyond_time(&self, hostname: &Hostname, listener: &ListenerId) -> Vec<String> {
        let policies = self.policies(hostname, listener);
        let timed = policies.filter_map(|judged| match &judged.effect {
            Effect::Admit(access) if access.jwt.is_some() && !access.only_reports() => {
                Some((judged.policy.key(), cost::token_time(access)))
            }
            _ => None,
        });
        let timed: BTreeMap<ObjectKey, Duration> = timed.collect();
        if timed.values().sum::<Duration>() <= TOKEN_TIME {
            return Vec::new();
        }
        let causes = timed.iter().map(|(key, time)| {
            format!(
                "{key}: one token may take {} of an Envoy's worker, and at most {} by all policies with jwt at a rule",
                milliseconds(*time),
                milliseconds(TOKEN_TIME)
            )
        });
        causes.collect()
    }

    /// The AccessPolicies with a login that concern a hostname at a listener, which close it: on
    /// plain HTTP, and where another one has a login as well.
    fn logins(&self, hostname: &Hostname, listener: &ListenerId) -> Vec<String> {
        let policies = self.policies(hostname, listener);
        let named = policies.filter_map(|judged| match &judged.effect {
            Effect::Admit(access) if access.oidc.is_some() => Some(judged.policy.key()),
            _ => None,
        });
        sorted(named.map(|key| {
            format!("{key}: oidc needs HTTPS, and no other policy with oidc at the same rule")
        }))
    }

    /// The policies that concern a hostname at a listener.
    fn policies(
        &self,
        hostname: &Hostname,
        listener: &ListenerId,
    ) -> impl Iterator<Item = &Judged> {
        let objects = self.attached_to(hostname, listener).into_iter();
        objects.flat_map(|object| self.routing.policies.on(&object))
    }

    /// What policies that concern a hostname at a listener are attached to.
    pub(super) fn attached_to(
        &self,
        hostname: &Hostname,
        listener: &ListenerId,
    ) -> BTreeSet<ObjectKey> {
        let admission = self.admission();
        let gateway = admission
            .parents
            .get(&listener.parent)
            .map(|parent| ObjectKey::new(Kind::Gateway, parent.placement.gateway.clone()));
        let routes = admission
            .served(hostname, listener)
            .map(|(key, _)| key.object());
        gateway
            .into_iter()
            .chain([listener.parent.object()])
            .chain(routes)
            .collect()
    }
}

/// Texts in their order, each once.
fn sorted(texts: impl Iterator<Item = String>) -> Vec<String> {
    texts.collect::<BTreeSet<String>>().into_iter().collect()
}

fn words(access: &Access, parts: &[String]) -> String {
    let reports = match access.enforcement {
        Enforcement::Enforce => "",
        Enforcement::Report => " only reports, and refuses nobody",
    };
    format!(
        "AccessPolicy {}{reports}: {}",
        access.policy,
        parts.join(", ")
    )
}
