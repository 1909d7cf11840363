//! What changes are about, and the hosts that they touch, for the log.

use super::*;
use gatewright_core::model::Hostname;

/// Returns the subject of changes, for the log.
pub(super) fn subject(changes: &[Change]) -> Subject {
    let text = match changes {
        [] => "validity of certificates".to_owned(),
        [one] => text(one),
        [first, rest @ ..] => format!("{} and {} more", text(first), rest.len()),
    };
    Subject {
        object: changes.first().and_then(Change::key),
        text,
    }
}

/// Returns the text about one change.
pub(super) fn text(change: &Change) -> String {
    match change {
        Change::Object(ObjectChange::Put(object)) => object.key().to_string(),
        Change::Object(ObjectChange::Delete(key)) => format!("{key} deleted"),
        Change::Fact(fact) => fact.key().to_string(),
    }
}

/// Returns the hostnames that a delta affects. A table is that of its listener's hostname, unless a
/// host below it changes by name.
pub(super) fn hosts(delta: &Delta) -> BTreeSet<String> {
    let named: BTreeSet<&Hostname> = delta
        .resources
        .keys()
        .filter_map(|key| match key {
            ResourceKey::SniCluster(_, host)
            | ResourceKey::Scope(_, host)
            | ResourceKey::Secret(SecretName::Sni(host)) => Some(host),
            _ => None,
        })
        .collect();
    let others = delta.resources.keys().filter_map(|key| match key {
        ResourceKey::Secret(SecretName::Fixed(_, name)) => Some(name.to_string()),
        ResourceKey::Table(table) if !named.iter().any(|host| table.listener.covers(host)) => {
            Some(table.listener.to_string())
        }
        _ => None,
    });
    named
        .iter()
        .map(ToString::to_string)
        .chain(others)
        .collect()
}
