//! Tests of division with a simulated client that refuses given content.

use std::collections::BTreeSet;

use envoy_types::pb::envoy::config::listener::v3::{Filter, FilterChain, Listener};
use envoy_types::pb::envoy::config::route::v3::{
    DirectResponseAction, Route, RouteConfiguration, RouteMatch, VirtualHost, route::Action,
    route_match::PathSpecifier,
};
use proptest::prelude::*;
use prost::Message;

use super::*;

/// The client refuses a match, an action, or a domain that contains this.
const POISON: &str = "poison";

fn route(name: &str, path: &str, body: &str) -> Route {
    Route {
        name: name.into(),
        r#match: Some(RouteMatch {
            path_specifier: Some(PathSpecifier::Prefix(path.into())),
            ..Default::default()
        }),
        action: Some(Action::DirectResponse(DirectResponseAction {
            status: 200,
            body: Some(envoy_types::pb::envoy::config::core::v3::DataSource {
                specifier: Some(
                    envoy_types::pb::envoy::config::core::v3::data_source::Specifier::InlineString(
                        body.into(),
                    ),
                ),
                ..Default::default()
            }),
            ..Default::default()
        })),
        ..Default::default()
    }
}

fn host(name: &str, routes: Vec<Route>) -> VirtualHost {
    VirtualHost {
        name: name.into(),
        domains: vec![name.into()],
        routes,
        ..Default::default()
    }
}

fn table(virtual_hosts: Vec<VirtualHost>) -> Resource {
    Resource::new(
        "t",
        &RouteConfiguration {
            name: "t".into(),
            virtual_hosts,
            ..Default::default()
        },
    )
}

fn decoded(resource: &Resource) -> RouteConfiguration {
    RouteConfiguration::decode(resource.body()).expect("it was encoded")
}

/// Returns the client's verdict on a table: it refuses the poison, and a domain that occurs twice.
fn verdict(resource: &Resource) -> Result<(), String> {
    if resource
        .body()
        .windows(POISON.len())
        .any(|w| w == POISON.as_bytes())
    {
        return Err("bad: poison".to_owned());
    }
    let mut seen = BTreeSet::new();
    for domain in decoded(resource)
        .virtual_hosts
        .into_iter()
        .flat_map(|host| host.domains)
    {
        if seen.contains(&domain) {
            return Err(format!("duplicate domain: {domain}"));
        }
        seen.insert(domain);
    }
    Ok(())
}

struct Found {
    running: RouteConfiguration,
    held: Vec<HeldPart>,
    sent: usize,
}

/// Simulates the client's refusals of `complete` until the culprits are found. `watch` sees every
/// version that it accepts.
fn divide(
    complete: &Resource,
    had: Option<&Resource>,
    mut watch: impl FnMut(&RouteConfiguration),
) -> Option<Found> {
    let refusal = verdict(complete).expect_err("it is refused");
    let (mut search, mut step) = Search::begin(complete, had, &Arc::from(refusal.as_str()))?;
    let mut sent = 1;
    loop {
        step = match step {
            Step::Try(tried) => {
                sent += 1;
                assert!(sent < 10_000, "a search ends");
                match verdict(&tried) {
                    Ok(()) => {
                        watch(&decoded(&tried));
                        search.accepted()
                    }
                    Err(text) => search.refused(&Arc::from(text.as_str())),
                }
            }
            Step::Found { held, running, .. } => {
                verdict(&running).expect("what is found is taken");
                return Some(Found {
                    running: decoded(&running),
                    held,
                    sent,
                });
            }
            Step::Nothing(_) => return None,
        }
    }
}

fn name(author: &str, route: usize) -> String {
    format!("httproute/{author}/r{route}/0")
}

fn of<'a>(config: &'a RouteConfiguration, host: &str) -> Option<&'a VirtualHost> {
    config.virtual_hosts.iter().find(|found| found.name == host)
}

fn good_hosts(count: usize) -> Vec<VirtualHost> {
    (0..count)
        .map(|at| {
            host(
                &format!("a{at}"),
                vec![route(&name(&format!("alice{at}"), 0), "/", "fine")],
            )
        })
        .collect()
}

fn listener(stat_prefix: &str, chains: &[(&str, &str)]) -> Resource {
    let filter_chains = chains
        .iter()
        .map(|(name, word)| FilterChain {
            name: (*name).into(),
            filters: vec![Filter {
                name: (*word).into(),
                ..Default::default()
            }],
            ..Default::default()
        })
        .collect();
    Resource::new(
        "l",
        &Listener {
            stat_prefix: stat_prefix.into(),
            filter_chains,
            ..Default::default()
        },
    )
}

/// Names of filter chains with their content.
type Pairs = Vec<(String, String)>;

/// Divides a refused listener; returns its stat prefix, its chains, and the refused chains.
fn divided(complete: &Resource, had: Option<&Resource>) -> Option<(String, Pairs, Vec<String>)> {
    fn check(resource: &Resource) -> Result<(), String> {
        let made = Listener::decode(resource.body()).expect("it was encoded");
        if made.filter_chains.is_empty() {
            return Err("no filter chains".to_owned());
        }
        let is_bad = resource
            .body()
            .windows(POISON.len())
            .any(|w| w == POISON.as_bytes());
        if is_bad {
            Err("bad".to_owned())
        } else {
            Ok(())
        }
    }
    let Divided { resource, refused } = super::divide(complete, had, check)?;
    let made = Listener::decode(resource.body()).expect("it was encoded");
    let chains = made
        .filter_chains
        .into_iter()
        .map(|chain| (chain.name, chain.filters[0].name.clone()))
        .collect();
    Some((
        made.stat_prefix,
        chains,
        refused
            .into_iter()
            .map(|(part, _)| part.virtual_host.to_string())
            .collect(),
    ))
}

fn pairs(all: &[(&str, &str)]) -> Pairs {
    all.iter()
        .map(|(name, word)| ((*name).to_owned(), (*word).to_owned()))
        .collect()
}

#[test]
fn a_refused_filter_chain_stays_as_it_was_and_the_rest_of_its_listener_changes() {
    let had = listener("before", &[("a", "old"), ("b", "old"), ("c", "old")]);
    let complete = listener(
        "after",
        &[("a", "new"), ("b", POISON), ("c", "new"), ("d", "new")],
    );
    let (prefix, chains, refused) = divided(&complete, Some(&had)).expect("it is divided");
    assert_eq!(prefix.as_str(), "after", "the other chain changes");
    assert_eq!(refused, vec!["b".to_owned()], "the refused one is named");
    assert_eq!(
        chains,
        pairs(&[("a", "new"), ("b", "old"), ("c", "new"), ("d", "new")])
    );
}

#[test]
fn a_refused_filter_chain_that_was_never_accepted_is_omitted() {
    let complete = listener("l", &[("a", "fine"), ("b", POISON), ("c", "fine")]);
    let (_, chains, refused) = divided(&complete, None).expect("it is divided");
    assert_eq!(
        chains,
        pairs(&[("a", "fine"), ("c", "fine")]),
        "the others are there"
    );
    assert_eq!(refused, vec!["b".to_owned()], "the refused one is named");
    assert!(
        divided(&listener("l", &[("a", POISON)]), None).is_none(),
        "a listener without a chain is refused as well"
    );
    assert!(
        divided(&listener(POISON, &[("a", "fine"), ("b", "fine")]), None).is_none(),
        "no chain is to blame"
    );
    assert!(
        divided(&listener("l", &[("a", "fine"), ("a", POISON)]), None).is_none(),
        "which one is meant?"
    );
}

#[test]
fn many_refused_chains_of_one_author_do_not_affect_other_chains() {
    let names: Vec<String> = (0..120).map(|number| format!("c{number:03}")).collect();
    fn word(number: usize) -> &'static str {
        if number.is_multiple_of(2) {
            POISON
        } else {
            "fine"
        }
    }
    let all: Vec<(&str, &str)> = names
        .iter()
        .enumerate()
        .map(|(number, name)| (&**name, word(number)))
        .collect();
    let good: Vec<(&str, &str)> = all
        .iter()
        .filter(|(_, word)| *word == "fine")
        .copied()
        .collect();
    let (_, chains, refused) = divided(&listener("l", &all), None).expect("it is divided");
    assert_eq!(chains, pairs(&good), "chains of others are there");
    assert_eq!(refused.len(), 60, "each refused one is named");
}

#[test]
fn a_new_client_gets_everything_but_the_refused_route() {
    let mut hosts = good_hosts(1000);
    let bad = vec![
        route(&name("mallory", 0), "/a", POISON),
        route(&name("mallory", 1), "/b", "fine"),
    ];
    hosts.push(host("mallory", bad));
    let found = divide(&table(hosts.clone()), None, |_| {}).expect("it is divided");
    assert!(found.sent < 20, "{} responses", found.sent);
    for good in &hosts[..1000] {
        assert_eq!(of(&found.running, &good.name), Some(good));
    }
    let mallory = of(&found.running, "mallory").expect("it is served");
    let actions: Vec<u32> = mallory
        .routes
        .iter()
        .filter_map(|route| match &route.action {
            Some(Action::DirectResponse(answer)) => Some(answer.status),
            _ => None,
        })
        .collect();
    assert_eq!(
        actions,
        [500, 200],
        "the refused one answers 500, the other is as written"
    );
    assert_eq!(found.held.len(), 1);
    assert_eq!(
        &*found.held[0].routes[0],
        &*name("mallory", 0),
        "the refused route is held back"
    );
    assert_eq!(
        found.held[0].remedy,
        Remedy::Answer,
        "it is answered instead"
    );
}

#[test]
fn a_route_whose_match_is_refused_is_omitted() {
    let bad = vec![
        route(&name("mallory", 0), POISON, "fine"),
        route(&name("mallory", 1), "/b", "fine"),
    ];
    let mut hosts = good_hosts(3);
    hosts.push(host("mallory", bad));
    let found = divide(&table(hosts), None, |_| {}).expect("it is divided");
    assert_eq!(
        of(&found.running, "mallory")
            .expect("it is served")
            .routes
            .len(),
        1
    );
    assert_eq!(found.held[0].remedy, Remedy::Omit);
}

#[test]
fn a_refused_virtual_host_of_one_author_stays_as_it_was_and_the_others_change() {
    let mut before = good_hosts(10);
    before.push(host(
        "mallory",
        vec![route(&name("mallory", 0), "/", "old")],
    ));
    let mut after = before.clone();
    after[3].routes[0] = route(&name("alice3", 0), "/new", "new");
    after[10].routes[0] = route(&name("mallory", 0), "/", POISON);
    let had = table(before.clone());
    let complete = table(after.clone());
    let found = divide(&complete, Some(&had), |taken| {
        assert_eq!(
            taken.virtual_hosts.len(),
            11,
            "nobody is without a host for a moment"
        );
        assert_eq!(of(taken, "a0"), Some(&before[0]));
        assert_eq!(of(taken, "mallory"), Some(&before[10]));
    })
    .expect("it is divided");
    assert_eq!(of(&found.running, "a3"), Some(&after[3]));
    assert_eq!(of(&found.running, "mallory"), Some(&before[10]));
    assert_eq!(found.held.len(), 1, "one host is held back");
    assert_eq!(
        found.held[0].remedy,
        Remedy::Keep,
        "its last version is kept"
    );
    assert!(found.sent <= 3, "{} responses", found.sent);
}

#[test]
fn a_search_does_not_serve_an_author_under_a_hostname_that_it_lost() {
    fn of_two(first: &str, second: &str) -> Resource {
        fn of(at: &str, author: &str, text: &str) -> VirtualHost {
            host(at, vec![route(&name(author, 0), "/", text)])
        }
        table(vec![
            of("passed-on", first, "fine"),
            of("other", "mallory", second),
        ])
    }
    let had = of_two("mallory", "fine");
    let complete = of_two("alice", POISON);
    let found = divide(&complete, Some(&had), |taken| {
        assert!(!of(taken, "passed-on").is_some_and(|host| {
            host.routes
                .iter()
                .any(|route| author(&route.name).ends_with("mallory"))
        }));
    });
    let found = found.expect("it is divided");
    assert_eq!(
        of(&found.running, "passed-on"),
        of(&decoded(&complete), "passed-on")
    );
}

#[test]
fn other_authors_of_the_virtual_host_of_a_culprit_get_their_changes() {
    fn shared(alice: &str, mallory: &str) -> Resource {
        let routes = vec![
            route(&name("alice", 0), "/a", alice),
            route(&name("mallory", 0), "/m", mallory),
        ];
        table(vec![host("shared", routes)])
    }
    let had = shared("old", "old");
    let complete = shared("new", POISON);
    let found = divide(&complete, Some(&had), |_| {}).expect("it is divided");
    let routes = &of(&found.running, "shared").expect("it is served").routes;
    assert_eq!(routes[0], route(&name("alice", 0), "/a", "new"));
    assert_eq!(
        routes[1],
        answered(route(&name("mallory", 0), "/m", POISON))
    );
}

#[test]
fn a_refused_route_is_not_sent_again_with_the_next_version() {
    let mut hosts = good_hosts(5);
    hosts.push(host(
        "mallory",
        vec![route(&name("mallory", 0), "/", POISON)],
    ));
    let complete = table(hosts.clone());
    let Some(found) = divide(&complete, None, |_| {}) else {
        panic!("it is divided")
    };
    let mut division = Division {
        version: complete.version().into(),
        running: None,
        held: found.held,
        kept: BTreeMap::new(),
        without: BTreeSet::new(),
        search: None,
    };
    hosts[0].routes[0] = route(&name("alice0", 0), "/", "new");
    let sent = division
        .without_held(&table(hosts.clone()))
        .expect("some of it is known to be refused");
    verdict(&sent).expect("it is taken at once");
    assert_eq!(of(&decoded(&sent), "a0"), Some(&hosts[0]));
    hosts[5].routes[0] = route(&name("mallory", 0), "/", "mended");
    assert!(
        division.without_held(&table(hosts.clone())).is_none(),
        "what is mended is tried"
    );
    division.forget_gone(&table(hosts));
    assert!(division.held.is_empty());
}

#[test]
fn one_author_with_a_thousand_refused_routes_costs_a_bounded_number_of_responses() {
    let mut hosts = good_hosts(200);
    hosts.extend((0..1000).map(|at| {
        host(
            &format!("m{at}"),
            vec![route(&name("mallory", at), "/", POISON)],
        )
    }));
    let found = divide(&table(hosts.clone()), None, |_| {}).expect("it is divided");
    assert!(found.sent < 200, "{} responses", found.sent);
    assert!(
        hosts[..200]
            .iter()
            .all(|good| of(&found.running, &good.name) == Some(good))
    );
}

fn any_table() -> impl Strategy<Value = Vec<VirtualHost>> {
    let texts = prop_oneof![4 => Just("fine"), 2 => Just("other"), 1 => Just(POISON)];
    let paths = prop_oneof![6 => Just("/a"), 1 => Just(POISON)];
    let one = (0..3usize, 0..3usize, paths, texts).prop_map(|(author, index, path, text)| {
        route(
            &name(["alice", "bob", "mallory"][author], index),
            path,
            text,
        )
    });
    let hosts = prop::collection::btree_map(0..6u8, prop::collection::vec(one, 0..4), 1..6);
    let odd = prop::option::weighted(0.1, 0..6u8);
    (hosts, odd).prop_map(|(hosts, odd)| {
        let mut made: Vec<_> = hosts
            .into_iter()
            .map(|(at, routes)| host(&format!("h{at}"), routes))
            .collect();
        if let Some(odd) = odd {
            let at = usize::from(odd) % made.len();
            made[at].domains.push(if odd % 2 == 0 {
                POISON.into()
            } else {
                "h0".into()
            });
        }
        made
    })
}

proptest! {
    /// Whatever is refused: the result is accepted, contains everything that is not refused of
    /// authors who share nothing with a culprit, and no author who was served lacks a virtual host
    /// at any time.
    #[test]
    fn authors_who_share_nothing_with_a_culprit_keep_their_routes(before in any_table(), after in any_table()) {
        let (had, complete) = (table(before.clone()), table(after.clone()));
        prop_assume!(verdict(&complete).is_err());
        let had = verdict(&had).is_ok().then_some(&had);
        let clean = |host: &VirtualHost| {
            verdict(&table(vec![host.clone()])).is_ok()
                && after.iter().all(|other| other.name == host.name || other.domains.iter().all(|d| !host.domains.contains(d)))
        };
        let steady: Vec<&VirtualHost> = match had {
            Some(_) => before.iter().filter(|host| clean(host) && after.contains(host)).collect(),
            None => Vec::new(),
        };
        let found = divide(&complete, had, |taken| {
            for host in &steady {
                assert_eq!(of(taken, &host.name), Some(*host));
            }
        });
        let found = found.expect("a table without virtual hosts is taken");
        for host in after.iter().filter(|host| clean(host)) {
            prop_assert_eq!(of(&found.running, &host.name), Some(host));
        }
        for part in &found.held {
            let host = after.iter().find(|host| host.name == part.virtual_host).expect("it is there");
            let culprit = host.routes.iter().any(|r| verdict(&table(vec![self::host("x", vec![r.clone()])])).is_err());
            prop_assert!(culprit || !clean(host), "{:?} is not to blame", part);
        }
    }
}
