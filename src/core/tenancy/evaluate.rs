//! Checking a TenantGateway, and what it has whoever claims what: redirect, issuer, the wildcard certificate.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::admit::lower_case;
use super::claim::within;
use super::delta::{Derived, DerivedKind};
use super::engine::{Dirty, ResolvedTenant, Tenancy};
use super::hosts::Host;
use super::issuer::{PRODUCTION, STAGING};
use super::render::{self, ATTACHED_BY, GATEWAY_LABEL, GatewayTemplate, HOST_LABEL};
use super::solver::Solving;
use super::{Desired, Mode, Readiness, Source, TenantGateway, issuer, names};
use crate::inputs::{DIRECTORY, ISSUER};
use crate::model::{Hostname, ObjectName};
use crate::wanted::{Issuer, WantedCertificate};

/// What is in the way: the reason, and the fix.
type Obstacle = (&'static str, String);

/// Names on one certificate: Let's Encrypt takes no more.
pub(super) const NAMES: usize = 100;
/// Child apexes on the wildcard certificate, each with its wildcard, beside the apex itself.
pub(super) const CHILDREN: usize = NAMES / 2 - 1;

impl Tenancy {
    /// Checks a TenantGateway. One that cannot be carried out leaves what was live as it is.
    pub(super) fn evaluate(&mut self, name: &ObjectName, dirty: &mut Dirty) {
        self.counters.tenants += 1;
        dirty.readiness.insert(name.clone());
        let verdict = self.given.get(name).map(|tenant| self.check(tenant));
        match verdict {
            Some(Err((reason, message))) => {
                if self.is_as_found(name) && !self.is_stopped(name) {
                    dirty.claims.extend(self.claims.on(name));
                }
                let new = Readiness { reason, message, frozen: true };
                if self.readiness.get(name) != Some(&new) {
                    dirty.delta.tenants.insert(name.clone(), Some(new.clone()));
                    self.readiness.insert(name.clone(), new);
                }
                return;
            }
            Some(Ok(valid)) => {
                if self.is_stopped(name) {
                    self.readiness.remove(name);
                    self.touch_attached(name, dirty);
                }
                self.expect(name, Some(&valid.object), dirty);
                if self.valid.get(name).is_none_or(|old| *old != valid) {
                    self.valid.insert(name.clone(), valid);
                    self.touch_all(name, dirty);
                }
            }
            None => {
                if self.is_stopped(name) {
                    self.touch_attached(name, dirty);
                }
                self.expect(name, None, dirty);
                self.valid.remove(name);
                self.touch_all(name, dirty);
            }
        }
        dirty.checked.insert(name.clone());
    }

    /// Takes note of the namespaces that a TenantGateway takes in: its own and those that it lists.
    fn expect(&mut self, name: &ObjectName, new: Option<&TenantGateway>, dirty: &mut Dirty) {
        let taken_in = |tenant: &TenantGateway| {
            let attached = tenant.spec.attached_namespaces.iter().filter(|namespace| !namespace.is_empty());
            let attached = attached.map(|namespace| Arc::from(namespace.as_str()));
            std::iter::once(name.namespace.clone()).chain(attached).collect::<BTreeSet<Arc<str>>>()
        };
        let before = self.valid.get(name).map(|valid| taken_in(&valid.object)).unwrap_or_default();
        let now = new.map(taken_in).unwrap_or_default();
        for namespace in before.difference(&now) {
            self.expecting.remove(namespace, name);
            dirty.namespaces.insert(namespace.clone());
        }
        for namespace in now.difference(&before) {
            self.expecting.insert(namespace.clone(), name.clone());
            dirty.namespaces.insert(namespace.clone());
        }
    }

    /// Marks the namespaces that say that a TenantGateway, or another one beside it, took them in.
    fn touch_attached(&self, name: &ObjectName, dirty: &mut Dirty) {
        for (namespace, there) in &self.namespaces {
            if there.annotations.get(ATTACHED_BY).is_some_and(|by| **by == *name.namespace) {
                dirty.namespaces.insert(namespace.clone());
            }
        }
    }

    /// Does what a TenantGateway leads to, whoever claims what.
    pub(super) fn carry_out(&mut self, name: &ObjectName, dirty: &mut Dirty) {
        if self.given.contains_key(name) && self.is_stopped(name) {
            return;
        }
        dirty.readiness.insert(name.clone());
        let placed = self.shards.range((name.clone(), 0)..).map(|(shard, _)| shard).take_while(|s| s.0 == *name);
        dirty.shards.extend(placed.cloned());
        dirty.shards.insert((name.clone(), 0));
        self.family(name, dirty);
        self.house(name, dirty);
        self.make_room(name, dirty);
        self.furnish(name, dirty);
    }

    /// What does not depend on claims.
    fn furnish(&mut self, name: &ObjectName, dirty: &mut Dirty) {
        let secret = names::wildcard_certificate(&name.name);
        let key = self.key_in(ObjectName::new(name.namespace.clone(), secret.as_str()));
        let (mut redirect, mut issuer, mut certificate, mut want) = (None, None, None, None);
        if let Some(valid) = self.valid.get(name) {
            let (owner, plain) = (&valid.frame.owner, valid.frame.plain());
            redirect = Some(Desired::redirect(owner, plain));
            let ours = valid.source != Source::CertManager;
            let from = valid.issuer.as_ref();
            if let Some(Issuer::Acme(acme)) = from.filter(|_| !ours) {
                issuer = Some(Desired::issuer(owner, plain, acme));
            }
            if let Some(from) = from.filter(|_| !valid.mode.per_host()) {
                let children: BTreeSet<&str> =
                    self.children_of(name).filter_map(|h| h.hostname.as_str().strip_prefix("*.")).collect();
                let wanted = render::wildcard_names(&valid.object, children.into_iter());
                if ours {
                    want = Some(want_for(name, &secret, &wanted, from.clone()));
                } else {
                    certificate = Some(Desired::wildcard(owner, &secret, wanted, key));
                }
            }
        }
        for (kind, own, value) in [
            (DerivedKind::HttpRoute, names::redirect(&name.name), redirect),
            (DerivedKind::Issuer, names::issuer(&name.name), issuer),
            (DerivedKind::Certificate, secret.clone(), certificate),
        ] {
            self.emit(name, kind, own, value, dirty);
        }
        self.want(ObjectName::new(name.namespace.clone(), secret), want, dirty);
        self.solve(name, dirty);
    }

    /// Wants a certificate, or not any more.
    pub(super) fn want(&mut self, secret: ObjectName, want: Option<WantedCertificate>, dirty: &mut Dirty) {
        if self.wanted.get(&secret) == want.as_ref() {
            return;
        }
        dirty.delta.wants.insert(secret.clone(), want.clone());
        match want {
            Some(want) => drop(self.wanted.insert(secret, want)),
            None => drop(self.wanted.remove(&secret)),
        }
    }

    fn check(&self, tenant: &TenantGateway) -> Result<ResolvedTenant, Obstacle> {
        let default = self.settings.certificates;
        let (apex, mode) = tenant.check(default).map_err(|error| ("InvalidSpec", error.to_string()))?;
        let told = tenant.source().expect("checked just now");
        let source = told.unwrap_or(default);
        let asks = mode != Mode::ExistingSecret && source != Source::InternalCa;
        if let Some(directory) = tenant.annotations.get(DIRECTORY).filter(|_| asks)
            && self.settings.directories.as_ref().is_some_and(|known| !known.contains(directory))
            && ![PRODUCTION, STAGING].contains(&directory.as_str())
        {
            let text = format!(
                "metadata.annotations[{DIRECTORY}]: {directory} is not one that tenants may name: add it to the \
                 controller's --issuers, start it with --tenant-acme-directories any, or leave it out"
            );
            return Err(("DirectoryNotAllowed", text));
        }
        let namespace = &tenant.name.namespace;
        if self.first_in(namespace) != Some(&tenant.name) {
            let text = format!("metadata.namespace: {namespace} has a TenantGateway already: delete one of them");
            return Err(("DuplicateTenantGateway", text));
        }
        let Some(super::Namespace { labels, uid, .. }) = self.namespaces.get(namespace) else {
            let text = format!("metadata.namespace: there is no Namespace {namespace}: add it");
            return Err(("NamespaceNotFound", text));
        };
        let suffix = psl::suffix(apex.as_str().as_bytes());
        if suffix.is_some_and(|suffix| suffix.is_known() && suffix.as_bytes() == apex.as_str().as_bytes()) {
            let text =
                format!("spec.apex: {apex} is a public suffix, below which others register domains: use one of yours");
            return Err(("ApexNotAllowed", text));
        }
        match labels.get(HOST_LABEL) {
            None if namespace.starts_with("tenant-") => {
                let text = format!("namespace {namespace} has no label {HOST_LABEL}: set it to the tenant's apex");
                return Err(("NamespaceNotLabelled", text));
            }
            Some(host) if !within(&apex, &lower_case(host)) => {
                let text =
                    format!("spec.apex: {apex} is not below {host}, which label {HOST_LABEL} of {namespace} allows");
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
                let own = self.own.contains(render::class(tenant, &self.settings));
                if let Some(lack) = told.and_then(|source| self.issues_not(mode, source, own)) {
                    return Err((lack.0, format!("metadata.annotations[{ISSUER}]: {}", lack.1)));
                }
                let solving = Solving::new((mode, source), own, uid, &self.settings);
                let frame = GatewayTemplate::new(tenant, &apex, mode, own, solving.map(Arc::new), &self.settings);
                let issuer = issuer::issuer(tenant, mode, source);
                Ok(ResolvedTenant { object: tenant.clone(), apex, mode, source, issuer, frame })
            }
        }
    }

    /// Which of several TenantGateways of a namespace is carried out: the one that has its Gateway, else the oldest.
    fn first_in(&self, namespace: &Arc<str>) -> Option<&ObjectName> {
        let lives = |name: &ObjectName| {
            let there = self.existing.get(&Derived { kind: DerivedKind::Gateway, name: name.clone() });
            there.is_some_and(|there| self.is_uid_of(&there.owner, name))
        };
        let created = |name: &ObjectName| self.given.get(name).map_or(i64::MAX, |given| given.created);
        let all = self.tenants_in.of(namespace);
        all.min_by_key(|name| (!lives(name), created(name), !self.valid.contains_key(*name), *name))
    }

    /// Why nobody would issue: what that needs is not there.
    pub(super) fn issues_not(&self, mode: Mode, source: Source, own: bool) -> Option<Obstacle> {
        let settings = &self.settings;
        let answered = own || settings.solver.as_ref().is_none_or(|service| service.answers);
        match (mode, source) {
            (Mode::ExistingSecret, _) => None,
            (_, Source::CertManager) if !settings.cert_manager => {
                let text = "cert-manager is not made use of here: use acme or internal-ca, or leave it out";
                Some(("NoCertManager", text.to_owned()))
            }
            (Mode::Http01, Source::Acme) if !answered => {
                let text = "acme with HTTP-01 is not answered at Gateways that somebody else serves: start the \
                            controller with --challenges, or use certMode dns01, or another issuer";
                Some(("ChallengesNotAnswered", text.to_owned()))
            }
            _ => None,
        }
    }

    /// The wildcards of the child apexes on the certificate of a TenantGateway in wildcard mode.
    pub(super) fn children_of(&self, tenant: &ObjectName) -> impl Iterator<Item = &Host> {
        self.child_hosts.range(Host::first(tenant)..).take_while(move |host| host.tenant == *tenant)
    }

    /// Those that it has no room for.
    pub(super) fn beyond_of(&self, tenant: &ObjectName) -> impl Iterator<Item = &Host> {
        self.beyond.get(tenant).into_iter().flatten()
    }

    /// Works out the child apexes of a TenantGateway in wildcard mode.
    fn family(&mut self, name: &ObjectName, dirty: &mut Dirty) {
        let there: BTreeSet<Host> =
            self.child_hosts.range(Host::first(name)..).take_while(|h| h.tenant == *name).cloned().collect();
        let mut wanted = BTreeSet::new();
        if let Some(valid) = self.valid.get(name).filter(|v| !v.mode.per_host()) {
            for child in self.children.of(&name.namespace).filter(|ns| **ns != name.namespace) {
                let host = self.namespaces.get(child).and_then(|ns| ns.labels.get(HOST_LABEL));
                let wildcard = host.and_then(|host| Hostname::parse(&format!("*.{host}")).ok());
                let below = |w: &Hostname| within(w, valid.apex.as_str()) && w.as_str()[2..] != *valid.apex.as_str();
                wanted.extend(wildcard.filter(below).map(|wildcard| Host::new(name, &wildcard)));
            }
        }
        // Who has a listener stays on the certificate; the objects that are there tell that after a restart as well.
        let stands = |host: &Host| self.hosts.get(name, &host.hostname).is_some_and(|held| held.place.is_some());
        let (mut wanted, mut beyond): (BTreeSet<Host>, BTreeSet<Host>) = wanted.into_iter().partition(stands);
        while wanted.len() > CHILDREN {
            beyond.extend(wanted.pop_last());
        }
        while wanted.len() < CHILDREN
            && let Some(next) = beyond.pop_first()
        {
            wanted.insert(next);
        }
        if there != wanted && (self.beyond.contains_key(name) || !beyond.is_empty()) {
            // Others may have room on the certificate now, or none any more.
            self.touch_all(name, dirty);
        }
        for host in there.symmetric_difference(&wanted) {
            dirty.hosts.insert(self.hosts.hold(&host.tenant, &host.hostname));
        }
        for host in there.difference(&wanted) {
            self.child_hosts.remove(host);
        }
        self.child_hosts.extend(wanted);
        if beyond.is_empty() {
            self.beyond.remove(name);
        } else {
            self.beyond.insert(name.clone(), beyond);
        }
    }

    /// Marks everything that a TenantGateway's specification has a say in.
    fn touch_all(&self, name: &ObjectName, dirty: &mut Dirty) {
        dirty.claims.extend(self.claims.on(name));
        for id in self.hosts.of(name) {
            self.touch(id, dirty);
        }
    }
}

fn want_for(tenant: &ObjectName, secret: &str, names: &[String], issuer: Issuer) -> WantedCertificate {
    let names = names.iter().filter_map(|name| Hostname::parse(name).ok()).collect();
    WantedCertificate { secret: ObjectName::new(tenant.namespace.clone(), secret), names, issuer }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::confluence::{http, namespace};
    use super::super::*;

    /// A TenantGateway whose annotation says who issues.
    fn tenant(issuer: Option<&str>) -> Change {
        let annotations = issuer.map(|issuer| json!({"gatewright.io/issuer": issuer}));
        let meta = json!({"namespace": "tenant-a", "name": "cozystack", "uid": "a", "annotations": annotations});
        let tenant =
            TenantGateway::parse(&json!({"metadata": meta, "spec": {"apex": "a.org"}})).expect("a TenantGateway");
        Change::TenantGateway(tenant.name.clone(), Some(tenant))
    }

    /// Who issues, by what there is: an Issuer and Certificates, or wanted certificates; and what is told.
    fn told(engine: &Tenancy) -> (usize, Vec<String>, &'static str) {
        let of_cert_manager =
            |derived: &&Derived| matches!(derived.kind, DerivedKind::Issuer | DerivedKind::Certificate);
        let wants = engine.wants().values().map(|want| want.issuer.to_string()).collect();
        let name = engine.tenants().next().expect("there is one").clone();
        let status = engine.status(&name, &|_| None).expect("it has a status");
        (engine.objects().keys().filter(of_cert_manager).count(), wants, status.reason)
    }

    #[test]
    fn an_issuer_goes_to_and_fro_and_one_that_cannot_issue_changes_nothing() {
        const PRODUCTION: &str = "https://acme-v02.api.letsencrypt.org/directory";
        let solver = |answers| SolverService { namespace: "g".into(), name: "c".to_owned(), port: 80, answers };
        for (default, answers, issuer, objects, want, reason) in [
            (Source::CertManager, false, None, 2, None, "GatewayNotAccepted"),
            (Source::CertManager, true, Some("acme"), 0, Some(PRODUCTION), "GatewayNotAccepted"),
            (Source::CertManager, false, Some("acme"), 2, None, "ChallengesNotAnswered"),
            (Source::CertManager, true, Some("internal-ca"), 0, Some("internal-ca"), "GatewayNotAccepted"),
            (Source::CertManager, true, Some("magic"), 2, None, "InvalidSpec"),
            (Source::Acme, true, Some("cert-manager"), 2, None, "GatewayNotAccepted"),
            (Source::Acme, true, Some("acme"), 0, Some(PRODUCTION), "GatewayNotAccepted"),
            // Nobody asked for it: the installation is told, and goes on.
            (Source::Acme, false, None, 0, Some(PRODUCTION), "ChallengesNotAnswered"),
            (Source::InternalCa, false, None, 0, Some("internal-ca"), "GatewayNotAccepted"),
            (Source::InternalCa, false, Some("acme"), 0, Some("internal-ca"), "ChallengesNotAnswered"),
            (Source::InternalCa, false, Some("cert-manager"), 2, None, "GatewayNotAccepted"),
        ] {
            let settings = Settings { certificates: default, solver: Some(solver(answers)), ..Settings::default() };
            let mut engine = Tenancy::new(settings);
            let Change::Namespace(name, Some(space)) = namespace("tenant-a", "tenant-a", "a.org") else { panic!() };
            let space = Namespace { uid: "n".to_owned(), ..space };
            let route = http("tenant-a", "web", &["x.a.org"]);
            engine.apply(vec![Change::Namespace(name, Some(space)), tenant(None), route]);
            let before = told(&engine);
            let gateways = |engine: &Tenancy| {
                let all = engine.objects().iter().filter(|(derived, _)| derived.kind == DerivedKind::Gateway);
                all.flat_map(|(_, gateway)| gateway.listeners().to_vec())
                    .filter(|l| l.tls.is_some())
                    .collect::<Vec<_>>()
            };
            let listeners = gateways(&engine);
            assert_eq!(listeners.len(), 1);
            engine.apply(vec![tenant(issuer)]);
            let wants: Vec<String> = want.into_iter().map(str::to_owned).collect();
            assert_eq!(told(&engine), (objects, wants, reason), "{default:?} {answers} {issuer:?}");
            assert_eq!(gateways(&engine), listeners, "who issues is nothing to a listener");
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
            let tenant = super::super::confluence::tenant("tenant-a", spec);
            let route = http("tenant-a", "web", &["x.a.org"]);
            engine.apply(vec![namespace("tenant-a", "tenant-a", "a.org"), tenant, route]);
            let certificate = |engine: &Tenancy| {
                let mut all = engine.objects().iter().filter(|(derived, _)| derived.kind == DerivedKind::Certificate);
                let (derived, desired) = all.next().expect("there is one");
                (derived.name.clone(), desired.document()["spec"]["privateKey"].clone())
            };
            let (secret, key) = certificate(&engine);
            assert_eq!(key, json!(null), "as upstream has it");
            let delta = engine.apply(vec![Change::Keyed(secret.clone(), true)]);
            assert_eq!(delta.objects.len(), 1);
            assert_eq!(certificate(&engine).1, json!({"algorithm": "ECDSA", "size": 256}));
            assert!(engine.apply(vec![Change::Keyed(secret.clone(), true)]).objects.is_empty());
            engine.apply(vec![Change::Keyed(secret, false)]);
            assert_eq!(certificate(&engine).1, json!(null));
        }
    }

    #[test]
    fn a_directory_that_is_not_known_changes_nothing_unless_any_may_be_named() {
        const KNOWN: &str = "https://ca.corp.example/dir";
        let tenant = |directory: &str| {
            let meta = json!({"namespace": "tenant-a", "name": "cozystack", "uid": "a",
                "annotations": {"gatewright.io/acme-directory": directory}});
            let value = json!({"metadata": meta, "spec": {"apex": "a.org", "certMode": "dns01", "dns01": {
                "cloudflare": {"apiTokenSecretRef": {"name": "t", "key": "k"}}}}});
            let tenant = TenantGateway::parse(&value).expect("a TenantGateway");
            Change::TenantGateway(tenant.name.clone(), Some(tenant))
        };
        let staging = "https://acme-staging-v02.api.letsencrypt.org/directory";
        let other = "https://other.example/dir";
        for source in [Source::Acme, Source::CertManager] {
            let directories = Some(std::collections::BTreeSet::from([KNOWN.to_owned()]));
            let mut engine = Tenancy::new(Settings { certificates: source, directories, ..Settings::default() });
            engine.apply(vec![namespace("tenant-a", "tenant-a", "a.org"), tenant(KNOWN)]);
            let before = told(&engine);
            assert_eq!(before.2, "GatewayNotAccepted");
            engine.apply(vec![tenant(other)]);
            assert_eq!((told(&engine).1, told(&engine).2), (before.1, "DirectoryNotAllowed"));
            engine.apply(vec![tenant(staging)]);
            assert_eq!(told(&engine).2, "GatewayNotAccepted", "what spec.issuerName stands for is known");
            let mut engine = Tenancy::new(Settings { certificates: source, ..Settings::default() });
            engine.apply(vec![namespace("tenant-a", "tenant-a", "a.org"), tenant(other)]);
            assert_eq!(told(&engine).2, "GatewayNotAccepted");
        }
    }

    #[test]
    fn cert_manager_is_not_asked_where_nobody_takes_what_is_written() {
        let settings = Settings { certificates: Source::Acme, cert_manager: false, ..Settings::default() };
        let mut engine = Tenancy::new(settings);
        engine.apply(vec![namespace("tenant-a", "tenant-a", "a.org"), tenant(Some("cert-manager"))]);
        assert_eq!(told(&engine), (0, Vec::new(), "NoCertManager"));
    }
}
