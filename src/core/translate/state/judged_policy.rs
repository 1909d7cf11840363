//! A policy by itself: whether it can be carried out, and what then comes of it.
//!
//! A BackendTLSPolicy that cannot be carried out has its Services refused: nothing is sent to them,
//! least of all in plain text; and so is an XBackend. An XBackendTrafficPolicy guards nothing:
//! without it its Services are served as those of others. Neither does a TrafficPolicy.

use std::sync::Arc;

use crate::key::Verdict;
use crate::rule::ca_bundles;
use crate::rule::experimental;
use crate::rule::surroundings::Surroundings;
use gatewright_objects::channel::Channel;
use gatewright_objects::inputs::{
    Kind, LocalRef, Policy, PolicyRules, Roots, SessionPersistence, TrafficRules, Validation,
};
use gatewright_objects::model::{BackendSettings, BackendTls, Reason, RetryBudget, TrustedRoots};

/// A policy by itself.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Judged {
    /// Ok if it can be carried out.
    pub(crate) accepted: Verdict,
    /// Ok if everything that it refers to is there; `None` where it cannot refer to anything.
    pub(crate) resolved: Option<Verdict>,
    /// A note about a field that has another effect than it states.
    pub(crate) note: Option<String>,
    /// Its effect.
    pub(crate) effect: Effect,
}

/// The effect of a policy.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Effect {
    /// The verification that it asks for, without a certificate of a client; `None` where nothing
    /// can be verified.
    Tls(Option<Arc<BackendTls>>),
    /// An XBackend that is sent plain text.
    Plain,
    /// Retries and sessions; none where it cannot be carried out.
    Traffic {
        retries: Option<RetryBudget>,
        session: Option<SessionPersistence>,
    },
    /// How endpoints are chosen, checked and limited; `None` where it cannot be carried out.
    Backend(Option<Arc<BackendSettings>>),
}

impl Effect {
    /// The verification of backends.
    pub(crate) fn tls(&self) -> Option<&Arc<BackendTls>> {
        match self {
            Effect::Tls(tls) => tls.as_ref(),
            Effect::Plain | Effect::Traffic { .. } | Effect::Backend(_) => None,
        }
    }

    /// Sessions with backends.
    pub(crate) fn session(&self) -> Option<&SessionPersistence> {
        match self {
            Effect::Traffic { session, .. } => session.as_ref(),
            Effect::Tls(_) | Effect::Plain | Effect::Backend(_) => None,
        }
    }

    /// How endpoints are chosen, checked and limited.
    pub(crate) fn settings(&self) -> Option<&Arc<BackendSettings>> {
        match self {
            Effect::Backend(settings) => settings.as_ref(),
            Effect::Tls(_) | Effect::Plain | Effect::Traffic { .. } => None,
        }
    }
}

impl Judged {
    /// True if the policy can be carried out.
    pub(crate) fn is_accepted(&self) -> bool {
        self.accepted.is_ok()
    }

    /// True if the policy takes precedence over younger ones of its kind. A BackendTLSPolicy that
    /// cannot be carried out does: otherwise its Services would go by a laxer one, or by none.
    pub(crate) fn competes(&self) -> bool {
        match self.effect {
            Effect::Tls(_) => true,
            Effect::Plain => false,
            Effect::Traffic { .. } | Effect::Backend(_) => self.is_accepted(),
        }
    }

    /// Judges a policy.
    pub(crate) fn of(policy: &Policy, around: &Surroundings<'_>) -> Self {
        match &policy.rules {
            PolicyRules::Tls(Ok(validation)) => tls(validation, around, SERVICES),
            PolicyRules::Traffic(Ok(rules)) => traffic(rules, around.settings.channel),
            PolicyRules::Destination(Ok(destination)) => {
                match (unreachable(policy, around), &destination.tls) {
                    (Some(why), _) => unverified(Reason::Invalid, &why, ITSELF),
                    (None, Some(validation)) => tls(validation, around, ITSELF),
                    (None, None) => Self {
                        accepted: Ok(()),
                        resolved: Some(Ok(())),
                        note: None,
                        effect: Effect::Plain,
                    },
                }
            }
            PolicyRules::Backend(Ok(settings)) => Self {
                accepted: Ok(()),
                resolved: None,
                note: None,
                effect: Effect::Backend(Some(settings.clone())),
            },
            PolicyRules::Tls(Err(text))
            | PolicyRules::Destination(Err(text))
            | PolicyRules::Traffic(Err(text))
            | PolicyRules::Backend(Err(text)) => {
                Self::refused(policy, (Reason::Invalid, text.clone()))
            }
        }
    }

    /// A policy that is not carried out, and why.
    pub(crate) fn refused(policy: &Policy, (reason, text): (Reason, String)) -> Self {
        match policy.rules {
            PolicyRules::Tls(_) => unverified(reason, &text, SERVICES),
            PolicyRules::Destination(_) => unverified(reason, &text, ITSELF),
            PolicyRules::Traffic(_) => without_effect(reason, text),
            PolicyRules::Backend(_) => Self {
                accepted: Err((reason, text)),
                resolved: None,
                note: None,
                effect: Effect::Backend(None),
            },
        }
    }
}

/// The backends that get nothing while a BackendTLSPolicy, or an XBackend, cannot be carried out.
const SERVICES: &str = "its Services";
const ITSELF: &str = "it";

fn unverified(reason: Reason, text: &str, guarded: &str) -> Judged {
    let accepted = Err((reason, format!("{text}; nothing is sent to {guarded}")));
    Judged {
        accepted,
        resolved: Some(Ok(())),
        note: None,
        effect: Effect::Tls(None),
    }
}

/// Why no host is reached by an XBackend.
fn unreachable(policy: &Policy, around: &Surroundings<'_>) -> Option<String> {
    if around.settings.channel == Channel::Standard {
        return Some(experimental::unserved(Kind::XBackend));
    }
    let name = around.store.external_name(&policy.service()?)?;
    name.err()
}

fn without_effect(reason: Reason, text: String) -> Judged {
    let effect = Effect::Traffic {
        retries: None,
        session: None,
    };
    Judged {
        accepted: Err((reason, text)),
        resolved: None,
        note: None,
        effect,
    }
}

fn traffic(rules: &TrafficRules, channel: Channel) -> Judged {
    let TrafficRules { budget, session } = rules;
    if channel == Channel::Standard {
        let text = experimental::unserved(Kind::XBackendTrafficPolicy);
        return without_effect(Reason::Invalid, text);
    }
    // The specification has no other word for it: `Accepted` says what of a policy is not as it is
    // written.
    let note = budget.map(|budget| {
        let most = budget.at_a_time();
        format!("retryConstraint.minRetryRate has effect as {most} at a time: Envoy knows no rate of retries")
    });
    let effect = Effect::Traffic {
        retries: *budget,
        session: session.clone(),
    };
    Judged {
        accepted: Ok(()),
        resolved: None,
        note,
        effect,
    }
}

fn tls(validation: &Validation, around: &Surroundings<'_>, guarded: &str) -> Judged {
    let (roots, resolved) = match (&validation.roots, &around.settings.system_roots) {
        (Roots::System, Some(file)) => (Some(TrustedRoots::File(file.clone())), Ok(())),
        (Roots::System, None) => {
            let text = "validation.wellKnownCACertificates: the Envoys have no system roots, use caCertificateRefs";
            return unverified(Reason::Invalid, text, guarded);
        }
        (Roots::References(references), _) => bundle(references, around),
    };
    let Some(roots) = roots else {
        let text = "none of validation.caCertificateRefs can be used";
        return Judged {
            resolved: Some(resolved),
            ..unverified(Reason::NoValidCACertificate, text, guarded)
        };
    };
    let hostname = validation.hostname.clone();
    let names = validation.names.clone();
    let tls = BackendTls {
        hostname,
        names,
        roots,
        client: None,
    };
    Judged {
        accepted: Ok(()),
        resolved: Some(resolved),
        note: None,
        effect: Effect::Tls(Some(Arc::new(tls))),
    }
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
