//! Answers that routes give by themselves.

use envoy_types::pb::envoy::config::core::v3::{DataSource, data_source::Specifier};
use envoy_types::pb::envoy::config::route::v3::{DirectResponseAction, VirtualHost, route::Action};
use envoy_types::pb::google::protobuf::UInt32Value;

use super::proto::uint;
use gatewright_core::model::{Answer, HeaderEdits};
use gatewright_core::request_outcome::ANSWER;

/// The most bytes of a body without a limit in the route configuration.
const DEFAULT_BYTES: usize = 4096;

/// The action of a route. Envoy sends the body as it is: it has no command operators, as a
/// `body_format` would.
pub(super) fn action(answer: &Answer) -> Action {
    let body = (!answer.body.is_empty()).then(|| DataSource {
        specifier: Some(Specifier::InlineBytes(answer.body.to_vec())),
        ..Default::default()
    });
    Action::DirectResponse(DirectResponseAction {
        status: answer.status.into(),
        body,
        ..Default::default()
    })
}

/// The headers of an answer. The first of a name replaces what Envoy has made, such as `Location`.
pub(super) fn headers_of(answer: &Answer) -> HeaderEdits {
    let kind = answer.content_type.iter();
    let mut edits = HeaderEdits {
        set: kind
            .map(|kind| ("content-type".to_owned(), kind.clone()))
            .collect(),
        ..HeaderEdits::default()
    };
    for (name, value) in &answer.headers {
        let is_repeated = edits
            .set
            .iter()
            .any(|(known, _)| known.eq_ignore_ascii_case(name));
        let list = if is_repeated {
            &mut edits.add
        } else {
            &mut edits.set
        };
        list.push((name.clone(), value.clone()));
    }
    // Envoy names the URL of the request itself in every answer of status 3xx.
    let is_redirect = (300..400).contains(&answer.status);
    if is_redirect && edits.set.iter().all(|(name, _)| !is_location(name)) {
        edits.remove.push("location".to_owned());
    }
    edits
}

fn is_location(name: &str) -> bool {
    name.eq_ignore_ascii_case("location")
}

/// The name of a route that answers itself, by which access logs tell it from one that cannot be
/// carried out.
pub(super) fn name(route: &str) -> String {
    format!("{route}/{ANSWER}")
}

/// The limit of bodies that a route configuration needs; `None` for Envoy's.
pub(super) fn largest_body(hosts: &[VirtualHost]) -> Option<UInt32Value> {
    let actions = hosts.iter().flat_map(|host| &host.routes);
    let bodies = actions.filter_map(|route| match route.action.as_ref()? {
        Action::DirectResponse(answer) => answer.body.as_ref(),
        _ => None,
    });
    let bytes = bodies.map(|body| match &body.specifier {
        Some(Specifier::InlineBytes(bytes)) => bytes.len(),
        Some(Specifier::InlineString(text)) => text.len(),
        _ => 0,
    });
    let largest = bytes.max().filter(|bytes| *bytes > DEFAULT_BYTES)?;
    uint(u32::try_from(largest).ok()?)
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::route::v3::Route;
    use std::sync::Arc;

    use super::*;
    use crate::route::routes_of;
    use crate::route_filters::InRoute;
    use crate::testdata::{route, rule};
    use gatewright_core::model::{Action as Does, ObjectName};

    fn answer(bytes: usize) -> Answer {
        Answer {
            object: ObjectName::new("default", "sorry"),
            status: 503,
            content_type: Some("text/html".to_owned()),
            headers: vec![("set-cookie".to_owned(), "a=100%25".to_owned())],
            body: vec![b'%'; bytes].into(),
        }
    }

    fn made(bytes: usize) -> Route {
        let mut rule = rule(Does::Answer(Arc::new(answer(bytes))));
        let edits = &mut rule.response_headers;
        edits.set.push(("x-a".to_owned(), "b".to_owned()));
        routes_of(&route("/", rule), &mut InRoute).remove(0)
    }

    #[test]
    fn an_answer_is_sent_as_it_is_written() {
        let made = made(3);
        assert_eq!(made.name, "httproute/default/web/0/direct-response");
        let Some(Action::DirectResponse(sent)) = &made.action else {
            panic!("a direct response")
        };
        assert_eq!(sent.status, 503, "the status");
        let body = sent.body.as_ref().and_then(|body| body.specifier.as_ref());
        assert_eq!(body, Some(&Specifier::InlineBytes(b"%%%".to_vec())));
        let headers: Vec<_> = made
            .response_headers_to_add
            .iter()
            .filter_map(|option| option.header.as_ref())
            .map(|header| (header.key.as_str(), header.value.as_str()))
            .collect();
        let expected = [
            ("content-type", "text/html"),
            // Envoy reads two percent signs as one.
            ("set-cookie", "a=100%%25"),
            ("x-a", "b"),
        ];
        assert_eq!(headers, expected);
    }

    #[test]
    fn only_a_large_body_raises_the_limit() {
        let host = |bytes| VirtualHost {
            routes: vec![made(bytes)],
            ..Default::default()
        };
        assert_eq!(largest_body(&[host(0), host(4096)]), None);
        let limit = largest_body(&[host(1), host(4097)]).expect("a limit");
        assert_eq!(limit.value, 4097, "as much as is needed");
    }
}
