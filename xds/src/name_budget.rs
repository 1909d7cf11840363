//! The budget of names that clients invent.
//!
//! A name that the view has is shared with the view, however many streams subscribe to it. Any
//! other name is kept for the stream that subscribes to it, until it is answered and unsubscribed.
//! Such names are counted here, whatever part of the stream's state has them.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::Limits;
use crate::session::Refusal;

/// The memory of a name in addition to its bytes: the entries of maps and of the allocator.
const OVERHEAD: usize = 128;
/// Unused names are looked for once so many bytes of new names were added, so that the search costs
/// little per name.
const STEP: usize = 1 << 20;

/// The names of all streams of one client, in bytes.
#[derive(Debug, Default)]
pub(crate) struct ClientNames(AtomicUsize);

/// The names that one stream keeps and that its view does not have.
#[derive(Debug, Default)]
pub(crate) struct NameBudget {
    names: HashSet<Arc<str>>,
    bytes: usize,
    /// The bytes after the last search for unused names.
    used: usize,
    client: Arc<ClientNames>,
}

impl NameBudget {
    /// Makes the budget of a stream that counts for this client.
    pub(crate) fn of(client: Arc<ClientNames>) -> NameBudget {
        NameBudget {
            names: HashSet::new(),
            bytes: 0,
            used: 0,
            client,
        }
    }

    /// Returns the stream's copy of `name`.
    pub(crate) fn intern(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.names.get(name) {
            return known.clone();
        }
        let name: Arc<str> = name.into();
        self.names.insert(name.clone());
        self.bytes += cost(&name);
        self.client.0.fetch_add(cost(&name), Relaxed);
        name
    }

    /// Checks the limits, of which names that nothing uses any more are no part.
    pub(crate) fn check(&mut self, limits: &Limits) -> Result<(), Refusal> {
        if self.bytes - self.used >= STEP.max(self.used) {
            self.forget_unused();
        }
        if self.excess(limits).is_some()
            && self.bytes - self.used >= STEP.min(limits.unknown_names_bytes / 4)
        {
            self.forget_unused();
        }
        self.excess(limits).map_or(Ok(()), Err)
    }

    fn excess(&self, limits: &Limits) -> Option<Refusal> {
        let over = |whose, found, limit| {
            (found > limit).then_some(Refusal::TooManyUnknownNames {
                whose,
                bytes: found,
                limit,
            })
        };
        over("this stream", self.bytes, limits.unknown_names_bytes).or_else(|| {
            let of_client = self.client.0.load(Relaxed);
            over(
                "all streams of this client",
                of_client,
                limits.unknown_names_bytes_per_client,
            )
        })
    }

    fn forget_unused(&mut self) {
        self.names.retain(|name| Arc::strong_count(name) > 1);
        self.names.shrink_to_fit();
        let used = self.names.iter().map(|name| cost(name)).sum();
        self.client.0.fetch_sub(self.bytes - used, Relaxed);
        (self.bytes, self.used) = (used, used);
    }
}

impl Drop for NameBudget {
    fn drop(&mut self) {
        self.client.0.fetch_sub(self.bytes, Relaxed);
    }
}

fn cost(name: &str) -> usize {
    name.len() + OVERHEAD
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns names of this length.
    fn names(count: usize, bytes: usize) -> impl Iterator<Item = String> {
        (0..count).map(move |number| format!("{number:0bytes$}"))
    }

    #[test]
    fn names_in_use_are_limited_and_unused_ones_do_not_count() {
        let mut budget = NameBudget::default();
        let limits = Limits::default();
        let mut kept = Vec::new();
        let refused = names(10_000, 4096).find_map(|name| {
            kept.push(budget.intern(&name));
            budget.check(&limits).err()
        });
        let refused = refused.expect("40 MB are too many").to_string();
        assert!(
            refused.contains("on this stream; at most 33554432 are allowed"),
            "{refused}"
        );
        assert!(
            kept.len() * 4096 < limits.unknown_names_bytes && kept.len() > 7_000,
            "{}",
            kept.len()
        );

        let mut budget = NameBudget::default();
        for name in names(10_000, 4096) {
            budget.intern(&name);
            budget.check(&limits).expect("nothing keeps it");
        }
        assert!(budget.bytes < 2 * STEP, "{}", budget.bytes);
    }

    #[test]
    fn the_streams_of_a_client_have_a_limit_together_until_they_end() {
        let client = Arc::<ClientNames>::default();
        let limits = Limits::default();
        let fill = || {
            let mut budget = NameBudget::of(client.clone());
            let kept: Vec<_> = names(7_000, 4096)
                .map(|name| budget.intern(&name))
                .collect();
            let checked = budget.check(&limits).map_err(|refused| refused.to_string());
            (budget, kept, checked)
        };
        let streams = [fill(), fill()];
        assert!(
            streams.iter().all(|(.., checked)| checked.is_ok()),
            "each is within its own limit"
        );
        let refused = fill().2.expect_err("three are too many");
        assert!(
            refused.contains("on all streams of this client; at most 67108864 are allowed"),
            "{refused}"
        );
        let of_another = NameBudget::default().check(&limits);
        assert_eq!(of_another, Ok(()));
        drop(streams);
        assert_eq!(client.0.load(Relaxed), 0);
    }

    #[test]
    fn names_of_two_hundred_thousand_hosts_fit_even_if_the_view_has_none_of_them() {
        let mut budget = NameBudget::default();
        let limits = Limits::default();
        let kept: Vec<_> = names(200_000, 32)
            .map(|name| budget.intern(&name))
            .collect();
        assert_eq!(budget.check(&limits), Ok(()), "the names fit");
        assert_eq!(kept.len(), 200_000, "each is kept");
    }
}
