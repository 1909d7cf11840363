//! Where the virtual hosts of a frontend are: in a table of a listener, or in scopes.

use std::collections::{BTreeMap, BTreeSet};

use super::dirty::Dirty;
use gatewright_objects::model::{FrontendId, Hostname, Route, VirtualHost};

/// The number of exact hosts under a wildcard or catch-all listener up to which they share its
/// table, if all that is in it is of one namespace. Otherwise each has a scope of its own, so that
/// the cost of changing one host does not grow with their number, nor with what other namespaces
/// have: Envoy reads a table anew for each change. A host that only a wildcard route serves then
/// needs a connection of its own (421).
const TABLE_HOSTS: usize = if cfg!(test) { 1 } else { 64 }; // small where random tests are to cross it

/// The hostnames of a frontend, by the place of their virtual hosts.
#[derive(Default)]
pub(crate) struct PlacedHosts {
    /// Virtual hosts by table: one for each wildcard or catch-all listener with TLS.
    tables: BTreeMap<Hostname, BTreeMap<Hostname, VirtualHost>>,
    /// The table of each hostname.
    placed: BTreeMap<Hostname, Hostname>,
    /// Exact hostnames with a scope on plain HTTP.
    plain: BTreeSet<Hostname>,
    /// Wildcards with a scope on plain HTTP, and the catch-all.
    plain_wide: BTreeSet<Hostname>,
    /// Hostnames with routes under a wildcard or catch-all listener, by that listener's hostname.
    beneath: BTreeMap<Hostname, Beneath>,
}

/// The namespace that all routes of a virtual host are of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tenant {
    One(Box<str>),
    /// There are several.
    Several,
}

impl Tenant {
    /// The one of a virtual host; without routes that of its listener.
    pub(crate) fn of(host: &VirtualHost, listener: &str) -> Self {
        let mut all = host.routes.iter().filter_map(namespace_of);
        let first = all.next().unwrap_or(listener);
        if all.all(|other| other == first) {
            Self::One(first.into())
        } else {
            Self::Several
        }
    }
}

/// Hostnames with routes under a wildcard or catch-all listener, and its own.
#[derive(Default)]
struct Beneath {
    hosts: BTreeMap<Hostname, Tenant>,
    /// The number of exact ones.
    exact: usize,
    /// The number of hostnames of each namespace.
    tenants: BTreeMap<Tenant, usize>,
}

impl Beneath {
    fn set(&mut self, hostname: &Hostname, tenant: Option<Tenant>) {
        let is_exact = usize::from(hostname.is_exact());
        if let Some(old) = self.hosts.remove(hostname) {
            self.exact -= is_exact;
            let count = self.tenants.get_mut(&old).expect("counted when it came");
            *count -= 1;
            if *count == 0 {
                self.tenants.remove(&old);
            }
        }
        if let Some(tenant) = tenant {
            self.exact += is_exact;
            *self.tenants.entry(tenant.clone()).or_default() += 1;
            self.hosts.insert(hostname.clone(), tenant);
        }
    }

    /// True if all of them are in one table.
    fn is_tabled(&self) -> bool {
        self.exact <= TABLE_HOSTS && is_one(self.tenants.keys())
    }

    /// The same with one more, or with another namespace.
    fn is_tabled_with(&self, hostname: &Hostname, tenant: &Tenant) -> bool {
        let old = self.hosts.get(hostname);
        let others = self.exact - usize::from(old.is_some());
        let left = self
            .tenants
            .iter()
            .filter(|(name, count)| Some(*name) != old || **count > 1)
            .map(|(name, _)| name);
        others < TABLE_HOSTS && is_one(left.chain([tenant]))
    }
}

/// The namespace of the object of a route, by the route's name; `None` if it is of none.
pub(crate) fn namespace_of(route: &Route) -> Option<&str> {
    let mut parts = route.name.split('/');
    parts.nth(1)
}

fn is_one<'a>(mut tenants: impl Iterator<Item = &'a Tenant>) -> bool {
    let Some(first) = tenants.next() else {
        return true;
    };
    *first != Tenant::Several && tenants.all(|other| other == first)
}

impl PlacedHosts {
    /// The virtual hosts of a table, by hostname.
    pub(crate) fn table(&self, listener: &Hostname) -> Option<&BTreeMap<Hostname, VirtualHost>> {
        self.tables.get(listener)
    }

    /// The wildcard and catch-all listeners with a table.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &Hostname> {
        self.tables.keys()
    }

    /// The wildcards that have scopes on plain HTTP, and the catch-all.
    pub(crate) fn plain_wide(&self) -> impl Iterator<Item = &Hostname> {
        self.plain_wide.iter()
    }

    /// Sets whether a hostname has a scope on plain HTTP.
    pub(crate) fn place_plain(
        &mut self,
        id: &FrontendId,
        hostname: &Hostname,
        there: bool,
        dirty: &mut Dirty,
    ) {
        let all = if hostname.is_exact() {
            &mut self.plain
        } else {
            &mut self.plain_wide
        };
        let changed = if there {
            all.insert(hostname.clone())
        } else {
            all.remove(hostname)
        };
        if changed && !hostname.is_exact() {
            dirty.wide_hosts.insert(id.clone());
        }
    }

    /// The hostnames that it has, some of them more than once.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Hostname> {
        self.placed
            .keys()
            .chain(&self.plain)
            .chain(&self.plain_wide)
            .chain(self.beneath.values().flat_map(|all| all.hosts.keys()))
    }

    /// True if the exact hosts under a wildcard or catch-all listener have scopes of their own.
    pub(crate) fn is_scoped(&self, wide: &Hostname) -> bool {
        self.beneath.get(wide).is_some_and(|all| !all.is_tabled())
    }

    /// True if an exact host under a wildcard or catch-all listener belongs in its table.
    pub(crate) fn is_tabled(&self, wide: &Hostname, hostname: &Hostname, tenant: &Tenant) -> bool {
        match self.beneath.get(wide) {
            Some(all) => all.is_tabled_with(hostname, tenant),
            None => Beneath::default().is_tabled_with(hostname, tenant),
        }
    }

    /// Sets or removes the virtual host of a hostname, in a table; marks the tables that change.
    pub(crate) fn place_in_table(
        &mut self,
        id: &FrontendId,
        hostname: &Hostname,
        entry: Option<(Hostname, VirtualHost)>,
        dirty: &mut Dirty,
    ) {
        let place = entry.as_ref().map(|(place, _)| place.clone());
        let before = match &place {
            Some(place) => self.placed.insert(hostname.clone(), place.clone()),
            None => self.placed.remove(hostname),
        };
        if let Some(old) = before.filter(|old| place.as_ref() != Some(old)) {
            if let Some(table) = self.tables.get_mut(&old) {
                table.remove(hostname);
                if table.is_empty() {
                    self.tables.remove(&old);
                }
            }
            dirty.tables.insert((id.clone(), old));
        }
        if let Some((place, virtual_host)) = entry {
            let table = self.tables.entry(place.clone()).or_default();
            if table.get(hostname) != Some(&virtual_host) {
                table.insert(hostname.clone(), virtual_host);
                dirty.tables.insert((id.clone(), place));
            }
        }
    }

    /// Sets whether a hostname has routes under a wildcard or catch-all listener, of a namespace;
    /// marks the hosts that move between table and scopes by it.
    pub(crate) fn place_beneath(
        &mut self,
        id: &FrontendId,
        hostname: &Hostname,
        entry: Option<(Hostname, Tenant)>,
        dirty: &mut Dirty,
    ) {
        let wide = entry.as_ref().map(|(wide, _)| wide);
        let left = self
            .beneath
            .iter()
            .filter(|(name, all)| Some(*name) != wide && all.hosts.contains_key(hostname));
        let left: Vec<Hostname> = left.map(|(name, _)| name.clone()).collect();
        let joined = entry.map(|(wide, tenant)| (wide, Some(tenant)));
        let changes = left.into_iter().map(|wide| (wide, None)).chain(joined);
        for (wide, tenant) in changes {
            let all = self.beneath.entry(wide.clone()).or_default();
            if all.hosts.get(hostname) == tenant.as_ref() {
                continue;
            }
            let was_tabled = all.is_tabled();
            all.set(hostname, tenant);
            if was_tabled != all.is_tabled() {
                let exact = all.hosts.keys().filter(|name| name.is_exact());
                dirty
                    .units
                    .extend(exact.map(|name| (id.clone(), name.clone())));
            }
            dirty.tables.insert((id.clone(), wide));
        }
        self.beneath.retain(|_, all| !all.hosts.is_empty());
    }
}

#[cfg(test)]
mod tests;
