//! The views that Envoys see: one for all, or one for each fleet. What is counted and decided for each view is kept by its place
//! among them. Pure.

use std::ops::{Index, IndexMut};

use xds::{Generation, View};

use gatewright_core::model::{EnvoyFleet, Fleets};

/// The views of a control plane: never none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetViews(Vec<View>);

/// The place of a view among those of a control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(usize);

impl FleetViews {
    /// One for each fleet, called as the fleet is.
    pub fn apart() -> Self {
        Self(EnvoyFleet::ALL.iter().map(|fleet| View::new(fleet.name())).collect())
    }

    /// As many others, which the same Envoys see at another time: their names begin so.
    pub fn called(&self, prefix: &str) -> Self {
        Self(self.0.iter().map(|view| View::new(format!("{prefix} {view}"))).collect())
    }

    /// Whether each fleet has a view of its own.
    pub fn are_apart(&self) -> bool {
        self.0.len() > 1
    }

    /// What Envoys of a fleet see.
    pub fn of(&self, fleet: EnvoyFleet) -> &View {
        &self.0[self.place(fleet).0]
    }

    /// All of them, each once.
    pub fn iter(&self) -> impl Iterator<Item = (Place, &View)> {
        self.0.iter().enumerate().map(|(place, view)| (Place(place), view))
    }

    /// Where the view of a fleet is.
    pub fn place(&self, fleet: EnvoyFleet) -> Place {
        match fleet {
            EnvoyFleet::Dedicated if self.are_apart() => Place(1),
            _ => Place(0),
        }
    }

    /// Whether what these fleets are to have is in the view.
    pub fn shows(&self, place: Place, fleets: Fleets) -> bool {
        EnvoyFleet::ALL.into_iter().any(|fleet| fleets[fleet] && self.place(fleet) == place)
    }

    /// The fleet that a view is of; `None` where all see the same.
    pub fn fleet(&self, place: Place) -> Option<EnvoyFleet> {
        EnvoyFleet::ALL.into_iter().find(|fleet| self.are_apart() && self.place(*fleet) == place)
    }

    /// One value for each view.
    pub fn each<T>(&self, of: impl FnMut(Place) -> T) -> PerView<T> {
        PerView((0..self.0.len()).map(Place).map(of).collect())
    }
}

impl Index<Place> for FleetViews {
    type Output = View;

    fn index(&self, place: Place) -> &View {
        &self.0[place.0]
    }
}

/// One view that all Envoys see.
impl From<View> for FleetViews {
    fn from(view: View) -> Self {
        Self(vec![view])
    }
}

/// A value for each view of a control plane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PerView<T>(Vec<T>);

/// A publication of each view.
pub type Generations = PerView<Generation>;

impl<T> PerView<T> {
    /// The values, with whose they are.
    pub fn iter(&self) -> impl Iterator<Item = (Place, &T)> {
        self.0.iter().enumerate().map(|(place, value)| (Place(place), value))
    }

    /// The values, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Place, &mut T)> {
        self.0.iter_mut().enumerate().map(|(place, value)| (Place(place), value))
    }

    /// The values alone.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }
}

impl<T> Index<Place> for PerView<T> {
    type Output = T;

    fn index(&self, place: Place) -> &T {
        &self.0[place.0]
    }
}

impl<T> IndexMut<Place> for PerView<T> {
    fn index_mut(&mut self, place: Place) -> &mut T {
        &mut self.0[place.0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fleet_sees_its_own_view_or_all_see_one() {
        let only = |fleet: EnvoyFleet| Fleets::from(fleet);
        let (one, apart) = (FleetViews::from(View::new("v")), FleetViews::apart());
        for fleet in EnvoyFleet::ALL {
            assert_eq!((one.of(fleet).name(), one.place(fleet), one.fleet(Place(0))), ("v", Place(0), None));
            assert!(one.shows(Place(0), only(fleet)));
            let place = apart.place(fleet);
            assert_eq!((apart.of(fleet).name(), apart.fleet(place)), (fleet.name(), Some(fleet)));
            let shown: Vec<bool> = apart.iter().map(|(place, _)| apart.shows(place, only(fleet))).collect();
            assert_eq!(shown, [fleet == EnvoyFleet::Shared, fleet == EnvoyFleet::Dedicated]);
        }
        for views in [one, apart] {
            assert!(views.iter().all(|(place, _)| !views.shows(place, Fleets::default())), "nobody's");
        }
    }
}
