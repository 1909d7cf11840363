//! The rows of `gatewright certs` about certificates that no issuer of ours renews.

use super::ControlPlane;
use crate::certificates::Row;

impl ControlPlane {
    /// Returns the rows, with the rejections by Envoys.
    pub fn brought_certificates(&mut self) -> Vec<Row> {
        let rejected = self.fleet().rejected;
        let brought = self.engine().brought_certificates();
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
