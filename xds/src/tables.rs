//! The resources of one view by kind, and the log of their changes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::kind::Rank;
use crate::suspects::Suspects;
use crate::view::Generation;
use crate::{Kind, Resource};

/// The resource of one name.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// `None` once removed; the entry stays in the log until every stream has considered it.
    pub(crate) current: Option<Arc<Resource>>,
    /// The generation of `current`, and its position in the log.
    position: (Generation, u32),
    /// True once a client acknowledged `current`.
    pub(crate) acknowledged: bool,
    /// The last version that a client acknowledged, until `current` is.
    pub(crate) good: Option<Arc<Resource>>,
    /// The resource before its removal, for kinds of [`Rank::Free`]: a client whose listener still
    /// references it may request it for the first time.
    removed: Option<Arc<Resource>>,
}

impl Entry {
    /// Returns the generation in which `current` was published.
    pub(crate) fn generation(&self) -> Generation {
        self.position.0
    }

    /// Returns the resource for a client that requests it and has what was published up to the
    /// generation `ended`: the current one, or the one that is removed in a later generation.
    pub(crate) fn requested(&self, ended: Generation) -> Option<&Arc<Resource>> {
        let removed = self.removed.as_ref().filter(|_| self.generation() > ended);
        self.current.as_ref().or(removed)
    }
}

/// The resources of one kind.
#[derive(Default)]
pub(crate) struct Table {
    entries: BTreeMap<Arc<str>, Entry>,
    /// The latest change of every name, oldest first.
    log: BTreeMap<(Generation, u32), Arc<str>>,
    /// Aliases, with the name of their resource.
    aliases: HashMap<String, Arc<str>>,
    /// Positions in the log of removed names.
    tombstones: BTreeSet<(Generation, u32)>,
}

impl Table {
    /// Returns the entry of a name or an alias.
    pub(crate) fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries
            .get(name)
            .or_else(|| self.entries.get(self.aliases.get(name)?))
    }

    pub(crate) fn current(&self, name: &str) -> Option<&Arc<Resource>> {
        self.entry(name)?.current.as_ref()
    }

    /// Returns the resource for a client that requests `name`; see [`Entry::requested`].
    pub(crate) fn requested(&self, name: &str, ended: Generation) -> Option<&Arc<Resource>> {
        self.entry(name)?.requested(ended)
    }

    /// Returns the generation in which `name` was removed, while that is remembered.
    pub(crate) fn removed(&self, name: &str) -> Option<Generation> {
        let entry = self.entry(name).filter(|entry| entry.current.is_none())?;
        Some(entry.generation())
    }

    /// Returns the last version of `name` that a client acknowledged, while the current one is not
    /// acknowledged.
    pub(crate) fn good(&self, name: &str) -> Option<&Arc<Resource>> {
        self.entry(name)?.good.as_ref()
    }

    /// Iterates over all resources, by name.
    pub(crate) fn resources(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.entries.values().filter_map(|e| e.current.as_ref())
    }

    /// Returns the number of resources.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.tombstones.len()
    }

    /// Iterates over names whose latest change came after `since`, with their entries, oldest
    /// first.
    pub(crate) fn changes(&self, since: Generation) -> impl Iterator<Item = (&Arc<str>, &Entry)> {
        self.log
            .range((since + 1, 0)..)
            .filter_map(|(_, name)| Some((name, self.entries.get(name)?)))
    }

    /// Returns the interned copy of `name`, if the view has the name.
    pub(crate) fn intern(&self, name: &str) -> Option<Arc<str>> {
        self.entries.get_key_value(name).map(|(k, _)| k.clone())
    }

    fn put(
        &mut self,
        name: &Arc<str>,
        resource: Option<Arc<Resource>>,
        position: (Generation, u32),
    ) {
        let previous = self.entries.remove(name);
        let mut good = None;
        let mut removed = None;
        if let Some(previous) = previous {
            self.log.remove(&previous.position);
            match previous.current {
                Some(r) => {
                    for alias in r.aliases() {
                        self.aliases.remove(alias);
                    }
                    removed =
                        (resource.is_none() && r.kind().rank() == Rank::Free).then(|| r.clone());
                    good = if previous.acknowledged {
                        Some(r)
                    } else {
                        previous.good
                    };
                }
                None => {
                    self.tombstones.remove(&previous.position);
                }
            }
        }
        match &resource {
            Some(r) => self
                .aliases
                .extend(r.aliases().iter().map(|a| (a.clone(), name.clone()))),
            None => {
                self.tombstones.insert(position);
                good = None;
            }
        }
        self.log.insert(position, name.clone());
        self.entries.insert(
            name.clone(),
            Entry {
                current: resource,
                position,
                acknowledged: false,
                good,
                removed,
            },
        );
    }

    /// Drops removed names once every stream has considered them.
    fn prune(&mut self, low_watermark: Generation) {
        while let Some(&position) = self.tombstones.first()
            && position.0 <= low_watermark
        {
            self.tombstones.pop_first();
            if let Some(name) = self.log.remove(&position) {
                self.entries.remove(&name);
            }
        }
    }
}

/// The tables of one view.
#[derive(Default)]
pub(crate) struct Tables {
    pub(crate) generation: Generation,
    /// Streams that had not considered this generation when tombstones were dropped must start
    /// over.
    pub(crate) pruned: Generation,
    by_kind: [Table; Kind::COUNT],
    /// Parts that a client which never had the resource gets last.
    pub(crate) suspects: Arc<Suspects>,
}

/// Most tombstones, unless there are more live resources; beyond, they are dropped although a
/// stream is behind.
const MAX_TOMBSTONES: usize = 16_384;

impl Tables {
    pub(crate) fn table(&self, kind: Kind) -> &Table {
        &self.by_kind[kind as usize]
    }

    /// Applies one group of changes at `generation`; returns the number of real ones.
    pub(crate) fn apply(
        &mut self,
        generation: Generation,
        upserts: Vec<Resource>,
        removals: &[(Kind, String)],
        low_watermark: Generation,
    ) -> Applied {
        let mut applied = Applied::default();
        let mut at = 0;
        for resource in upserts {
            let table = &mut self.by_kind[resource.kind() as usize];
            let held = table
                .entries
                .get(resource.shared_name())
                .and_then(|e| e.current.as_ref());
            if held.is_some_and(|held| held.version() == resource.version()) {
                applied.unchanged += 1;
                continue;
            }
            let name = table
                .intern(resource.name())
                .unwrap_or_else(|| resource.shared_name().clone());
            applied.upserted[resource.kind() as usize] += 1;
            table.put(&name, Some(Arc::new(resource)), (generation, at));
            at += 1;
        }
        for (kind, name) in removals {
            let table = &mut self.by_kind[*kind as usize];
            if table
                .entries
                .get(name.as_str())
                .is_none_or(|e| e.current.is_none())
            {
                applied.unchanged += 1;
                continue;
            }
            let name = table
                .intern(name)
                .expect("the entry was found one line above");
            applied.removed += 1;
            table.put(&name, None, (generation, at));
            at += 1;
        }
        if at > 0 {
            self.generation = generation;
        }
        self.prune(low_watermark);
        for table in &mut self.by_kind {
            if table.tombstones.len() > MAX_TOMBSTONES.max(table.len()) {
                table.prune(generation - 1);
                self.pruned = generation - 1;
            }
        }
        applied
    }

    /// Returns the generation of the oldest removal that is remembered.
    pub(crate) fn oldest_removal(&self) -> Option<Generation> {
        let oldest = self
            .by_kind
            .iter()
            .filter_map(|table| table.tombstones.first());
        oldest.map(|(generation, _)| *generation).min()
    }

    /// Drops removed names up to a generation which every stream has considered.
    pub(crate) fn prune(&mut self, low_watermark: Generation) {
        for table in &mut self.by_kind {
            table.prune(low_watermark);
        }
    }

    /// Records that a client acknowledged `resource`; its older versions are not needed any more.
    pub(crate) fn acknowledge(&mut self, resource: &Resource) {
        let table = &mut self.by_kind[resource.kind() as usize];
        if let Some(entry) = table.entries.get_mut(resource.name())
            && entry
                .current
                .as_ref()
                .is_some_and(|c| c.version() == resource.version())
        {
            entry.acknowledged = true;
            entry.good = None;
        }
    }

    pub(crate) fn is_acknowledged(&self, resource: &Resource) -> bool {
        self.table(resource.kind())
            .entries
            .get(resource.name())
            .is_none_or(|e| {
                e.acknowledged
                    || e.current
                        .as_ref()
                        .is_none_or(|c| c.version() != resource.version())
            })
    }
}

/// The result of a publication.
#[derive(Default)]
pub(crate) struct Applied {
    pub(crate) upserted: [u64; Kind::COUNT],
    pub(crate) removed: u64,
    pub(crate) unchanged: u64,
}
