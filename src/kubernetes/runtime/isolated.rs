//! Writes the Envoys that Gateways have for themselves, and tells the engine how that went.

use super::super::lease::Term;
use super::KubernetesRuntime;
use crate::isolated::{Ended, IsolatedEnvoys, Told};
use gatewright_core::inputs::Kind;

impl KubernetesRuntime {
    /// Takes in what is there of Gateways' own Envoys.
    pub fn see_isolated(&mut self, told: Told) {
        if let Some(isolated) = &mut self.isolated {
            isolated.see(told);
        }
    }

    /// All of them are compared with what there is.
    pub(super) fn look_at_isolated(&mut self) {
        if let Some(isolated) = &mut self.isolated {
            isolated.look_at_everything();
        }
    }

    /// Begins the writes whose turn has come.
    pub(super) fn write_isolated(&mut self, may_write: bool, term: Term) {
        // Nobody has Envoys any more while it is not known who has a Gateway.
        let gateways = self.view.is_whole(Kind::Gateway) && self.view.is_whole(Kind::GatewayClass);
        let Some(isolated) = &mut self.isolated else { return };
        isolated.write(may_write && gateways);
        self.hear_of_isolated(term);
    }

    /// Takes in how work for the Envoys of a Gateway ended.
    pub(super) fn take_isolated(&mut self, ended: Ended, term: Term) {
        if let Some(isolated) = &mut self.isolated {
            isolated.take_ended(ended);
        }
        self.hear_of_isolated(term);
    }

    /// What is in the way of Envoys stands in the statuses of their Gateways.
    fn hear_of_isolated(&mut self, term: Term) {
        let news = self.isolated.as_mut().map(IsolatedEnvoys::take_news).unwrap_or_default();
        if !news.is_empty() {
            self.apply(news, term);
        }
    }

    pub(super) async fn next_isolated(isolated: Option<&mut IsolatedEnvoys>) -> Ended {
        match isolated {
            Some(isolated) => isolated.next().await,
            None => std::future::pending().await,
        }
    }
}
