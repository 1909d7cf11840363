//! Tables: the routes of wildcard and catch-all listeners with TLS for names without a scope; and
//! the wildcards of plain-HTTP frontends.

use super::compile::wide_chain;
use crate::delta::{Resource, ResourceKey};
use crate::rule::protocol::Protocol;
use crate::state::dirty::Dirty;
use crate::state::emissions::Emissions;
use crate::state::frontend_state::{FrontendState, LISTED, elsewhere};
use crate::state::frontends::Frontends;
use crate::state::parents::Parents;
use crate::state::register::Register;
use crate::state::secret_names::SecretNames;
use gatewright_objects::model::{
    FrontendId, Hostname, OtherListeners, Table, TableId, VirtualHost, WideHosts,
};

/// Marks the tables that list other listeners, after the winner of a hostname changed.
pub(crate) fn touch_lists(id: &FrontendId, frontend: &FrontendState, dirty: &mut Dirty) {
    if frontend.winners().len() <= LISTED + 2 {
        let tables = frontend.hosts().tables();
        dirty
            .tables
            .extend(tables.map(|table| (id.clone(), table.clone())));
    }
}

/// The stage that assembles tables.
pub(crate) struct Tables<'a> {
    pub(crate) parents: &'a Parents,
    pub(crate) register: &'a Register,
    pub(crate) names: &'a SecretNames,
    pub(crate) frontends: &'a mut Frontends,
    pub(crate) emissions: &'a mut Emissions,
}

impl Tables<'_> {
    /// Assembles a table.
    pub(crate) fn compile(&mut self, id: &FrontendId, listener: &Hostname, dirty: &mut Dirty) {
        let table_id = TableId {
            frontend: id.clone(),
            listener: listener.clone(),
        };
        let resource = table(self.frontends, &table_id);
        self.set_wide_chain(id, listener, resource.is_some(), dirty);
        self.emissions.emit(
            ResourceKey::Table(table_id),
            resource.map(Resource::Table),
            dirty,
        );
    }

    /// Lists the wildcards of a plain-HTTP frontend.
    pub(crate) fn list_wide_hosts(&mut self, id: &FrontendId, dirty: &mut Dirty) {
        let wide = self
            .frontends
            .get(id)
            .map(|frontend| frontend.hosts().plain_wide());
        let hostnames: Vec<Hostname> = wide.into_iter().flatten().cloned().collect();
        let listed = (!hostnames.is_empty()).then(|| WideHosts {
            frontend: id.clone(),
            hostnames,
        });
        self.emissions.emit(
            ResourceKey::WideHosts(id.clone()),
            listed.map(Resource::WideHosts),
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
    let wide = &table.listener;
    let hosts = frontend.hosts().table(wide)?;
    let mut virtual_hosts: Vec<VirtualHost> = hosts.values().cloned().collect();
    if !hosts.contains_key(wide) {
        virtual_hosts.insert(0, VirtualHost::new(wide.clone(), Vec::new()));
    }
    let elsewhere = if frontend.hosts().is_scoped(wide) {
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
    })
}
