//! Tables: the routes of plain-HTTP frontends, and of wildcard and catch-all listeners for names
//! without a scope.

use super::compile::wide_chain;
use super::delta::{Resource, ResourceKey};
use super::dirty::Dirty;
use super::emissions::Emissions;
use super::frontend_state::{FrontendState, LISTED, elsewhere};
use super::frontends::Frontends;
use super::parents::Parents;
use super::protocol::Protocol;
use super::register::Register;
use super::secret_names::SecretNames;
use crate::model::{FrontendId, Hostname, OtherListeners, Table, TableId, VirtualHost};

/// Marks the tables that list other listeners, after the winner of a hostname changed.
pub(super) fn touch_lists(id: &FrontendId, frontend: &FrontendState, dirty: &mut Dirty) {
    if frontend.winners().len() <= LISTED + 2 {
        dirty.tables.extend(
            frontend
                .wide_tables()
                .map(|table| (id.clone(), Some(table.clone()))),
        );
    }
}

/// The stage that assembles tables.
pub(super) struct Tables<'a> {
    pub(super) parents: &'a Parents,
    pub(super) register: &'a Register,
    pub(super) names: &'a SecretNames,
    pub(super) frontends: &'a mut Frontends,
    pub(super) emissions: &'a mut Emissions,
}

impl Tables<'_> {
    /// Assembles a table.
    pub(super) fn compile(
        &mut self,
        id: &FrontendId,
        listener: Option<&Hostname>,
        dirty: &mut Dirty,
    ) {
        let table_id = TableId {
            frontend: id.clone(),
            listener: listener.cloned(),
        };
        let resource = table(self.frontends, &table_id);
        if let Some(hostname) = listener {
            self.set_wide_chain(id, hostname, resource.is_some(), dirty);
        }
        self.emissions.emit(
            ResourceKey::Table(table_id),
            resource.map(Resource::Table),
            dirty,
        );
    }

    /// Sets the chain of a wildcard or catch-all listener: to its table, or directly to the scopes.
    fn set_wide_chain(
        &mut self,
        id: &FrontendId,
        hostname: &Hostname,
        table: bool,
        dirty: &mut Dirty,
    ) {
        let Some(frontend) = self.frontends.get(id) else {
            return;
        };
        let Some((listener, Protocol::Https)) = frontend.winner(hostname) else {
            return;
        };
        let Some(listener) = self.parents.listener(listener) else {
            return;
        };
        let chain = wide_chain(
            self.names.name(id, hostname, self.register),
            hostname,
            listener,
            table,
        );
        let frontend = self.frontends.get_mut(id).expect("found above");
        frontend.set_chain(id, hostname, Some(chain), dirty);
    }
}

fn table(frontends: &Frontends, table: &TableId) -> Option<Table> {
    let frontend = frontends.get(&table.frontend)?;
    let hosts = frontend.table(table.listener.as_ref());
    let Some(wide) = &table.listener else {
        let is_there = frontend.is_plain() && (hosts.is_some() || frontend.has_challenges());
        return is_there.then(|| Table {
            id: table.clone(),
            virtual_hosts: hosts
                .into_iter()
                .flat_map(|hosts| hosts.values().cloned())
                .collect(),
            elsewhere: OtherListeners::NOWHERE,
            plain_http: true,
            challenges: frontend.challenges(),
        });
    };
    let mut virtual_hosts: Vec<VirtualHost> = hosts?.values().cloned().collect();
    if !hosts?.contains_key(wide) {
        virtual_hosts.insert(0, VirtualHost::new(wide.clone(), Vec::new()));
    }
    let elsewhere = if frontend.is_scoped(wide) {
        OtherListeners::Many
    } else {
        elsewhere(
            frontend
                .winners()
                .map(|(name, _)| name)
                .filter(|name| *name != wide),
        )
    };
    Some(Table {
        id: table.clone(),
        virtual_hosts,
        elsewhere,
        plain_http: false,
        challenges: Vec::new(),
    })
}
