//! The log of rejections: each is logged once, and the Envoys of one view cause a bounded number of
//! lines.
//!
//! An Envoy determines how often it rejects a resource and with which message, and a compromised
//! one may do so with every answer. Rejections beyond the bound are logged later, if they are still
//! there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use xds::{Rejection, View};

use super::rejections::{RejectedKey, rejected_name, with_advice};
use crate::event::Event;
use gatewright_core::inputs::ObjectKey;

/// The maximum number of lines about rejections in one view within [`WITHIN`].
const LINES: usize = 100;
const WITHIN: Duration = Duration::from_secs(60);

/// A rejection, for logging it once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LoggedRejection {
    pub(super) view: View,
    node: String,
    pub(super) kind: xds::Kind,
    pub(super) resource: String,
    pub(super) text: Arc<str>,
}

impl LoggedRejection {
    pub(super) fn of(r: &Rejection) -> Self {
        let view = r.view.clone();
        let node = r.node.to_string();
        let text = r.text.clone();
        Self {
            view,
            node,
            kind: r.kind,
            resource: rejected_name(r),
            text,
        }
    }

    /// Returns the event about the object that the resource was made from.
    pub(super) fn event(&self, object: Option<ObjectKey>) -> Event {
        let Self {
            view: _,
            node,
            kind,
            resource,
            text,
        } = self.clone();
        Event::Rejected {
            node,
            object,
            kind: format!("{kind:?}"),
            resource,
            text: with_advice(text.to_string(), &text),
        }
    }

    /// Returns the event that the address is bound now.
    pub(super) fn end_event(&self) -> Event {
        Event::Bound {
            node: self.node.clone(),
            resource: self.resource.clone(),
        }
    }
}

/// The present rejections that were logged, and the lines of the last while.
#[derive(Default)]
pub(super) struct RejectionLog {
    logged: BTreeSet<LoggedRejection>,
    lines: BTreeMap<View, Lines>,
}

/// The lines about the rejections in one view.
struct Lines {
    since: Duration,
    written: usize,
    omits: bool,
}

impl RejectionLog {
    /// The logged rejections by these Envoys, of resources that they do not reject any more.
    pub(super) fn ended<'a>(
        &'a self,
        all: &'a BTreeMap<LoggedRejection, RejectedKey>,
        nodes: &'a BTreeSet<&str>,
    ) -> impl Iterator<Item = &'a LoggedRejection> {
        fn resource(rejection: &LoggedRejection) -> (&View, &String, xds::Kind, &String) {
            (
                &rejection.view,
                &rejection.node,
                rejection.kind,
                &rejection.resource,
            )
        }
        let present: BTreeSet<_> = all.keys().map(resource).collect();
        let connected = self
            .logged
            .iter()
            .filter(|logged| nodes.contains(&*logged.node));
        connected.filter(move |logged| !present.contains(&resource(logged)))
    }

    /// Takes in all present rejections. Returns those to be logged now, and events about views of
    /// which more are not.
    pub(super) fn new_ones(
        &mut self,
        all: &BTreeMap<LoggedRejection, RejectedKey>,
        at: Duration,
    ) -> (Vec<LoggedRejection>, Vec<Event>) {
        self.logged.retain(|rejection| all.contains_key(rejection));
        self.lines
            .retain(|_, lines| at.saturating_sub(lines.since) < WITHIN);
        let mut new = Vec::new();
        let mut omitted = Vec::new();
        for rejection in all
            .keys()
            .filter(|rejection| !self.logged.contains(*rejection))
        {
            let lines = self
                .lines
                .entry(rejection.view.clone())
                .or_insert_with(|| Lines {
                    since: at,
                    written: 0,
                    omits: false,
                });
            if lines.written < LINES {
                lines.written += 1;
                new.push(rejection.clone());
            } else if !std::mem::replace(&mut lines.omits, true) {
                omitted.push(Event::RejectionsOmitted {
                    view: rejection.view.to_string(),
                });
            }
        }
        self.logged.extend(new.iter().cloned());
        (new, omitted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejected(
        view: &str,
        texts: std::ops::Range<usize>,
    ) -> BTreeMap<LoggedRejection, RejectedKey> {
        texts
            .map(|number| Rejection {
                view: View::new(view),
                node: "envoy".into(),
                kind: xds::Kind::Cluster,
                name: "c".into(),
                part: None,
                version: "1".into(),
                text: format!("{number:06}").into(),
            })
            .map(|r| (LoggedRejection::of(&r), RejectedKey::of(&r)))
            .collect()
    }

    #[test]
    fn a_view_with_many_refusals_causes_few_lines_and_takes_none_from_another() {
        let mut log = RejectionLog::default();
        fn told(
            all: BTreeMap<LoggedRejection, RejectedKey>,
            second: u64,
            log: &mut RejectionLog,
        ) -> (usize, usize) {
            let (new, omitted) = log.new_ones(&all, Duration::from_secs(second));
            (new.len(), omitted.len())
        }
        assert_eq!(
            told(rejected("bank", 0..LINES + 7), 0, &mut log),
            (LINES, 1)
        );
        let mut all = rejected("bank", 0..LINES + 7);
        all.extend(rejected("shop", 0..3));
        assert_eq!(
            told(all, 1, &mut log),
            (3, 0),
            "those of the other view, and nothing is told twice"
        );
        for second in 2..59 {
            let texts = 1_000 * second as usize;
            assert_eq!(
                told(rejected("bank", texts..texts + 50), second, &mut log),
                (0, 0),
                "other texts each time"
            );
        }
        assert_eq!(
            told(rejected("bank", 0..7), 60, &mut log),
            (7, 0),
            "what is still there is logged later"
        );
    }
}
