//! Where the virtual hosts of a frontend are: in a table of a listener, or in scopes.

use std::collections::{BTreeMap, BTreeSet};

use super::dirty::Dirty;
use super::frontend_state::Owner;
use gatewright_objects::model::{FrontendId, Hostname, VirtualHost};

/// The number of exact hosts under a wildcard or catch-all listener up to which they share its
/// table. Above it, each has a scope of its own, so that the cost of changing one host does not
/// grow with their number; a host that only a wildcard route serves then needs a connection of its
/// own (421).
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
    /// Exact hostnames with routes under a wildcard or catch-all listener, by that listener's
    /// hostname.
    beneath: BTreeMap<Hostname, BTreeSet<Hostname>>,
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
            .chain(self.beneath.values().flatten())
    }

    /// True if there are so many exact hosts under a wildcard or catch-all listener that each has a
    /// scope of its own.
    pub(crate) fn is_scoped(&self, wide: &Hostname) -> bool {
        self.beneath
            .get(wide)
            .is_some_and(|names| names.len() > TABLE_HOSTS)
    }

    /// True if an exact host under a wildcard or catch-all listener belongs in its table.
    pub(crate) fn is_tabled(&self, wide: &Hostname, hostname: &Hostname) -> bool {
        let names = self.beneath.get(wide);
        let others = names.map_or(0, |names| {
            names.len() - usize::from(names.contains(hostname))
        });
        others < TABLE_HOSTS
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

    /// Sets whether an exact hostname has routes under a wildcard or catch-all listener; marks the
    /// hosts that move between table and scopes by it.
    pub(crate) fn place_beneath(
        &mut self,
        id: &FrontendId,
        hostname: &Hostname,
        owner: Option<&Owner>,
        there: bool,
        dirty: &mut Dirty,
    ) {
        if !hostname.is_exact() {
            return;
        }
        let wide = owner
            .filter(|o| there && !o.is_own)
            .map(|o| o.hostname.clone());
        let mut changed = Vec::new();
        for (name, names) in &mut self.beneath {
            if Some(name) != wide.as_ref() && names.remove(hostname) {
                changed.push((name.clone(), names.len() + 1));
            }
        }
        if let Some(wide) = wide {
            let names = self.beneath.entry(wide.clone()).or_default();
            if names.insert(hostname.clone()) {
                changed.push((wide, names.len() - 1));
            }
        }
        for (wide, before) in changed {
            let names = &self.beneath[&wide];
            if (before <= TABLE_HOSTS) != (names.len() <= TABLE_HOSTS) {
                dirty
                    .units
                    .extend(names.iter().map(|name| (id.clone(), name.clone())));
            }
            dirty.tables.insert((id.clone(), wide));
        }
        self.beneath.retain(|_, names| !names.is_empty());
    }
}
