//! Progress of the Envoys of this and other replicas: acknowledgements and rejections in each view.

use std::cmp::Reverse;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use xds::{Generation, NodeProgress, Progress, Rejection};

use super::ControlPlane;
use crate::fleet_views::{Generations, PerView, ViewId};
use crate::overtaken::Overtaken;
use crate::programmed::Acks;
use gatewright_core::inputs::ObjectKey;
use gatewright_core::model::ObjectName;

/// The time after which an Envoy without an acknowledgement is reported: large changes take it
/// seconds.
const LATE: Duration = Duration::from_secs(20);
/// The maximum number of late views that a message names.
const NAMED: usize = 3;

impl ControlPlane {
    /// Returns the number of Envoys that have acknowledged the resources of an object, and of those
    /// that are connected.
    pub fn acknowledgement(&self, key: &ObjectKey) -> Acks {
        self.acks(key, &self.progress())
    }

    /// Returns the number of connected Envoys of each view.
    pub fn connected(&self) -> PerView<usize> {
        let progress = self.progress();
        self.views.each(|view| progress[view].nodes.len())
    }

    /// Returns the view of the Envoys that serve an object's Gateway.
    pub fn view_of(&self, key: &ObjectKey) -> Option<ViewId> {
        self.views
            .id(&self.engine().fleet_of(self.gateway_of(key)?))
    }

    /// Returns whether all connected Envoys, and at least one, have acknowledged everything, apart
    /// from rejected resources, whose authors see it in a status.
    pub fn acknowledged(&self) -> bool {
        let progress = self.progress();
        let acks: Vec<_> = progress
            .iter()
            .map(|(at, of)| of.acknowledged(self.generations[at]))
            .collect();
        acks.iter().any(|(_, connected)| *connected > 0)
            && acks.iter().all(|(acked, connected)| acked == connected)
    }

    /// Returns the generation of the last publication.
    pub fn publication(&self) -> Generation {
        self.generations.values().copied().max().unwrap_or_default()
    }

    /// Returns the newest generation that every Envoy connected here has acknowledged; the maximum
    /// when none is connected.
    pub fn reached(&self) -> Generation {
        self.own_progress()
            .iter()
            .map(|(view, progress)| {
                let behind = progress
                    .nodes
                    .iter()
                    .map(|node| node.acknowledged)
                    .filter(|has| *has < self.generations[view]);
                behind.min().unwrap_or(Generation::MAX)
            })
            .min()
            .unwrap_or(Generation::MAX)
    }

    /// Returns the progress of all Envoys, including those of other replicas.
    pub(super) fn progress(&self) -> PerView<Progress> {
        self.with_others(self.own_progress())
    }

    pub(super) fn with_others(&self, mut all: PerView<Progress>) -> PerView<Progress> {
        for (view, progress) in all.iter_mut() {
            progress
                .nodes
                .extend(self.others.0.get(view).into_iter().flatten().cloned());
        }
        all
    }

    /// Notes the lag of the Envoys that are connected here.
    pub(super) fn note_lags(&mut self, own: &PerView<Progress>, at: Duration) {
        for (view, progress) in own.iter() {
            self.lags[view].note(self.generations[view], progress, at);
        }
    }

    /// Notes which Envoys others have overtaken. Every status tells of one that is waited for no
    /// longer, and of one that is again.
    pub(super) fn note_overtaken(&mut self, progress: &PerView<Progress>, at: Duration) {
        let mut has_changed = false;
        for (view, progress) in progress.iter() {
            has_changed |= self.overtaken[view].note(progress, at);
        }
        if has_changed {
            self.touch_all();
        }
    }

    /// Returns whether an Envoy is to be waited for no longer: then
    /// [`Self::acknowledgement_events`] is due.
    pub fn loses_patience(&self, at: Duration) -> bool {
        self.overtaken
            .values()
            .filter_map(Overtaken::deadline)
            .any(|deadline| deadline <= at)
    }

    /// Returns messages about views whose Envoys, connected here, have lacked a publication for
    /// long. They do not make the replica unready: one tenant's Envoys must not interrupt those of
    /// others.
    pub fn late_views(&self, at: Duration) -> Vec<String> {
        let late = self
            .lags
            .iter()
            .map(|(view, lag)| (view, lag.age(at)))
            .filter(|(_, age)| *age >= LATE);
        let mut late: Vec<_> = late.collect();
        late.sort_by_key(|(_, age)| Reverse(*age));
        let more = late.len().saturating_sub(NAMED);
        let more =
            (more > 0).then(|| format!("{more} more views: gatewright_xds_view_age_seconds"));
        late.iter().take(NAMED).map(|(view, age)| {
            let name = self.views[*view].name();
            format!(
                "view {name}: an Envoy has been behind the published configuration for {} seconds",
                age.as_secs()
            )
        }).chain(more).collect()
    }

    /// Returns the rejections by Envoys, including those of other replicas, and the resources that
    /// Envoy would reject.
    pub(super) fn rejections<'a>(
        &'a self,
        progress: &'a PerView<Progress>,
    ) -> impl Iterator<Item = &'a Rejection> {
        let own = progress.values().flat_map(|progress| &progress.rejections);
        own.chain(&self.others.1)
            .chain(self.withheld.values().flatten())
    }

    /// Returns what changes with every status: the number of changes that were taken in, and the
    /// progress of Envoys. The work grows with the number of Envoys, and not of hosts.
    pub(super) fn status_revision(&self, progress: &PerView<Progress>) -> String {
        let mut hasher = DefaultHasher::new();
        for progress in progress.values() {
            for node in &progress.nodes {
                (&node.node, node.acknowledged).hash(&mut hasher);
            }
        }
        for rejection in self.rejections(progress) {
            (
                &rejection.node,
                &rejection.name,
                &rejection.version,
                &rejection.text,
            )
                .hash(&mut hasher);
        }
        format!("{}-{:x}", self.changes, hasher.finish())
    }

    /// Sets the progress, in generations of ours, and the rejections of Envoys at other replicas.
    pub fn set_others(&mut self, nodes: PerView<Vec<NodeProgress>>, rejected: Vec<Rejection>) {
        self.others = (nodes, rejected);
    }

    /// Returns the progress of the Envoys that are connected here.
    pub fn own_progress(&self) -> PerView<Progress> {
        self.views
            .each(|view| self.cache.progress(&self.views[view]))
    }

    /// Returns the newest generation of ours in which a view had a state.
    pub fn generation_of(&self, state: u64, view: ViewId) -> Option<Generation> {
        self.states.newest(state, view)
    }

    /// Returns the present state, and the generation of each view that it came with.
    pub fn state(&self) -> (u64, Generations) {
        (
            self.states.present(),
            self.views.each(|view| self.states.since(view)),
        )
    }

    /// Returns the number of Envoys that have the resources of an object's Gateway.
    pub(super) fn acks(&self, key: &ObjectKey, progress: &PerView<Progress>) -> Acks {
        self.gateway_of(key)
            .map(|gateway| self.acks_of(gateway, progress))
            .unwrap_or_default()
    }

    /// Returns the number of Envoys that have the resources of a Gateway: only Envoys of its
    /// present fleet count.
    pub(super) fn acks_of(&self, gateway: &ObjectName, progress: &PerView<Progress>) -> Acks {
        let fleet = self.engine().fleet_of(gateway);
        let Some(view) = self.views.id(&fleet) else {
            return Acks {
                fleet: Some(fleet),
                ..Acks::default()
            };
        };
        let published = match self.published.get(gateway) {
            Some((at, published)) if *at == view => *published,
            Some(_) => self.generations[view],
            None => 0,
        };
        self.acks_at(view, progress, published)
    }

    /// Returns the number of Envoys that have everything that is published in a view.
    pub(super) fn acks_of_view(&self, view: ViewId, progress: &PerView<Progress>) -> Acks {
        self.acks_at(view, progress, self.generations[view])
    }

    fn acks_at(&self, view: ViewId, progress: &PerView<Progress>, published: Generation) -> Acks {
        Acks {
            fleet: self.views.fleet(view),
            ..Acks::of(&progress[view], &self.overtaken[view], published)
        }
    }
}
