//! Reading filter `ExtensionRef` of an HTTPRoute, which refers to a DirectResponse.

use std::sync::Arc;

use super::{Kind, Unsupported};
use crate::gateway_api::httproutes as gw;
use crate::model::{Match, ObjectName};

/// The DirectResponse that a filter refers to: of the route's namespace, as the reference has none.
pub(super) fn read(
    namespace: &Arc<str>,
    r: gw::HttpRouteRulesFiltersExtensionRef,
) -> Result<ObjectName, Unsupported> {
    if r.group == Kind::DirectResponse.group() && r.kind == Kind::DirectResponse.as_str() {
        return Ok(ObjectName::new(namespace.clone(), r.name));
    }
    Err(Unsupported::Value(format!(
        "filter ExtensionRef {} {:?} is not supported, kind DirectResponse of group {} is",
        r.kind,
        r.name,
        Kind::DirectResponse.group()
    )))
}

/// Checks that a DirectResponse stands alone: `others` are the filters that answer as well, or have an
/// effect on requests to backends only, and whether they are there. Envoy's CORS has: it adds no
/// headers to an answer of its own.
pub(super) fn alone(others: [(bool, &str); 4]) -> Result<(), Unsupported> {
    match others.into_iter().find(|(is_there, _)| *is_there) {
        Some((_, other)) => Err(Unsupported::Incompatible(format!(
            "filter {other} is in vain beside a DirectResponse: remove one of them"
        ))),
        None => Ok(()),
    }
}

/// Refuses a DirectResponse where it cannot answer: a rule with backends, as one with a redirect,
/// and calls of gRPC, whose clients expect a message and trailers.
pub(super) fn check(
    response: Option<&ObjectName>,
    matches: &[Match],
    backends: usize,
) -> Result<(), Unsupported> {
    if response.is_none() {
        return Ok(());
    }
    if matches.iter().any(|one| one.call.is_some()) {
        let text = "filter ExtensionRef: a DirectResponse answers HTTP, no calls of gRPC: use an HTTPRoute";
        return Err(Unsupported::Value(text.to_owned()));
    }
    if backends > 0 {
        let text = "a rule with a DirectResponse has no backendRefs: remove them, or put a rule with the same \
                    matches and the filter before it";
        return Err(Unsupported::Incompatible(text.to_owned()));
    }
    Ok(())
}
