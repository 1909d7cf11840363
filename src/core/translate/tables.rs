//! Tables: what plain-HTTP frontends, and wildcard and catch-all listeners serve for names without a scope.

use super::compile::{Owner, wide_chain};
use super::delta::{Resource, ResourceKey};
use super::dirty::Dirty;
use super::emissions::Emissions;
use super::frontend_state::FrontendState;
use super::frontends::Frontends;
use super::ownership::Register;
use super::parent::Protocol;
use super::parents::Parents;
use super::secret_names::SecretNames;
use crate::model::{FrontendId, Hostname, OtherListeners, Table, TableId, VirtualHost};

/// Up to so many exact hosts under a wildcard or catch-all listener share its table. Beyond, each has a scope of its own,
/// so that a change of one host costs the same however many there are; a host that only a wildcard route serves then
/// wants a connection of its own (421).
pub(super) const TABLE_HOSTS: usize = if cfg!(test) { 1 } else { 64 }; // small where random tests are to cross it

/// Up to so many other listeners are listed, so that a host of theirs (421) is told from one that nobody serves (404).
/// Beyond, whatever may be theirs is taken for it, and no list grows with the number of hosts.
pub(super) const LISTED: usize = if cfg!(test) { 2 } else { 64 };
/// Nor are more listed than have so many bytes together: wildcards become one regular expression, of which Envoy takes 10,000
/// instructions, about one for each byte, and refuses the whole listener for a larger one.
const LISTED_BYTES: usize = 4096;

/// What is said of other listeners.
pub(super) fn elsewhere<'a>(names: impl Iterator<Item = &'a Hostname>) -> OtherListeners {
    let names: Vec<Hostname> = names.take(LISTED + 1).cloned().collect();
    let bytes: usize = names.iter().map(|name| name.as_str().len()).sum();
    if names.len() > LISTED || bytes > LISTED_BYTES { OtherListeners::Many } else { OtherListeners::Listed(names) }
}

impl FrontendState {
    /// Whether an exact host under a wildcard or catch-all listener belongs into its table.
    pub(super) fn is_tabled(&self, wide: &Hostname, hostname: &Hostname) -> bool {
        let names = self.beneath.get(wide);
        let others = names.map_or(0, |names| names.len() - usize::from(names.contains(hostname)));
        others < TABLE_HOSTS
    }

    pub(super) fn place_in_table(
        &mut self,
        id: &FrontendId,
        hostname: &Hostname,
        entry: Option<(Option<Hostname>, VirtualHost)>,
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

    pub(super) fn place_beneath(
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
        let wide = owner.filter(|o| there && !o.is_own).map(|o| o.hostname.clone());
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
                dirty.units.extend(names.iter().map(|name| (id.clone(), name.clone())));
            }
            dirty.tables.insert((id.clone(), Some(wide)));
        }
        self.beneath.retain(|_, names| !names.is_empty());
    }
}

/// Marks the tables that list other listeners, after a hostname got another winner.
pub(super) fn touch_lists(id: &FrontendId, frontend: &FrontendState, dirty: &mut Dirty) {
    if frontend.winners.len() <= LISTED + 2 {
        let wide = frontend.tables.keys().filter(|table| table.is_some());
        dirty.tables.extend(wide.map(|table| (id.clone(), table.clone())));
    }
}

/// The stage that puts tables together.
pub(super) struct Tables<'a> {
    pub(super) parents: &'a Parents,
    pub(super) register: &'a Register,
    pub(super) names: &'a SecretNames,
    pub(super) frontends: &'a mut Frontends,
    pub(super) emissions: &'a mut Emissions,
}

impl Tables<'_> {
    /// Puts a table together.
    pub(super) fn compile(&mut self, id: &FrontendId, listener: Option<&Hostname>, dirty: &mut Dirty) {
        let table_id = TableId { frontend: id.clone(), listener: listener.cloned() };
        let resource = table(self.frontends, &table_id);
        if let Some(hostname) = listener {
            self.regate(id, hostname, resource.is_some(), dirty);
        }
        self.emissions.emit(ResourceKey::Table(table_id), resource.map(Resource::Table), dirty);
    }

    /// Sends a wildcard or catch-all listener's connections to its table, or past it.
    fn regate(&mut self, id: &FrontendId, hostname: &Hostname, table: bool, dirty: &mut Dirty) {
        let Some(frontend) = self.frontends.get(id) else { return };
        let Some((listener, Protocol::Https)) = frontend.winners.get(hostname) else { return };
        let Some(listener) = self.parents.listener(listener) else { return };
        let chain = wide_chain(self.names.name(id, hostname, self.register), hostname, listener, table);
        let frontend = self.frontends.get_mut(id).expect("found above");
        if frontend.gate.set(hostname, Some(chain)) {
            dirty.frontends.insert(id.clone());
        }
    }
}

fn table(frontends: &Frontends, table: &TableId) -> Option<Table> {
    let frontend = frontends.get(&table.frontend)?;
    let hosts = frontend.tables.get(&table.listener);
    let Some(wide) = &table.listener else {
        let is_there = frontend.is_plain() && (hosts.is_some() || !frontend.challenges.is_empty());
        return is_there.then(|| Table {
            id: table.clone(),
            virtual_hosts: hosts.into_iter().flat_map(|hosts| hosts.values().cloned()).collect(),
            elsewhere: OtherListeners::NOWHERE,
            plain_http: true,
            challenges: frontend.challenges.by_account(),
        });
    };
    let mut virtual_hosts: Vec<VirtualHost> = hosts?.values().cloned().collect();
    if !hosts?.contains_key(wide) {
        virtual_hosts.insert(0, VirtualHost { hostname: wide.clone(), routes: Vec::new() });
    }
    let scoped = frontend.beneath.get(wide).is_some_and(|names| names.len() > TABLE_HOSTS);
    let elsewhere = match scoped {
        true => OtherListeners::Many,
        false => elsewhere(frontend.winners.keys().filter(|name| *name != wide)),
    };
    Some(Table { id: table.clone(), virtual_hosts, elsewhere, plain_http: false, challenges: Vec::new() })
}
