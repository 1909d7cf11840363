//! What objects result in.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use gatewright_core::inputs::ObjectKey;
use gatewright_core::model::{FrontendId, Hostname, ObjectName, TransportPort};
use gatewright_core::pipeline::{Outcome, Pipeline};
use gatewright_core::statuses::{ConditionRow, Selection, condition_rows, documents};
use gatewright_core::translate::{QuotaUse, Resource, ResourceKey, Serving};
use gatewright_core::wanted::WantedCertificate;

use crate::offline::AtOnce;

/// The resources that an engine has emitted so far.
#[derive(Clone, Debug, Default)]
pub struct Emitted(pub(super) BTreeMap<ResourceKey, Arc<Resource>>);

impl Emitted {
    /// Takes in what a change resulted in.
    pub fn take(&mut self, outcome: Outcome) {
        for (key, resource) in outcome.delta.resources {
            match resource {
                Some(resource) => self.0.insert(key, Arc::new(resource)),
                None => self.0.remove(&key),
            };
        }
    }
}

/// How far objects may be read.
#[derive(Clone, Debug)]
pub struct Sight {
    /// Objects in place of those that may not be read.
    pub stand_ins: BTreeSet<ObjectKey>,
    /// True if everything is known that counts against the quotas of namespaces.
    pub quotas: bool,
}

impl Sight {
    /// Everything may be read.
    pub fn whole() -> Self {
        Self {
            stand_ins: BTreeSet::new(),
            quotas: true,
        }
    }
}

/// What a set of objects results in.
#[derive(Clone, Debug, Default)]
pub struct World {
    /// What answers for each hostname of each frontend that Envoys tell from a wider one.
    pub(super) servings: BTreeMap<(FrontendId, Hostname), Serving>,
    /// The frontend that answers on each port of each address: of several Gateways one holds it.
    sockets: BTreeMap<(TransportPort, IpAddr), FrontendId>,
    /// The conditions of objects, each by its place and type; a place may have several of a type,
    /// which are numbered.
    pub(super) conditions: BTreeMap<(String, String, usize), ConditionRow>,
    /// The wanted certificates by their Secrets, and whether one is there.
    pub(super) wants: BTreeMap<ObjectName, (WantedCertificate, bool)>,
    /// What namespaces use of their quotas; empty where that is not known.
    pub(super) quotas: BTreeMap<Arc<str>, QuotaUse>,
    /// Envoy's resources.
    pub(super) emitted: Emitted,
    /// Objects in place of those that may not be read.
    pub(super) stand_ins: BTreeSet<ObjectKey>,
}

impl World {
    /// Looks at a pipeline, and the resources that it has emitted.
    pub fn of(pipeline: &Pipeline, emitted: &Emitted, sight: &Sight) -> Self {
        let stand_ins = &sight.stand_ins;
        let engine = pipeline.engine();
        let servings = engine.placed_servings();
        let sockets = sockets(&servings);
        let servings = servings.into_iter().map(|serving| {
            (
                (serving.frontend.clone(), serving.hostname.clone()),
                serving,
            )
        });
        let of_listeners = engine.wants().into_iter().map(|(want, _)| want);
        let wants = of_listeners
            .chain(pipeline.tenancy().wants().values().cloned())
            .map(|want| {
                let is_there = engine.store().secret(&want.secret).is_some();
                (want.secret.clone(), (want, is_there))
            });
        let quotas = if sight.quotas {
            pipeline.quota_uses()
        } else {
            Vec::new()
        };
        let quotas = quotas.into_iter().map(|of| (of.namespace.clone(), of));
        Self {
            servings: servings.collect(),
            sockets,
            conditions: conditions(pipeline, stand_ins),
            wants: wants.collect(),
            quotas: quotas.collect(),
            emitted: emitted.clone(),
            stand_ins: stand_ins.clone(),
        }
    }

    /// The frontends that answer on the port of a serving, at its addresses.
    pub(super) fn holders(&self, serving: &Serving) -> impl Iterator<Item = &FrontendId> {
        let port = serving.frontend.transport_port();
        let addresses = serving.addresses.iter();
        addresses.filter_map(move |ip| self.sockets.get(&(port, *ip)))
    }

    /// What answers for a hostname on a frontend, itself or by the next wider name.
    pub(super) fn at(&self, frontend: &FrontendId, hostname: &Hostname) -> Option<&Serving> {
        std::iter::once(hostname.clone())
            .chain(hostname.covering())
            .chain([Hostname::any()])
            .find_map(|name| self.servings.get(&(frontend.clone(), name)))
    }
}

fn sockets(servings: &[Serving]) -> BTreeMap<(TransportPort, IpAddr), FrontendId> {
    let answering = servings.iter().filter(|serving| serving.answers());
    let sockets = answering.flat_map(|serving| {
        let frontend = &serving.frontend;
        let addresses = serving.addresses.iter();
        addresses.map(move |ip| ((frontend.transport_port(), *ip), frontend.clone()))
    });
    sockets.collect()
}

/// The conditions that would be written, without what Envoys acknowledge.
fn conditions(
    pipeline: &Pipeline,
    stand_ins: &BTreeSet<ObjectKey>,
) -> BTreeMap<(String, String, usize), ConditionRow> {
    let context = AtOnce {
        // Conditions do not name it.
        controller: String::new(),
        time: String::new(),
    };
    let hidden: BTreeSet<String> = stand_ins.iter().map(ToString::to_string).collect();
    let mut conditions = BTreeMap::new();
    let rows = documents(pipeline, &context, &Selection::default());
    for row in rows.iter().flat_map(condition_rows) {
        let place = row.object.split(" listener ").next().unwrap_or_default();
        if hidden.contains(place) {
            continue;
        }
        let mut key = (row.object.clone(), row.condition.clone(), 0);
        while conditions.contains_key(&key) {
            key.2 += 1;
        }
        conditions.insert(key, row);
    }
    conditions
}
