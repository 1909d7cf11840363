//! Handling of requests whose path has escaped slashes, if a Gateway does not keep them.

use std::sync::Arc;

use super::resolve::respond;
use crate::key::ListenerId;
use crate::state::parents::Parents;
use gatewright_objects::inputs::EscapedSlashes;
use gatewright_objects::model::{Action, Match, PathMatch, PathRewrite, Redirect, Route, Rule};
use gatewright_objects::request_outcome::ESCAPED_SLASHES;

/// A regular expression for a path with a percent-encoded slash or backslash.
const ESCAPED: &str = ".*%(?:2[Ff]|5[Cc]).*";

/// The route that precedes all others of a listener's hosts, and handles requests with escaped
/// slashes. It is a route, since Gateways share connection managers. The port of its redirect is
/// not derived yet.
pub(crate) fn escaped_slashes(parents: &Parents, listener: &ListenerId) -> Option<Route> {
    let rule = match parents
        .get(&listener.parent)?
        .placement
        .exposure
        .escaped_slashes
    {
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
    let path = PathMatch::Regex(ESCAPED.to_owned());
    let matches = Match {
        path,
        call: None,
        method: None,
        headers: Vec::new(),
        query: Vec::new(),
    };
    Some(Route {
        name: Arc::from(ESCAPED_SLASHES),
        matches,
        rule: Arc::new(rule),
    })
}
