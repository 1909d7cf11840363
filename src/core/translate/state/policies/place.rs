//! Places, which are rules of routes at listeners, and what policies at them are attached to.
//!
//! The levels of a place are the Gateway, its listener, the ListenerSet, its listener, the route,
//! and its rule. A policy on a Gateway as a whole is one on the listeners of its ListenerSets as
//! well; one on a listener of the Gateway is not.

use std::sync::Arc;

use crate::key::{ListenerId, RouteKey};
use crate::state::parent::Parent;
use gatewright_objects::inputs::{Kind, ObjectKey, PolicyTarget, Route, RouteRule};

/// A rule of a route at a listener.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    /// The Gateway or ListenerSet of the listener.
    pub(crate) parent: &'a Parent,
    /// The listener.
    pub(crate) listener: &'a ListenerId,
    /// The route.
    pub(crate) route: &'a RouteKey,
    /// The rules of the route.
    pub(crate) rules: &'a [RouteRule],
    /// The name of the rule, if it has one.
    pub(crate) rule: Option<&'a str>,
}

/// The rules of a route at a listener, each with its place.
pub(crate) fn places<'a>(
    parent: &'a Parent,
    listener: &'a ListenerId,
    (key, route): (&'a RouteKey, &'a Route),
) -> impl Iterator<Item = (&'a RouteRule, Place<'a>)> {
    route.rules.iter().map(move |rule| {
        let place = Place {
            parent,
            listener,
            route: key,
            rules: &route.rules,
            rule: rule.name.as_deref(),
        };
        (rule, place)
    })
}

impl Place<'_> {
    /// What policies at the place are attached to, from the outermost to the innermost.
    pub(crate) fn levels(self) -> [Option<PolicyTarget>; 6] {
        let Place {
            parent,
            listener,
            route,
            rules: _,
            rule,
        } = self;
        let gateway = ObjectKey::new(Kind::Gateway, parent.placement.gateway.clone());
        let parent = listener.parent.object();
        let is_set = parent != gateway;
        let name = Some(&*listener.name);
        let of_gateway = name.filter(|_| !is_set);
        let set = is_set.then(|| target(parent, None));
        [
            Some(target(gateway.clone(), None)),
            of_gateway.map(|name| target(gateway, Some(name))),
            set.clone(),
            set.map(|set| target(set.object, name)),
            Some(target(route.object(), None)),
            rule.map(|rule| target(route.object(), Some(rule))),
        ]
    }
}

/// True if one of the rules has this name.
pub(crate) fn has_rule(rules: &[RouteRule], name: &str) -> bool {
    rules.iter().any(|rule| rule.name.as_deref() == Some(name))
}

fn target(object: ObjectKey, section: Option<&str>) -> PolicyTarget {
    PolicyTarget {
        object,
        section: section.map(Arc::from),
    }
}
