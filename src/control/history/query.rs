//! A query for the history: about an object or a hostname, in a time.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{ChangedObject, History, HistoryEntry};
use crate::admin_query::path_with;

/// A query for the history, as the parameters of a URL have it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct HistoryQuery {
    /// A hostname, or an object as `KIND/NAME` or `KIND/NAMESPACE/NAME`.
    pub what: Option<String>,
    /// The namespace of the objects.
    pub namespace: Option<String>,
    /// The earliest time.
    pub since: Option<Timestamp>,
    /// The latest time.
    pub until: Option<Timestamp>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HistoryAnswer {
    /// The changes, the oldest first.
    pub changes: Vec<HistoryEntry>,
    /// The time of the newest change that was pushed out by others: before it, changes are missing.
    pub forgotten: Option<Timestamp>,
}

impl HistoryQuery {
    /// Returns the path and query of its URL.
    pub fn path(&self) -> String {
        let Self {
            what,
            namespace,
            since,
            until,
        } = self;
        path_with(
            "/history",
            [
                ("what", what.clone()),
                ("namespace", namespace.clone()),
                ("since", since.map(|time| time.to_string())),
                ("until", until.map(|time| time.to_string())),
            ],
        )
    }

    /// Returns whether a change is asked for.
    pub(crate) fn has(&self, entry: &HistoryEntry) -> bool {
        let Self {
            what,
            namespace,
            since,
            until,
        } = self;
        since.is_none_or(|since| entry.at >= since)
            && until.is_none_or(|until| entry.at <= until)
            && namespace
                .as_ref()
                .is_none_or(|namespace| **namespace == *entry.namespace)
            && what.as_ref().is_none_or(|what| is_about(entry, what))
    }
}

/// Returns whether a change is about an object or a hostname. A change with more objects or
/// hostnames than are named may be about any.
fn is_about(entry: &HistoryEntry, what: &str) -> bool {
    match what.split_once('/') {
        Some((kind, name)) => {
            let kind = kind.to_lowercase();
            entry.more_objects > 0 || entry.objects.iter().any(|object| is(object, &kind, name))
        }
        None => {
            let what = what.to_lowercase();
            entry.more_hosts > 0 || entry.hosts.iter().any(|host| names(host, &what))
        }
    }
}

/// Returns whether an object has a kind and a name, with or without its namespace.
fn is(object: &ChangedObject, kind: &str, name: &str) -> bool {
    object
        .object
        .split_once(' ')
        .is_some_and(|(of_kind, rest)| {
            let rest = rest.split(' ').next().unwrap_or_default();
            let bare = rest.split_once('/').map_or(rest, |(_, bare)| bare);
            of_kind == kind && (rest == name || bare == name)
        })
}

/// Returns whether a hostname of resources is a host, or a wildcard over it.
fn names(hostname: &str, host: &str) -> bool {
    hostname == host
        || hostname
            .strip_prefix('*')
            .is_some_and(|suffix| host.ends_with(suffix))
}

impl History {
    /// Returns the changes that are asked for.
    pub fn answer(&self, query: &HistoryQuery) -> HistoryAnswer {
        let all = self.all().into_iter();
        HistoryAnswer {
            changes: all.filter(|entry| query.has(entry)).cloned().collect(),
            forgotten: self.forgotten,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Author, ChangeKind};
    use axum::extract::Query;

    fn entry(object: &str, hosts: &[&str]) -> HistoryEntry {
        let at = Timestamp::from_second(1_000).expect("a time");
        let mut entry = HistoryEntry::new("a".into(), ChangeKind::Route, at);
        entry.objects = vec![ChangedObject {
            object: object.to_owned(),
            author: Author::default(),
        }];
        entry.hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
        entry
    }

    #[test]
    fn a_query_is_read_as_it_is_written() {
        let query = HistoryQuery {
            what: Some("httproute/a/x".to_owned()),
            namespace: Some("a".to_owned()),
            since: Some(Timestamp::UNIX_EPOCH),
            until: None,
        };
        for query in [query, HistoryQuery::default()] {
            let path = query.path();
            let uri = path.parse().expect("a URL");
            let Query(read) = Query::<HistoryQuery>::try_from_uri(&uri).expect("parameters");
            assert_eq!(read, query, "{path}");
        }
    }

    #[test]
    fn a_change_is_about_its_objects_and_hosts() {
        let change = entry(
            "httproute a/x deleted",
            &["shop.example.org", "*.w.example.org"],
        );
        for (what, is_asked_for) in [
            ("httproute/x", true),
            ("HTTPRoute/a/x", true),
            ("httproute/b/x", false),
            ("grpcroute/x", false),
            ("Shop.example.org", true),
            ("one.w.example.org", true),
            ("w.example.org", false),
            ("other.example.org", false),
        ] {
            let query = HistoryQuery {
                what: Some(what.to_owned()),
                ..HistoryQuery::default()
            };
            assert_eq!(query.has(&change), is_asked_for, "{what}");
        }
        let mut large = entry("gateway a/x", &["a.example.org"]);
        large.more_hosts = 7;
        assert!(
            is_about(&large, "other.example.org"),
            "it may be among those that are not named"
        );
    }

    #[test]
    fn a_change_is_in_a_time_and_a_namespace() {
        let change = entry("httproute a/x", &[]);
        let second = |at| Some(Timestamp::from_second(at).expect("a time"));
        for (since, until, namespace, is_asked_for) in [
            (second(999), second(1_001), None, true),
            (second(1_001), None, None, false),
            (None, second(999), None, false),
            (None, None, Some("a"), true),
            (None, None, Some("b"), false),
        ] {
            let query = HistoryQuery {
                what: None,
                namespace: namespace.map(str::to_owned),
                since,
                until,
            };
            assert_eq!(query.has(&change), is_asked_for, "{query:?}");
        }
    }
}
