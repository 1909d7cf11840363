//! The views of Envoys: one for all or one for each fleet that serves many Gateways, and one for each Gateway with
//! Envoys of its own, which exists as long as these. Values per view are kept by its place. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Index, IndexMut};

use xds::{Generation, View};

use gatewright_core::model::{EnvoyFleet, Fleets, ObjectName};

/// The views of a control plane; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetViews {
    /// The views by place; those of fleets that serve many Gateways come first.
    views: BTreeMap<Place, View>,
    are_apart: bool,
    /// The places of the views of Gateways with Envoys of their own; `gateways` is the reverse.
    isolated: BTreeMap<ObjectName, Place>,
    gateways: BTreeMap<Place, ObjectName>,
    /// The place of the next view: no place is used twice.
    next: u64,
}

/// The identifier of a view in a control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(u64);

/// The place of the view of the shared fleet, or of all Envoys but those of a Gateway's own.
const SHARED: Place = Place(0);
const DEDICATED: Place = Place(1);

impl FleetViews {
    /// Creates one view for each fleet that serves many Gateways, with the name of the fleet.
    pub fn apart() -> Self {
        Self::of_views(EnvoyFleet::OF_MANY.iter().map(|fleet| View::new(fleet.to_string())).collect())
    }

    fn of_views(views: Vec<View>) -> Self {
        let (are_apart, next) = (views.len() > 1, views.len() as u64);
        let views = (0..).map(Place).zip(views).collect();
        Self { views, are_apart, isolated: BTreeMap::new(), gateways: BTreeMap::new(), next }
    }

    /// Creates further views, whose names have this prefix, for the fleets that serve many Gateways and for these
    /// Gateways with Envoys of their own. The same Envoys get them at another time.
    pub fn called<'a>(&self, prefix: &str, isolated: impl IntoIterator<Item = &'a ObjectName>) -> Self {
        let of_many = self.views.iter().filter(|(place, _)| !self.gateways.contains_key(place));
        let mut views = Self::of_views(of_many.map(|(_, view)| View::new(format!("{prefix} {view}"))).collect());
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

    /// Returns the place of the shared fleet's view.
    pub fn shared(&self) -> Place {
        SHARED
    }

    /// Returns the view of a fleet; `None` where it is that of a Gateway that has none.
    pub fn of(&self, fleet: &EnvoyFleet) -> Option<&View> {
        self.views.get(&self.place(fleet)?)
    }

    /// Iterates over all views.
    pub fn iter(&self) -> impl Iterator<Item = (Place, &View)> {
        self.views.iter().map(|(place, view)| (*place, view))
    }

    /// Returns the place of the view of a fleet.
    pub fn place(&self, fleet: &EnvoyFleet) -> Option<Place> {
        match fleet {
            EnvoyFleet::Shared => Some(SHARED),
            EnvoyFleet::Dedicated => Some(if self.are_apart { DEDICATED } else { SHARED }),
            EnvoyFleet::Isolated(gateway) => self.isolated.get(gateway).copied(),
        }
    }

    /// Returns the places of the views of these fleets.
    pub fn places(&self, fleets: &Fleets) -> BTreeSet<Place> {
        let many = [(fleets.shared, EnvoyFleet::Shared), (fleets.dedicated, EnvoyFleet::Dedicated)];
        let many = many.into_iter().filter(|(has, _)| *has).filter_map(|(_, fleet)| self.place(&fleet));
        many.chain(fleets.isolated.iter().filter_map(|gateway| self.isolated.get(gateway).copied())).collect()
    }

    /// Returns the places of the fleets that serve many Gateways.
    pub fn of_many(&self) -> impl Iterator<Item = Place> {
        [SHARED, DEDICATED].into_iter().take(if self.are_apart { 2 } else { 1 })
    }

    /// Returns the Gateway whose own Envoys have a view.
    pub fn gateway(&self, place: Place) -> Option<&ObjectName> {
        self.gateways.get(&place)
    }

    /// Returns whether a view is that of a Gateway with Envoys of its own.
    pub fn is_isolated(&self, place: Place) -> bool {
        self.gateways.contains_key(&place)
    }

    /// Returns the fleet of a view; `None` where two fleets share it.
    pub fn fleet(&self, place: Place) -> Option<EnvoyFleet> {
        match (place, self.gateways.get(&place)) {
            (_, Some(gateway)) => Some(EnvoyFleet::Isolated(gateway.clone())),
            (SHARED, None) => self.are_apart.then_some(EnvoyFleet::Shared),
            (_, None) => self.are_apart.then_some(EnvoyFleet::Dedicated),
        }
    }

    /// Creates a value for each view.
    pub fn each<T>(&self, mut of: impl FnMut(Place) -> T) -> PerView<T> {
        PerView(self.views.keys().map(|place| (*place, of(*place))).collect())
    }

    /// Creates the view of a Gateway's own Envoys; `None` where they have one already.
    pub(crate) fn isolate(&mut self, gateway: &ObjectName) -> Option<(Place, View)> {
        self.isolate_as(gateway, View::new(EnvoyFleet::Isolated(gateway.clone()).to_string()))
    }

    fn isolate_as(&mut self, gateway: &ObjectName, view: View) -> Option<(Place, View)> {
        if self.isolated.contains_key(gateway) {
            return None;
        }
        let place = Place(self.next);
        self.next += 1;
        self.isolated.insert(gateway.clone(), place);
        self.gateways.insert(place, gateway.clone());
        self.views.insert(place, view.clone());
        Some((place, view))
    }

    /// Removes the view of a Gateway's own Envoys, if they have one.
    pub(crate) fn dissolve(&mut self, gateway: &ObjectName) -> Option<(Place, View)> {
        let place = self.isolated.remove(gateway)?;
        self.gateways.remove(&place);
        Some((place, self.views.remove(&place)?))
    }
}

impl Index<Place> for FleetViews {
    type Output = View;

    fn index(&self, place: Place) -> &View {
        &self.views[&place]
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
pub struct PerView<T>(BTreeMap<Place, T>);

/// A generation for each view.
pub type Generations = PerView<Generation>;

impl<T> PerView<T> {
    /// Iterates over the values with their places.
    pub fn iter(&self) -> impl Iterator<Item = (Place, &T)> {
        self.0.iter().map(|(place, value)| (*place, value))
    }

    /// Iterates over mutable values with their places.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Place, &mut T)> {
        self.0.iter_mut().map(|(place, value)| (*place, value))
    }

    /// Iterates over the values.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.0.values()
    }

    /// Returns the value of a view that may be removed already.
    pub fn get(&self, place: Place) -> Option<&T> {
        self.0.get(&place)
    }

    /// Returns the value of a view, or inserts the default.
    pub(crate) fn entry(&mut self, place: Place) -> &mut T
    where
        T: Default,
    {
        self.0.entry(place).or_default()
    }

    /// Sets the value of a new view.
    pub(crate) fn insert(&mut self, place: Place, value: T) {
        self.0.insert(place, value);
    }

    /// Removes the value of a removed view.
    pub(crate) fn remove(&mut self, place: Place) {
        self.0.remove(&place);
    }
}

impl<T> Index<Place> for PerView<T> {
    type Output = T;

    fn index(&self, place: Place) -> &T {
        &self.0[&place]
    }
}

impl<T> IndexMut<Place> for PerView<T> {
    fn index_mut(&mut self, place: Place) -> &mut T {
        self.0.get_mut(&place).expect("a view that is there")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fleet_sees_its_own_view_or_all_see_one() {
        let (one, apart) = (FleetViews::from(View::new("v")), FleetViews::apart());
        for fleet in EnvoyFleet::OF_MANY {
            let only = Fleets::from(fleet.clone());
            assert_eq!((one.of(&fleet).map(View::name), one.fleet(SHARED)), (Some("v"), None));
            assert_eq!(one.places(&only), BTreeSet::from([SHARED]));
            let place = apart.place(&fleet).expect("a place");
            let name = fleet.to_string();
            assert_eq!((apart.of(&fleet).map(View::name), apart.fleet(place)), (Some(&*name), Some(fleet.clone())));
            assert_eq!(apart.places(&only), BTreeSet::from([place]));
        }
        assert_ne!(apart.place(&EnvoyFleet::Shared), apart.place(&EnvoyFleet::Dedicated));
        for views in [one, apart] {
            assert_eq!(views.places(&Fleets::default()), BTreeSet::new(), "nobody's");
        }
    }

    #[test]
    fn the_view_of_a_gateway_comes_and_goes_and_no_place_is_given_twice() {
        for mut views in [FleetViews::from(View::new("v")), FleetViews::apart()] {
            let (before, edge) = (views.clone(), ObjectName::new("a", "edge"));
            let fleet = EnvoyFleet::Isolated(edge.clone());
            assert_eq!((views.place(&fleet), views.places(&fleet.clone().into())), (None, BTreeSet::new()));
            let (first, view) = views.isolate(&edge).expect("it is new");
            assert_eq!(view.name(), "isolated/a/edge");
            assert_eq!((views.isolate(&edge), views.fleet(first)), (None, Some(fleet.clone())), "once");
            assert_eq!(views.places(&fleet.clone().into()), BTreeSet::from([first]));
            assert!(views.is_isolated(first) && views.of_many().all(|place| place != first));
            assert_eq!(views.called("x", []).iter().count(), before.iter().count(), "of fleets that serve many");
            let others = views.called("x", [&edge]);
            assert_eq!(others.of(&fleet).map(View::name), Some("x isolated/a/edge"));
            assert_eq!(others.iter().count(), views.iter().count());
            assert_eq!(views.dissolve(&edge), Some((first, view)));
            assert_eq!((views.dissolve(&edge), views.iter().count()), (None, before.iter().count()));
            let (again, _) = views.isolate(&edge).expect("it is new");
            assert_ne!(first, again);
        }
    }
}
