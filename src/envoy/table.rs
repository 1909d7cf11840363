//! Tables: the virtual hosts of a wildcard or catch-all listener with TLS.

use std::collections::BTreeSet;

use envoy_types::pb::envoy::config::route::v3::RouteConfiguration;

use super::misdirected;
use super::traffic::attributed;
use super::virtual_host::{answer_host, route_configuration, virtual_host};
use super::{Edge, ResourceName};
use gatewright_core::model::{Hostname, OtherListeners, Table};
use gatewright_core::request_outcome::{MISDIRECTED, NO_HOST};

/// The route configuration of a table. A hostname is in one virtual host only; Envoy refuses a
/// table with duplicates.
pub fn table(table: &Table) -> RouteConfiguration {
    table_within(table, &Edge::DEFAULT)
}

/// The same with what an operator sets.
pub fn table_within(table: &Table, edge: &Edge) -> RouteConfiguration {
    let Table {
        id,
        virtual_hosts,
        elsewhere,
    } = table;
    let own: BTreeSet<&Hostname> = virtual_hosts.iter().map(|host| &host.hostname).collect();
    let (listed, others) = match elsewhere {
        OtherListeners::Listed(names) if names.iter().any(Hostname::is_any) => {
            (names.as_slice(), (MISDIRECTED, 421))
        }
        OtherListeners::Listed(names) => (names.as_slice(), (NO_HOST, 404)),
        OtherListeners::Many => (&[][..], (MISDIRECTED, 421)),
    };
    // If not every hostname of other listeners is listed, a wildcard may hide some of them.
    let guard = (*elsewhere == OtherListeners::Many).then(misdirected::unless_own_host);
    let mut hosts: Vec<_> = virtual_hosts
        .iter()
        .map(|host| {
            let first = guard.as_ref().filter(|_| !host.hostname.is_exact());
            attributed(virtual_host(host, first), host, edge.traffic)
        })
        .collect();
    let listed: BTreeSet<&Hostname> = listed
        .iter()
        .filter(|name| !own.contains(name) && !name.is_any())
        .collect();
    if !listed.is_empty() {
        let listed: Vec<Hostname> = listed.into_iter().cloned().collect();
        hosts.push(answer_host("misdirected", &listed, (MISDIRECTED, 421)));
    }
    if !own.contains(&Hostname::any()) {
        hosts.push(answer_host("others", &[Hostname::any()], others));
    }
    route_configuration(id.resource_name(), hosts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata::{frontend, host, route, rule, to};
    use gatewright_core::model::{Action, TableId, VirtualHost};

    fn made(hosts: &[&str], elsewhere: &[&str]) -> RouteConfiguration {
        let routes = || vec![route("/", rule(Action::Forward(vec![to("web", 1)])))];
        let serve = |name: &&str| VirtualHost::new(host(name), routes());
        table(&Table {
            id: TableId {
                frontend: frontend(443),
                listener: host(""),
            },
            virtual_hosts: hosts.iter().map(serve).collect(),
            elsewhere: OtherListeners::Listed(elsewhere.iter().map(|name| host(name)).collect()),
        })
    }

    fn domains(made: &RouteConfiguration) -> Vec<&str> {
        made.virtual_hosts
            .iter()
            .flat_map(|h| &h.domains)
            .map(String::as_str)
            .collect()
    }

    #[test]
    fn no_hostname_stands_in_two_virtual_hosts() {
        let made = made(&["", "a.org"], &["", "a.org", "x.b.org", "x.b.org"]);
        assert_eq!(domains(&made), ["*", "a.org", "x.b.org"]);
    }
}
