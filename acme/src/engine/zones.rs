//! The trial write: finds out whether we may write challenge records, before an order is placed,
//! once for each zone.

use std::collections::BTreeSet;
use std::sync::Mutex;

use jiff::Timestamp;

use super::attempt::OrderAttempt;
use super::authorize::target;
use super::concurrency::{all, run_concurrently};
use super::problem::of_dns;
use super::record::remove_txt_records;
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
        self.0
            .lock()
            .expect("nobody panics while holding it")
            .contains(zone)
    }

    fn insert(&self, zone: String) {
        self.0
            .lock()
            .expect("nobody panics while holding it")
            .insert(zone);
    }
}

/// Writes a trial record into each zone of an order's names that has accepted none so far, and
/// removes it again. Like a challenge record it is persisted before it is made.
pub(super) async fn trial_write(
    attempt: &mut OrderAttempt<'_>,
    solver: &DnsSolver,
) -> Result<(), Failure> {
    let solvers = &attempt.issuer.config.solvers;
    let proofs: Vec<(DnsName, ChallengeKind)> = attempt
        .record
        .names
        .iter()
        .filter_map(|name| Some((name.clone(), solvers.choose(name, &solvers.kinds())?)))
        .collect();
    let by_dns = proofs
        .iter()
        .filter(|(_, kind)| matches!(kind, ChallengeKind::Dns01 | ChallengeKind::DnsAccount01));
    let targets = by_dns
        .clone()
        .map(|(name, kind)| target(solver, *kind, name, attempt.account.url()));
    for ((name, _), (target, zone)) in by_dns.zip(all(run_concurrently(targets).await)?) {
        if attempt.issuer.zones.contains(&zone) {
            continue;
        }
        let record = TxtRecord {
            name: target,
            value: TRIAL.to_owned(),
            ttl: solver.ttl,
        };
        if !attempt.record.txt.contains(&record) {
            attempt.record.txt.push(record.clone());
        }
        attempt.save().await?;
        let taken = solver
            .provider
            .present(&record)
            .await
            .map_err(|e| of_dns(&e, name, Timestamp::now()));
        let txt = std::mem::take(&mut attempt.record.txt);
        attempt.record.txt = remove_txt_records(attempt.issuer, txt).await;
        if taken.is_err() && attempt.record.txt.is_empty() {
            // Nothing was ordered and no record is left: there is nothing to resume.
            super::record::close(attempt.issuer, &attempt.record.id).await?;
        }
        taken?;
        attempt.issuer.zones.insert(zone);
    }
    Ok(())
}
