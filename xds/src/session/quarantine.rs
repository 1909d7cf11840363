//! Quarantine: splits a refused response until the refused resources are known.

use super::*;
use crate::marked_scope::new_mark;

impl Session {
    pub(super) fn refused(
        &mut self,
        kind: Kind,
        answered: InFlight,
        text: &str,
        tables: &Tables,
        now: Instant,
    ) {
        let sub = self.subscriptions[kind as usize]
            .as_deref_mut()
            .expect("the caller found it");
        let mut items = answered.items;
        if kind == Kind::Listener {
            items
                .iter()
                .for_each(|item| self.scope_sources.refused(item));
        }
        let refused = items.len();
        // Resources that the client unsubscribed from meanwhile are disregarded, as are removed
        // ones whose removal it got or will get.
        let table = tables.table(kind);
        fn gone(name: &str, cursor: u64, table: &crate::tables::Table) -> bool {
            table
                .entry(name)
                .is_none_or(|e| e.current.is_none() && e.generation() <= cursor)
        }
        for item in &items {
            if let Item::Part { sent, .. } = item
                && (!sub.wants(sent.name(), Some(sent)) || gone(sent.name(), sub.cursor, table))
                && sub.divisions.remove(sent.name()).is_some()
            {
                self.effects
                    .push(Effect::undivided(kind, sent.shared_name().clone()));
            }
        }
        items.retain(|item| {
            item.resource()
                .is_none_or(|r| sub.wants(r.name(), Some(r)) && !gone(r.name(), sub.cursor, table))
        });
        if refused > 1 {
            if kind == Kind::Scope {
                items = marked(items);
            }
            sub.probes.extend(parts(items, text));
            return;
        }
        let text: Arc<str> = clip(text).into();
        match items.pop() {
            Some(Item::Upsert(r) | Item::Part { complete: r, .. })
                if (self.limits.is_temporary)(&text) =>
            {
                self.refused_for_now(kind, &r, &text, tables, now);
            }
            Some(Item::Upsert(r)) => self.divide_or_hold_back(kind, &r, &text, tables),
            Some(Item::Part { complete, sent }) => {
                self.part_refused(kind, (&complete, &sent), &text, tables)
            }
            Some(Item::Fallback(r)) => {
                // Even the older version is refused: nothing is left to try until the resource
                // changes.
                let sub = self.subscriptions[kind as usize]
                    .as_deref_mut()
                    .expect("the caller found it");
                if let Some(q) = sub.quarantine.get_mut(r.name()) {
                    q.held = Held::Unknown;
                }
            }
            // That a name has no resource is nothing to refuse, and the name is whatever the client
            // asked for.
            Some(item @ (Item::Remove(_) | Item::Withhold(_) | Item::Absent(_))) => {
                return self.accepted(
                    kind,
                    InFlight {
                        items: vec![item],
                        ..answered
                    },
                    tables,
                );
            }
            None if refused == 0 => self.effects.push(Effect::Rejected {
                kind,
                name: "".into(),
                version: "".into(),
                text,
            }),
            None => {}
        }
        let sub = self.subscriptions[kind as usize]
            .as_deref_mut()
            .expect("the caller found it");
        if let Some(generation) = answered.settles
            && sub.in_flight.is_empty()
            && sub.probes.is_empty()
        {
            sub.settled = sub.settled.max(generation);
        }
    }
}

impl Session {
    /// Puts a resource that the client refuses into quarantine, until it changes.
    pub(super) fn hold_back(
        &mut self,
        kind: Kind,
        r: &Arc<Resource>,
        text: Arc<str>,
        tables: &Tables,
    ) {
        let sub = self.subscriptions[kind as usize]
            .as_deref_mut()
            .expect("the caller found it");
        let table = tables.table(kind);
        let name = r.shared_name().clone();
        let version: Arc<str> = r.version().into();
        let good = table
            .good(&name)
            .filter(|g| g.version() != &*version)
            .cloned();
        // A client that starts fresh gets the last good version; for others it changes nothing.
        sub.probes
            .extend(good.clone().map(|good| vec![Item::Fallback(good)]));
        let elsewhere = table.entry(&name).is_some_and(|e| e.acknowledged);
        let held = match good {
            Some(good) => Held::Known(good),
            None if elsewhere || sub.older.contains(&name) => Held::Unknown,
            None => Held::Nothing,
        };
        sub.quarantine.insert(
            name.clone(),
            Quarantined {
                version: version.clone(),
                held,
                retry: None,
            },
        );
        self.effects.push(Effect::Rejected {
            kind,
            name,
            version,
            text,
        });
    }
}

/// Returns items with bytes that the client has not seen, where they are scopes.
pub(super) fn marked(items: Vec<Item>) -> Vec<Item> {
    let mark = new_mark();
    items.into_iter().map(|item| item.marked(mark)).collect()
}

/// Splits a refused response so that one more round trip finds the culprits if possible.
fn parts(items: Vec<Item>, text: &str) -> Vec<Vec<Item>> {
    let mut parts = Vec::new();
    let (upserts, removals): (Vec<_>, Vec<_>) =
        items.into_iter().partition(|i| i.resource().is_some());
    if !removals.is_empty() && !upserts.is_empty() {
        parts.push(removals);
    } else if !removals.is_empty() {
        parts.extend(removals.into_iter().map(|item| vec![item]));
    }
    let (suspects, others): (Vec<_>, Vec<_>) = upserts
        .into_iter()
        .partition(|i| mentions_word(text, i.name()));
    if suspects.is_empty() {
        parts.extend(split(others));
    } else {
        if !others.is_empty() {
            parts.push(others);
        }
        parts.extend(split(suspects));
    }
    parts
}

/// Splits items: removals, which are never refused, in one response; each resource in a response of
/// its own.
pub(super) fn one_by_one(items: Vec<Item>) -> impl Iterator<Item = Vec<Item>> {
    let (upserts, removals): (Vec<_>, Vec<_>) =
        items.into_iter().partition(|i| i.resource().is_some());
    let removals = (!removals.is_empty()).then_some(removals);
    removals
        .into_iter()
        .chain(upserts.into_iter().map(|item| vec![item]))
}

fn split(items: Vec<Item>) -> Vec<Vec<Item>> {
    let size = if items.len() <= MAX_SINGLE_ITEMS {
        1
    } else {
        items.len().div_ceil(16)
    };
    items.chunks(size).map(<[Item]>::to_vec).collect()
}

/// Returns true if `text` has `name` as a separate word, so that `a.example` is not found in
/// `a.example.com`.
fn mentions_word(text: &str, name: &str) -> bool {
    fn boundary(c: Option<char>) -> bool {
        c.is_none_or(|c| !(c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '/')))
    }
    !name.is_empty()
        && text.match_indices(name).any(|(at, _)| {
            let before = &text[..at];
            let after = &text[at + name.len()..];
            // A full stop at the end of a sentence is not part of a name.
            let after = after
                .strip_prefix('.')
                .filter(|rest| boundary(rest.chars().next()))
                .unwrap_or(after);
            boundary(before.chars().next_back()) && boundary(after.chars().next())
        })
}

pub(super) fn mentions(haystack: &[u8], needle: &[u8]) -> bool {
    !needle.is_empty() && haystack.windows(needle.len()).any(|w| w == needle)
}

/// Shortens a client's error to fit into a status, on one line.
fn clip(text: &str) -> String {
    const MAX: usize = 2048;
    let mut clipped = one_line(text, MAX);
    if text.chars().nth(MAX).is_some() {
        clipped.push_str("...");
    }
    clipped
}
