//! May we write where the proof of a name goes? Found out before an order is placed, once for each zone.

use std::collections::BTreeSet;
use std::sync::Mutex;

use jiff::Timestamp;

use super::problem::of_dns;
use super::record::remove_traces;
use super::run::Run;
use crate::challenge::dns::TxtRecord;
use crate::challenge::{ChallengeKind, DnsSolver, dns_label};
use crate::failure::Failure;
use crate::names::DnsName;

/// What is written, and removed again, where nothing was written before.
const TRIAL: &str = "gatewright-may-write-here";

/// The zones that took a record of ours.
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

/// Writes a record into each zone that the names of an order lie in and that took none so far, and removes it again. It is
/// noted before it is made, as those of challenges are.
pub(super) async fn try_out(run: &mut Run<'_>, solver: &DnsSolver) -> Result<(), Failure> {
    let solvers = &run.issuer.config.solvers;
    let proofs: Vec<(DnsName, ChallengeKind)> = run
        .record
        .names
        .iter()
        .filter_map(|name| Some((name.clone(), solvers.choose(name, &solvers.kinds())?)))
        .collect();
    for (name, kind) in proofs {
        if !matches!(kind, ChallengeKind::Dns01 | ChallengeKind::DnsAccount01) {
            continue;
        }
        let failed = |e| of_dns(&e, &name, Timestamp::now());
        let label = dns_label(kind, &name, run.account.url());
        let target = solver.view.challenge_target(&label).await.map_err(failed)?;
        let zone = solver.provider.zone_of(&target).await.map_err(failed)?;
        if run.issuer.zones.contains(&zone) {
            continue;
        }
        let record = TxtRecord { name: target, value: TRIAL.to_owned(), ttl: solver.ttl };
        if !run.record.txt.contains(&record) {
            run.record.txt.push(record.clone());
        }
        run.save().await?;
        let taken = solver.provider.present(&record).await.map_err(failed);
        let txt = std::mem::take(&mut run.record.txt);
        run.record.txt = remove_traces(run.issuer, txt).await;
        if taken.is_err() && run.record.txt.is_empty() {
            // Nothing was ordered, and nothing is left: there is nothing to take up.
            super::record::close(run.issuer, &run.record.id).await?;
        }
        taken?;
        run.issuer.zones.insert(zone);
    }
    Ok(())
}
