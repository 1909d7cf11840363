//! Handling of requests whose path a backend may read as another one than routes do: with escaped
//! slashes, or with parameters.

use std::sync::Arc;

use super::resolve::respond;
use crate::key::ListenerId;
use crate::state::parents::Parents;
use gatewright_objects::inputs::{EscapedSlashes, PathParameters};
use gatewright_objects::model::{Action, Match, PathMatch, PathRewrite, Redirect, Route, Rule};
use gatewright_objects::request_outcome::{ESCAPED_SLASHES, PATH_PARAMETERS};

/// A regular expression for a path with a percent-encoded slash or backslash.
const ESCAPED: &str = ".*%(?:2[Ff]|5[Cc]).*";

/// A regular expression for a path with a semicolon, also a percent-encoded one: parameters of a
/// segment (RFC 3986, 3.3).
const PARAMETERS: &str = ".*(?:;|%3[Bb]).*";

/// The routes that precede all others of a listener's hosts, and handle requests with such paths
/// where the Gateway does not keep them. They are routes, since Gateways share connection managers.
/// The port of a redirect is not derived yet.
pub(crate) fn ambiguous_paths(
    parents: &Parents,
    listener: &ListenerId,
) -> impl Iterator<Item = Route> + use<> {
    let parent = parents.get(&listener.parent);
    let exposure = parent.map(|parent| &parent.placement.exposure);
    let slashes = exposure.and_then(|exposure| escaped_slashes(exposure.escaped_slashes));
    let parameters = exposure.and_then(|exposure| path_parameters(exposure.path_parameters));
    parameters.into_iter().chain(slashes)
}

fn path_parameters(choice: PathParameters) -> Option<Route> {
    match choice {
        PathParameters::Keep => None,
        PathParameters::Reject => Some(first(PATH_PARAMETERS, PARAMETERS, respond(400))),
    }
}

fn escaped_slashes(choice: EscapedSlashes) -> Option<Route> {
    let rule = match choice {
        EscapedSlashes::Keep => return None,
        EscapedSlashes::Reject => respond(400),
        EscapedSlashes::Redirect => {
            let redirect = Redirect {
                scheme: None,
                hostname: None,
                port: None,
                default_port: 80,
                path: Some(PathRewrite::PlainSlashes),
                status: 307,
            };
            Rule {
                action: Action::Redirect(redirect),
                ..respond(400)
            }
        }
    };
    Some(first(ESCAPED_SLASHES, ESCAPED, rule))
}

/// A route for all requests with such a path.
fn first(name: &str, path: &str, rule: Rule) -> Route {
    let matches = Match {
        path: PathMatch::Regex(path.to_owned()),
        call: None,
        method: None,
        headers: Vec::new(),
        query: Vec::new(),
    };
    Route {
        name: Arc::from(name),
        matches,
        rule: Arc::new(rule),
    }
}
