//! Rounds: choose the next response, make before break.

use super::quarantine::{marked, mentions, one_by_one};
use super::*;
use crate::tables::Entry;

/// An amount of resources to send.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Amount {
    resources: usize,
    bytes: usize,
}

impl Amount {
    fn of(items: &Unsent) -> Amount {
        let items = items.values().flatten();
        items.fold(Amount::default(), |all, item| all.and(item.bytes()))
    }

    /// This and a resource of so many bytes.
    fn and(self, bytes: usize) -> Amount {
        Amount {
            resources: self.resources + 1,
            bytes: self.bytes + bytes,
        }
    }

    fn less(self, other: Amount) -> Amount {
        Amount {
            resources: self.resources - other.resources,
            bytes: self.bytes - other.bytes,
        }
    }

    /// Returns true if one response of a round may have so many.
    fn fits(self, limits: &Limits) -> bool {
        self.resources <= limits.response_resources && self.bytes <= limits.round_bytes
    }

    /// The full responses that it takes.
    fn pages(self, limits: &Limits) -> usize {
        (self.resources / limits.response_resources).max(self.bytes / limits.round_bytes)
    }
}

impl Round {
    /// Returns true if this round may make way for the next: a page or more is left of it. It does
    /// so once for each page that it had, so that it ends however often the view changes.
    fn makes_way(&self, limits: &Limits) -> bool {
        self.pages > 0 && self.left.pages(limits) > 0
    }

    /// Adds what is left of this round to the next, behind what that has. Items of resources that
    /// have changed since are dropped: the next round decides about these, even where it sends
    /// nothing, be it because the client does not subscribe to them at this moment.
    fn join(&mut self, next: &mut Unsent, tables: &Tables) {
        for ((step, kind), mut items) in std::mem::take(&mut self.unsent) {
            items.retain(|item| {
                // An old removal may be forgotten already.
                let entry = tables.table(kind).entry(item.name());
                entry.is_none_or(|entry| entry.generation() <= self.target)
            });
            if !items.is_empty() {
                next.entry((step, kind)).or_default().append(&mut items);
            }
        }
    }
}

impl Session {
    /// Returns the next response, if one can be sent now. `may` is called each time the view has
    /// changes, and returns true if they may be taken up now (rate limit).
    pub(crate) fn next(
        &mut self,
        tables: &Tables,
        now: Instant,
        mut may: impl FnMut() -> bool,
    ) -> Option<Outgoing> {
        self.retry(tables, now);
        loop {
            let behind = self.behind(tables);
            let wait = behind && !may();
            if behind && !wait {
                self.take_up(tables);
            }
            let out = self.respond(tables, now);
            // A round that has just ended makes way for the next.
            if out.is_some() || wait || !self.behind(tables) {
                return out;
            }
        }
    }

    /// Returns the next response from the changes that were taken up.
    fn respond(&mut self, tables: &Tables, now: Instant) -> Option<Outgoing> {
        // Most streams have nothing to send when this is called.
        while self.has_more() {
            let steps = self.steps_left();
            for kind in Kind::ALL {
                if let Some(items) = self.next_of(kind, tables) {
                    return Some(self.send(kind, items, tables, now));
                }
            }
            // A step whose removals are all deferred ends without a response.
            if self.steps_left() == steps {
                break;
            }
        }
        if !self.end_round() {
            return None;
        }
        if self.release_removals(tables) {
            return self.respond(tables, now);
        }
        if self.began == tables.generation {
            self.record_generations();
        }
        None
    }

    /// Returns true if something is left to send, now or after an answer.
    fn has_more(&self) -> bool {
        self.steps_left() > 0 || self.subscriptions().any(|s| s.has_more())
    }

    /// Returns true if the view has changes that can be taken up.
    fn behind(&self, tables: &Tables) -> bool {
        self.may_begin(tables)
            || self
                .subscriptions()
                .any(|s| s.kind.rank() == Rank::Free && s.cursor != tables.generation)
    }

    /// Returns true if there are changes for a round, and none is running that does not make way.
    fn may_begin(&self, tables: &Tables) -> bool {
        self.began != tables.generation
            && self
                .round
                .as_ref()
                .is_none_or(|round| round.makes_way(&self.limits) && self.has_few_changes(tables))
    }

    /// Returns true if the changes since the last round began fit into a response.
    fn has_few_changes(&self, tables: &Tables) -> bool {
        let mut amount = Amount::default();
        self.changed(tables).all(|(_, _, entry)| {
            amount = amount.and(entry.current.as_ref().map_or(0, |r| r.encoded_len()));
            amount.fits(&self.limits)
        })
    }

    /// The names and entries that changed since the last round began.
    fn changed<'a>(
        &'a self,
        tables: &'a Tables,
    ) -> impl Iterator<Item = (&'a Subscription, &'a Arc<str>, &'a Entry)> {
        let in_rounds = self
            .subscriptions()
            .filter(|sub| sub.kind.rank() != Rank::Free);
        in_rounds.flat_map(|sub| {
            let changes = tables.table(sub.kind).changes(sub.cursor);
            changes
                .filter(|(name, entry)| sub.wants(name, entry.current.as_deref()))
                .map(move |(name, entry)| (sub, name, entry))
        })
    }

    pub(super) fn steps_left(&self) -> usize {
        self.round.as_ref().map_or(0, |r| r.unsent.len())
    }

    /// Takes up the changes of the view: free kinds as answers, the others as a new round.
    fn take_up(&mut self, tables: &Tables) {
        self.revision += 1;
        for sub in self
            .subscriptions
            .iter_mut()
            .flatten()
            .filter(|s| s.kind.rank() == Rank::Free)
        {
            if sub.cursor == tables.generation {
                continue;
            }
            for (name, entry) in tables.table(sub.kind).changes(sub.cursor) {
                if !sub.wants(name, entry.current.as_deref()) {
                    continue;
                }
                if entry.current.is_some() {
                    sub.pending_removals.remove(name);
                    sub.withdrawn.remove(name);
                    sub.answers.insert(name.clone());
                } else if !sub.answers.contains(name) {
                    sub.pending_removals.insert(name.clone(), tables.generation);
                }
            }
            sub.cursor = tables.generation;
        }
        if self.may_begin(tables) {
            self.begin_round(tables);
        }
    }

    /// Begins a round with all changes of the view, and with what is left of a round that makes
    /// way.
    fn begin_round(&mut self, tables: &Tables) {
        let mut unsent = self.unsent(tables);
        let before = self.round.take().map(|mut round| {
            round.join(&mut unsent, tables);
            round.pages - 1
        });
        let left = Amount::of(&unsent);
        let pages = before.unwrap_or_else(|| left.pages(&self.limits));
        let in_rounds = self.subscriptions.iter_mut().flatten();
        for sub in in_rounds.filter(|sub| sub.kind.rank() != Rank::Free) {
            sub.cursor = tables.generation;
        }
        self.began = tables.generation;
        self.round = Some(Round {
            target: tables.generation,
            unsent,
            left,
            pages,
        });
    }

    /// Returns what to send of the changes of the view. What was published together with more than
    /// fits into a response comes last of its step, so that it delays nothing else.
    fn unsent(&self, tables: &Tables) -> Unsent {
        let drops_scopes = self.drops(Kind::Scope);
        let mut published: HashMap<Generation, Amount> = HashMap::new();
        let mut all = Vec::new();
        for (sub, name, entry) in self.changed(tables) {
            // No client has acknowledged it yet, so that this one does not have it either.
            let is_new = !entry.acknowledged && entry.good.is_none();
            let suspects = is_new.then_some(&*tables.suspects);
            let item = sub
                .item_of(name, entry, suspects)
                .unwrap_or_else(|| Some(Item::Remove(name.clone())));
            let Some(item) = item else {
                continue;
            };
            let removal = item.resource().is_none();
            if sub.kind == Kind::Scope && drops_scopes && !removal {
                continue;
            }
            let generation = entry.generation();
            let amount = published.entry(generation).or_default();
            *amount = amount.and(item.bytes());
            all.push((generation, (step_of(sub.kind, removal), sub.kind), item));
        }
        all.sort_by_key(|(generation, ..)| !published[generation].fits(&self.limits));
        let mut unsent = Unsent::new();
        for (_, place, item) in all {
            unsent.entry(place).or_default().push_back(item);
        }
        unsent
    }

    /// Returns true if everything of lower rank is answered, so that resources of `kind` may
    /// reference it.
    pub(super) fn made_before(&self, kind: Kind) -> bool {
        self.subscriptions
            .iter()
            .flatten()
            .filter(|s| s.kind.rank() < kind.rank())
            .all(|s| s.answered())
    }

    /// Returns the items of `kind` to send now.
    pub(super) fn next_of(&mut self, kind: Kind, tables: &Tables) -> Option<Vec<Item>> {
        self.subscription(kind)?;
        let limits = self.limits.clone();
        let (asked, ended) = (self.requests, self.ended);
        let free = kind.rank() == Rank::Free;
        let made_before = free || self.made_before(kind);
        let drops = self.drops(kind);
        let sub = self.subscriptions[kind as usize].as_deref_mut()?;
        if made_before
            && (self.protocol == Protocol::Delta || sub.in_flight.is_empty())
            && let Some(part) = sub.probes.pop_front()
        {
            return Some(part);
        }
        if !sub.in_flight.is_empty() {
            return None;
        }
        let round_step = self
            .round
            .as_ref()
            .and_then(|r| r.unsent.first_key_value())
            .map(|((step, _), _)| *step);
        let may_answer =
            free || (made_before && round_step.is_none_or(|step| step >= step_of(kind, false)));
        if may_answer && !(sub.answers.is_empty() && sub.withdrawn.is_empty() && !sub.must_respond)
        {
            // Many bytes: a client that starts serves after its first listeners.
            let mut page = Page::new(&limits, limits.response_bytes);
            while let Some(name) = sub.withdrawn.pop_first() {
                page.items.push(Item::Remove(name));
            }
            while let Some(name) = sub.answers.first() {
                let name = name.clone();
                // A resource that changed since the last round may reference clusters that changed
                // as well; the next round sends both.
                let fresh = !free
                    && kind.rank() != Rank::Backends
                    && tables
                        .table(kind)
                        .entry(&name)
                        .is_some_and(|e| e.generation() > sub.cursor);
                let item = if fresh {
                    None
                } else {
                    sub.item(tables, &name, ended)
                };
                let item = item.filter(|item| !drops || item.resource().is_none());
                if let Some(resource) = item.as_ref().and_then(Item::resource) {
                    sub.found(resource, asked, &limits);
                    if let Some(generation) = tables.table(kind).removed(&name) {
                        sub.pending_removals.insert(name.clone(), generation);
                    }
                }
                if let Some(item) = item
                    && !page.push(item)
                {
                    break;
                }
                sub.answers.remove(&name);
            }
            let must_respond = std::mem::take(&mut sub.must_respond);
            // Secrets that did not exist when they were requested count from now on.
            self.evict(kind);
            let sub = self.subscriptions[kind as usize].as_deref_mut()?;
            if kind == Kind::Secret && page.items.len() > 1 {
                sub.probes.extend(one_by_one(page.items));
                return sub.probes.pop_front();
            }
            if must_respond || !page.items.is_empty() {
                return Some(page.items);
            }
        }
        self.next_of_round(kind)
    }

    pub(super) fn next_of_round(&mut self, kind: Kind) -> Option<Vec<Item>> {
        let step = *self
            .round
            .as_ref()?
            .unsent
            .first_key_value()
            .map(|((step, _), _)| step)?;
        // All kinds of earlier steps have answered; the kinds of this step proceed independently.
        let ready = self.subscriptions.iter().flatten().all(|s| {
            s.kind.rank() == Rank::Free
                || s.answered()
                || (s.kind != kind && s.kind.rank() == kind.rank() && step < step::ROUTE_REMOVALS)
        });
        if !ready {
            return None;
        }
        let removals = step > step::LISTENERS;
        let mut items = self.round.as_mut()?.unsent.remove(&(step, kind))?;
        if removals {
            let mut deferred = Amount::default();
            items.retain(|item| {
                let waits = self.defer(kind, item);
                deferred = if waits {
                    deferred.and(item.bytes())
                } else {
                    deferred
                };
                !waits
            });
            let round = self.round.as_mut()?;
            round.left = round.left.less(deferred);
            if items.is_empty() {
                return None;
            }
        }
        let mut page = Page::new(&self.limits, self.limits.round_bytes);
        if kind == Kind::Listener {
            // Removals first, all in the first page: an address may move to another listener.
            items
                .make_contiguous()
                .sort_by_key(|item| !matches!(item, Item::Remove(_)));
        }
        while let Some(item) = items.pop_front() {
            if let Err(item) = page.try_push(item) {
                items.push_front(item);
                break;
            }
        }
        let round = self.round.as_mut()?;
        round.left = round.left.less(page.amount);
        if !items.is_empty() {
            round.unsent.insert((step, kind), items);
        }
        Some(page.items)
    }

    /// Returns true if a removal must be deferred: some resource is held at an older version that
    /// may reference the removed one. The name is searched for in the encoded bytes, which errs on
    /// the safe side.
    pub(super) fn defer(&mut self, kind: Kind, item: &Item) -> bool {
        let name = item.name();
        let needed = self
            .subscriptions
            .iter()
            .flatten()
            .filter(|s| s.kind.rank() > kind.rank() && s.kind.rank() != Rank::Free)
            .any(|s| {
                s.quarantine.values().any(|q| match &q.held {
                    Held::Nothing => false,
                    Held::Known(held) => mentions(&held.body(), name.as_bytes()),
                    Held::Unknown => true,
                }) || s.divisions.values().any(|division| division.needs(name))
            });
        let wait = needed && self.deferred.len() < MAX_DEFERRED;
        if wait {
            self.deferred.insert((kind, name.clone()));
        }
        wait
    }

    /// Sends deferred removals as answers, once no refused resource may reference them.
    pub(super) fn undefer(&mut self) {
        for (kind, name) in std::mem::take(&mut self.deferred) {
            if !self.defer(kind, &Item::Remove(name.clone()))
                && let Some(sub) = self.subscriptions[kind as usize].as_deref_mut()
                && sub.wants(&name, None)
            {
                sub.older.insert(name.clone());
                sub.answers.insert(name);
            }
        }
    }

    pub(super) fn send(
        &mut self,
        kind: Kind,
        items: Vec<Item>,
        tables: &Tables,
        now: Instant,
    ) -> Outgoing {
        match kind {
            Kind::Cluster => self.answer_assignments_of(&items),
            Kind::Listener => self.answer_scopes_of(&items, tables),
            // Assignments that the client has subscribed to are among the answers now.
            Kind::Endpoints => self.warming.clear(),
            _ => {}
        }
        self.nonces += 1;
        self.revision += 1;
        let nonce = self.nonces;
        let sub = self.subscriptions[kind as usize]
            .as_deref_mut()
            .expect("there is something to send of it");
        let settles = sub.all_sent().then_some(sub.cursor);
        // The stream before may have ended with a refused response.
        let items = if kind == Kind::Scope && sub.is_resumed {
            marked(items)
        } else {
            items
        };
        sub.is_resumed &= settles.is_none();
        sub.in_flight.push_back(InFlight {
            nonce,
            items: items.clone(),
            sent: now,
            settles,
        });
        Outgoing { kind, nonce, items }
    }

    /// Has the assignments of clusters sent after the clusters, even if the client has them.
    fn answer_assignments_of(&mut self, clusters: &[Item]) {
        let assignments = clusters
            .iter()
            .filter_map(|item| item.resource()?.assignment());
        match self.subscriptions[Kind::Endpoints as usize].as_deref_mut() {
            // The client will request any other assignment, and it is answered then.
            Some(sub) => {
                let held: Vec<_> = assignments
                    .filter(|name| sub.wants(name, None))
                    .cloned()
                    .collect();
                sub.answers.extend(held);
            }
            None => self.warming.extend(assignments.cloned()),
        }
    }

    /// Has all scopes sent after listeners for which Envoy does not request them because it has
    /// subscribed before.
    fn answer_scopes_of(&mut self, listeners: &[Item], tables: &Tables) {
        if self.scope_sources.sent(listeners) {
            self.answer_scopes_of_new_sources(tables);
        }
    }

    /// Has all scopes sent after a listener that uses scopes and that the client did not have.
    pub(super) fn answer_scopes_of_new_sources(&mut self, tables: &Tables) {
        match self.subscription(Kind::Scope) {
            Some(_) => self.answer_all_scopes(tables),
            None => self.scope_sources.note_new(),
        }
    }

    /// Has all scopes sent that the client subscribes to, even if it has them.
    pub(super) fn answer_all_scopes(&mut self, tables: &Tables) {
        if let Some(sub) = self.subscriptions[Kind::Scope as usize].as_deref_mut() {
            let scopes = tables
                .table(Kind::Scope)
                .resources()
                .filter(|scope| sub.wants(scope.name(), Some(scope)));
            let scopes: Vec<_> = scopes.map(|scope| scope.shared_name().clone()).collect();
            sub.answers.extend(scopes);
        }
    }

    /// Returns true if the client would drop resources of `kind`: scopes, while it subscribes to
    /// listeners and none that it has uses scopes.
    pub(crate) fn drops(&self, kind: Kind) -> bool {
        let listeners = self
            .subscription(Kind::Listener)
            .filter(|_| kind == Kind::Scope);
        listeners.is_some_and(|sub| sub.wildcard || !sub.named.is_empty())
            && !self.scope_sources.any()
    }

    /// Ends the round once all of it is answered; returns true if no round is running any more.
    pub(super) fn end_round(&mut self) -> bool {
        let answered = self
            .subscriptions
            .iter()
            .flatten()
            .all(|s| s.kind.rank() == Rank::Free || s.answered());
        match &self.round {
            None => true,
            Some(round) if answered && round.unsent.is_empty() => {
                if self.primed {
                    self.ended = round.target;
                }
                self.round = None;
                self.revision += 1;
                true
            }
            Some(_) => false,
        }
    }

    /// Sends removals of free kinds, once the round that took up the change has ended and the
    /// listeners of it are in use: a hostname that is no longer terminated needs its certificate
    /// until the listener has changed. Returns true if there are any.
    fn release_removals(&mut self, tables: &Tables) -> bool {
        let limits = self.limits.clone();
        let is_pending = self.subscriptions().any(|s| !s.pending_removals.is_empty());
        if !is_pending || self.subscriptions().any(|s| s.warms_listeners(&limits)) {
            return false;
        }
        let began = self.began;
        let mut any = false;
        for sub in self
            .subscriptions
            .iter_mut()
            .flatten()
            .filter(|s| !s.pending_removals.is_empty())
        {
            let gone: Vec<_> = sub
                .pending_removals
                .extract_if(.., |_, generation| *generation <= began)
                .collect();
            let table = tables.table(sub.kind);
            let gone = gone
                .into_iter()
                .map(|(name, _)| name)
                .filter(|name| table.current(name).is_none())
                .collect::<Vec<_>>();
            any |= !gone.is_empty();
            sub.withdrawn.extend(gone);
        }
        any
    }

    /// Records the settled generations while nothing waits.
    pub(super) fn record_generations(&mut self) {
        for sub in self
            .subscriptions
            .iter_mut()
            .flatten()
            .filter(|s| s.idle() && s.settled != s.cursor)
        {
            sub.settled = sub.cursor;
            self.revision += 1;
        }
        let idle = |rank: fn(Rank) -> bool| {
            self.subscriptions
                .iter()
                .flatten()
                .filter(|s| rank(s.kind.rank()))
                .all(|s| s.idle())
        };
        if self.subscriptions.iter().any(Option::is_some) && idle(|r| r != Rank::Free) {
            let primed = self.primed || idle(|_| true);
            self.revision += u64::from((self.ended, self.primed) != (self.began, primed));
            (self.ended, self.primed) = (self.began, primed);
        }
    }
}

/// The items of one response, within the limits.
struct Page<'a> {
    limits: &'a Limits,
    /// The most bytes.
    most: usize,
    items: Vec<Item>,
    amount: Amount,
}

impl<'a> Page<'a> {
    fn new(limits: &'a Limits, most: usize) -> Page<'a> {
        Page {
            limits,
            most,
            items: Vec::new(),
            amount: Amount::default(),
        }
    }

    fn try_push(&mut self, item: Item) -> Result<(), Item> {
        let amount = self.amount.and(item.bytes());
        let full = self.items.len() >= self.limits.response_resources || amount.bytes > self.most;
        if full && !self.items.is_empty() {
            return Err(item);
        }
        self.amount = amount;
        self.items.push(item);
        Ok(())
    }

    fn push(&mut self, item: Item) -> bool {
        self.try_push(item).is_ok()
    }
}
