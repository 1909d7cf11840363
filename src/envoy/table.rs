//! Tables: the virtual hosts of a plain-HTTP frontend, or of a wildcard or catch-all listener.

use std::collections::BTreeSet;

use envoy_types::pb::envoy::config::route::v3::RouteConfiguration;

use super::ResourceName;
use super::misdirected;
use super::virtual_host::{answer_host, challenge, route_configuration, virtual_host};
use crate::model::{Elsewhere, Hostname, Table};

/// The route configuration of a table.
///
/// On plain HTTP with an ACME account every virtual host, the one for unknown hosts too, answers challenges before
/// anything else. A hostname stands in one virtual host only; Envoy refuses a table where it does not.
pub fn table(table: &Table) -> RouteConfiguration {
    let Table { id, virtual_hosts, elsewhere, plain_http, thumbprint } = table;
    let challenge = thumbprint.as_deref().filter(|_| *plain_http).map(challenge);
    let own: BTreeSet<&Hostname> = virtual_hosts.iter().map(|host| &host.hostname).collect();
    let (listed, others) = match elsewhere {
        Elsewhere::Listed(names) if names.iter().any(Hostname::is_any) => (names.as_slice(), 421),
        Elsewhere::Listed(names) => (names.as_slice(), 404),
        Elsewhere::Many => (&[][..], 421),
    };
    // Where not every name of others is listed, a wildcard may hide some.
    let guard = (*elsewhere == Elsewhere::Many).then(misdirected::unless_own_host);
    let first = |hostname: &Hostname| challenge.as_ref().or(guard.as_ref().filter(|_| !hostname.is_exact()));
    let mut hosts: Vec<_> = virtual_hosts.iter().map(|host| virtual_host(host, first(&host.hostname))).collect();
    let listed: BTreeSet<&Hostname> = listed.iter().filter(|name| !own.contains(name) && !name.is_any()).collect();
    if !listed.is_empty() {
        let listed: Vec<Hostname> = listed.into_iter().cloned().collect();
        hosts.push(answer_host("misdirected", &listed, 421, challenge.as_ref()));
    }
    if !own.contains(&Hostname::any()) {
        hosts.push(answer_host("others", &[Hostname::any()], others, challenge.as_ref()));
    }
    route_configuration(id.resource_name(), hosts)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use prost::Message;

    use super::*;
    use crate::envoy::testdata::{frontend, host, route, rule, to};
    use crate::model::{Action, Cors, TableId, VirtualHost};

    fn plain(hosts: &[&str]) -> Table {
        let serve = |name: &&str| VirtualHost {
            hostname: host(name),
            routes: vec![route("/", rule(Action::Forward(vec![to("web", 1)])))],
        };
        Table {
            id: TableId { frontend: frontend(80), listener: None },
            virtual_hosts: hosts.iter().map(serve).collect(),
            elsewhere: Elsewhere::NOWHERE,
            plain_http: true,
            thumbprint: None,
        }
    }

    fn domains(made: &RouteConfiguration) -> Vec<&str> {
        made.virtual_hosts.iter().flat_map(|h| &h.domains).map(String::as_str).collect()
    }

    #[test]
    fn challenges_come_first_in_every_virtual_host() {
        let made = table(&Table { thumbprint: Some("thumb".into()), ..plain(&["a.org", "*.b.org"]) });
        assert_eq!(domains(&made), ["a.org", "*.b.org", "*"]);
        for host in &made.virtual_hosts {
            assert_eq!(host.routes[0].name, "acme-challenge", "{}", host.name);
            assert!(host.routes.len() > 1);
        }
    }

    #[test]
    fn without_an_account_or_over_tls_the_challenge_path_is_the_users_own() {
        let with = Table { thumbprint: Some("thumb".into()), plain_http: false, ..plain(&["a.org"]) };
        for table_of in [plain(&["a.org"]), with] {
            let made = table(&table_of);
            assert!(made.virtual_hosts.iter().flat_map(|h| &h.routes).all(|r| r.name != "acme-challenge"));
        }
    }

    #[test]
    fn equal_tables_encode_to_equal_bytes() {
        let mut guarded = rule(Action::Respond(404));
        guarded.cors = Some(Cors {
            allow_origins: vec!["*".into()],
            allow_methods: vec!["GET".into()],
            allow_headers: vec![],
            expose_headers: vec![],
            allow_credentials: false,
            max_age: Duration::ZERO,
        });
        let hosts = vec![VirtualHost { hostname: host("a.org"), routes: vec![route("/", guarded)] }];
        let made = Table { thumbprint: Some("thumb".into()), virtual_hosts: hosts, ..plain(&[]) };
        let bytes = table(&made).encode_to_vec();
        for _ in 0..50 {
            assert!(table(&made).encode_to_vec() == bytes, "a map with two entries has no stable encoding");
        }
    }

    #[test]
    fn no_hostname_stands_in_two_virtual_hosts() {
        let elsewhere = Elsewhere::Listed(["", "a.org", "x.b.org", "x.b.org"].map(host).to_vec());
        let made = table(&Table { elsewhere, ..plain(&["", "a.org"]) });
        assert_eq!(domains(&made), ["*", "a.org", "x.b.org"]);
    }
}
