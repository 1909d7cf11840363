//! The views of Envoys: one for all or one for each fleet that serves many Gateways, and one for
//! each Gateway with Envoys of its own, which exists as long as these. Values per view are kept by
//! its id. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Index, IndexMut};

use xds::{Generation, View};

use gatewright_core::model::{EnvoyFleet, Fleets, ObjectName};

/// The views of a control plane; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetViews {
    /// The views by id; those of fleets that serve many Gateways come first.
    views: BTreeMap<ViewId, View>,
    are_apart: bool,
    /// The ids of the views of Gateways with Envoys of their own; `gateways` is the reverse.
    isolated: BTreeMap<ObjectName, ViewId>,
    gateways: BTreeMap<ViewId, ObjectName>,
    /// The id of the next view: no id is used twice.
    next: u64,
}

/// The identifier of a view in a control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ViewId(u64);

/// The id of the view of the shared fleet, or of all Envoys but those of a Gateway's own.
const SHARED: ViewId = ViewId(0);
const DEDICATED: ViewId = ViewId(1);

impl FleetViews {
    /// Creates one view for each fleet that serves many Gateways, with the name of the fleet.
    pub fn apart() -> Self {
        Self::of_views(
            EnvoyFleet::OF_MANY
                .iter()
                .map(|fleet| View::new(fleet.to_string()))
                .collect(),
        )
    }

    fn of_views(views: Vec<View>) -> Self {
        let are_apart = views.len() > 1;
        let next = views.len() as u64;
        let views = (0..).map(ViewId).zip(views).collect();
        Self {
            views,
            are_apart,
            isolated: BTreeMap::new(),
            gateways: BTreeMap::new(),
            next,
        }
    }

    /// Creates further views, whose names have this prefix, for the fleets that serve many Gateways
    /// and for these Gateways with Envoys of their own. The same Envoys get them at another time.
    pub fn called<'a>(
        &self,
        prefix: &str,
        isolated: impl IntoIterator<Item = &'a ObjectName>,
    ) -> Self {
        let of_many = self
            .views
            .iter()
            .filter(|(id, _)| !self.gateways.contains_key(id));
        let mut views = Self::of_views(
            of_many
                .map(|(_, view)| View::new(format!("{prefix} {view}")))
                .collect(),
        );
        for gateway in isolated {
            let name = format!("{prefix} {}", EnvoyFleet::Isolated(gateway.clone()));
            views.isolate_as(gateway, View::new(name));
        }
        views
    }

    /// Returns whether each fleet that serves many Gateways has a view of its own.
    pub fn are_apart(&self) -> bool {
        self.are_apart
    }

    /// Returns the id of the shared fleet's view.
    pub fn shared(&self) -> ViewId {
        SHARED
    }

    /// Returns the view of a fleet; `None` where it is that of a Gateway that has none.
    pub fn of(&self, fleet: &EnvoyFleet) -> Option<&View> {
        self.views.get(&self.id(fleet)?)
    }

    /// Iterates over all views.
    pub fn iter(&self) -> impl Iterator<Item = (ViewId, &View)> {
        self.views.iter().map(|(id, view)| (*id, view))
    }

    /// Returns the id of the view of a fleet.
    pub fn id(&self, fleet: &EnvoyFleet) -> Option<ViewId> {
        match fleet {
            EnvoyFleet::Shared => Some(SHARED),
            EnvoyFleet::Dedicated => Some(if self.are_apart { DEDICATED } else { SHARED }),
            EnvoyFleet::Isolated(gateway) => self.isolated.get(gateway).copied(),
        }
    }

    /// Returns the ids of the views of these fleets.
    pub fn ids(&self, fleets: &Fleets) -> BTreeSet<ViewId> {
        let many = [
            (fleets.shared, EnvoyFleet::Shared),
            (fleets.dedicated, EnvoyFleet::Dedicated),
        ];
        let many = many
            .into_iter()
            .filter(|(has, _)| *has)
            .filter_map(|(_, fleet)| self.id(&fleet));
        many.chain(
            fleets
                .isolated
                .iter()
                .filter_map(|gateway| self.isolated.get(gateway).copied()),
        )
        .collect()
    }

    /// Returns the ids of the views that show a resource of these fleets. One view for all fleets
    /// that serve many Gateways also shows the resources of none.
    pub fn showing(&self, fleets: &Fleets) -> BTreeSet<ViewId> {
        let is_in_all = fleets.is_empty() && !self.are_apart;
        self.ids(fleets)
            .into_iter()
            .chain(is_in_all.then_some(SHARED))
            .collect()
    }

    /// Returns the fleets whose Envoys read a view.
    pub fn fleets(&self, id: ViewId) -> Fleets {
        let many = EnvoyFleet::OF_MANY
            .into_iter()
            .filter(|fleet| self.id(fleet) == Some(id));
        many.chain(self.gateways.get(&id).cloned().map(EnvoyFleet::Isolated))
            .collect()
    }

    /// Returns the ids of the views of fleets that serve many Gateways.
    pub fn of_many(&self) -> impl Iterator<Item = ViewId> {
        [SHARED, DEDICATED]
            .into_iter()
            .take(if self.are_apart { 2 } else { 1 })
    }

    /// Returns the Gateway whose own Envoys have a view.
    pub fn gateway(&self, id: ViewId) -> Option<&ObjectName> {
        self.gateways.get(&id)
    }

    /// Returns whether a view is that of a Gateway with Envoys of its own.
    pub fn is_isolated(&self, id: ViewId) -> bool {
        self.gateways.contains_key(&id)
    }

    /// Returns the fleet of a view; `None` where two fleets share it.
    pub fn fleet(&self, id: ViewId) -> Option<EnvoyFleet> {
        match (id, self.gateways.get(&id)) {
            (_, Some(gateway)) => Some(EnvoyFleet::Isolated(gateway.clone())),
            (SHARED, None) => self.are_apart.then_some(EnvoyFleet::Shared),
            (_, None) => self.are_apart.then_some(EnvoyFleet::Dedicated),
        }
    }

    /// Creates a value for each view.
    pub fn each<T>(&self, mut of: impl FnMut(ViewId) -> T) -> PerView<T> {
        PerView(self.views.keys().map(|id| (*id, of(*id))).collect())
    }

    /// Creates the view of a Gateway's own Envoys; `None` where they have one already.
    pub(crate) fn isolate(&mut self, gateway: &ObjectName) -> Option<(ViewId, View)> {
        self.isolate_as(
            gateway,
            View::new(EnvoyFleet::Isolated(gateway.clone()).to_string()),
        )
    }

    fn isolate_as(&mut self, gateway: &ObjectName, view: View) -> Option<(ViewId, View)> {
        if self.isolated.contains_key(gateway) {
            return None;
        }
        let id = ViewId(self.next);
        self.next += 1;
        self.isolated.insert(gateway.clone(), id);
        self.gateways.insert(id, gateway.clone());
        self.views.insert(id, view.clone());
        Some((id, view))
    }

    /// Removes the view of a Gateway's own Envoys, if they have one.
    pub(crate) fn dissolve(&mut self, gateway: &ObjectName) -> Option<(ViewId, View)> {
        let id = self.isolated.remove(gateway)?;
        self.gateways.remove(&id);
        Some((id, self.views.remove(&id)?))
    }
}

impl Index<ViewId> for FleetViews {
    type Output = View;

    fn index(&self, id: ViewId) -> &View {
        &self.views[&id]
    }
}

/// A single view of all Envoys.
impl From<View> for FleetViews {
    fn from(view: View) -> Self {
        Self::of_views(vec![view])
    }
}

/// A value for each view of a control plane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PerView<T>(BTreeMap<ViewId, T>);

/// A generation for each view.
pub type Generations = PerView<Generation>;

impl<T> PerView<T> {
    /// Iterates over the values with the ids of their views.
    pub fn iter(&self) -> impl Iterator<Item = (ViewId, &T)> {
        self.0.iter().map(|(id, value)| (*id, value))
    }

    /// Iterates over mutable values with the ids of their views.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (ViewId, &mut T)> {
        self.0.iter_mut().map(|(id, value)| (*id, value))
    }

    /// Iterates over the values.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.0.values()
    }

    /// Returns the value of a view that may be removed already.
    pub fn get(&self, id: ViewId) -> Option<&T> {
        self.0.get(&id)
    }

    /// Returns the value of a view, or inserts the default.
    pub(crate) fn entry(&mut self, id: ViewId) -> &mut T
    where
        T: Default,
    {
        self.0.entry(id).or_default()
    }

    /// Sets the value of a new view.
    pub(crate) fn insert(&mut self, id: ViewId, value: T) {
        self.0.insert(id, value);
    }

    /// Removes the value of a removed view.
    pub(crate) fn remove(&mut self, id: ViewId) {
        self.0.remove(&id);
    }
}

impl<T> Index<ViewId> for PerView<T> {
    type Output = T;

    fn index(&self, id: ViewId) -> &T {
        &self.0[&id]
    }
}

impl<T> IndexMut<ViewId> for PerView<T> {
    fn index_mut(&mut self, id: ViewId) -> &mut T {
        self.0.get_mut(&id).expect("a view that is there")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fleet_sees_its_own_view_or_all_see_one() {
        let one = FleetViews::from(View::new("v"));
        let apart = FleetViews::apart();
        for fleet in EnvoyFleet::OF_MANY {
            let only = Fleets::from(fleet.clone());
            assert_eq!(
                one.of(&fleet).map(View::name),
                Some("v"),
                "there is one view"
            );
            assert_eq!(one.fleet(SHARED), None, "no fleet has its own");
            assert_eq!(one.ids(&only), BTreeSet::from([SHARED]));
            assert!(one.fleets(SHARED).has(&fleet));
            let id = apart.id(&fleet).expect("an id");
            let name = fleet.to_string();
            assert_eq!(
                apart.of(&fleet).map(View::name),
                Some(&*name),
                "the fleet has a view of its own"
            );
            assert_eq!(
                apart.fleet(id),
                Some(fleet.clone()),
                "it is found by its number"
            );
            assert_eq!(apart.ids(&only), BTreeSet::from([id]));
            assert_eq!(apart.fleets(id), only);
        }
        assert_ne!(
            apart.id(&EnvoyFleet::Shared),
            apart.id(&EnvoyFleet::Dedicated)
        );
        for views in [&one, &apart] {
            assert_eq!(views.ids(&Fleets::default()), BTreeSet::new(), "nobody's");
        }
        assert_eq!(one.showing(&Fleets::default()), BTreeSet::from([SHARED]));
        assert_eq!(apart.showing(&Fleets::default()), BTreeSet::new());
    }

    #[test]
    fn the_view_of_a_gateway_comes_and_goes_and_no_id_is_given_twice() {
        for mut views in [FleetViews::from(View::new("v")), FleetViews::apart()] {
            let before = views.clone();
            let edge = ObjectName::new("a", "edge");
            let fleet = EnvoyFleet::Isolated(edge.clone());
            assert_eq!(views.id(&fleet), None, "a dissolved view has no number");
            assert_eq!(
                views.ids(&fleet.clone().into()),
                BTreeSet::new(),
                "no Gateway is in it"
            );
            let (first, view) = views.isolate(&edge).expect("it is new");
            assert_eq!(view.name(), "isolated/a/edge");
            assert_eq!(views.isolate(&edge), None, "once");
            assert_eq!(views.fleet(first), Some(fleet.clone()), "once");
            assert_eq!(views.ids(&fleet.clone().into()), BTreeSet::from([first]));
            assert_eq!(views.fleets(first), fleet.clone().into());
            assert!(views.is_isolated(first) && views.of_many().all(|id| id != first));
            assert_eq!(
                views.called("x", []).iter().count(),
                before.iter().count(),
                "of fleets that serve many"
            );
            let others = views.called("x", [&edge]);
            assert_eq!(others.of(&fleet).map(View::name), Some("x isolated/a/edge"));
            assert_eq!(others.iter().count(), views.iter().count());
            assert_eq!(views.dissolve(&edge), Some((first, view)));
            assert_eq!(views.dissolve(&edge), None, "it is dissolved once");
            assert_eq!(
                views.iter().count(),
                before.iter().count(),
                "no other view goes"
            );
            let (again, _) = views.isolate(&edge).expect("it is new");
            assert_ne!(first, again);
        }
    }
}
