//! The rows of `gatewright certs` about certificates that no issuer of ours renews.

use super::ControlPlane;
use crate::certificates::Row;
use crate::visibility::Visibility;

impl ControlPlane {
    /// Returns the rows, with the rejections by Envoys.
    pub fn brought_certificates(&mut self, visibility: &Visibility) -> Vec<Row> {
        let rejected = self.fleet().rejected;
        let of = visibility.namespace().map(|namespace| &**namespace);
        let brought = self.engine().brought_certificates(of);
        brought
            .into_iter()
            .map(|brought| {
                Row::of_brought(
                    &brought,
                    brought
                        .listeners
                        .iter()
                        .find_map(|listener| rejected.listeners.get(listener)),
                )
            })
            .collect()
    }
}
