//! The names of one order are processed concurrently: look-ups, writes to DNS, checks of
//! propagation, removals.

use std::sync::Arc;
use std::time::Duration;

use acme::challenge::dns::{DnsError, DnsProvider, DnsView, Seen, TxtRecord};
use acme::challenge::{DnsSolver, Solvers};
use acme::{Names, Wanted};
use anyhow::{Result, ensure};
use async_trait::async_trait;
use e2e_inside::rig::{Rig, config, run, want};
use jiff::Timestamp;
use tokio::sync::Barrier;
use tokio::time::timeout;

const NAMES: usize = 25;

/// DNS in which a call for a name completes only once the same call was made for all names.
struct Together {
    targets: Barrier,
    zones: Barrier,
    written: Barrier,
    seen: Barrier,
    removed: Barrier,
}

impl Together {
    fn new() -> Self {
        let barrier = || Barrier::new(NAMES);
        Self {
            targets: barrier(),
            zones: barrier(),
            written: barrier(),
            seen: barrier(),
            removed: barrier(),
        }
    }
}

async fn meet(barrier: &Barrier, what: &str) -> Result<(), DnsError> {
    let met = timeout(Duration::from_secs(20), barrier.wait()).await;
    let message = format!("{what} waits for the one before");
    met.map(drop).map_err(|_| DnsError::Unavailable {
        provider: "test".to_owned(),
        message,
    })
}

/// The trial write is a record of its own.
fn is_trial(record: &TxtRecord) -> bool {
    record.value == "gatewright-may-write-here"
}

#[async_trait]
impl DnsProvider for Together {
    fn name(&self) -> &str {
        "test"
    }
    async fn zone_of(&self, _: &str) -> Result<String, DnsError> {
        meet(&self.zones, "the question for a zone")
            .await
            .map(|()| "example.com".to_owned())
    }
    async fn present(&self, record: &TxtRecord) -> Result<(), DnsError> {
        if is_trial(record) {
            Ok(())
        } else {
            meet(&self.written, "a record").await
        }
    }
    async fn cleanup(&self, record: &TxtRecord) -> Result<(), DnsError> {
        if is_trial(record) {
            Ok(())
        } else {
            meet(&self.removed, "the removal of a record").await
        }
    }
}

#[async_trait]
impl DnsView for Together {
    async fn challenge_target(&self, name: &str) -> Result<String, DnsError> {
        meet(&self.targets, "the look for a CNAME")
            .await
            .map(|()| name.to_owned())
    }
    async fn seen(&self, _: &TxtRecord) -> Result<Seen, DnsError> {
        meet(&self.seen, "the look for a record")
            .await
            .map(|()| Seen::Everywhere { silent: vec![] })
    }
    async fn values(&self, _: &str) -> Result<Vec<String>, DnsError> {
        Ok(Vec::new())
    }
}

#[test]
fn no_name_of_an_order_waits_for_the_dns_of_another() -> Result<()> {
    run(async {
        let rig = Rig::start().await?;
        let mut config = config(&rig.ca.directory());
        let dns = Arc::new(Together::new());
        let provider = dns.clone();
        let view = dns;
        let propagation_limit = Duration::from_secs(1);
        let solver = DnsSolver {
            provider,
            view,
            ttl: 60,
            propagation_limit,
            account_label: false,
        };
        config.solvers = Solvers {
            dns: Some(solver),
            ..Solvers::default()
        };
        let keeper = rig.keeper_with(config).await?;
        let names = Names::parse((0..NAMES).map(|i| format!("h{i}.example.com")))?;
        let pass = keeper
            .pass(
                &[Wanted {
                    names,
                    ..want("h0.example.com")?
                }],
                Timestamp::now(),
            )
            .await;
        ensure!(pass.issued.len() == 1 && pass.failed.is_empty(), "{pass:?}");
        // A record that could not be removed would be kept for another attempt.
        let left = rig.storage()?.list(acme::storage::Kind::Order).await?;
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    })
}
