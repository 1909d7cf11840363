//! Virtual hosts that may share a table with those of others: Envoy reads a table anew whenever one
//! of its hosts changes.

use super::{Action, HeaderEdits, Match, Route, Rule, VirtualHost, WeightedTarget};

/// The most routes of a light host, the most conditions of each on headers and parameters, and the
/// most backends.
const ROUTES: usize = 16;
const CONDITIONS: usize = 4;
const BACKENDS: usize = 8;

impl VirtualHost {
    /// True if it does little more than forward requests: no filter of a policy or route, no
    /// expression and no text of its owner's grows with it.
    pub fn is_light(&self) -> bool {
        self.routes.len() <= ROUTES && self.routes.iter().all(is_light)
    }
}

fn is_light(route: &Route) -> bool {
    let Route {
        name: _,
        matches,
        rule,
    } = route;
    let conditions = matches.headers.len() + matches.query.len();
    conditions <= CONDITIONS && !has_expressions(matches) && only_forwards(rule)
}

fn has_expressions(matches: &Match) -> bool {
    matches.path_regex().is_some() || matches.value_regexes().next().is_some()
}

fn only_forwards(rule: &Rule) -> bool {
    let Rule {
        action,
        request_headers,
        response_headers,
        rewrite: _,
        mirrors: _,
        cors,
        timeouts: _,
        retry: _,
        session,
        auth,
        access,
        rate_limits,
        bodies,
        counted: _,
    } = rule;
    let is_short = match action {
        Action::Forward(shares) => shares.len() <= BACKENDS && shares.iter().all(is_plain),
        Action::Redirect(_) | Action::Respond(_) => true,
        Action::Answer(_) => false,
    };
    is_short
        && is_unedited(request_headers, response_headers)
        && cors.is_none()
        && session.is_none()
        && auth.is_none()
        && access.is_empty()
        && rate_limits.is_none()
        && bodies.is_empty()
}

fn is_plain(share: &WeightedTarget) -> bool {
    is_unedited(&share.request_headers, &share.response_headers) && share.session.is_none()
}

fn is_unedited(request: &HeaderEdits, response: &HeaderEdits) -> bool {
    let none = HeaderEdits::default();
    *request == none && *response == none
}
