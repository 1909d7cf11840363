//! Which hostnames a claimant may ask for at all.

use std::borrow::Cow;

use super::claim::{Rank, within};
use super::engine::{Dirty, Finding, Tenancy, Valid};
use super::held::Host;
use super::render::HOST_LABEL;
use super::{ClaimKey, ClaimKind, Mode, names};
use crate::model::{Hostname, ObjectName, Reason};

impl Tenancy {
    /// Sorts a claimant's hostnames into bids and refusals.
    pub(super) fn admit(&mut self, key: &ClaimKey, tenant: &ObjectName, dirty: &mut Dirty) {
        self.counters.claimants += 1;
        let id = (key.clone(), tenant.clone());
        let (mut bids, mut refused) = (Vec::new(), Vec::new());
        let claimant = self.claimants.get(key).filter(|held| held.tenants.contains(tenant));
        if let (Some(claimant), Some(valid)) = (claimant.map(|held| &held.claimant), self.valid.get(tenant))
            && self.may_attach(key, valid)
            && !claimant.challenge
        {
            for hostname in &claimant.hostnames {
                match hostname {
                    Err(error) => refused.push((Reason::InvalidHostname, error.to_string())),
                    Ok(hostname) => match self.refusal(key, hostname, valid) {
                        Some(refusal) => refused.push(refusal),
                        None => bids.push(Host::new(tenant, hostname)),
                    },
                }
            }
            if claimant.hostnames.is_empty() && key.kind != ClaimKind::ListenerSet {
                let text = "spec.hostnames: at least one is needed on a shared Gateway".to_owned();
                refused.push((Reason::HostnameRequired, text));
            }
        }
        refused.sort();
        refused.dedup();
        bids.sort();
        bids.dedup();
        let before = self.bids_of.remove(&id).unwrap_or_default();
        let beside = |some: &[Host], others: &[Host]| -> Vec<Host> {
            some.iter().filter(|host| others.binary_search(host).is_err()).cloned().collect()
        };
        for host in &beside(&before, &bids) {
            self.hold(host).bid(Rank::of(key), false);
            dirty.names.insert(host.name());
        }
        for host in &beside(&bids, &before) {
            self.hold(host).bid(Rank::of(key), true);
            self.tenants_of.insert(host.name(), tenant.clone());
            dirty.names.insert(host.name());
        }
        if !bids.is_empty() {
            self.bids_of.insert(id.clone(), bids);
        }
        if refused.is_empty() {
            self.refused.remove(&id);
        } else {
            self.refused.insert(id.clone(), refused);
        }
        if let Some(held) = self.claimants.get(key) {
            self.touch_records(&held.claimant.hostnames, dirty);
        }
        dirty.verdicts.insert(id);
        self.solve_beside(key, tenant, dirty);
    }

    /// Whether a claimant's namespace takes part, and it is none of our own objects.
    fn may_attach(&self, key: &ClaimKey, valid: &Valid) -> bool {
        let tenant = &valid.object.name;
        let (own, from) = (&tenant.namespace, &key.name.namespace);
        let made_by_us = match key.kind {
            ClaimKind::HttpRoute => key.name.name.strip_suffix(names::REDIRECT) == Some(&*tenant.name),
            ClaimKind::ListenerSet => names::overflow_of(&key.name.name).is_some_and(|(of, _)| *of == *tenant.name),
            ClaimKind::GrpcRoute | ClaimKind::TlsRoute => false,
        };
        !(own == from && made_by_us)
            && !self.is_solver(key, tenant)
            && (own == from || self.members.get(from) == Some(own))
    }

    fn refusal(&self, key: &ClaimKey, hostname: &Hostname, valid: &Valid) -> Option<Finding> {
        let apex = valid.apex.as_str();
        let namespace = &key.name.namespace;
        let labels = self.namespaces.get(namespace).map(|ns| &ns.labels);
        let host = labels.and_then(|l| l.get(HOST_LABEL)).map(|host| lower_case(host));
        let not_allowed = |text: String| Some((Reason::HostnameNotAllowed, text));
        match host {
            _ if hostname.is_any() || !within(hostname, apex) => {
                return not_allowed(format!("{hostname} is not {apex} or below it"));
            }
            Some(host) if !within(hostname, &host) => {
                return not_allowed(format!("{hostname} is not {host} or below it"));
            }
            // Absence means denial where a label is what allows.
            None if namespace.starts_with("tenant-") => {
                return not_allowed(format!("{hostname}: the namespace has no label {HOST_LABEL}"));
            }
            _ => {}
        }
        let passthrough = valid.frame.passes_through(hostname);
        match key.kind {
            ClaimKind::ListenerSet if *namespace != valid.object.name.namespace => {
                not_allowed(format!("{hostname}: the Gateway takes ListenerSets of its own namespace only"))
            }
            ClaimKind::TlsRoute if !passthrough => {
                let text = format!("{hostname} is no passthrough service of the Gateway");
                Some((Reason::NoMatchingListenerHostname, text))
            }
            ClaimKind::TlsRoute => None,
            _ if passthrough => {
                Some((Reason::HostnameConflict, format!("{hostname} belongs to a passthrough service")))
            }
            _ if hostname.is_wildcard() && valid.mode == Mode::Http01 && key.kind != ClaimKind::ListenerSet => {
                let text = format!("{hostname}: HTTP-01 issues no wildcard certificates; use dns01");
                Some((Reason::WildcardNotIssuable, text))
            }
            _ => None,
        }
    }
}

pub(super) fn lower_case(text: &str) -> Cow<'_, str> {
    match text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        true => Cow::Owned(text.to_ascii_lowercase()),
        false => Cow::Borrowed(text),
    }
}
