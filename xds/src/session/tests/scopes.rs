//! Tests of scopes, and of the listeners that use them.

use envoy_types::pb::envoy::config::listener::v3::{Filter, FilterChain, filter::ConfigType};
use envoy_types::pb::envoy::config::route::v3::ScopedRouteConfiguration;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, ScopedRds, ScopedRoutes, http_connection_manager::RouteSpecifier,
    scoped_routes::ConfigSpecifier,
};
use envoy_types::pb::google::protobuf::Any;
use prost::{Message, Name};

use super::*;

/// A listener whose connection manager takes its routes from scopes.
fn scoped(name: &str, value: &str) -> Resource {
    let source = ScopedRds {
        srds_resources_locator: "all".into(),
        ..Default::default()
    };
    let routes = ScopedRoutes {
        config_specifier: Some(ConfigSpecifier::ScopedRds(source)),
        ..Default::default()
    };
    let manager = HttpConnectionManager {
        route_specifier: Some(RouteSpecifier::ScopedRoutes(routes)),
        ..Default::default()
    };
    let manager = Any {
        type_url: HttpConnectionManager::type_url(),
        value: manager.encode_to_vec(),
    };
    let filter = Filter {
        config_type: Some(ConfigType::TypedConfig(manager)),
        ..Default::default()
    };
    let chain = FilterChain {
        filters: vec![filter],
        ..Default::default()
    };
    let (name, stat_prefix) = (name.to_owned(), value.to_owned());
    let message = Listener {
        name: name.clone(),
        stat_prefix,
        filter_chains: vec![chain],
        ..Default::default()
    };
    Resource::new(name, &message)
}

fn scope(name: &str) -> Resource {
    Resource::new(
        name,
        &ScopedRouteConfiguration {
            name: name.into(),
            ..Default::default()
        },
    )
}

/// An Envoy with a listener, and two scopes that it subscribed to.
fn with_scopes() -> Chat {
    let mut chat = Chat::settled(vec![scoped("l", ""), scope("a"), scope("b")]);
    chat.subscribe(Kind::Scope, &[]);
    chat.settle();
    chat
}

fn both_scopes() -> Said {
    (Kind::Scope, vec!["a".into(), "b".into()], vec![])
}

#[test]
fn scopes_follow_the_first_listener_that_uses_them() {
    let mut chat = with_scopes();
    chat.publish(vec![scoped("l", "changed"), scoped("m", "")], &[]);
    assert_eq!(
        chat.settle(),
        [[(Kind::Listener, vec!["l".into(), "m".into()], vec![])]],
        "it has a subscription"
    );

    let listeners = [(Kind::Listener, "l"), (Kind::Listener, "m")];
    chat.publish(
        vec![],
        &[
            listeners[0],
            listeners[1],
            (Kind::Scope, "a"),
            (Kind::Scope, "b"),
        ],
    );
    chat.settle();
    chat.publish(
        vec![scope("a"), scope("b"), listener("m", "no routes")],
        &[],
    );
    assert_eq!(
        chat.settle(),
        [[new(Kind::Listener, "m")]],
        "it would drop them"
    );
    chat.publish(vec![scoped("l", "again")], &[]);
    assert_eq!(chat.settle(), [[new(Kind::Listener, "l"), both_scopes()]]);
    assert_eq!(chat.session.acknowledged(), chat.generation);

    chat.publish(vec![], &[listeners[0]]);
    chat.settle();
    chat.publish(vec![scoped("l", "")], &[]);
    assert_eq!(
        chat.settle(),
        [[new(Kind::Listener, "l"), both_scopes()]],
        "they were there all the time"
    );
}

#[test]
fn a_refused_listener_does_not_change_which_scopes_the_client_has() {
    let mut chat = with_scopes();
    chat.publish(vec![listener("l", "bad")], &[]);
    let said = chat.read();
    chat.answer(Kind::Listener, said[0].0, Some("refused"));
    chat.settle();
    chat.publish(vec![scope("c")], &[]);
    assert_eq!(chat.settle(), [[new(Kind::Scope, "c")]]);

    chat.publish(vec![], &[(Kind::Listener, "l")]);
    chat.settle();
    chat.publish(vec![scoped("m", "bad")], &[]);
    let said = chat.read();
    chat.answer(Kind::Listener, said[0].0, Some("refused"));
    chat.answer(Kind::Scope, said[1].0, None);
    chat.settle();
    chat.publish(vec![scoped("m", "good")], &[]);
    let all = (
        Kind::Scope,
        vec!["a".into(), "b".into(), "c".into()],
        vec![],
    );
    assert_eq!(chat.settle(), [[new(Kind::Listener, "m"), all]]);
}

/// Parts of a refused response are sent at once: the client has removed its listener when it reads
/// the next one.
#[test]
fn scopes_follow_a_listener_that_comes_after_an_unanswered_removal() {
    let mut chat = with_scopes();
    chat.publish(
        vec![scoped("m", ""), listener("bad", "")],
        &[(Kind::Listener, "l")],
    );
    let said = chat.read();
    assert_eq!(
        said[0].1.1.len() + said[0].1.2.len(),
        3,
        "all changes in one response: {said:?}"
    );
    chat.answer(Kind::Listener, said[0].0, Some("refused"));
    let parts = chat.read();
    fn is_removal(said: &Said) -> bool {
        *said == gone(Kind::Listener, "l")
    }
    let removal = parts
        .iter()
        .position(|(_, said)| is_removal(said))
        .expect("a part of its own");
    let successor = parts
        .iter()
        .position(|(_, said)| *said == new(Kind::Listener, "m"))
        .expect("a part of its own");
    assert!(removal < successor, "{parts:?}");
    for (nonce, said) in &parts {
        chat.answer(
            said.0,
            *nonce,
            (*said == new(Kind::Listener, "bad")).then_some("refused"),
        );
    }
    fn sent(said: &Said) -> bool {
        said.0 == Kind::Scope && said.1 == ["a", "b"]
    }
    let before = parts
        .iter()
        .position(|(_, said)| sent(said))
        .is_some_and(|scopes| scopes > successor);
    assert!(
        before || chat.settle().iter().flatten().any(sent),
        "its scopes are sent after it"
    );
}

/// On a new stream the client reports the versions that it has.
#[test]
fn reported_scopes_count_only_together_with_the_current_listener() {
    for (version, scopes_first, sent) in [
        ("current", true, 0),
        ("current", false, 0),
        ("older", true, 2),
        ("older", false, 2),
        ("none", false, 2),
    ] {
        let resources = vec![scoped("l", ""), scope("a"), scope("b")];
        fn held(resource: &Resource) -> (String, String) {
            (resource.name().to_owned(), resource.version().to_owned())
        }
        let listeners = match version {
            "current" => vec![held(&resources[0])],
            "older" => vec![("l".to_owned(), "older".to_owned())],
            _ => vec![],
        };
        let scopes = resources[1..].iter().map(held).collect();
        let mut chat = Chat::new(Limits::default(), resources);
        fn request(held: Vec<(String, String)>) -> DeltaRequest {
            DeltaRequest {
                initial_resource_versions: held.into_iter().collect(),
                ..Default::default()
            }
        }
        let mut requests = vec![
            (Kind::Listener, request(listeners)),
            (Kind::Scope, request(scopes)),
        ];
        if scopes_first {
            requests.reverse();
        }
        let mut said = Vec::new();
        for (kind, request) in requests {
            chat.send(kind, request);
            said.extend(chat.settle().into_iter().flatten());
        }
        let scopes: usize = said
            .iter()
            .filter(|said| said.0 == Kind::Scope)
            .map(|said| said.1.len())
            .sum();
        assert_eq!(
            scopes, sent,
            "{version} listener, scopes first: {scopes_first}"
        );
    }
}

/// A stream can end between a refused response of scopes and their marked successors.
#[test]
fn scopes_that_a_client_lacks_when_it_connects_again_are_marked() {
    fn with_routes(name: &str) -> Resource {
        let message = ScopedRouteConfiguration {
            name: name.to_owned(),
            route_configuration: Some(RouteConfiguration::default()),
            ..Default::default()
        };
        Resource::new(name, &message)
    }
    fn sent(held: &[&str]) -> Vec<(String, bool)> {
        let resources = vec![with_routes("a"), with_routes("b")];
        let versions = resources
            .iter()
            .filter(|scope| held.contains(&scope.name()))
            .map(|scope| (scope.name().to_owned(), scope.version().to_owned()));
        let request = DeltaRequest {
            initial_resource_versions: versions.collect(),
            ..Default::default()
        };
        let mut chat = Chat::new(Limits::default(), resources.clone());
        chat.send(Kind::Scope, request);
        let out = chat.session.next(&chat.tables, Instant::now(), || true);
        let items = out.map(|out| out.items).unwrap_or_default();
        items
            .iter()
            .filter_map(Item::resource)
            .map(|scope| {
                let published = resources.iter().find(|known| known.name() == scope.name());
                let is_marked = published.is_some_and(|known| known.body() != scope.body());
                (scope.name().to_owned(), is_marked)
            })
            .collect()
    }
    let fresh = [("a".to_owned(), false), ("b".to_owned(), false)];
    assert_eq!(sent(&[]), fresh, "a client that starts");
    assert_eq!(sent(&["a"]), [("b".to_owned(), true)], "it has one of them");
    assert_eq!(sent(&["a", "b"]), [], "it has both");
}
