//! The tables of the store: one for each type of objects, from the list of kinds.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::{Replaced, Store};
use crate::inputs::{
    ClusterTrustBundle, ConfigMap, DirectResponse, EndpointSlice, Gateway, GatewayClass,
    GatewayParameters, Kind, ListenerSet, Located, Namespace, Node, Object, ObjectKey, Pod, Policy,
    ReferenceGrant, Route, RouteKey, Secret, Service, SetKey, TenantGateway,
};
use crate::kinds;
use crate::model::ObjectName;

/// A type of objects, as the store keeps them.
trait Stored: Sized {
    /// Stores an object. Returns `None` if it is equal to the stored one.
    fn put(self, key: &ObjectKey, store: &mut Store) -> Option<Replaced>;

    /// Removes an object. Returns `None` if there was none.
    fn delete(key: &ObjectKey, store: &mut Store) -> Option<Replaced>;

    /// True if an equal object is stored.
    fn is_held(&self, key: &ObjectKey, store: &Store) -> bool;
}

/// A type of objects that have a table.
pub(super) trait Tabled: Sized + PartialEq {
    /// The key of the table.
    type Key: TableKey;

    fn table(tables: &Tables) -> &BTreeMap<Self::Key, Arc<Self>>;

    fn table_mut(tables: &mut Tables) -> &mut BTreeMap<Self::Key, Arc<Self>>;
}

/// What follows from a change of a table.
pub(super) trait Indexed: Sized {
    /// Adds an object to the indexes, or removes it from them.
    fn index(&self, _store: &mut Store, _there: bool) {}

    /// Updates what depends on both the old and the new object, and returns what their dependents
    /// need to know.
    fn replaced(
        _store: &mut Store,
        _old: Option<&Arc<Self>>,
        _new: Option<&Arc<Self>>,
    ) -> Replaced {
        Replaced::default()
    }
}

/// The key of a table.
pub(super) trait TableKey: Ord {
    /// The key of an object; `None` for objects of other kinds.
    fn of(key: &ObjectKey) -> Option<Self>
    where
        Self: Sized;
}

impl TableKey for Arc<str> {
    fn of(key: &ObjectKey) -> Option<Self> {
        Some(key.name.name.clone())
    }
}

impl TableKey for ObjectName {
    fn of(key: &ObjectKey) -> Option<Self> {
        Some(key.name.clone())
    }
}

impl TableKey for ObjectKey {
    fn of(key: &ObjectKey) -> Option<Self> {
        Some(key.clone())
    }
}

impl TableKey for RouteKey {
    fn of(key: &ObjectKey) -> Option<Self> {
        RouteKey::of(key)
    }
}

impl TableKey for SetKey {
    fn of(key: &ObjectKey) -> Option<Self> {
        SetKey::of(key)
    }
}

macro_rules! tables_of_kinds {
    (
        $($type:ident($of:ty) |$o:ident| $key:tt $(in $table:ident by $by:ty $(as $get:ident)?)? {
            $($(#[$doc:meta])* $kind:ident $(: $how:ident($read:path) $(else $salvage:path)?)?, $row:expr;)*
        })*
        _ { $($(#[$other_doc:meta])* $other_kind:ident, $other_row:expr;)* }
    ) => {
        /// The objects, by kind and name.
        #[derive(Default)]
        pub(super) struct Tables {
            $($(pub(super) $table: BTreeMap<$by, Arc<$of>>,)?)*
        }

        $($(impl Tabled for $of {
            type Key = $by;

            fn table(tables: &Tables) -> &BTreeMap<$by, Arc<Self>> {
                &tables.$table
            }

            fn table_mut(tables: &mut Tables) -> &mut BTreeMap<$by, Arc<Self>> {
                &mut tables.$table
            }
        })?)*

        impl Store {
            /// Stores an object. Returns `None` if it is equal to the stored one, else the replaced
            /// data.
            pub fn put(&mut self, object: Object) -> Option<Replaced> {
                let key = object.key();
                match object {
                    $(Object::$type(object) => object.put(&key, self),)*
                }
            }

            /// True if an equal object is stored, so that to put it changes nothing. Nodes and
            /// TenantGateways are not stored.
            pub fn holds(&self, object: &Object) -> bool {
                let key = object.key();
                match object {
                    $(Object::$type(object) => object.is_held(&key, self),)*
                }
            }

            /// Removes an object. Returns `None` if there was none.
            pub fn delete(&mut self, key: &ObjectKey) -> Option<Replaced> {
                match key.kind {
                    $($(Kind::$kind => <$of as Stored>::delete(key, self),)*)*
                    $(Kind::$other_kind => None,)*
                }
            }

            $($($(
                #[doc = concat!("A ", stringify!($type), " by its key.")]
                pub fn $get(&self, key: &$by) -> Option<&Arc<$of>> {
                    self.tables.$table.get(key)
                }
            )?)?)*
        }
    };
}

kinds!(tables_of_kinds);

impl<T: Tabled + Indexed> Stored for T {
    fn put(self, key: &ObjectKey, store: &mut Store) -> Option<Replaced> {
        let new = Arc::new(self);
        let table = Self::table_mut(&mut store.tables);
        let old = table.insert(T::Key::of(key)?, new.clone());
        if old.as_ref() == Some(&new) {
            return None;
        }
        if let Some(old) = &old {
            old.index(store, false);
        }
        new.index(store, true);
        Some(Self::replaced(store, old.as_ref(), Some(&new)))
    }

    fn delete(key: &ObjectKey, store: &mut Store) -> Option<Replaced> {
        let old = store.remove::<T>(key)?;
        Some(Self::replaced(store, Some(&old), None))
    }

    fn is_held(&self, key: &ObjectKey, store: &Store) -> bool {
        let key = T::Key::of(key);
        let stored = key.and_then(|key| Self::table(&store.tables).get(&key));
        stored.is_some_and(|stored| **stored == *self)
    }
}

impl Store {
    /// Removes an object from its table and from the indexes.
    pub(super) fn remove<T: Tabled + Indexed>(&mut self, key: &ObjectKey) -> Option<Arc<T>> {
        let old = T::table_mut(&mut self.tables).remove(&T::Key::of(key)?)?;
        old.index(self, false);
        Some(old)
    }
}

/// It is an input of tenancy alone.
impl Stored for Box<TenantGateway> {
    fn put(self, _: &ObjectKey, _: &mut Store) -> Option<Replaced> {
        None
    }

    fn delete(_: &ObjectKey, _: &mut Store) -> Option<Replaced> {
        None
    }

    fn is_held(&self, _: &ObjectKey, _: &Store) -> bool {
        false
    }
}

/// Only the addresses of a pod say whether it is another one.
impl Stored for Pod {
    fn put(self, key: &ObjectKey, store: &mut Store) -> Option<Replaced> {
        let new = addresses(&self);
        let old = store.pods.insert(key.name.clone(), self);
        let old = old.as_ref().map(addresses).unwrap_or_default();
        Replaced::of_addresses(old.symmetric_difference(&new).copied().collect())
    }

    fn delete(key: &ObjectKey, store: &mut Store) -> Option<Replaced> {
        let old = store.pods.remove(&key.name)?;
        Some(Replaced {
            addresses: addresses(&old).into_iter().collect(),
            ..Replaced::default()
        })
    }

    fn is_held(&self, key: &ObjectKey, store: &Store) -> bool {
        store.pods.get(&key.name) == Some(self)
    }
}

fn addresses(Pod(Located { addresses, .. }): &Pod) -> BTreeSet<IpAddr> {
    addresses.iter().copied().collect()
}

/// Of nodes the addresses alone are kept.
impl Stored for Node {
    fn put(self, key: &ObjectKey, store: &mut Store) -> Option<Replaced> {
        Replaced::of_addresses(store.reserved.node(&key.name, &self.0.addresses))
    }

    fn delete(key: &ObjectKey, store: &mut Store) -> Option<Replaced> {
        Some(Replaced {
            addresses: store.reserved.node(&key.name, &[]),
            ..Replaced::default()
        })
    }

    fn is_held(&self, _: &ObjectKey, _: &Store) -> bool {
        false
    }
}

impl Replaced {
    /// Addresses that begin or cease to be reserved; `None` if there are none.
    fn of_addresses(addresses: Vec<IpAddr>) -> Option<Self> {
        (!addresses.is_empty()).then(|| Self {
            addresses,
            ..Self::default()
        })
    }
}

impl Indexed for Namespace {}

impl Indexed for ReferenceGrant {}

impl Indexed for Secret {}

impl Indexed for ConfigMap {}

impl Indexed for ClusterTrustBundle {}

impl Indexed for Service {
    fn replaced(store: &mut Store, old: Option<&Arc<Self>>, new: Option<&Arc<Self>>) -> Replaced {
        Replaced {
            made_service: old.and_then(|old| old.made.clone()),
            addresses: store
                .reserved
                .service(old.map(Arc::as_ref), new.map(Arc::as_ref)),
            ..Replaced::default()
        }
    }
}
