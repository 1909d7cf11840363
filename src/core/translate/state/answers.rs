//! The answers of rules that refer to DirectResponses. Pure.

use std::sync::Arc;

use super::dirty::Dirty;
use crate::key::RouteKey;
use gatewright_objects::inputs::{WrittenAnswer, WrittenBody};
use gatewright_objects::model::{Answer, ObjectName};
use gatewright_objects::store::Store;

/// The answer that a DirectResponse has.
///
/// # Errors
/// Why it has none, with its name and the field.
pub(crate) fn answer(name: &ObjectName, store: &Store) -> Result<Answer, String> {
    let Some(response) = store.direct_response(name) else {
        let note = store.unwatched(name);
        return Err(format!("DirectResponse {name} does not exist{note}"));
    };
    let written = response.answer.as_ref();
    let WrittenAnswer {
        status,
        headers,
        content_type,
        body,
    } = written.map_err(|why| format!("DirectResponse {name}: {why}"))?;
    let body =
        bytes(body, store).map_err(|why| format!("DirectResponse {name}: spec.body: {why}"))?;
    Ok(Answer {
        object: name.clone(),
        status: *status,
        content_type: content_type.clone(),
        headers: headers.clone(),
        body,
    })
}

/// The bytes of a body.
///
/// # Errors
/// Why the ConfigMap has none.
pub(crate) fn bytes(body: &WrittenBody, store: &Store) -> Result<Arc<[u8]>, String> {
    let (map, key) = match body {
        WrittenBody::Empty => return Ok(Arc::default()),
        WrittenBody::Inline(text) => return Ok(text.clone()),
        WrittenBody::ConfigMap { map, key } => (&map.name, key),
    };
    let found = store
        .config_map(map)
        .ok_or_else(|| format!("ConfigMap {map} does not exist"))?;
    let value = found.data.as_ref().map_err(Clone::clone);
    let value = value.and_then(|data| data.get(key).cloned());
    value.map_err(|why| format!("ConfigMap {map}: {why}"))
}

/// Bytes of a header that count beside its text.
const HEADER_BYTES: usize = 150;

/// The bytes of texts that count for an answer, for each match of its rules.
pub(crate) fn size(name: &ObjectName, store: &Store) -> u64 {
    let Ok(answer) = answer(name, store) else {
        return 0;
    };
    let headers = answer.headers.iter();
    let headers: usize = headers
        .map(|(name, value)| HEADER_BYTES + name.len() + value.len())
        .sum();
    (headers + answer.body.len()) as u64
}

/// Marks what depends on an answer: the rules of its routes, and what these routes take, where
/// they name a Gateway and at default Gateways.
pub(crate) fn touch<'a>(
    routes: impl Iterator<Item = &'a RouteKey>,
    store: &Store,
    dirty: &mut Dirty,
) {
    for route in routes {
        if store.route(route).is_some_and(|route| route.uses_defaults) {
            dirty.attachments.insert(route.clone());
        }
        dirty.charged.insert(route.clone());
        dirty.routes.insert(route.clone());
    }
}
