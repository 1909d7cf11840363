//! Policies (GEP-713): what one is about is read in the same way, whatever it asks for. An XBackend
//! is a Service and a policy on it in one.
//!
//! A new kind of policies gets a variant of [`PolicyRules`], and its own file that reads `spec`; a
//! new setting of AccessPolicy, or of TrafficPolicy on requests, is a row of `settings/mod.rs`.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::manifest::Manifest;
use super::policy_target::{Targets, hides_targets, is_written_for_requests, salvaged};
use super::{
    BackendTrafficRules, Kind, LocalRef, Meta, ObjectKey, ParseError, PolicyTarget, Roots,
    TracingRules, Validation,
};
use crate::gateway_api::backendtlspolicies::BackendTlsPolicyTargetRefs;
use crate::model::{AppProtocol, BackendSettings, Enforcement, ObjectName, xbackend_service};
use crate::settings::{AccessRules, TrafficRules};

/// The most targets of a policy.
const TARGETS: usize = 16;

/// A policy on objects of its namespace.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Its metadata.
    pub meta: Meta,
    /// The objects that it is about, sorted.
    pub targets: Vec<PolicyTarget>,
    /// References to anything that it cannot be about, as text; the policy has no effect there.
    pub others: Vec<String>,
    /// Its rules.
    pub rules: PolicyRules,
}

/// The rules of a policy, by its kind; or the reason why they cannot be determined.
#[derive(Clone, Debug, PartialEq)]
pub enum PolicyRules {
    /// BackendTLSPolicy: how backends are verified. Where it cannot be told nothing is sent to
    /// them.
    Tls(Result<Validation, String>),
    /// XBackendTrafficPolicy: how they are retried, and which sessions stay with them.
    BackendTraffic(Result<BackendTrafficRules, String>),
    /// XBackend: what is reached, and how it is verified. Where that cannot be told nothing is sent
    /// there.
    Destination(Result<Destination, String>),
    /// TrafficPolicy on Services: how their endpoints are chosen, checked and limited.
    Backend(Result<Arc<BackendSettings>, String>),
    /// TrafficPolicy on Gateways, ListenerSets and routes: settings of requests and responses.
    /// With an error the policy has no effect.
    Traffic(Result<TrafficRules, String>),
    /// AccessPolicy: who may send requests. Where it cannot be told, nobody may, unless the policy
    /// only reports.
    Access(Enforcement, Result<AccessRules, String>),
    /// XTelemetryPolicy: traces of the requests of Gateways.
    Tracing(Result<TracingRules, String>),
}

/// What an XBackend says of a host outside of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// The name of the host, as it is written.
    pub hostname: Arc<str>,
    /// The port of the host.
    pub port: u16,
    /// The protocol of HTTPRoutes; a GRPCRoute speaks HTTP/2.
    pub protocol: AppProtocol,
    /// The verification of the host; plain text is sent without.
    pub tls: Option<Validation>,
}

impl Policy {
    /// A policy as written.
    ///
    /// # Errors
    /// If it has no target, too many, or one on whose requests it cannot be.
    pub(super) fn new(
        meta: Meta,
        written: Vec<BackendTlsPolicyTargetRefs>,
        rules: PolicyRules,
    ) -> Result<Self, ParseError> {
        if written.is_empty() || written.len() > TARGETS {
            return Err(ParseError::Schema(format!(
                "spec.targetRefs: 1 to {TARGETS} are needed"
            )));
        }
        let (targets, others) = rules.about().read(&meta, &written)?;
        Ok(Self::on(meta, targets, others, rules))
    }

    /// A policy whose specification cannot be read as a whole, `why` not. What it is about is known
    /// all the same: that is not to be served unguarded.
    pub(super) fn salvage(manifest: Manifest<'_>, why: &ParseError) -> Option<Self> {
        let why = format!("the specification cannot be read ({why})");
        let rules = PolicyRules::unread(manifest, why)?;
        let meta = manifest.meta()?;
        if matches!(rules, PolicyRules::Destination(_)) {
            return Some(Self::of_xbackend(meta, rules));
        }
        let (targets, others) = salvaged(rules.about(), &meta, manifest.value)?;
        Some(Self::on(meta, targets, others, rules))
    }

    /// True if a policy that cannot be read as a whole may be about something that
    /// [`Self::salvage`] does not know.
    pub(super) fn hides_targets(&self, value: &Value) -> bool {
        self.targets.is_empty() || hides_targets(&self.meta, value)
    }

    fn on(
        meta: Meta,
        mut targets: Vec<PolicyTarget>,
        others: Vec<String>,
        rules: PolicyRules,
    ) -> Self {
        targets.sort();
        targets.dedup();
        Self {
            meta,
            targets,
            others,
            rules,
        }
    }

    /// An XBackend: a policy on the Service as which it is served.
    pub(super) fn of_xbackend(meta: Meta, rules: PolicyRules) -> Self {
        let target = PolicyTarget {
            object: ObjectKey::new(Kind::Service, xbackend_service(&meta.name)),
            section: None,
        };
        Self::on(meta, vec![target], Vec::new(), rules)
    }

    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self.rules {
            PolicyRules::Tls(_) => Kind::BackendTLSPolicy,
            PolicyRules::BackendTraffic(_) => Kind::XBackendTrafficPolicy,
            PolicyRules::Destination(_) => Kind::XBackend,
            PolicyRules::Backend(_) | PolicyRules::Traffic(_) => Kind::TrafficPolicy,
            PolicyRules::Access(..) => Kind::AccessPolicy,
            PolicyRules::Tracing(_) => Kind::XTelemetryPolicy,
        }
    }

    /// Kind and name.
    pub fn key(&self) -> ObjectKey {
        ObjectKey::new(self.kind(), self.meta.name.clone())
    }

    /// True for a policy on the requests of Gateways, ListenerSets and routes.
    pub fn is_on_requests(&self) -> bool {
        self.rules.about() == Targets::Requests
    }

    /// The Services that it is about.
    pub fn services(&self) -> impl Iterator<Item = &ObjectName> {
        let targets = self.targets.iter().map(|target| &target.object);
        targets
            .filter(|object| object.kind == Kind::Service)
            .map(|object| &object.name)
    }

    /// True if it asks for checks of the endpoints of its Services.
    pub fn checks_health(&self) -> bool {
        matches!(&self.rules, PolicyRules::Backend(Ok(settings)) if settings.active.is_some())
    }

    /// The objects that it refers to, beside its targets.
    pub fn references(&self) -> impl Iterator<Item = &LocalRef> {
        let of_settings = match &self.rules {
            PolicyRules::Access(_, Ok(rules)) => rules.references().collect(),
            PolicyRules::Traffic(Ok(rules)) => rules.references().collect(),
            PolicyRules::Tracing(Ok(rules)) => rules.collector().into_iter().collect(),
            _ => Vec::new(),
        };
        self.roots().iter().chain(of_settings)
    }

    /// The Services that it has requests, or spans, sent to.
    pub fn servers(&self) -> impl Iterator<Item = &ObjectName> {
        self.references()
            .filter(|reference| reference.kind == Kind::Service.as_str())
            .map(|reference| &reference.name)
    }

    /// The objects in which the roots of its verification are.
    pub fn roots(&self) -> &[LocalRef] {
        match self.validation() {
            Some(Validation {
                roots: Roots::References(references),
                ..
            }) => references,
            Some(_) | None => &[],
        }
    }

    /// The verification that it asks for, if it can be told.
    fn validation(&self) -> Option<&Validation> {
        match &self.rules {
            PolicyRules::Tls(validation) => validation.as_ref().ok(),
            PolicyRules::Destination(destination) => destination.as_ref().ok()?.tls.as_ref(),
            _ => None,
        }
    }
}

impl PolicyRules {
    /// The rules of a policy that cannot be read as a whole.
    fn unread(manifest: Manifest<'_>, why: String) -> Option<Self> {
        Some(match manifest.kind {
            Kind::BackendTLSPolicy => Self::Tls(Err(why)),
            Kind::XBackendTrafficPolicy => Self::BackendTraffic(Err(why)),
            Kind::XBackend => Self::Destination(Err(why)),
            Kind::TrafficPolicy if is_written_for_requests(manifest.value) => {
                Self::Traffic(Err(why))
            }
            Kind::TrafficPolicy => Self::Backend(Err(why)),
            Kind::AccessPolicy => {
                let written = Enforcement::deserialize(&manifest.value["spec"]["enforcement"]);
                Self::Access(written.unwrap_or_default(), Err(why))
            }
            Kind::XTelemetryPolicy => Self::Tracing(Err(why)),
            _ => return None,
        })
    }

    /// What a policy with these rules can be about.
    fn about(&self) -> Targets {
        match self {
            Self::Tls(_) | Self::BackendTraffic(_) | Self::Destination(_) | Self::Backend(_) => {
                Targets::Services
            }
            Self::Traffic(_) | Self::Access(..) => Targets::Requests,
            Self::Tracing(_) => Targets::Gateways,
        }
    }
}
