//! Child apexes of TenantGateways in wildcard mode: which are on the wildcard certificate, and whose each is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Mode;
use super::host::Host;
use super::tenants::ResolvedTenant;
use crate::model::{Hostname, ObjectName};

/// Names on one certificate: Let's Encrypt takes no more.
pub(super) const NAMES: usize = 100;
/// Child apexes on the wildcard certificate, each with its wildcard, beside the apex itself.
pub(super) const CHILDREN: usize = NAMES / 2 - 1;

/// The wildcards of child apexes.
#[derive(Default)]
pub(super) struct ChildApexes {
    /// Those that are on a wildcard certificate, and those that it has no room for: no host is among both.
    certified: BTreeSet<Host>,
    beyond: BTreeMap<ObjectName, BTreeSet<Host>>,
    /// The namespace whose apex each is of, at Gateways that somebody else serves.
    homes: BTreeMap<Host, Arc<str>>,
}

impl ChildApexes {
    /// Those on the certificate of a TenantGateway.
    pub(super) fn of(&self, tenant: &ObjectName) -> impl Iterator<Item = &Host> {
        self.certified.range(Host::first(tenant)..).take_while(move |host| host.tenant == *tenant)
    }

    /// Whether a host is on the certificate of its TenantGateway.
    pub(super) fn contains(&self, host: &Host) -> bool {
        self.certified.contains(host)
    }

    /// Those that the certificate of a TenantGateway has no room for.
    pub(super) fn beyond(&self, tenant: &ObjectName) -> impl Iterator<Item = &Host> {
        self.beyond.get(tenant).into_iter().flatten()
    }

    /// Sets those of a TenantGateway: `wanted` are on the certificate, [`CHILDREN`] at most, `beyond` are not.
    pub(super) fn set(&mut self, tenant: &ObjectName, wanted: BTreeSet<Host>, beyond: BTreeSet<Host>) {
        let gone: Vec<Host> = self.of(tenant).filter(|host| !wanted.contains(*host)).cloned().collect();
        for host in gone {
            self.certified.remove(&host);
        }
        self.certified.extend(wanted);
        if beyond.is_empty() {
            self.beyond.remove(tenant);
        } else {
            self.beyond.insert(tenant.clone(), beyond);
        }
    }

    /// The child apex over a host that the one certificate of its TenantGateway has no room for.
    pub(super) fn beyond_the_certificate(&self, resolved: Option<&ResolvedTenant>, host: &Host) -> Option<Hostname> {
        let resolved = resolved.filter(|resolved| resolved.mode == Mode::Dns01)?;
        // What `*.apex` stands for is covered all the same (RFC 9525, 6.3: one label).
        if host.hostname.parent().is_some_and(|parent| parent.as_str()[2..] == *resolved.apex.as_str()) {
            return None;
        }
        let over = |child: &Host| child.hostname.covers(&host.hostname);
        self.beyond(&host.tenant).find(|child| over(child)).map(|child| child.hostname.clone())
    }

    /// The namespace whose apex a wildcard is of.
    pub(super) fn home(&self, host: &Host) -> Option<&Arc<str>> {
        self.homes.get(host)
    }

    /// The homes of a TenantGateway's child apexes.
    pub(super) fn homes_of(&self, tenant: &ObjectName) -> impl Iterator<Item = (&Host, &Arc<str>)> {
        self.homes.range(Host::first(tenant)..).take_while(move |(host, _)| host.tenant == *tenant)
    }

    /// Sets the namespace whose apex a wildcard is of.
    pub(super) fn set_home(&mut self, host: Host, home: Option<Arc<str>>) {
        match home {
            Some(home) => drop(self.homes.insert(host, home)),
            None => drop(self.homes.remove(&host)),
        }
    }
}
