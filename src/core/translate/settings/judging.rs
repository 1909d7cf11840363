//! A policy by itself: whether it can be carried out, by the objects that it refers to.

use std::fmt;
use std::sync::Arc;

use crate::key::Verdict;
use crate::rule::backend_reference::Referrer;
use crate::state::policies::judged::{Effect, Judged};
use gatewright_objects::inputs::{Kind, LocalRef, Policy, PolicyRules, Secret};
use gatewright_objects::limits::ObjectLimits;
use gatewright_objects::model::{
    BackendId, ClientCredentials, Enforcement, ObjectName, Reason, Transport,
};
use gatewright_objects::settings::{Access, Refusal, TrafficSettings};
use gatewright_objects::store::Store;

/// A policy whose settings are judged, and what they leave beside their results.
pub(super) struct Judging<'a> {
    pub(super) policy: &'a Policy,
    pub(super) limits: &'a ObjectLimits,
    /// `limits.namespace.matchingMicros` of its namespace.
    pub(super) matching_micros: u64,
    pub(super) store: &'a Store,
    /// The credentials of its login.
    pub(super) credentials: Option<ClientCredentials>,
    /// Why one of its settings has no effect, and the others have.
    pub(super) lacking: Verdict,
    /// What is not as one may expect.
    pub(super) notes: Vec<&'static str>,
}

/// A policy on requests by itself; `beyond` is why it is one too many, if it is. With limits of
/// objects, and `limits.namespace.matchingMicros` of its namespace.
pub(crate) fn judged(
    policy: &Arc<Policy>,
    beyond: Option<Refusal>,
    (limits, matching_micros): (&ObjectLimits, u64),
    store: &Store,
) -> Judged {
    let mut judging = Judging {
        policy,
        limits,
        matching_micros,
        store,
        credentials: None,
        lacking: Ok(()),
        notes: Vec::new(),
    };
    let (accepted, effect) = match &policy.rules {
        PolicyRules::Access(enforcement, rules) => {
            let access = readable(rules, beyond)
                .and_then(|rules| rules.judge(&policy.meta.name, *enforcement, &mut judging));
            judging.access(*enforcement, access)
        }
        PolicyRules::Traffic(rules) => {
            let settings = readable(rules, beyond)
                .and_then(|rules| rules.judge(&policy.meta.name, &mut judging));
            judging.traffic(settings)
        }
        _ => (Ok(()), Effect::Nothing),
    };
    Judged {
        policy: policy.clone(),
        resolved: None,
        credentials: judging.credentials.filter(|_| accepted.is_ok()),
        notes: judging.notes.into_iter().map(str::to_owned).collect(),
        accepted,
        effect,
    }
}

fn readable<R>(rules: &Result<R, String>, beyond: Option<Refusal>) -> Result<&R, Refusal> {
    match beyond {
        Some(beyond) => Err(beyond),
        None => rules
            .as_ref()
            .map_err(|text| (Reason::Invalid, text.clone())),
    }
}

impl<'a> Judging<'a> {
    /// An AccessPolicy that cannot be carried out closes what it is attached to; one that only
    /// reports never does.
    fn access(
        &mut self,
        enforcement: Enforcement,
        access: Result<Access, Refusal>,
    ) -> (Verdict, Effect) {
        let (consequence, effect) = match enforcement {
            Enforcement::Enforce => ("requests are answered 500", Effect::Close),
            Enforcement::Report => ("nothing is reported, and nobody refused", Effect::Nothing),
        };
        match access {
            Ok(access) => {
                self.notes.extend(access.only_reports().then_some(
                    "enforcement Report: nobody is refused, access logs name whom the policy would refuse",
                ));
                (Ok(()), Effect::Admit(Arc::new(access)))
            }
            Err((reason, text)) => (Err((reason, format!("{text}; {consequence}"))), effect),
        }
    }

    /// A TrafficPolicy that cannot be carried out has no effect: it guards nothing.
    fn traffic(&mut self, settings: Result<TrafficSettings, Refusal>) -> (Verdict, Effect) {
        match settings {
            Ok(settings) => (
                std::mem::replace(&mut self.lacking, Ok(())),
                Effect::Traffic(settings),
            ),
            Err((reason, text)) => (
                Err((reason, format!("{text}; the policy has no effect"))),
                Effect::Nothing,
            ),
        }
    }

    pub(super) fn name(&self) -> &ObjectName {
        &self.policy.meta.name
    }

    /// The Service that the policy sends requests to.
    pub(super) fn backend(
        &self,
        server: &LocalRef,
        port: u16,
        field: &str,
    ) -> Result<BackendId, Refusal> {
        let (at, spoken) = self.referrer().look_up(server, Some(port), field)?;
        Ok(BackendId::new(at, spoken))
    }

    /// The policy, as what refers to a Service.
    pub(super) fn referrer(&self) -> Referrer<'_> {
        Referrer {
            store: self.store,
            kind: Kind::AccessPolicy,
            name: self.name(),
            transport: Transport::Tcp,
        }
    }

    /// What is in a Secret of a type that a field refers to.
    pub(super) fn content<T: 'a, E: fmt::Display + 'a>(
        &self,
        field: &str,
        (secret, kind): (&ObjectName, &str),
        read: impl Fn(&'a Secret) -> &'a Result<T, E>,
    ) -> Result<&'a T, Refusal> {
        self.permitted(Kind::Secret, secret, field)?;
        let found = self.store.secret(secret).ok_or_else(|| {
            format!(
                "there is no Secret {secret} of type {kind}{}",
                self.store.unwatched(secret)
            )
        });
        let found = found.and_then(|found| {
            let content = read(found).as_ref();
            content.map_err(|why| format!("Secret {secret} {why}"))
        });
        found.map_err(|why| (Reason::Invalid, format!("{field}: {why}")))
    }

    /// Ok if the policy may refer to an object. Permission is decided before existence, so that
    /// nobody learns what another namespace holds.
    pub(super) fn permitted(&self, kind: Kind, name: &ObjectName, field: &str) -> Verdict {
        let namespace = &self.name().namespace;
        if self
            .store
            .permits(Kind::AccessPolicy, namespace, kind, name)
        {
            return Ok(());
        }
        let kind = kind.as_str();
        let text = format!(
            "{field}: no ReferenceGrant permits AccessPolicies of namespace {namespace} to refer to {kind} {name}{}",
            self.store.unwatched(name)
        );
        Err((Reason::RefNotPermitted, text))
    }
}
