//! Tables: what plain-HTTP frontends, and wildcard and catch-all listeners serve for names without a scope.

use std::collections::BTreeSet;

use super::claims::Family;
use super::compile::Owner;
use super::delta::{Resource, ResourceKey};
use super::engine::{Dirty, Engine};
use super::parent::Protocol;
use crate::model::{FrontendId, Hostname, Others, Table, TableId, VirtualHost};

impl Engine {
    pub(super) fn place_in_table(
        &mut self,
        id: &FrontendId,
        hostname: &Hostname,
        entry: Option<(Option<Hostname>, VirtualHost)>,
        dirty: &mut Dirty,
    ) {
        let Some(frontend) = self.frontends.get_mut(id) else { return };
        let place = entry.as_ref().map(|(place, _)| place.clone());
        let before = match &place {
            Some(place) => frontend.placed.insert(hostname.clone(), place.clone()),
            None => frontend.placed.remove(hostname),
        };
        if let Some(old) = before.filter(|old| place.as_ref() != Some(old)) {
            if let Some(table) = frontend.tables.get_mut(&old) {
                table.remove(hostname);
                if table.is_empty() {
                    frontend.tables.remove(&old);
                }
            }
            dirty.tables.insert((id.clone(), old));
        }
        if let Some((place, virtual_host)) = entry {
            let table = frontend.tables.entry(place.clone()).or_default();
            if table.get(hostname) != Some(&virtual_host) {
                table.insert(hostname.clone(), virtual_host);
                dirty.tables.insert((id.clone(), place));
            }
        }
    }

    pub(super) fn place_scope_under(
        &mut self,
        id: &FrontendId,
        hostname: &Hostname,
        owner: Option<&Owner>,
        there: bool,
        dirty: &mut Dirty,
    ) {
        let Some(frontend) = self.frontends.get_mut(id) else { return };
        if !hostname.is_exact() {
            return;
        }
        let wide = owner.filter(|o| there && !o.is_own).map(|o| o.hostname.clone());
        for (name, names) in &mut frontend.scoped {
            if Some(name) != wide.as_ref() && names.remove(hostname) {
                dirty.tables.insert((id.clone(), Some(name.clone())));
            }
        }
        frontend.scoped.retain(|_, names| !names.is_empty());
        if let Some(wide) = wide
            && frontend.scoped.entry(wide.clone()).or_default().insert(hostname.clone())
        {
            dirty.tables.insert((id.clone(), Some(wide)));
        }
    }

    /// Marks the tables of wildcard and catch-all listeners that cover a hostname: they answer 421 for it.
    pub(super) fn touch_tables_over(&self, id: &FrontendId, hostname: &Hostname, dirty: &mut Dirty) {
        let frontend = &self.frontends[id];
        for wide in hostname.covering().chain(Some(Hostname::any())) {
            if frontend.tables.contains_key(&Some(wide.clone())) {
                dirty.tables.insert((id.clone(), Some(wide)));
            }
        }
    }

    /// Puts a table together.
    pub(super) fn compile_table(&mut self, id: &FrontendId, listener: Option<&Hostname>, dirty: &mut Dirty) {
        self.counters.tables += 1;
        let table_id = TableId { frontend: id.clone(), listener: listener.cloned() };
        let resource = self.table(&table_id);
        if let Some(hostname) = listener {
            self.regate(id, hostname, resource.is_some(), dirty);
        }
        self.emit(ResourceKey::Table(table_id), resource.map(Resource::Table), dirty);
    }

    fn table(&self, table: &TableId) -> Option<Table> {
        let frontend = self.frontends.get(&table.frontend)?;
        let hosts = frontend.tables.get(&table.listener);
        let Some(wide) = &table.listener else {
            let plain = frontend.claims.family() == Some(Family::Http);
            return hosts.filter(|_| plain).map(|hosts| Table {
                id: table.clone(),
                virtual_hosts: hosts.values().cloned().collect(),
                misdirected: Vec::new(),
                others: Others::NotFound,
                plain_http: true,
                thumbprint: None,
            });
        };
        let mut virtual_hosts: Vec<VirtualHost> = hosts?.values().cloned().collect();
        if !hosts?.contains_key(wide) {
            virtual_hosts.insert(0, VirtualHost { hostname: wide.clone(), routes: Vec::new() });
        }
        let beneath = frontend.winners.keys().filter(|name| *name != wide && wide.covers(name));
        let scoped = frontend.scoped.get(wide).into_iter().flatten();
        let misdirected: BTreeSet<Hostname> = beneath.chain(scoped).cloned().collect();
        virtual_hosts.retain(|host| !misdirected.contains(&host.hostname));
        let others = if frontend.winners.len() > 1 { Others::Misdirected } else { Others::NotFound };
        Some(Table {
            id: table.clone(),
            virtual_hosts,
            misdirected: misdirected.into_iter().collect(),
            others,
            plain_http: false,
            thumbprint: None,
        })
    }

    /// Sends a wildcard or catch-all listener's connections to its table, or past it.
    fn regate(&mut self, id: &FrontendId, hostname: &Hostname, table: bool, dirty: &mut Dirty) {
        let Some(frontend) = self.frontends.get(id) else { return };
        let Some((listener, Protocol::Https)) = frontend.winners.get(hostname) else { return };
        let Some(listener) = self.listener(listener) else { return };
        let chain = self.wide_chain(id, hostname, listener, table);
        let frontend = self.frontends.get_mut(id).expect("found above");
        if frontend.gate.set(hostname, Some(chain)) {
            dirty.frontends.insert(id.clone());
        }
    }
}
