//! The trial write: finds out whether we may write challenge records, before an order is placed, once for each zone.

use std::collections::BTreeSet;
use std::sync::Mutex;

use jiff::Timestamp;

use super::attempt::OrderAttempt;
use super::authorize::target;
use super::problem::of_dns;
use super::record::remove_traces;
use super::side_by_side::{all, side_by_side};
use crate::challenge::dns::TxtRecord;
use crate::challenge::{ChallengeKind, DnsSolver};
use crate::failure::Failure;
use crate::names::DnsName;

/// The value of the trial record.
const TRIAL: &str = "gatewright-may-write-here";

/// The zones in which a record was written successfully.
#[derive(Debug, Default)]
pub(super) struct Zones(Mutex<BTreeSet<String>>);

impl Zones {
    fn contains(&self, zone: &str) -> bool {
        self.0.lock().expect("nobody panics while holding it").contains(zone)
    }

    fn insert(&self, zone: String) {
        self.0.lock().expect("nobody panics while holding it").insert(zone);
    }
}

/// Writes a trial record into each zone of an order's names that has accepted none so far, and removes it again. Like a
/// challenge record it is persisted before it is made.
pub(super) async fn try_out(run: &mut OrderAttempt<'_>, solver: &DnsSolver) -> Result<(), Failure> {
    let solvers = &run.issuer.config.solvers;
    let proofs: Vec<(DnsName, ChallengeKind)> = run
        .record
        .names
        .iter()
        .filter_map(|name| Some((name.clone(), solvers.choose(name, &solvers.kinds())?)))
        .collect();
    let by_dns = proofs.iter().filter(|(_, kind)| matches!(kind, ChallengeKind::Dns01 | ChallengeKind::DnsAccount01));
    let targets = by_dns.clone().map(|(name, kind)| target(solver, *kind, name, run.account.url()));
    for ((name, _), (target, zone)) in by_dns.zip(all(side_by_side(targets).await)?) {
        if run.issuer.zones.contains(&zone) {
            continue;
        }
        let record = TxtRecord { name: target, value: TRIAL.to_owned(), ttl: solver.ttl };
        if !run.record.txt.contains(&record) {
            run.record.txt.push(record.clone());
        }
        run.save().await?;
        let taken = solver.provider.present(&record).await.map_err(|e| of_dns(&e, name, Timestamp::now()));
        let txt = std::mem::take(&mut run.record.txt);
        run.record.txt = remove_traces(run.issuer, txt).await;
        if taken.is_err() && run.record.txt.is_empty() {
            // Nothing was ordered and no record is left: there is nothing to resume.
            super::record::close(run.issuer, &run.record.id).await?;
        }
        taken?;
        run.issuer.zones.insert(zone);
    }
    Ok(())
}
