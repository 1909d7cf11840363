//! Policies on Services (GEP-713): BackendTLSPolicy, XBackendTrafficPolicy and TrafficPolicy. What
//! one is about is read in the same way, whatever it asks for. An XBackend is a Service and a
//! policy on it in one.

use std::sync::Arc;

use super::document::text;
use super::manifest::Manifest;
use super::{Kind, LocalRef, Meta, ObjectKey, ParseError, Roots, TrafficRules, Validation};
use crate::gateway_api::backendtlspolicies::BackendTlsPolicyTargetRefs;
use crate::model::{AppProtocol, BackendSettings, ObjectName, xbackend_of, xbackend_service};

/// A policy on Services of its namespace.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Its metadata.
    pub meta: Meta,
    /// The Services that it is about.
    pub targets: Vec<PolicyTarget>,
    /// References to anything but a Service, as text; the policy has no effect there.
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
    Traffic(Result<TrafficRules, String>),
    /// XBackend: what is reached, and how it is verified. Where that cannot be told nothing is sent
    /// there.
    Destination(Result<Destination, String>),
    /// TrafficPolicy: how their endpoints are chosen, checked and limited.
    Backend(Result<Arc<BackendSettings>, String>),
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

/// A Service, or one of its ports.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PolicyTarget {
    /// The Service.
    pub service: ObjectName,
    /// The name of its port; `None` for all of them.
    pub section: Option<Arc<str>>,
}

impl Policy {
    pub(super) fn new(
        meta: Meta,
        targets: Vec<BackendTlsPolicyTargetRefs>,
        rules: PolicyRules,
    ) -> Result<Self, ParseError> {
        if targets.is_empty() || targets.len() > 16 {
            return Err(ParseError::Schema(
                "spec.targetRefs: 1 to 16 are needed".to_owned(),
            ));
        }
        Ok(Self::on(meta, targets, rules))
    }

    /// A policy whose specification cannot be read as a whole, `why` not. What it is about is known
    /// all the same: Services are not to be served unguarded.
    pub(super) fn salvage(manifest: Manifest<'_>, why: &ParseError) -> Option<Self> {
        let why = format!("the specification cannot be read ({why})");
        let rules = match manifest.kind {
            Kind::BackendTLSPolicy => PolicyRules::Tls(Err(why)),
            Kind::XBackendTrafficPolicy => PolicyRules::Traffic(Err(why)),
            Kind::XBackend => PolicyRules::Destination(Err(why)),
            Kind::TrafficPolicy => PolicyRules::Backend(Err(why)),
            _ => return None,
        };
        let meta = manifest.meta()?;
        if manifest.kind == Kind::XBackend {
            return Some(Self::of_xbackend(meta, rules));
        }
        let written = manifest.value["spec"]["targetRefs"].as_array()?.iter();
        let read = written.filter_map(|target| {
            Some(BackendTlsPolicyTargetRefs {
                group: text(target, "group").unwrap_or_default().to_owned(),
                kind: text(target, "kind")?.to_owned(),
                name: text(target, "name")?.to_owned(),
                section_name: text(target, "sectionName").map(str::to_owned),
            })
        });
        Some(Self::on(meta, read.collect(), rules))
    }

    fn on(meta: Meta, written: Vec<BackendTlsPolicyTargetRefs>, rules: PolicyRules) -> Self {
        let mut targets = Vec::new();
        let mut others = Vec::new();
        for target in written {
            let service = ObjectName::new(meta.name.namespace.clone(), target.name.as_str());
            // An XBackend is no target of policies, by whatever name.
            let is_service = target.group.is_empty() && target.kind == "Service";
            if is_service && xbackend_of(&service).is_none() {
                let section = target
                    .section_name
                    .filter(|section| !section.is_empty())
                    .map(Arc::from);
                targets.push(PolicyTarget { service, section });
            } else {
                others.push(format!(
                    "{} {} of group {:?}",
                    target.kind, target.name, target.group
                ));
            }
        }
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
            service: xbackend_service(&meta.name),
            section: None,
        };
        Self {
            meta,
            targets: vec![target],
            others: Vec::new(),
            rules,
        }
    }

    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self.rules {
            PolicyRules::Tls(_) => Kind::BackendTLSPolicy,
            PolicyRules::Traffic(_) => Kind::XBackendTrafficPolicy,
            PolicyRules::Destination(_) => Kind::XBackend,
            PolicyRules::Backend(_) => Kind::TrafficPolicy,
        }
    }

    /// Kind and name.
    pub fn key(&self) -> ObjectKey {
        ObjectKey::new(self.kind(), self.meta.name.clone())
    }

    /// True if it asks for checks of the endpoints of its Services.
    pub fn checks_health(&self) -> bool {
        matches!(&self.rules, PolicyRules::Backend(Ok(settings)) if settings.active.is_some())
    }

    /// The objects in which its roots are.
    pub fn references(&self) -> &[LocalRef] {
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
            PolicyRules::Traffic(_) | PolicyRules::Backend(_) => None,
        }
    }
}
