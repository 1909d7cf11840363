//! A query for hostnames: all, or those that changed after a revision. Pure.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::admin_query::path_with;
use gatewright_core::hosts::HostRow;
use gatewright_core::model::Hostname;

/// The path of the admin socket that waits for a change.
pub(crate) const CHANGED: &str = "/hosts/changed";

/// A query for hostnames, as the parameters of a URL have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct HostQuery {
    /// The revision of an earlier answer: only what changed since is asked for.
    pub after: Option<u64>,
}

/// An answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostsAnswer {
    /// The revision that the answer is of.
    pub revision: u64,
    /// True if these are all hostnames, and not only those that changed.
    pub whole: bool,
    /// The rows, by hostname.
    pub hosts: Vec<HostRow>,
    /// The hostnames that changed, and are not there any more.
    pub gone: BTreeSet<String>,
}

/// The steps of the program that answers may be of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostRevisions {
    /// The revision of the last step that changed hostnames.
    pub newest: u64,
    /// The revision up to which it is not known what changed.
    pub forgotten: u64,
}

impl HostRevisions {
    /// Returns whether every hostname may have changed after a revision.
    pub fn are_all_changed_after(&self, revision: u64) -> bool {
        !(self.forgotten..=self.newest).contains(&revision)
    }
}

/// What changed since a revision, without rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HostsChange {
    /// Nothing, for as long as a question waits.
    Nothing,
    /// Some hostnames.
    Some,
    /// Every hostname may have.
    All,
}

impl HostQuery {
    /// Returns the path and query that waits for a change.
    pub fn path_of_change(&self) -> String {
        self.path_at(CHANGED)
    }

    /// Returns the path and query of its URL.
    pub fn path(&self) -> String {
        self.path_at("/hosts")
    }

    fn path_at(&self, route: &str) -> String {
        path_with(
            route,
            [("after", self.after.map(|revision| revision.to_string()))],
        )
    }
}

impl HostsAnswer {
    /// Makes an answer of the rows of the hostnames that were asked for, or of all.
    pub fn new(revision: u64, asked: Option<BTreeSet<Hostname>>, hosts: Vec<HostRow>) -> Self {
        let whole = asked.is_none();
        let asked = asked.into_iter().flatten().map(|name| name.to_string());
        let mut gone: BTreeSet<String> = asked.collect();
        for row in &hosts {
            gone.remove(&row.host);
        }
        Self {
            revision,
            whole,
            hosts,
            gone,
        }
    }
}
