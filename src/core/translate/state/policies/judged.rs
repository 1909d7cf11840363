//! A policy by itself: whether it can be carried out, and what then comes of it.
//!
//! A BackendTLSPolicy that cannot be carried out has its Services refused: nothing is sent to them,
//! least of all in plain text; and so is an XBackend. An AccessPolicy closes what it is attached
//! to. The others guard nothing: without them their targets are served as those of others.
//! `crate::settings` judges AccessPolicies, and TrafficPolicies on requests.

use std::sync::Arc;

use crate::key::Verdict;
use crate::rule::backend_reference::Referrer;
use crate::rule::ca_bundles;
use crate::rule::experimental;
use crate::rule::surroundings::Surroundings;
use crate::state::parent::Parent;
use gatewright_objects::channel::Channel;
use gatewright_objects::cost::{self, Bytes};
use gatewright_objects::inputs::{
    BackendTrafficRules, Kind, LocalRef, ObjectKey, Policy, PolicyRules, Roots, RouteRule,
    SessionPersistence, TracingParameters, TracingRules, Validation,
};
use gatewright_objects::model::{
    AppProtocol, BackendId, BackendSettings, BackendTls, ClientCredentials, Reason, RetryBudget,
    Tracing, Transport, TrustedRoots,
};
use gatewright_objects::settings::{Access, TrafficSettings};

use super::place::has_rule;

/// A policy by itself.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Judged {
    /// The policy.
    pub(crate) policy: Arc<Policy>,
    /// Ok if it can be carried out.
    pub(crate) accepted: Verdict,
    /// Ok if everything that it refers to is there; `None` where its status does not say it.
    pub(crate) resolved: Option<Verdict>,
    /// Its effect.
    pub(crate) effect: Effect,
    /// The credentials of its login, which are no part of routes.
    pub(crate) credentials: Option<ClientCredentials>,
    /// Warnings for its status, where it has effect.
    pub(crate) notes: Vec<String>,
}

/// The effect of a policy.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Effect {
    /// BackendTLSPolicy, XBackend: the verification that it asks for, without a certificate of a
    /// client; `None` where nothing can be verified.
    Tls(Option<Arc<BackendTls>>),
    /// XBackendTrafficPolicy: retries and sessions.
    BackendTraffic {
        retries: Option<RetryBudget>,
        session: Option<SessionPersistence>,
    },
    /// TrafficPolicy on Services: how endpoints are chosen, checked and limited.
    Backend(Arc<BackendSettings>),
    /// AccessPolicy: only those whom it admits pass, unless it only reports.
    Admit(Arc<Access>),
    /// AccessPolicy that cannot be carried out: nobody passes.
    Close,
    /// TrafficPolicy on Gateways, ListenerSets and routes.
    Traffic(TrafficSettings),
    /// XTelemetryPolicy: the tracing of its Gateways, if they have one, and what each of their
    /// ports takes for it.
    Trace {
        tracing: Option<Arc<Tracing>>,
        cost: Bytes,
    },
    /// A policy that cannot be carried out and guards nothing, as an AccessPolicy that only
    /// reports; an XBackend that is sent plain text.
    Nothing,
}

impl Effect {
    /// The verification of backends.
    pub(crate) fn tls(&self) -> Option<&Arc<BackendTls>> {
        match self {
            Effect::Tls(tls) => tls.as_ref(),
            _ => None,
        }
    }

    /// Sessions with backends.
    pub(crate) fn session(&self) -> Option<&SessionPersistence> {
        match self {
            Effect::BackendTraffic { session, .. } => session.as_ref(),
            _ => None,
        }
    }

    /// How endpoints are chosen, checked and limited.
    pub(crate) fn settings(&self) -> Option<&Arc<BackendSettings>> {
        match self {
            Effect::Backend(settings) => Some(settings),
            _ => None,
        }
    }

    /// What requests get.
    pub(crate) fn traffic(&self) -> Option<&TrafficSettings> {
        match self {
            Effect::Traffic(settings) => Some(settings),
            _ => None,
        }
    }

    /// True if the policy takes precedence over younger ones of its kind. A BackendTLSPolicy that
    /// cannot be carried out does: otherwise its Services would go by a laxer one, or by none.
    pub(super) fn competes(&self) -> bool {
        match self {
            Effect::Traffic(settings) => !settings.is_empty(),
            Effect::Nothing => false,
            Effect::Tls(_)
            | Effect::BackendTraffic { .. }
            | Effect::Backend(_)
            | Effect::Admit(_)
            | Effect::Close
            | Effect::Trace { .. } => true,
        }
    }
}

impl Judged {
    /// Judges a policy on Services or on Gateways as a whole; `beyond` is why it is one too many, if
    /// it is.
    pub(crate) fn of(
        policy: &Arc<Policy>,
        beyond: Option<(Reason, String)>,
        around: &Surroundings<'_>,
    ) -> Self {
        let mut judged = Self {
            policy: policy.clone(),
            accepted: Ok(()),
            resolved: resolved(policy, around),
            effect: Effect::Nothing,
            credentials: None,
            notes: Vec::new(),
        };
        let verdict = match beyond {
            Some(beyond) => Err(beyond),
            None => judged.carry_out(policy, around),
        };
        let guarded = match &policy.rules {
            PolicyRules::Tls(_) => "its Services",
            PolicyRules::Destination(_) => "it",
            _ => {
                judged.accepted = verdict;
                return judged;
            }
        };
        judged.accepted = verdict.map_err(|(reason, text)| {
            judged.effect = Effect::Tls(None);
            (reason, format!("{text}; nothing is sent to {guarded}"))
        });
        judged
    }

    /// Sets the effect of a policy that can be carried out.
    fn carry_out(&mut self, policy: &Policy, around: &Surroundings<'_>) -> Verdict {
        match &policy.rules {
            PolicyRules::Tls(validation) => self.verify(readable(validation)?, around),
            PolicyRules::Destination(destination) => {
                let destination = readable(destination)?;
                if let Some(why) = unreachable(policy, around) {
                    return Err((Reason::Invalid, why));
                }
                let tls = destination.tls.as_ref();
                tls.map_or(Ok(()), |validation| self.verify(validation, around))
            }
            PolicyRules::BackendTraffic(rules) => {
                let BackendTrafficRules { budget, session } = readable(rules)?;
                served(policy, around)?;
                // The specification has no other word for it: `Accepted` says what of a policy is
                // not as it is written.
                self.notes.extend(budget.map(|budget| {
                    let most = budget.at_a_time();
                    format!("retryConstraint.minRetryRate has effect as {most} at a time: Envoy knows no rate of retries")
                }));
                self.effect = Effect::BackendTraffic {
                    retries: *budget,
                    session: session.clone(),
                };
                Ok(())
            }
            PolicyRules::Backend(settings) => {
                self.effect = Effect::Backend(readable(settings)?.clone());
                Ok(())
            }
            PolicyRules::Tracing(rules) => {
                served(policy, around)?;
                self.effect = match readable(rules)? {
                    TracingRules::Off => Effect::Trace {
                        tracing: None,
                        cost: Bytes::default(),
                    },
                    TracingRules::On(parameters) => self.trace(parameters, around),
                };
                Ok(())
            }
            PolicyRules::Traffic(_) | PolicyRules::Access(..) => Ok(()),
        }
    }

    fn verify(&mut self, validation: &Validation, around: &Surroundings<'_>) -> Verdict {
        let roots = match (&validation.roots, &around.settings.system_roots) {
            (Roots::System, Some(file)) => Some(TrustedRoots::File(file.clone())),
            (Roots::System, None) => {
                let text = "validation.wellKnownCACertificates: the Envoys have no system roots, use caCertificateRefs";
                return Err((Reason::Invalid, text.to_owned()));
            }
            (Roots::References(references), _) => {
                let (roots, resolved) = bundle(references, around);
                self.resolved = Some(resolved);
                roots
            }
        };
        let roots = roots.ok_or_else(|| {
            let text = "none of validation.caCertificateRefs can be used";
            (Reason::NoValidCACertificate, text.to_owned())
        })?;
        self.effect = Effect::Tls(Some(Arc::new(BackendTls {
            hostname: validation.hostname.clone(),
            names: validation.names.clone(),
            roots,
            client: None,
        })));
        Ok(())
    }

    fn trace(&mut self, parameters: &TracingParameters, around: &Surroundings<'_>) -> Effect {
        let TracingParameters {
            collector: _,
            port: _,
            headers,
            sampling,
            parents,
            service_name,
            span_name,
            attributes,
            unknown,
        } = parameters;
        if !unknown.is_empty() {
            self.notes.push(format!(
                "spec.tracing.attributes: no value is known for {}, which spans do not have",
                unknown.join(", ")
            ));
        }
        let collector = collector(&self.policy, parameters, around);
        let tracing = collector.ok().map(|collector| {
            Arc::new(Tracing {
                collector,
                headers: headers.clone(),
                sampling: *sampling,
                parents: *parents,
                service_name: service_name.clone(),
                span_name: span_name.clone(),
                attributes: attributes.clone(),
            })
        });
        Effect::Trace {
            tracing,
            cost: cost::traces(parameters),
        }
    }
}

impl Judged {
    /// Its effect at the hosts of a Gateway, whose class may not allow it: nobody passes then, and
    /// of a TrafficPolicy, or one that only reports, nothing comes.
    pub(crate) fn effect_at(&self, parent: &Parent) -> &Effect {
        match &self.effect {
            effect if parent.allows(self).is_ok() => effect,
            Effect::Admit(access) if access.only_reports() => &Effect::Nothing,
            Effect::Admit(_) | Effect::Close => &Effect::Close,
            _ => &Effect::Nothing,
        }
    }

    /// True if it is an AccessPolicy that closes an object as a whole, because it names a section
    /// that the object does not have. One on the object and a section of it is on the object.
    fn closes_for_missing_section(
        &self,
        object: &ObjectKey,
        has_section: impl Fn(&str) -> bool,
    ) -> bool {
        let closes = match &self.effect {
            Effect::Admit(access) => !access.only_reports(),
            Effect::Close => true,
            _ => false,
        };
        let of_object = || {
            let targets = self.policy.targets.iter();
            targets.filter(|target| target.object == *object)
        };
        closes
            && of_object().all(|target| target.section.is_some())
            && of_object().any(|target| {
                let section = target.section.as_deref();
                section.is_some_and(|section| !has_section(section))
            })
    }

    /// True if it closes a route as a whole, because it names a rule that the route does not have.
    pub(crate) fn closes_route(&self, object: &ObjectKey, rules: &[RouteRule]) -> bool {
        self.closes_for_missing_section(object, |name| has_rule(rules, name))
    }

    /// True if it closes a Gateway or ListenerSet as a whole, because it names a listener that is
    /// not there.
    pub(crate) fn closes_parent(&self, object: &ObjectKey, parent: &Parent) -> bool {
        self.closes_for_missing_section(object, |name| parent.listener(name).is_some())
    }
}

fn readable<R>(rules: &Result<R, String>) -> Result<&R, (Reason, String)> {
    rules
        .as_ref()
        .map_err(|text| (Reason::Invalid, text.clone()))
}

/// Ok if policies of the experimental channel are carried out.
fn served(policy: &Policy, around: &Surroundings<'_>) -> Verdict {
    match around.settings.channel {
        Channel::Standard => Err((Reason::Invalid, experimental::unserved(policy.kind()))),
        Channel::Experimental => Ok(()),
    }
}

/// Ok if the objects that a policy refers to are there, as far as that is known before it is
/// carried out; `None` where its status does not say it.
fn resolved(policy: &Policy, around: &Surroundings<'_>) -> Option<Verdict> {
    match &policy.rules {
        PolicyRules::Tls(_) | PolicyRules::Destination(_) => Some(Ok(())),
        PolicyRules::Tracing(Ok(TracingRules::On(parameters))) => {
            Some(collector(policy, parameters, around).map(|_| ()))
        }
        _ => None,
    }
}

/// The backend of the collector of a policy: OTLP is gRPC, whatever the Service says of its port.
fn collector(
    policy: &Policy,
    parameters: &TracingParameters,
    around: &Surroundings<'_>,
) -> Result<BackendId, (Reason, String)> {
    let referrer = Referrer {
        store: around.store,
        kind: Kind::XTelemetryPolicy,
        name: &policy.meta.name,
        transport: Transport::Tcp,
    };
    let field = "spec.tracing.provider.backendRef";
    let (at, _) = referrer.look_up(&parameters.collector, parameters.port, field)?;
    Ok(BackendId::new(at, AppProtocol::Otlp))
}

/// Why no host is reached by an XBackend.
fn unreachable(policy: &Policy, around: &Surroundings<'_>) -> Option<String> {
    if around.settings.channel == Channel::Standard {
        return Some(experimental::unserved(Kind::XBackend));
    }
    let name = around.store.external_name(&policy.service()?)?;
    name.err()
}

/// The certificates that references lead to, of those that can be used, and the first that cannot.
fn bundle(references: &[LocalRef], around: &Surroundings<'_>) -> (Option<TrustedRoots>, Verdict) {
    let Surroundings {
        store,
        settings,
        now,
    } = *around;
    let (certificates, verdict) = ca_bundles::union(references, now, |index, reference, before| {
        let found = ca_bundles::look_up(reference, (store, now), Reason::InvalidKind, |_| Ok(()));
        found
            .and_then(|found| {
                ca_bundles::bundle(before, found, &settings.limits.object).map(|()| found)
            })
            .map_err(|(reason, text)| {
                (
                    reason,
                    format!("validation.caCertificateRefs[{index}]: {text}"),
                )
            })
    });
    (certificates.map(TrustedRoots::Bundle), verdict)
}
