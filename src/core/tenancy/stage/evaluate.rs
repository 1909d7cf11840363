//! Evaluates a TenantGateway: whether it can be carried out, and its settings.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::rule::claim::within;
use crate::rule::issuer::{self, PRODUCTION, STAGING};
use crate::rule::names::{GATEWAY_LABEL, lower_case};
use crate::rule::render::{self, GatewayTemplate, HOST_LABEL};
use crate::rule::solving::Solving;
use crate::state::claims::Claims;
use crate::state::derivations::Derivations;
use crate::state::dirty::Dirty;
use crate::state::hosts::Hosts;
use crate::state::namespaces::Namespaces;
use crate::state::tenants::{ResolvedTenant, Tenants};
use crate::{Mode, Readiness, Settings, Source, TenantGateway};
use gatewright_objects::inputs::{DIRECTORY, ISSUER};
use gatewright_objects::model::ObjectName;

/// An obstacle: a reason, and a message with the fix.
type Obstacle = (&'static str, String);

/// The states that the stage reads and writes.
pub(crate) struct Evaluation<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) claims: &'a Claims,
    pub(crate) hosts: &'a Hosts,
    pub(crate) derivations: &'a Derivations,
    pub(crate) namespaces: &'a mut Namespaces,
    pub(crate) tenants: &'a mut Tenants,
}

impl Evaluation<'_> {
    /// Evaluates a TenantGateway. If it cannot be carried out, its live objects stay as they are.
    pub(crate) fn evaluate(&mut self, name: &ObjectName, dirty: &mut Dirty) {
        dirty.readiness.insert(name.clone());
        let verdict = self.tenants.given(name).map(|tenant| self.check(tenant));
        match verdict {
            Some(Err((reason, message))) => {
                if self.tenants.is_unmanaged(name) && !self.tenants.is_frozen(name) {
                    dirty.claims.extend(self.claims.on(name));
                }
                self.tenants.set_readiness(
                    name,
                    Some(Readiness {
                        reason,
                        message,
                        frozen: true,
                    }),
                    dirty,
                );
                return;
            }
            Some(Ok(valid)) => {
                if self.tenants.is_frozen(name) {
                    self.tenants.resume(name);
                    self.touch_attached(name, dirty);
                }
                self.expect(name, Some(&valid.object), dirty);
                if self.tenants.resolved(name).is_none_or(|old| *old != valid) {
                    self.tenants.resolve(name, Some(valid));
                    touch_all(self.claims, self.hosts, name, dirty);
                }
            }
            None => {
                if self.tenants.is_frozen(name) {
                    self.touch_attached(name, dirty);
                }
                self.expect(name, None, dirty);
                self.tenants.resolve(name, None);
                touch_all(self.claims, self.hosts, name, dirty);
            }
        }
        dirty.reconciled.insert(name.clone());
    }

    /// Updates the namespaces that a TenantGateway attaches: its own and those that it lists.
    fn expect(&mut self, name: &ObjectName, new: Option<&TenantGateway>, dirty: &mut Dirty) {
        let taken_in = |tenant: &TenantGateway| {
            let attached = tenant
                .spec
                .attached_namespaces
                .iter()
                .filter(|namespace| !namespace.is_empty());
            let attached = attached.map(|namespace| Arc::from(namespace.as_str()));
            std::iter::once(name.namespace.clone())
                .chain(attached)
                .collect::<BTreeSet<Arc<str>>>()
        };
        let before = self
            .tenants
            .resolved(name)
            .map(|valid| taken_in(&valid.object))
            .unwrap_or_default();
        let now = new.map(taken_in).unwrap_or_default();
        for namespace in before.difference(&now) {
            self.namespaces.expect(namespace, name, false);
            dirty.namespaces.insert(namespace.clone());
        }
        for namespace in now.difference(&before) {
            self.namespaces.expect(namespace, name, true);
            dirty.namespaces.insert(namespace.clone());
        }
    }

    /// Marks the namespaces whose annotation says that a TenantGateway of this namespace attached
    /// them.
    fn touch_attached(&self, name: &ObjectName, dirty: &mut Dirty) {
        dirty
            .namespaces
            .extend(self.namespaces.attached_by(&name.namespace).cloned());
    }

    fn check(&self, tenant: &TenantGateway) -> Result<ResolvedTenant, Obstacle> {
        let default = self.settings.certificates;
        let (apex, mode) = tenant
            .check(default)
            .map_err(|error| ("InvalidSpec", error.to_string()))?;
        let stated = tenant.source().expect("checked just now");
        let source = stated.unwrap_or(default);
        let asks = mode != Mode::ExistingSecret && source != Source::InternalCa;
        if let Some(directory) = tenant.annotations.get(DIRECTORY).filter(|_| asks)
            && self
                .settings
                .directories
                .as_ref()
                .is_some_and(|known| !known.contains(directory))
            && ![PRODUCTION, STAGING].contains(&directory.as_str())
        {
            let text = format!(
                "metadata.annotations[{DIRECTORY}]: {directory} is not one that tenants may name: add it to the \
                 issuers of the configuration, set tenancy.acmeDirectories Any there, or leave it out"
            );
            return Err(("DirectoryNotAllowed", text));
        }
        let namespace = &tenant.name.namespace;
        if self.tenants.first_in(namespace, self.derivations) != Some(&tenant.name) {
            let text = format!(
                "metadata.namespace: {namespace} has a TenantGateway already: delete one of them"
            );
            return Err(("DuplicateTenantGateway", text));
        }
        let Some(crate::Namespace { labels, uid, .. }) = self.namespaces.get(namespace) else {
            let text = format!("metadata.namespace: there is no Namespace {namespace}: add it");
            return Err(("NamespaceNotFound", text));
        };
        if public_suffix::is_public_suffix(apex.as_str()) {
            let text = format!(
                "spec.apex: {apex} is a public suffix, below which others register domains: use one of yours"
            );
            return Err(("ApexNotAllowed", text));
        }
        match labels.get(HOST_LABEL) {
            None if namespace.starts_with("tenant-") => {
                let text = format!(
                    "namespace {namespace} has no label {HOST_LABEL}: set it to the tenant's apex"
                );
                return Err(("NamespaceNotLabelled", text));
            }
            Some(host) if !within(&apex, &lower_case(host)) => {
                let text = format!(
                    "spec.apex: {apex} is not below {host}, which label {HOST_LABEL} of {namespace} allows"
                );
                return Err(("ApexNotAllowed", text));
            }
            _ => {}
        }
        match labels.get(GATEWAY_LABEL) {
            Some(other) if **other != **namespace => {
                let text = format!(
                    "namespace {namespace} has label {GATEWAY_LABEL}={other}: set it to {namespace}, or delete this TenantGateway"
                );
                Err(("NamespaceInheritsElsewhere", text))
            }
            _ => {
                let own = self
                    .tenants
                    .is_own_class(render::class(tenant, self.settings));
                if let Some(lack) =
                    stated.and_then(|source| self.settings.issues_not(mode, source, own))
                {
                    return Err((
                        lack.0,
                        format!("metadata.annotations[{ISSUER}]: {}", lack.1),
                    ));
                }
                let solving = Solving::new((mode, source), own, uid, self.settings);
                let template = GatewayTemplate::new(
                    tenant,
                    &apex,
                    mode,
                    own,
                    solving.map(Arc::new),
                    self.settings,
                );
                let issuer = issuer::issuer(tenant, mode, source);
                Ok(ResolvedTenant {
                    object: tenant.clone(),
                    apex,
                    mode,
                    source,
                    issuer,
                    template,
                })
            }
        }
    }
}

impl Settings {
    /// Why certificates cannot be issued: a component that issuance needs is missing.
    pub(crate) fn issues_not(&self, mode: Mode, source: Source, own: bool) -> Option<Obstacle> {
        let answered = own || self.solver.as_ref().is_none_or(|service| service.answers);
        match (mode, source) {
            (Mode::ExistingSecret, _) => None,
            (_, Source::CertManager) if !self.cert_manager => {
                let text = "cert-manager is not used by this installation: use acme or internal-ca, or leave it out";
                Some(("NoCertManager", text.to_owned()))
            }
            (Mode::Http01, Source::Acme) if !answered => {
                let text = "acme with HTTP-01 is not answered at Gateways of other data planes: start the \
                            controller with --challenges, or use certMode dns01, or another issuer";
                Some(("ChallengesNotAnswered", text.to_owned()))
            }
            _ => None,
        }
    }
}

/// Marks all claims and hosts of a TenantGateway, after a change of its specification.
pub(crate) fn touch_all(claims: &Claims, hosts: &Hosts, name: &ObjectName, dirty: &mut Dirty) {
    dirty.claims.extend(claims.on(name));
    for id in hosts.of(name) {
        hosts.touch(id, dirty);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::confluence::{http, namespace};
    use crate::*;

    /// A TenantGateway whose annotation names the issuer.
    fn tenant(issuer: Option<&str>) -> Change {
        let annotations = issuer.map(|issuer| json!({"gatewright.io/issuer": issuer}));
        let meta = json!({"namespace": "tenant-a", "name": "cozystack", "uid": "a", "annotations": annotations});
        let tenant = TenantGateway::parse(&json!({"metadata": meta, "spec": {"apex": "a.org"}}))
            .expect("a TenantGateway");
        Change::TenantGateway(tenant.name.clone(), Some(tenant))
    }

    /// The number of Issuers and Certificates, the issuers of wanted certificates, and the reported
    /// reason.
    fn told(engine: &Tenancy) -> (usize, Vec<String>, &'static str) {
        let wants = engine
            .wants()
            .values()
            .map(|want| want.issuer.to_string())
            .collect();
        let name = engine.tenants().next().expect("there is one").clone();
        let status = engine.status(&name, &|_| None).expect("it has a status");
        (
            engine
                .objects()
                .keys()
                .filter(|derived| {
                    matches!(derived.kind, DerivedKind::Issuer | DerivedKind::Certificate)
                })
                .count(),
            wants,
            status.reason,
        )
    }

    #[test]
    fn an_issuer_goes_to_and_fro_and_one_that_cannot_issue_changes_nothing() {
        const PRODUCTION: &str = "https://acme-v02.api.letsencrypt.org/directory";
        fn solver(answers: bool) -> SolverService {
            SolverService {
                namespace: "g".into(),
                name: "c".to_owned(),
                port: 80,
                answers,
            }
        }
        for (default, answers, issuer, objects, want, reason) in [
            (
                Source::CertManager,
                false,
                None,
                2,
                None,
                "GatewayNotAccepted",
            ),
            (
                Source::CertManager,
                true,
                Some("acme"),
                0,
                Some(PRODUCTION),
                "GatewayNotAccepted",
            ),
            (
                Source::CertManager,
                false,
                Some("acme"),
                2,
                None,
                "ChallengesNotAnswered",
            ),
            (
                Source::CertManager,
                true,
                Some("internal-ca"),
                0,
                Some("internal-ca"),
                "GatewayNotAccepted",
            ),
            (
                Source::CertManager,
                true,
                Some("magic"),
                2,
                None,
                "InvalidSpec",
            ),
            (
                Source::Acme,
                true,
                Some("cert-manager"),
                2,
                None,
                "GatewayNotAccepted",
            ),
            (
                Source::Acme,
                true,
                Some("acme"),
                0,
                Some(PRODUCTION),
                "GatewayNotAccepted",
            ),
            // It is the installation's default: the problem is reported, and everything else goes
            // on.
            (
                Source::Acme,
                false,
                None,
                0,
                Some(PRODUCTION),
                "ChallengesNotAnswered",
            ),
            (
                Source::InternalCa,
                false,
                None,
                0,
                Some("internal-ca"),
                "GatewayNotAccepted",
            ),
            (
                Source::InternalCa,
                false,
                Some("acme"),
                0,
                Some("internal-ca"),
                "ChallengesNotAnswered",
            ),
            (
                Source::InternalCa,
                false,
                Some("cert-manager"),
                2,
                None,
                "GatewayNotAccepted",
            ),
        ] {
            let settings = Settings {
                certificates: default,
                solver: Some(solver(answers)),
                ..Settings::default()
            };
            let mut engine = Tenancy::new(settings);
            let Change::Namespace(name, Some(space)) = namespace("tenant-a", "tenant-a", "a.org")
            else {
                panic!()
            };
            let space = Namespace {
                uid: "n".to_owned(),
                ..space
            };
            let route = http("tenant-a", "web", &["x.a.org"]);
            engine.apply(vec![
                Change::Namespace(name, Some(space)),
                tenant(None),
                route,
            ]);
            let before = told(&engine);
            fn gateways(
                engine: &Tenancy,
            ) -> Vec<std::sync::Arc<gatewright_objects::inputs::Listener>> {
                let all = engine
                    .objects()
                    .iter()
                    .filter(|(derived, _)| derived.kind == DerivedKind::Gateway);
                all.flat_map(|(_, gateway)| gateway.listeners().to_vec())
                    .filter(|l| l.tls.is_some())
                    .collect::<Vec<_>>()
            }
            let listeners = gateways(&engine);
            assert_eq!(listeners.len(), 1);
            engine.apply(vec![tenant(issuer)]);
            let wants: Vec<String> = want.into_iter().map(str::to_owned).collect();
            assert_eq!(
                told(&engine),
                (objects, wants, reason),
                "{default:?} {answers} {issuer:?}"
            );
            assert_eq!(
                gateways(&engine),
                listeners,
                "who issues is nothing to a listener"
            );
            engine.apply(vec![tenant(None)]);
            assert_eq!(told(&engine), before, "{default:?} {answers} {issuer:?}");
        }
    }

    #[test]
    fn a_certificate_over_a_key_of_ours_says_so_and_no_other_does() {
        for spec in [
            json!({"apex": "a.org"}),
            json!({"apex": "a.org", "certMode": "dns01", "dns01": {
            "cloudflare": {"apiTokenSecretRef": {"name": "t", "key": "k"}}}}),
        ] {
            let mut engine = Tenancy::new(Settings::default());
            let tenant = crate::confluence::tenant("tenant-a", spec);
            let route = http("tenant-a", "web", &["x.a.org"]);
            engine.apply(vec![
                namespace("tenant-a", "tenant-a", "a.org"),
                tenant,
                route,
            ]);
            fn certificate(
                engine: &Tenancy,
            ) -> (gatewright_objects::model::ObjectName, serde_json::Value) {
                let mut all = engine
                    .objects()
                    .iter()
                    .filter(|(derived, _)| derived.kind == DerivedKind::Certificate);
                let (derived, desired) = all.next().expect("there is one");
                (
                    derived.name.clone(),
                    desired.document()["spec"]["privateKey"].clone(),
                )
            }
            let (secret, key) = certificate(&engine);
            assert_eq!(key, json!(null), "as upstream has it");
            let delta = engine.apply(vec![Change::Fact(Fact::Keyed(secret.clone(), true))]);
            assert_eq!(delta.objects.len(), 1);
            assert_eq!(
                certificate(&engine).1,
                json!({"algorithm": "ECDSA", "size": 256})
            );
            assert!(
                engine
                    .apply(vec![Change::Fact(Fact::Keyed(secret.clone(), true))])
                    .objects
                    .is_empty()
            );
            engine.apply(vec![Change::Fact(Fact::Keyed(secret, false))]);
            assert_eq!(certificate(&engine).1, json!(null));
        }
    }

    #[test]
    fn a_directory_that_is_not_known_changes_nothing_unless_any_may_be_named() {
        const KNOWN: &str = "https://ca.corp.example/dir";
        fn tenant(directory: &str) -> Change {
            let meta = json!({"namespace": "tenant-a", "name": "cozystack", "uid": "a",
                "annotations": {"gatewright.io/acme-directory": directory}});
            let value = json!({"metadata": meta, "spec": {"apex": "a.org", "certMode": "dns01", "dns01": {
                "cloudflare": {"apiTokenSecretRef": {"name": "t", "key": "k"}}}}});
            let tenant = TenantGateway::parse(&value).expect("a TenantGateway");
            Change::TenantGateway(tenant.name.clone(), Some(tenant))
        }
        let staging = "https://acme-staging-v02.api.letsencrypt.org/directory";
        let other = "https://other.example/dir";
        for source in [Source::Acme, Source::CertManager] {
            let directories = Some(std::collections::BTreeSet::from([KNOWN.to_owned()]));
            let mut engine = Tenancy::new(Settings {
                certificates: source,
                directories,
                ..Settings::default()
            });
            engine.apply(vec![
                namespace("tenant-a", "tenant-a", "a.org"),
                tenant(KNOWN),
            ]);
            let before = told(&engine);
            assert_eq!(before.2, "GatewayNotAccepted");
            engine.apply(vec![tenant(other)]);
            assert_eq!(told(&engine).1, before.1, "nothing changes");
            assert_eq!(
                told(&engine).2,
                "DirectoryNotAllowed",
                "the refusal is told"
            );
            engine.apply(vec![tenant(staging)]);
            assert_eq!(
                told(&engine).2,
                "GatewayNotAccepted",
                "what spec.issuerName stands for is known"
            );
            let mut engine = Tenancy::new(Settings {
                certificates: source,
                ..Settings::default()
            });
            engine.apply(vec![
                namespace("tenant-a", "tenant-a", "a.org"),
                tenant(other),
            ]);
            assert_eq!(told(&engine).2, "GatewayNotAccepted");
        }
    }

    #[test]
    fn cert_manager_is_not_asked_where_nobody_takes_what_is_written() {
        let settings = Settings {
            certificates: Source::Acme,
            cert_manager: false,
            ..Settings::default()
        };
        let mut engine = Tenancy::new(settings);
        engine.apply(vec![
            namespace("tenant-a", "tenant-a", "a.org"),
            tenant(Some("cert-manager")),
        ]);
        assert_eq!(told(&engine), (0, Vec::new(), "NoCertManager"));
    }
}
