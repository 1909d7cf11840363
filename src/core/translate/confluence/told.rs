//! What `explain` and `plan` say of who answers, beside what the routes are told: neither is silent
//! about what the other says.

use crate::Engine;
use crate::key::{ListenerId, RouteKey};
use crate::stage::host_contests::Contest;
use gatewright_objects::model::{FrontendId, Hostname};

/// Where a route is attached with a hostname.
struct Attached<'a> {
    route: &'a RouteKey,
    frontend: FrontendId,
    listener: ListenerId,
    hostname: &'a Hostname,
}

/// Routes that are told that something else answers for a hostname, and do answer, and routes in
/// whose place another listener's answer without a word.
pub(super) fn silences(engine: &Engine) -> String {
    let servings = engine.servings();
    let mut found = String::new();
    for at in attached(engine).filter(|at| claims(engine, at)) {
        let contest = engine
            .contests()
            .of(at.route, &at.frontend, at.hostname, &at.listener);
        let is_lost = contest.is_some_and(|contest| !matches!(contest, Contest::Shared(_)));
        let mut here = servings
            .iter()
            .filter(|serving| serving.frontend == at.frontend && serving.hostname == *at.hostname);
        let Some(serving) = here.next() else {
            continue;
        };
        let answers = serving.routes.contains(at.route);
        let place = format!(
            "{} for {} on {}",
            at.route.object(),
            at.hostname,
            at.frontend
        );
        if is_lost && answers && serving.listener == at.listener {
            found += &format!("{place} is told that it is lost, and answers\n");
        }
        let is_of_others = serving.listener != at.listener && !serving.routes.is_empty();
        if is_of_others
            && !answers
            && !is_lost
            && !engine.is_attached_to(at.route, &serving.listener)
        {
            found += &format!("{place} is told nothing of {}\n", serving.listener);
        }
    }
    found
}

/// True if the listener claims its hostname: one that does not says so itself.
fn claims(engine: &Engine, at: &Attached<'_>) -> bool {
    let frontend = engine.frontends().get(&at.frontend);
    let mut listeners = frontend
        .into_iter()
        .flat_map(|frontend| frontend.claims().listeners());
    listeners.any(|listener| *listener == at.listener)
}

fn attached(engine: &Engine) -> impl Iterator<Item = Attached<'_>> {
    let routes = engine.attached().iter();
    routes.flat_map(move |(route, reached)| {
        reached.iter().flat_map(move |(_, parent, attachment)| {
            attachment.listeners.iter().flat_map(move |of| {
                let listener = ListenerId {
                    parent: parent.clone(),
                    name: of.listener.clone(),
                };
                let frontend = engine.frontend_of(&listener);
                of.names.iter().filter_map(move |(hostname, _)| {
                    Some(Attached {
                        route,
                        frontend: frontend.clone()?,
                        listener: listener.clone(),
                        hostname,
                    })
                })
            })
        })
    })
}
