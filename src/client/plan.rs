//! What a change of objects would do to a cluster, from what the user of a kubeconfig may read.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use anyhow::Result;
use jiff::Timestamp;

use super::ClusterView;
use super::stand_ins::StandIns;
use super::wanted;
use crate::plan::{Change, Sight, World};
use gatewright_core::inputs::{Object, ObjectChange, ObjectKey};
use gatewright_core::ownership::Recording;
use gatewright_core::translate;
use gatewright_kubernetes::reader;

/// A cluster without and with a change.
pub struct Planned {
    /// What the objects of the cluster result in.
    pub before: World,
    /// What they will result in.
    pub after: World,
    /// Lines about objects that the changed ones refer to, and that may not be read.
    pub unread: Vec<String>,
    /// True if nobody says anything of one of these.
    pub is_guessed: bool,
}

impl ClusterView {
    /// Returns what the cluster serves, and what it would serve after a change.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn planned(&self, mut change: Change) -> Result<Planned> {
        self.complete(&mut change);
        let present = &self.view.objects;
        let written: BTreeMap<ObjectKey, Object> = change
            .put
            .iter()
            .map(|object| (object.key(), object.clone()))
            .collect();
        let mut unread = self
            .view
            .unread_of(present.values().chain(written.values()));
        unread.retain(|target, _| !written.contains_key(target));
        let stand_ins = StandIns::new(
            |key| present.get(key).into_iter().chain(written.get(key)),
            &unread,
            self.controller(),
            None,
        );
        let sight = Sight {
            stand_ins: stand_ins.objects.iter().map(Object::key).collect(),
            quotas: self.view.is_complete(),
        };
        let (marks, is_guessed) = self.marks_of(&written, &unread);

        let (mut pipeline, mut emitted) = self
            .emitting(stand_ins.objects, Recording::ThisProcess)
            .await?;
        let before = World::of(&pipeline, &emitted, &sight);
        let known: BTreeSet<ObjectKey> = wanted(&pipeline).collect();
        let now = SystemTime::now();
        emitted.take(pipeline.apply(change.inputs(present), now));
        // A certificate may be there from an earlier time.
        let new = wanted(&pipeline).filter(|key| !known.contains(key) && self.view.may_read(key));
        let issued = reader::read_contents(&self.client, new).await?;
        let issued = issued.into_iter().map(translate::Change::put);
        emitted.take(pipeline.apply(issued.collect(), now));
        let after = World::of(&pipeline, &emitted, &sight);
        Ok(Planned {
            before,
            after,
            unread: marks,
            is_guessed,
        })
    }

    /// Takes in a change, as if it had been made.
    pub fn take_in(&mut self, mut change: Change) {
        self.complete(&mut change);
        for input in change.inputs(&self.view.objects) {
            match input {
                translate::Change::Object(ObjectChange::Put(object)) => {
                    self.view.objects.insert(object.key(), object);
                }
                translate::Change::Object(ObjectChange::Delete(key)) => {
                    self.view.objects.remove(&key);
                }
                translate::Change::Fact(_) => {}
            }
        }
        self.unread = self.view.unread();
        self.is_planned = true;
    }

    /// Gives the objects of a change what they have in the cluster and their files do not say.
    fn complete(&self, change: &mut Change) {
        let present = &self.view.objects;
        change.date(present, Timestamp::now().as_second());
        for object in &mut change.put {
            object.drop_over_limit(&self.configuration.limits.object);
            keep_labels(object, present);
        }
    }

    /// Lines about what written objects refer to and may not be read, and whether nobody says
    /// anything of one of it.
    fn marks_of(
        &self,
        written: &BTreeMap<ObjectKey, Object>,
        unread: &BTreeMap<ObjectKey, BTreeSet<ObjectKey>>,
    ) -> (Vec<String>, bool) {
        let mut is_guessed = false;
        let mut marks = Vec::new();
        for target in self.view.unread_of(written.values()).keys() {
            let Some(referrers) = unread.get(target) else {
                continue;
            };
            let said = self.said(target, referrers.iter());
            is_guessed |= !said.ok && !said.is_refused;
            marks.push(said.text);
        }
        (marks, is_guessed)
    }
}

/// Adds the labels that a Namespace has to those that its file says: `kubectl apply` leaves what
/// others have set.
fn keep_labels(object: &mut Object, present: &BTreeMap<ObjectKey, Object>) {
    let old = present.get(&object.key());
    if let (Object::Namespace(new), Some(Object::Namespace(old))) = (object, old) {
        let said = std::mem::take(&mut new.labels);
        new.labels.clone_from(&old.labels);
        new.labels.extend(said);
        new.uid.clone_from(&old.uid);
    }
}
