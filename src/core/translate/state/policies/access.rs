//! AccessPolicies at a place: they add up.

use std::sync::Arc;
use std::time::Duration;

use super::Policies;
use super::judged::Effect;
use super::place::Place;
use gatewright_objects::cost::{self, TOKEN_TIME};
use gatewright_objects::inputs::Kind;
use gatewright_objects::settings::Access;

/// The clients that may send the requests of a place.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AccessAt {
    /// Whom all of these admit, the outermost first; everybody where there are none.
    Admit(Vec<Arc<Access>>),
    /// Nobody: an AccessPolicy cannot be carried out, or is not allowed.
    Closed,
}

impl Policies {
    /// True if an AccessPolicy names a listener or rule that its target, around this place, does
    /// not have: it may have meant any of them, this one as well.
    fn is_closed_by_missing_section(&self, place: Place<'_>) -> bool {
        let (parent, route) = (place.listener.parent.object(), place.route.object());
        let of_parent = self.on(&parent);
        let of_parent = of_parent.filter(|judged| judged.closes_parent(&parent, place.parent));
        let of_route = self.on(&route);
        let of_route = of_route.filter(|judged| judged.closes_route(&route, place.rules));
        of_parent.chain(of_route).any(|judged| {
            matches!(
                judged.effect_at(place.parent),
                Effect::Admit(_) | Effect::Close
            )
        })
    }

    /// The clients that may send the requests of a place. AccessPolicies add up: an inner one never
    /// opens what an outer one closed.
    pub(crate) fn access(&self, place: Place<'_>) -> AccessAt {
        if !self.guard_nothing() && self.is_closed_by_missing_section(place) {
            return AccessAt::Closed;
        }
        let mut all = Vec::new();
        for judged in self.at(Kind::AccessPolicy, place) {
            match judged.effect_at(place.parent) {
                Effect::Admit(access) => all.push(access.clone()),
                Effect::Close => return AccessAt::Closed,
                _ => {}
            }
        }
        if has_logins(&all, 2) {
            return AccessAt::Closed;
        }
        within_token_time(all)
    }

    /// The time that a token may take at a place, by the policies that refuse requests.
    pub(crate) fn token_time(&self, place: Place<'_>) -> Duration {
        let policies = self.at(Kind::AccessPolicy, place);
        let times = policies
            .iter()
            .map(|judged| match judged.effect_at(place.parent) {
                Effect::Admit(access) if !access.only_reports() => cost::token_time(access),
                _ => Duration::ZERO,
            });
        times.sum()
    }
}

/// Nobody, where a token takes more time than it may by all policies together. Those that only
/// report are left out where there is no time for them.
fn within_token_time(all: Vec<Arc<Access>>) -> AccessAt {
    let enforced = all.iter().filter(|access| !access.only_reports());
    let mut time: Duration = enforced.map(|access| cost::token_time(access)).sum();
    if time > TOKEN_TIME {
        return AccessAt::Closed;
    }
    let fitting = all.into_iter().filter(|access| {
        if !access.only_reports() {
            return true;
        }
        let with_it = time + cost::token_time(access);
        let fits = with_it <= TOKEN_TIME;
        if fits {
            time = with_it;
        }
        fits
    });
    AccessAt::Admit(fitting.collect())
}

/// True if so many of the policies ask for a login. One alone can: the paths of the way back from
/// the provider and of the logout belong to it.
pub(crate) fn has_logins(all: &[Arc<Access>], count: usize) -> bool {
    let logins = all.iter().filter(|access| access.oidc.is_some());
    logins.count() >= count
}
