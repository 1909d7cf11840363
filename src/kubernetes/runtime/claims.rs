//! The cluster's side of who claimed a hostname first.

use std::collections::BTreeSet;
use std::time::Instant;

use super::KubernetesRuntime;
use crate::claims::{self, Claims, Entry, Recorded};
use crate::lease::Term;
use crate::tenants;
use crate::watch::sync::WatchSync;
use gatewright_core::inputs::Kind;
use gatewright_core::translate::Ownable;

/// Who claimed what first.
#[derive(Default)]
pub(super) struct Ownership {
    /// The record of it, where that counts.
    pub(super) claims: Option<Claims>,
    /// Hostnames and ports that were claimed when we began and have no owner yet.
    undecided: Option<BTreeSet<Ownable>>,
}

impl KubernetesRuntime {
    /// Goes by this record.
    pub fn recording(mut self, claims: Claims) -> Self {
        self.ownership.claims = Some(claims);
        self
    }

    /// Takes in what the watch of the record tells.
    pub fn take_claims(&mut self, told: claims::Told, term: Term) {
        let changes = self.ownership.claims.as_mut().map(|claims| claims.take_in(told)).unwrap_or_default();
        self.take_records(changes, term);
        self.begin(term);
    }

    /// Takes in what is recorded.
    pub(super) fn take_records(&mut self, recorded: Vec<Recorded>, term: Term) {
        if recorded.is_empty() {
            return;
        }
        let mut changes = Vec::new();
        for change in recorded {
            match change {
                Recorded::Tenancy(change) => self.waiting.known.push(change),
                Recorded::Translation(change) => changes.push(change),
            }
        }
        self.apply(changes, term);
    }

    /// Takes something out of the record of ownership.
    ///
    /// # Errors
    /// When nobody owns it, or another replica writes the record; the text says so.
    pub fn release(&mut self, what: Ownable, term: Term) -> Result<(), String> {
        if !self.leads(term) {
            return Err("this replica does not hold the Lease: ask the one that does".to_owned());
        }
        let tenancy = self.live.pipeline().tenancy();
        let among_tenants = what.hostname().filter(|hostname| tenancy.records().contains_key(*hostname));
        let among_tenants = among_tenants.cloned().map(Entry::Tenants);
        let recorded = self.live.engine().recorded_as(&what).into_iter().map(Entry::Addresses);
        let recorded: Vec<Entry> = recorded.chain(among_tenants).collect();
        if recorded.is_empty() {
            return Err(format!("{what} has no owner"));
        }
        if let Some(claims) = &mut self.ownership.claims {
            recorded.into_iter().for_each(|entry| claims.release(entry));
        }
        Ok(())
    }

    /// Whether it is recorded who owns what was claimed when we began. Until then Envoys keep what they have: a hostname
    /// is served once its owner is recorded, and the first start of an installation must take none from anybody.
    pub(super) fn knows_owners(&mut self) -> bool {
        let engine = self.live.engine();
        if let Some(undecided) = &mut self.ownership.undecided {
            undecided.retain(|what| engine.record_proposal(what).is_some_and(|owner| owner.is_some()));
            if undecided.is_empty() {
                self.ownership.undecided = None;
            }
        }
        self.ownership.undecided.is_none()
    }

    /// Notes what was claimed when we began and has no owner yet.
    pub(super) fn note_undecided(&mut self) {
        let proposed = self.live.engine().record_proposals();
        self.ownership.undecided =
            Some(proposed.filter(|(_, owner)| owner.is_some()).map(|(what, _)| what.clone()).collect());
    }

    /// Of which records enough is known to write them.
    pub(super) fn known_records(view: &WatchSync) -> claims::Known {
        let gateways = [Kind::GatewayClass, Kind::Gateway].into_iter().all(|kind| view.is_whole(kind));
        let others = [Kind::ListenerSet, Kind::GatewayParameters, Kind::Namespace];
        let others = others.into_iter().all(|kind| view.is_whole(kind) || view.is_missing(kind));
        let addresses = gateways && others;
        let routes = [Kind::HTTPRoute, Kind::GRPCRoute, Kind::TLSRoute, Kind::TCPRoute, Kind::UDPRoute];
        let routes = addresses && routes.into_iter().all(|kind| view.is_whole(kind) || view.is_missing(kind));
        claims::Known { tenants: tenants::is_whole(view) && tenants::knows_wants(view), addresses, routes }
    }

    /// What is waited for.
    pub fn waiting(&self) -> Vec<String> {
        let claims = (!self.knows_claims()).then(|| "who claimed hostnames first: not listed yet".to_owned());
        let silent = self.heard.silent(Instant::now()).into_iter();
        let silent = silent.filter_map(|(kind, age)| self.view.silent(kind, age));
        self.view.waiting().into_iter().chain(silent).chain(claims).collect()
    }

    /// Whether it is known who claimed what first, where that counts.
    pub(super) fn knows_claims(&self) -> bool {
        self.ownership.claims.as_ref().is_none_or(Claims::is_complete)
    }

    /// Everything that is not recorded as it should be is looked at.
    pub(super) fn look_at_claims(&mut self) {
        if let Some(claims) = &mut self.ownership.claims {
            claims.look_at_everything(self.live.pipeline());
        }
    }

    /// Waits until a write of the record has ended, or one's turn has come.
    pub(super) async fn next_claim(claims: Option<&mut Claims>) -> claims::Ended {
        match claims {
            Some(claims) => claims.next().await,
            None => std::future::pending().await,
        }
    }
}
