//! Tests of the ACME engine with the test CA: behaviour that Pebble lacks, and a kill at every
//! step.

mod killed;

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use acme::challenge::dns::{DnsError, DnsProvider, DnsView, Seen, TxtRecord};
use acme::challenge::{DnsSolver, Solvers};
use acme::engine::{AcmeConfig, AcmeIssuer};
use acme::keeper::{Keeper, Next};
use acme::preflight::{Preflight, PreflightPolicy, PreflightRequest, Strictness};
use acme::storage::dir::Directory;
use acme::storage::{Entry, Expect, Key, Kind, Lock, StorageError, Version};
use acme::{Class, IssueRequest, Issuer, Names, Storage, Wanted};
use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use e2e::testca::TestCa;
use e2e_inside::rig::{Rig, config, run, want};
use jiff::{SignedDuration, Timestamp};

fn request(host: &str) -> Result<IssueRequest> {
    let want = want(host)?;
    Ok(IssueRequest::new(want.id, want.names, Timestamp::now()))
}

#[test]
fn pages_of_html_and_bad_nonces_are_taken_for_what_they_are() -> Result<()> {
    run(async {
        let rig = Rig::start().await?;
        let issuer = rig.issuer().await?;
        issuer.issue(&request("a.example.com")?).await?;
        rig.ca.behave(|b| b.html_errors = 1);
        let failure = issuer
            .issue(&request("b.example.com")?)
            .await
            .expect_err("a page of HTML");
        ensure!(
            failure.class == Class::Transient && failure.message.contains("502"),
            "{failure:?}"
        );
        issuer.issue(&request("b.example.com")?).await?;
        rig.ca.behave(|b| b.bad_nonces = 30);
        for i in 0..20 {
            issuer
                .issue(&request(&format!("h{i}.example.com"))?)
                .await?;
        }
        ensure!(rig.ca.counts().accounts == 1);
        ensure!(
            rig.ca.counts().orders.values().all(|n| *n == 1),
            "{:?}",
            rig.ca.counts().orders
        );
        Ok(())
    })
}

#[test]
fn nonces_are_pooled() -> Result<()> {
    run(async {
        let rig = Rig::start().await?;
        let issuer = rig.issuer().await?;
        for i in 0..20 {
            issuer
                .issue(&request(&format!("h{i}.example.com"))?)
                .await?;
        }
        ensure!(
            rig.ca.counts().nonces <= 1,
            "{} nonces were asked for",
            rig.ca.counts().nonces
        );
        Ok(())
    })
}

#[test]
fn a_slow_ca_is_waited_for_and_a_very_slow_one_taken_up_later() -> Result<()> {
    run(async {
        let rig = Rig::start().await?;
        let issuer = rig.issuer().await?;
        rig.ca.behave(|b| b.processing = (2, Some(1)));
        issuer.issue(&request("a.example.com")?).await?;
        rig.ca.behave(|b| b.processing = (1, Some(3600)));
        let failure = issuer
            .issue(&request("b.example.com")?)
            .await
            .expect_err("an hour is too long to wait");
        ensure!(failure.class == Class::Transient, "{failure:?}");
        let wait = failure
            .retry_at
            .context("the CA said when")?
            .duration_since(Timestamp::now());
        ensure!(wait > SignedDuration::from_mins(55), "{wait}");
        issuer.issue(&request("b.example.com")?).await?;
        ensure!(
            rig.ca.counts().certificates["b.example.com"] == 1,
            "the same order was taken up"
        );
        Ok(())
    })
}

#[test]
fn a_limit_is_learned_shown_and_kept_and_is_nobodys_fault() -> Result<()> {
    run(async {
        let rig = Rig::start().await?;
        let keeper = rig.keeper().await?;
        let detail =
            "too many certificates (50) already issued for \"example.com\" in the last 168h0m0s";
        rig.ca.behave(|b| b.limit = Some((detail.to_owned(), 7200)));
        let now = Timestamp::now();
        let pass = keeper.pass(&[want("a.example.com")?], now).await;
        ensure!(
            pass.failed.len() == 1 && pass.failed[0].1.class == Class::RateLimited,
            "{:?}",
            pass.failed
        );
        rig.ca.behave(|b| b.limit = None);
        // Another host of the domain waits without a request to the CA; another domain proceeds.
        let both = [want("b.example.com")?, want("b.example.org")?];
        let pass = keeper.pass(&both, now).await;
        ensure!(pass.issued.len() == 1, "{:?}", pass.issued);
        let waiting = pass
            .outlook
            .iter()
            .find(|o| o.names.first().as_str() == "b.example.com")
            .context("there")?;
        ensure!(
            matches!(&waiting.next, Next::Wait(why) if why.contains("example.com")),
            "{waiting:?}"
        );
        ensure!(waiting.at > now + SignedDuration::from_mins(110));
        // The limit survives a restart.
        let budgets = rig.keeper().await?.budgets();
        ensure!(
            budgets["ca"].report(now).len() == 1,
            "{:?}",
            budgets["ca"].report(now)
        );
        Ok(())
    })
}

#[test]
fn an_address_that_asked_too_often_is_silent_as_long_as_it_was_told_whoever_of_us_asks()
-> Result<()> {
    run(async {
        let rig = Rig::start().await?;
        let rate_limits = Arc::default();
        let open = async |name: &str| {
            let config = AcmeConfig {
                name: name.to_owned(),
                rate_limits: Arc::clone(&rate_limits),
                ..config(&rig.ca.directory())
            };
            Ok::<_, anyhow::Error>(AcmeIssuer::open(config, rig.storage()?).await?)
        };
        let one = open("one").await?;
        let other = open("other").await?;
        for issuer in [&one, &other] {
            issuer.account_url().await?;
        }
        rig.ca.behave(|b| b.busy = Some(1800));
        let failure = one
            .issue(&request("a.example.com")?)
            .await
            .expect_err("it is busy");
        ensure!(failure.retry_at.is_some(), "{failure:?}");
        rig.ca.behave(|b| b.busy = None);
        // Another account from the same address: nothing is sent, and no host is blamed.
        let failure = other
            .issue(&request("b.example.com")?)
            .await
            .expect_err("it said when");
        ensure!(
            failure.class == Class::RateLimited && failure.culprits.is_empty(),
            "{failure:?}"
        );
        let wait = failure
            .retry_at
            .context("it says until when")?
            .duration_since(Timestamp::now());
        ensure!(wait > SignedDuration::from_mins(25), "{wait}");
        ensure!(
            rig.ca.counts().busy == 1 && rig.ca.counts().orders.is_empty(),
            "{:?}",
            rig.ca.counts()
        );
        // It is shown with the other limits, and survives a restart.
        let restarted = rig.issuer().await?;
        for issuer in [&other, &restarted] {
            let lines = issuer
                .budget()
                .context("there is one")?
                .report(Timestamp::now());
            let texts: Vec<_> = lines.iter().map(|line| line.scope.to_string()).collect();
            ensure!(
                texts == ["requests to new-order from this address"],
                "{texts:?}"
            );
        }
        Ok(())
    })
}

#[test]
fn ten_accounts_from_one_address_and_the_next_tenant_waits() -> Result<()> {
    run(async {
        let rig = Rig::start().await?;
        let rate_limits = Arc::default();
        let open = async |name: String| {
            let limits = Some(acme::budget::Limits::LETS_ENCRYPT);
            let rate_limits = Arc::clone(&rate_limits);
            let config = AcmeConfig {
                name,
                limits,
                rate_limits,
                ..config(&rig.ca.directory())
            };
            Ok::<_, anyhow::Error>(AcmeIssuer::open(config, rig.storage()?).await?)
        };
        for i in 0..10 {
            open(format!("tenant{i}")).await?.account_url().await?;
        }
        let failure = open("tenant10".to_owned())
            .await?
            .account_url()
            .await
            .expect_err("ten in three hours");
        ensure!(
            failure.class == Class::RateLimited
                && failure.message.contains("new accounts from this address"),
            "{failure}"
        );
        let wait = failure
            .retry_at
            .context("it says when")?
            .duration_since(Timestamp::now());
        ensure!(
            wait > SignedDuration::from_mins(16) && wait <= SignedDuration::from_mins(18),
            "{wait}"
        );
        ensure!(rig.ca.counts().accounts == 10);
        // An existing account is unaffected.
        open("tenant3".to_owned())
            .await?
            .issue(&request("a.example.com")?)
            .await?;
        Ok(())
    })
}

#[test]
fn a_failing_host_does_not_hold_up_those_that_share_its_order() -> Result<()> {
    run(async {
        let rig = Rig::start().await?;
        rig.ca
            .behave(|b| b.failing = HashSet::from(["bad.example.com".to_owned()]));
        let keeper = rig.keeper().await?;
        let mut pack = want("bad.example.com")?;
        pack.names = Names::parse(["bad.example.com", "good.example.com"])?;
        let failed = keeper
            .pass(std::slice::from_ref(&pack), Timestamp::now())
            .await
            .failed;
        ensure!(
            failed[0].1.class == Class::HostFault && failed[0].1.culprits == ["bad.example.com"],
            "{failed:?}"
        );
        let wanted = [want("good.example.com")?, want("bad.example.com")?];
        let now = Timestamp::now();
        let pass = keeper.pass(&wanted, now).await;
        ensure!(pass.issued.len() == 1, "{pass:?}");
        // It is retried later, not in a loop; and at once when its owner changes something.
        let orders = rig.ca.counts().orders;
        for _ in 0..5 {
            keeper.pass(&wanted, now).await;
        }
        ensure!(rig.ca.counts().orders == orders);
        let line = keeper
            .pass(&wanted, now)
            .await
            .outlook
            .into_iter()
            .find(|o| o.last_error.is_some());
        let line = line.context("a line with its error")?;
        ensure!(
            line.last_error
                .as_deref()
                .is_some_and(|e| e.contains("wrong answer")),
            "{line:?}"
        );
        rig.ca.behave(|b| b.failing.clear());
        let pass = keeper
            .pass(&wanted, now + SignedDuration::from_mins(2))
            .await;
        ensure!(pass.issued.len() == 1 && pass.failed.is_empty(), "{pass:?}");
        Ok(())
    })
}

#[test]
fn a_certificate_that_is_not_what_was_asked_for_replaces_nothing() -> Result<()> {
    run(async {
        let rig = Rig::start().await?;
        let keeper = rig.keeper().await?;
        let wanted = [want("a.example.com")?];
        keeper.pass(&wanted, Timestamp::now()).await;
        let held = keeper.certificates()[0].certificate.serial.clone();
        for change in [
            |b: &mut e2e::testca::Behaviour| b.wrong_name = true,
            |b: &mut e2e::testca::Behaviour| {
                (b.wrong_name, b.ahead) = (false, SignedDuration::from_hours(2))
            },
            |b: &mut e2e::testca::Behaviour| b.ahead = SignedDuration::from_hours(-24 * 91),
        ] {
            rig.ca.behave(change);
            keeper.renew(&wanted[0].id);
            let pass = keeper.pass(&wanted, Timestamp::now()).await;
            ensure!(
                pass.issued.is_empty() && pass.failed[0].1.class == Class::Bug,
                "{pass:?}"
            );
            ensure!(keeper.certificates()[0].certificate.serial == held);
        }
        rig.ca.behave(|b| b.ahead = SignedDuration::ZERO);
        keeper.renew(&wanted[0].id);
        let pass = keeper.pass(&wanted, Timestamp::now()).await;
        ensure!(pass.issued.len() == 1, "{pass:?}");
        Ok(())
    })
}

#[test]
fn a_revoked_certificate_is_replaced_at_once_and_the_order_says_so() -> Result<()> {
    run(async {
        let rig = Rig::start().await?;
        let keeper = rig.keeper().await?;
        let wanted = [want("a.example.com")?];
        let now = Timestamp::now();
        rig.ca.behave(|b| {
            b.window = Some((
                now + SignedDuration::from_hours(900),
                now + SignedDuration::from_hours(940),
                None,
            ))
        });
        keeper.pass(&wanted, now).await;
        let pass = keeper.pass(&wanted, now).await;
        ensure!(pass.issued.is_empty() && pass.outlook[0].next == Next::Renew);
        ensure!(
            pass.outlook[0].at > now + SignedDuration::from_hours(899),
            "the CA's window: {:?}",
            pass.outlook[0]
        );
        let day = SignedDuration::from_hours(24);
        rig.ca.behave(|b| {
            b.window = Some((
                now - day * 2,
                now - day,
                Some("https://ca.example/why".to_owned()),
            ))
        });
        let later = now + SignedDuration::from_hours(13);
        let pass = keeper.pass(&wanted, later).await;
        ensure!(pass.issued.len() == 1, "{pass:?}");
        Ok(())
    })
}

/// A pre-flight check with a finding for one host.
struct Finds(&'static str);

#[async_trait]
impl Preflight for Finds {
    async fn findings(&self, request: &PreflightRequest<'_>) -> Vec<String> {
        let found = request.name.as_str() == self.0 && request.account_url.starts_with("http");
        if found {
            vec![format!("{} points elsewhere; change its A record", self.0)]
        } else {
            Vec::new()
        }
    }
}

#[test]
fn a_preflight_finding_places_no_order_unless_it_only_warns() -> Result<()> {
    run(async {
        let rig = Rig::start().await?;
        for (strictness, orders) in [(Strictness::Strict, 0), (Strictness::Warn, 1)] {
            let mut config = config(&rig.ca.directory());
            config.preflight = Some(PreflightPolicy {
                preflight: Arc::new(Finds("bad.example.com")),
                strictness,
            });
            let issuer = AcmeIssuer::open(config, rig.storage()?).await?;
            let issued = issuer.issue(&request("bad.example.com")?).await;
            ensure!(issued.is_ok() == (orders == 1));
            if let Err(failure) = issued {
                ensure!(
                    failure.class == Class::HostFault && failure.culprits == ["bad.example.com"],
                    "{failure:?}"
                );
                ensure!(failure.message.contains("change its A record"), "{failure}");
                issuer.issue(&request("good.example.com")?).await?;
            }
            let counted = rig
                .ca
                .counts()
                .orders
                .get("bad.example.com")
                .copied()
                .unwrap_or(0);
            ensure!(counted == orders, "{strictness:?}: {counted}");
        }
        Ok(())
    })
}

/// DNS in a directory: one file for each value, so that it outlives the process.
struct FileDns(PathBuf);

impl FileDns {
    fn file(&self, record: &TxtRecord) -> PathBuf {
        self.0.join(format!("{}={}", record.name, record.value))
    }
}

#[async_trait]
impl DnsProvider for FileDns {
    fn name(&self) -> &str {
        "file"
    }
    async fn zone_of(&self, _: &str) -> Result<String, DnsError> {
        Ok("example.com".to_owned())
    }
    async fn present(&self, record: &TxtRecord) -> Result<(), DnsError> {
        std::fs::write(self.file(record), "").expect("the directory is ours");
        Ok(())
    }
    async fn cleanup(&self, record: &TxtRecord) -> Result<(), DnsError> {
        let _gone_already = std::fs::remove_file(self.file(record));
        Ok(())
    }
}

#[async_trait]
impl DnsView for FileDns {
    async fn challenge_target(&self, name: &str) -> Result<String, DnsError> {
        Ok(name.to_owned())
    }
    async fn seen(&self, _: &TxtRecord) -> Result<Seen, DnsError> {
        Ok(Seen::Everywhere { silent: vec![] })
    }
    async fn values(&self, _: &str) -> Result<Vec<String>, DnsError> {
        Ok(Vec::new())
    }
}

#[test]
fn a_ca_that_asks_for_a_proof_of_another_name_gets_none_and_the_order_is_given_up() -> Result<()> {
    run(async {
        for host in ["a.example.com", "*.example.com"] {
            let rig = Rig::start().await?;
            let records = tempfile::tempdir()?;
            let dns = Arc::new(FileDns(records.path().to_path_buf()));
            let mut config = config(&rig.ca.directory());
            let provider = dns.clone();
            let view = dns;
            let propagation_limit = Duration::from_secs(10);
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
            let issuer = AcmeIssuer::open(config, rig.storage()?).await?;
            rig.ca
                .behave(|ca| ca.foreign = Some("victim.example.com".to_owned()));
            let failure = issuer
                .issue(&request(host)?)
                .await
                .expect_err("it asks about a stranger");
            ensure!(
                failure.class == Class::Bug && failure.message.contains("victim.example.com"),
                "{failure:?}"
            );
            ensure!(
                std::fs::read_dir(records.path())?.next().is_none(),
                "a record was written"
            );
            let counts = rig.ca.counts();
            ensure!(
                counts.challenges == 0 && counts.certificates.is_empty(),
                "{counts:?}"
            );
            // The next order is a new one.
            rig.ca.behave(|ca| ca.foreign = None);
            issuer.issue(&request(host)?).await?;
        }
        Ok(())
    })
}
