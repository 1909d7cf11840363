//! Child apexes of TenantGateways in wildcard mode: those on the wildcard certificate, and the
//! namespace of each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::tenants::ResolvedTenant;
use crate::Mode;
use crate::rule::host::Host;
use gatewright_objects::model::{Hostname, ObjectName};

/// The most names on one certificate, which is Let's Encrypt's limit.
pub(crate) const NAMES: usize = 100;
/// The most child apexes on the wildcard certificate, each with its wildcard, beside the apex
/// itself.
pub(crate) const CHILDREN: usize = NAMES / 2 - 1;

/// The wildcards of child apexes.
#[derive(Default)]
pub(crate) struct ChildApexes {
    /// The ones on a wildcard certificate, and those beyond its limit; no host is in both.
    certified: BTreeSet<Host>,
    beyond: BTreeMap<ObjectName, BTreeSet<Host>>,
    /// The namespace of each apex, at Gateways that another data plane serves.
    homes: BTreeMap<Host, Arc<str>>,
}

impl ChildApexes {
    /// The child apexes on the certificate of a TenantGateway.
    pub(crate) fn of(&self, tenant: &ObjectName) -> impl Iterator<Item = &Host> {
        self.certified
            .range(Host::first(tenant)..)
            .take_while(move |host| host.tenant == *tenant)
    }

    /// True if a host is on the certificate of its TenantGateway.
    pub(crate) fn contains(&self, host: &Host) -> bool {
        self.certified.contains(host)
    }

    /// The child apexes beyond the limit of a TenantGateway's certificate.
    pub(crate) fn beyond(&self, tenant: &ObjectName) -> impl Iterator<Item = &Host> {
        self.beyond.get(tenant).into_iter().flatten()
    }

    /// Sets the child apexes of a TenantGateway: `wanted` are on the certificate, [`CHILDREN`] at
    /// most, `beyond` are not.
    pub(crate) fn set(
        &mut self,
        tenant: &ObjectName,
        wanted: BTreeSet<Host>,
        beyond: BTreeSet<Host>,
    ) {
        let gone: Vec<Host> = self
            .of(tenant)
            .filter(|host| !wanted.contains(*host))
            .cloned()
            .collect();
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

    /// The child apex over a host that is beyond the limit of its TenantGateway's certificate.
    pub(crate) fn beyond_the_certificate(
        &self,
        resolved: Option<&ResolvedTenant>,
        host: &Host,
    ) -> Option<Hostname> {
        let resolved = resolved.filter(|resolved| resolved.mode == Mode::Dns01)?;
        // The names that `*.apex` covers are on the certificate all the same (RFC 9525, 6.3: one
        // label).
        if host
            .hostname
            .parent()
            .is_some_and(|parent| parent.as_str()[2..] == *resolved.apex.as_str())
        {
            return None;
        }
        self.beyond(&host.tenant)
            .find(|child| over(child, &host.hostname))
            .map(|child| child.hostname.clone())
    }

    /// The namespace of a wildcard's apex.
    pub(crate) fn home(&self, host: &Host) -> Option<&Arc<str>> {
        self.homes.get(host)
    }

    /// The homes of a TenantGateway's child apexes.
    pub(crate) fn homes_of(&self, tenant: &ObjectName) -> impl Iterator<Item = (&Host, &Arc<str>)> {
        self.homes
            .range(Host::first(tenant)..)
            .take_while(move |(host, _)| host.tenant == *tenant)
    }

    /// Sets the namespace of a wildcard's apex.
    pub(crate) fn set_home(&mut self, host: Host, home: Option<Arc<str>>) {
        match home {
            Some(home) => {
                self.homes.insert(host, home);
            }
            None => {
                self.homes.remove(&host);
            }
        }
    }
}

fn over(child: &Host, host_hostname: &Hostname) -> bool {
    child.hostname.covers(host_hostname)
}
