//! Tables: the virtual hosts of a plain-HTTP frontend, or of a wildcard or catch-all listener.

use std::collections::{BTreeMap, BTreeSet};

use envoy_types::pb::envoy::config::route::v3::{Route, RouteConfiguration};

use super::ResourceName;
use super::misdirected;
use super::virtual_host::{answer_host, challenge, route_configuration, virtual_host};
use gatewright_core::model::{Hostname, OtherListeners, Table, VirtualHost};

/// The route configuration of a table.
///
/// On plain HTTP, challenges of the hosts of ACME accounts are answered before all routes. A
/// hostname is in one virtual host only; Envoy refuses a table with duplicates.
pub fn table(table: &Table) -> RouteConfiguration {
    let Table {
        id,
        virtual_hosts,
        elsewhere,
        plain_http,
        challenges,
    } = table;
    let challenges = if *plain_http {
        challenges.as_slice()
    } else {
        &[]
    };
    let answers: Vec<Route> = challenges
        .iter()
        .map(|known| challenge(&known.thumbprint))
        .collect();
    let answer_of: BTreeMap<&Hostname, usize> = challenges
        .iter()
        .enumerate()
        .flat_map(|(of, known)| known.hosts.iter().map(move |host| (host, of)))
        .collect();
    let own: BTreeMap<&Hostname, &VirtualHost> = virtual_hosts
        .iter()
        .map(|host| (&host.hostname, host))
        .collect();
    let (listed, others) = match elsewhere {
        OtherListeners::Listed(names) if names.iter().any(Hostname::is_any) => {
            (names.as_slice(), 421)
        }
        OtherListeners::Listed(names) => (names.as_slice(), 404),
        OtherListeners::Many => (&[][..], 421),
    };
    // If not every hostname of other listeners is listed, a wildcard may hide some of them.
    let guard = (*elsewhere == OtherListeners::Many).then(misdirected::unless_own_host);
    let first = |hostname: &Hostname| {
        let answer = answer_of
            .get(hostname)
            .or_else(|| hostname.covering().find_map(|wide| answer_of.get(&wide)))
            .map(|of| &answers[*of]);
        answer.or(guard.as_ref().filter(|_| !hostname.is_exact()))
    };
    let mut hosts: Vec<_> = virtual_hosts
        .iter()
        .map(|host| virtual_host(host, first(&host.hostname)))
        .collect();
    // A host with challenges and without routes of its own is served by the wildcard over it, as
    // before, except for challenges.
    let mut guests: BTreeMap<(Option<Hostname>, usize), Vec<Hostname>> = BTreeMap::new();
    for (host, of) in answer_of
        .iter()
        .filter(|(host, _)| !own.contains_key(*host))
    {
        let cover = host
            .covering()
            .chain([Hostname::any()])
            .find(|wide| own.contains_key(wide));
        guests
            .entry((cover, *of))
            .or_default()
            .push((*host).clone());
    }
    for ((cover, of), names) in &guests {
        let mut made = match cover {
            Some(wide) => virtual_host(own[wide], Some(&answers[*of])),
            None => answer_host("", &[], others, Some(&answers[*of])),
        };
        made.name = format!(
            "challenges/{of}/{}",
            cover.as_ref().map_or_else(String::new, Hostname::to_string)
        );
        made.domains = names.iter().map(Hostname::to_string).collect();
        hosts.push(made);
    }
    let listed = listed
        .iter()
        .filter(|name| !own.contains_key(name) && !answer_of.contains_key(name) && !name.is_any());
    let listed: BTreeSet<&Hostname> = listed.collect();
    if !listed.is_empty() {
        let listed: Vec<Hostname> = listed.into_iter().cloned().collect();
        hosts.push(answer_host("misdirected", &listed, 421, None));
    }
    if !own.contains_key(&Hostname::any()) {
        hosts.push(answer_host("others", &[Hostname::any()], others, None));
    }
    route_configuration(id.resource_name(), hosts)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use prost::Message;

    use super::*;
    use crate::testdata::{frontend, host, route, rule, to};
    use gatewright_core::model::{Action, Challenges, Cors, Origin, TableId};

    fn plain(hosts: &[&str]) -> Table {
        let routes = || vec![route("/", rule(Action::Forward(vec![to("web", 1)])))];
        Table {
            id: TableId {
                frontend: frontend(80),
                listener: None,
            },
            virtual_hosts: hosts
                .iter()
                .map(|name| VirtualHost::new(host(name), routes()))
                .collect(),
            elsewhere: OtherListeners::NOWHERE,
            plain_http: true,
            challenges: vec![],
        }
    }

    fn domains(made: &RouteConfiguration) -> Vec<&str> {
        made.virtual_hosts
            .iter()
            .flat_map(|h| &h.domains)
            .map(String::as_str)
            .collect()
    }

    fn known(thumbprint: &str, hosts: &[&str]) -> Challenges {
        Challenges {
            thumbprint: thumbprint.into(),
            hosts: hosts.iter().map(|name| host(name)).collect(),
        }
    }

    /// Returns, by domain, true if its challenges are answered first.
    fn answered(made: &RouteConfiguration) -> BTreeMap<&str, bool> {
        let first = |host: &envoy_types::pb::envoy::config::route::v3::VirtualHost| {
            host.routes
                .first()
                .is_some_and(|r| r.name == "acme-challenge")
        };
        made.virtual_hosts
            .iter()
            .flat_map(|h| h.domains.iter().map(move |d| (d.as_str(), first(h))))
            .collect()
    }

    #[test]
    fn challenges_of_known_hosts_come_first_and_of_no_other() {
        let challenges = vec![
            known("one", &["a.org", "x.b.org", "y.b.org"]),
            known("two", &["c.org", "z.b.org"]),
        ];
        let made = table(&Table {
            challenges,
            ..plain(&["a.org", "*.b.org"])
        });
        let expected = [
            ("*", false),
            ("*.b.org", false),
            ("a.org", true),
            ("c.org", true),
            ("x.b.org", true),
            ("y.b.org", true),
            ("z.b.org", true),
        ];
        assert_eq!(answered(&made), BTreeMap::from(expected));
        let of = |domain: &str| {
            made.virtual_hosts
                .iter()
                .find(|h| h.domains.iter().any(|d| d == domain))
        };
        let routes = |domain: &str| of(domain).expect("it is there").routes.len();
        assert_eq!(
            routes("x.b.org"),
            routes("*.b.org") + 1,
            "a guest is served as before"
        );
        assert_eq!(
            of("x.b.org"),
            of("y.b.org"),
            "hosts of one answer share their route"
        );
        assert!(
            !(of("x.b.org") == of("z.b.org")),
            "hosts of another answer do not"
        );
    }

    #[test]
    fn without_an_account_or_over_tls_the_challenge_path_is_the_users_own() {
        let challenges = vec![known("thumb", &["a.org", "b.org"])];
        let with = Table {
            challenges,
            plain_http: false,
            ..plain(&["a.org"])
        };
        for table_of in [plain(&["a.org"]), with] {
            let made = table(&table_of);
            assert!(
                made.virtual_hosts
                    .iter()
                    .flat_map(|h| &h.routes)
                    .all(|r| r.name != "acme-challenge")
            );
        }
    }

    #[test]
    fn equal_tables_encode_to_equal_bytes() {
        let mut guarded = rule(Action::Respond(404));
        guarded.cors = Some(Cors {
            allow_origins: vec![Origin::Any],
            allow_methods: vec!["GET".into()],
            allow_headers: vec![],
            expose_headers: vec![],
            allow_credentials: false,
            max_age: Duration::ZERO,
        });
        let hosts = vec![VirtualHost::new(host("a.org"), vec![route("/", guarded)])];
        let made = Table {
            challenges: vec![known("thumb", &["a.org", "b.org"])],
            virtual_hosts: hosts,
            ..plain(&[])
        };
        let bytes = table(&made).encode_to_vec();
        for _ in 0..50 {
            assert!(
                table(&made).encode_to_vec() == bytes,
                "a map with two entries has no stable encoding"
            );
        }
    }

    #[test]
    fn no_hostname_stands_in_two_virtual_hosts() {
        let elsewhere =
            OtherListeners::Listed(["", "a.org", "x.b.org", "x.b.org"].map(host).to_vec());
        let made = table(&Table {
            elsewhere,
            ..plain(&["", "a.org"])
        });
        assert_eq!(domains(&made), ["*", "a.org", "x.b.org"]);
    }
}
