//! The quotas of the cost model for objects of one kind: in each dimension an order of its own, the
//! oldest first.

use std::sync::Arc;

use gatewright_objects::cost::{Cost, Dimension};
use gatewright_objects::quota::{Member, Quota};

/// The objects of each namespace that are within its quotas of memory, clusters, filter chains and
/// shared tables.
pub(crate) struct CostQuotas<K> {
    of: [(Dimension, Quota<Arc<str>, K>); Dimension::OF_OBJECTS.len()],
}

/// An object as it is counted.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    /// Its namespace.
    pub(crate) namespace: Arc<str>,
    /// Its creation time.
    pub(crate) created: i64,
    /// Its cost.
    pub(crate) cost: Cost,
    /// True if it uses parts that an older object may pay for. It comes behind that object, also
    /// where it takes nothing.
    pub(crate) shares: bool,
}

impl Counted {
    fn takes(&self, dimension: Dimension) -> bool {
        self.cost.of(dimension) > 0 || self.shares && dimension == Dimension::Clusters
    }
}

impl<K: Ord + Clone> CostQuotas<K> {
    /// Quotas without members; every namespace may have `most`.
    pub(crate) fn new(most: Cost) -> Self {
        Self {
            of: Dimension::OF_OBJECTS.map(|dimension| (dimension, Quota::new(most.of(dimension)))),
        }
    }

    /// Sets how much a namespace may have. Returns the objects whose verdict changed.
    pub(crate) fn allow(&mut self, namespace: &Arc<str>, most: Cost) -> Vec<K> {
        let of = self.of.iter_mut();
        of.flat_map(|(dimension, quota)| quota.allow(namespace, most.of(*dimension)))
            .collect()
    }

    /// Adds, changes or removes an object. Returns all other objects whose verdict changed.
    pub(crate) fn set(&mut self, key: &K, object: Option<Counted>) -> Vec<K> {
        let mut moved = Vec::new();
        for (dimension, quota) in &mut self.of {
            let object = object.as_ref().filter(|object| object.takes(*dimension));
            let member = object.map(
                |Counted {
                     namespace,
                     created,
                     cost,
                     ..
                 }| Member {
                    group: namespace.clone(),
                    created: *created,
                    weight: cost.of(*dimension),
                },
            );
            moved.extend(quota.set(key, member));
        }
        moved
    }

    /// The cost of an object.
    pub(crate) fn cost(&self, key: &K) -> Cost {
        self.sum(|quota| quota.member(key).map_or(0, |member| member.weight))
    }

    /// What the objects of a namespace take that are within its quotas.
    pub(crate) fn used(&self, namespace: &Arc<str>) -> Cost {
        self.sum(|quota| quota.used(namespace))
    }

    /// What each object of a namespace takes in a dimension, within its quota.
    pub(crate) fn costs(
        &self,
        namespace: &str,
        dimension: Dimension,
    ) -> impl Iterator<Item = (&K, u64)> {
        let quotas = self.of.iter().filter(move |(of, _)| *of == dimension);
        quotas.flat_map(move |(_, quota)| quota.within(namespace))
    }

    /// The namespaces with objects.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = &Arc<str>> {
        self.of[0].1.groups()
    }

    /// True if an object is within all quotas.
    pub(crate) fn has(&self, key: &K) -> bool {
        self.beyond(key).next().is_none()
    }

    /// The dimensions in which an object is beyond its quota.
    pub(crate) fn beyond(&self, key: &K) -> impl Iterator<Item = Dimension> {
        self.of
            .iter()
            .filter(|(_, quota)| !quota.has(key))
            .map(|(dimension, _)| *dimension)
    }

    fn sum(&self, part: impl Fn(&Quota<Arc<str>, K>) -> u64) -> Cost {
        let [
            (_, envoy),
            (_, program),
            (_, clusters),
            (_, chains),
            (_, tables),
        ] = &self.of;
        let bytes = gatewright_objects::cost::Bytes {
            envoy: part(envoy),
            program: part(program),
        };
        Cost {
            bytes,
            clusters: part(clusters),
            filter_chains: part(chains),
            shared_tables: part(tables),
            ..Cost::default()
        }
    }
}
