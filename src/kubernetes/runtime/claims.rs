//! Connects the persistent records of first claims with the runtime.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tracing::warn;

use super::KubernetesRuntime;
use super::awaited_owners::{AwaitedOwners, Wait};
use crate::claims::{self, Claims};
use crate::lease::Term;
use crate::tenants;
use crate::watch::sync::WatchSync;
use gatewright_control::event::RECORD;
use gatewright_core::inputs::{Kind, RouteKind};
use gatewright_core::ownership::Ownable;
use gatewright_core::translate::Change;

/// At the first start, the longest time for which records are applied together: they come by
/// thousands, and Envoys wait for all of them.
const TOGETHER: Duration = Duration::from_secs(1);

/// The state of the ownership of hostnames and ports.
#[derive(Default)]
pub(super) struct Ownership {
    /// The record; `None` where first claims do not count.
    pub(super) claims: Option<Claims>,
    /// The claims of the first start without a recorded owner, while Envoys wait for them.
    awaited: Option<AwaitedOwners>,
    /// The records that are not applied yet, in order.
    recorded: Vec<Change>,
    /// The time at which records were last applied.
    pub(super) applied: Option<Instant>,
}

impl KubernetesRuntime {
    /// Enables the record.
    pub fn recording(mut self, claims: Claims) -> Self {
        self.ownership.claims = Some(claims);
        self
    }

    /// Takes in an event of the watch of the record.
    pub fn take_claims(&mut self, event: claims::ClaimEvent, term: Term) {
        let changes = self
            .ownership
            .claims
            .as_mut()
            .map(|claims| claims.take_in(event))
            .unwrap_or_default();
        self.take_records(changes, term);
        self.begin(term);
    }

    /// Takes in changes of the record.
    pub(super) fn take_records(&mut self, recorded: Vec<Change>, term: Term) {
        self.ownership.recorded.extend(recorded);
        self.apply_records(term);
    }

    /// Applies the records that have come, unless Envoys wait for more of them.
    pub(super) fn apply_records(&mut self, term: Term) {
        let Ownership {
            awaited,
            recorded,
            applied,
            ..
        } = &mut self.ownership;
        let lacks_some = awaited
            .as_ref()
            .is_some_and(|awaited| awaited.lacks_some(recorded.len()));
        let is_soon = applied.is_some_and(|applied| applied.elapsed() < TOGETHER);
        if recorded.is_empty() || (lacks_some && is_soon) {
            return;
        }
        let recorded = std::mem::take(recorded);
        *applied = Some(Instant::now());
        if let Some(awaited) = awaited {
            awaited.record(recorded.len());
        }
        self.apply(recorded, term);
    }

    /// Removes something from the record of ownership.
    ///
    /// # Errors
    /// When it has no owner, or another replica writes the record; the text says so.
    pub fn release(&mut self, what: Ownable, term: Term) -> Result<(), String> {
        if !self.leads(term) {
            return Err("this replica does not hold the Lease: run the command at the lease holder, which `kubectl get lease` names in the controller's namespace".to_owned());
        }
        let recorded = self.live.pipeline().recorded_as(&what);
        if recorded.is_empty() {
            return Err(format!("{what} has no owner"));
        }
        if let Some(claims) = &mut self.ownership.claims {
            recorded.into_iter().for_each(|what| claims.release(what));
        }
        Ok(())
    }

    /// Returns whether everything that was claimed at the first start has a recorded owner, as far
    /// as it can get one. Until then Envoys keep their configuration: a hostname is served once its
    /// owner is recorded, and the first start of an installation must not interrupt any. At a later
    /// start new claims, of which a tenant may have thousands, hold up nobody.
    pub(super) fn knows_owners(&mut self, now: Instant) -> bool {
        let Some(awaited) = &mut self.ownership.awaited else {
            return true;
        };
        let ledger = self.live.engine().ledger();
        let claims = self.ownership.claims.as_ref();
        let refused = claims.map_or(0, Claims::refused);
        let is_refused =
            |what: &Ownable| refused > 0 && claims.is_some_and(|claims| claims.is_refused(what));
        let wait = awaited.wait(now, refused, |what| {
            let is_proposed = ledger.proposal(what).is_some_and(|owner| owner.is_some());
            is_proposed && !is_refused(what)
        });
        match wait {
            Wait::Goes => return false,
            Wait::Over => {}
            Wait::TooLong(count, first) => warn!(
                event = RECORD,
                count,
                "hostnames and ports got no owner in time, {first} among them; all others are served"
            ),
        }
        self.ownership.awaited = None;
        true
    }

    /// Returns whether Envoys still wait for the owners of the first start.
    pub(super) fn awaits_owners(&self) -> bool {
        self.ownership.awaited.is_some()
    }

    /// Notes which claims at the start have no recorded owner yet, where no record has begun.
    pub(super) fn note_undecided(&mut self) {
        let claims = self.ownership.claims.as_ref();
        let proposed = self.live.engine().ledger().proposals();
        let names: BTreeSet<Ownable> = proposed
            .filter(|(_, owner)| owner.is_some())
            .map(|(what, _)| what.clone())
            .filter(|what| !claims.is_some_and(|claims| claims.has_begun(what)))
            .collect();
        let is_first = !names.is_empty();
        self.ownership.awaited = is_first.then(|| AwaitedOwners::new(names, Instant::now()));
    }

    /// Returns why Envoys get no configuration yet, although all objects are known.
    pub fn awaited_owners(&self) -> Option<String> {
        let count = self.ownership.awaited.as_ref()?.count();
        let refused = self.ownership.claims.as_ref().and_then(Claims::trouble);
        Some(refused.unwrap_or_else(|| {
            format!("the owners of {count} hostnames and ports are being recorded")
        }))
    }

    /// Returns the records whose inputs are completely known.
    pub(super) fn complete_inputs(view: &WatchSync) -> claims::CompleteInputs {
        let gateways = [Kind::GatewayClass, Kind::Gateway]
            .into_iter()
            .all(|kind| view.is_current(kind));
        let others = [
            Kind::ListenerSet,
            Kind::XListenerSet,
            Kind::GatewayParameters,
            Kind::Namespace,
        ];
        let others = others
            .into_iter()
            .all(|kind| view.is_current(kind) || view.is_missing(kind));
        let addresses = gateways && others;
        let routes = addresses
            && RouteKind::ALL
                .map(RouteKind::kind)
                .into_iter()
                .all(|kind| view.is_current(kind) || view.is_missing(kind));
        claims::CompleteInputs {
            tenants: tenants::sources_are_current(view) && tenants::knows_wants(view),
            addresses,
            routes,
        }
    }

    /// Returns messages about what is pending.
    pub fn pending_work(&self) -> Vec<String> {
        let claims = self.ownership.claims.as_ref();
        let claims = claims
            .into_iter()
            .flat_map(|claims| claims.pending().into_iter().chain(claims.trouble()));
        let silent = self.heard.silent(Instant::now()).into_iter();
        let silent = silent.filter_map(|(kind, age)| self.view.silent(kind, age));
        self.view
            .pending_work()
            .into_iter()
            .chain(silent)
            .chain(claims)
            .chain(self.statuses.writer.pending_work())
            .chain(self.awaits_ticket_keys.then(|| {
                let secret = crate::keys::TICKETS;
                format!("the keys of session tickets are not known yet: secret {secret}")
            }))
            .collect()
    }

    /// Returns whether the record is listed, where first claims count.
    pub(super) fn knows_claims(&self) -> bool {
        self.ownership
            .claims
            .as_ref()
            .is_none_or(|claims| claims.pending().is_none())
    }

    /// Queues every entry that differs from the record.
    pub(super) fn enqueue_claims(&mut self) {
        if let Some(claims) = &mut self.ownership.claims {
            claims.enqueue_all(self.live.pipeline());
        }
    }

    /// Waits until a write of the record has ended or a delayed one is due.
    pub(super) async fn next_claim(claims: Option<&mut Claims>) -> claims::WorkerEvent {
        match claims {
            Some(claims) => claims.next().await,
            None => std::future::pending().await,
        }
    }
}
