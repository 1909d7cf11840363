//! Tests of the ACME engine and its keeper under faults: a fault of the CA, a resolver or a file
//! affects one host, never the account or other hosts.

mod causes;
mod shared_orders;

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use acme::budget::{Limits, Rate};
use acme::challenge::dns::{DnsError, DnsProvider, DnsView, Seen, TxtRecord};
use acme::challenge::{DnsSolver, Solvers};
use acme::engine::{AcmeConfig, AcmeIssuer};
use acme::keeper::{Keeper, Next, Pass};
use acme::storage::{Key, Kind};
use acme::{Class, Wanted};
use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use e2e::testca::{Behaviour, LIMIT, Refusal};
use e2e_inside::rig::{Rig, config, run, want, wanted_of_one};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;

fn wants(hosts: impl IntoIterator<Item = String>) -> Result<Vec<Wanted>> {
    hosts.into_iter().map(|host| want(&host)).collect()
}

/// Sets Let's Encrypt's limit of certificates for a domain, and no other.
fn fifty_a_week(config: AcmeConfig) -> AcmeConfig {
    let limits = Limits {
        domain: Some(Rate::hours(50, 7 * 24)),
        ..Limits::UNKNOWN
    };
    AcmeConfig {
        limits: Some(limits),
        ..config
    }
}

/// Runs passes until nothing fails any more, each at the time that the one before named; returns
/// the time of the last.
async fn until_done(
    keeper: &Arc<Keeper>,
    wanted: &[Wanted],
    mut now: Timestamp,
) -> Result<Timestamp> {
    for _ in 0..20 {
        let pass = keeper.pass(wanted, now).await;
        if pass.outlook.iter().all(|line| line.next == Next::Renew) {
            return Ok(now);
        }
        now = pass
            .next
            .context("something is due")?
            .max(now + SignedDuration::from_secs(1));
    }
    anyhow::bail!("there is no end to it")
}

/// Runs a keeper with a list of wanted certificates in a task; stops it when dropped.
struct Running {
    keeper: Arc<Keeper>,
    report: watch::Receiver<Arc<Pass>>,
    _stop: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

impl Running {
    fn start(keeper: Arc<Keeper>, wanted: Vec<Wanted>) -> Self {
        keeper.want(wanted.into_iter().map(|want| (want.id.clone(), Some(want))));
        let (told, report) = watch::channel(Arc::default());
        let (stopper, stop) = watch::channel(false);
        let working = keeper.clone();
        let task = tokio::spawn(async move { working.run(told, stop).await });
        Self {
            keeper,
            report,
            _stop: stopper,
            task,
        }
    }

    async fn until(&mut self, is_so: impl Fn(&Pass) -> bool) -> Result<()> {
        let wait = self.report.wait_for(|pass| is_so(pass));
        tokio::time::timeout(LIMIT, wait)
            .await
            .context("not in time")??;
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[test]
fn a_forced_renewal_that_fails_is_tried_as_rarely_as_any_other() -> Result<()> {
    run(async {
        let rig = Rig::start().await?;
        let mut running = Running::start(rig.keeper().await?, wants(["a.example.com".to_owned()])?);
        running
            .until(|pass| pass.outlook.iter().any(|line| line.next == Next::Renew))
            .await?;
        rig.ca.behave(|b| b.deactivated = true);
        let id = want("a.example.com")?.id;
        running.keeper.renew(&id);
        running
            .until(|pass| {
                pass.outlook
                    .iter()
                    .any(|line| line.next == Next::Retry(Class::Account))
            })
            .await?;
        let line = running.report.borrow().outlook[0].clone();
        ensure!(
            line.at > Timestamp::now() + SignedDuration::from_secs(50),
            "{line:?}"
        );
        ensure!(
            line.last_error
                .as_deref()
                .is_some_and(|e| e.contains("new-account")),
            "{line:?}"
        );
        let asked = rig.ca.counts().asked;
        // Whatever triggers a new plan, it is not retried before its back-off is over.
        for i in 0..20 {
            let other = want(&format!("h{i}.example.com"))?;
            running.keeper.want([(
                other.id.clone(),
                Some(Wanted {
                    issuer: "nobody".to_owned(),
                    ..other
                }),
            )]);
            running.until(|pass| pass.outlook.len() == i + 2).await?;
        }
        ensure!(
            rig.ca.counts().asked == asked,
            "{} orders more",
            rig.ca.counts().asked - asked
        );
        // An explicit request is tried at once.
        rig.ca.behave(|b| b.deactivated = false);
        running.keeper.renew(&id);
        running
            .until(|pass| {
                pass.outlook
                    .iter()
                    .any(|line| line.id == id && line.next == Next::Renew)
            })
            .await?;
        ensure!(rig.certificates() == 2, "{:?}", rig.ca.counts());
        Ok(())
    })
}

/// DNS in which the name servers of the zone `bad.example` do not answer.
struct Zones;

fn answers(name: &str) -> Result<(), DnsError> {
    fn unavailable(name: &&str) -> DnsError {
        DnsError::Unavailable {
            provider: "dns".to_owned(),
            message: format!("finding the zone of {name}: the resolver answers SERVFAIL"),
        }
    }
    if name.ends_with("bad.example") {
        Err(unavailable(&name))
    } else {
        Ok(())
    }
}

#[async_trait]
impl DnsProvider for Zones {
    fn name(&self) -> &str {
        "test"
    }
    async fn zone_of(&self, name: &str) -> Result<String, DnsError> {
        Ok(name.rsplit('.').take(2).collect::<Vec<_>>().join("."))
    }
    async fn present(&self, _: &TxtRecord) -> Result<(), DnsError> {
        Ok(())
    }
    async fn cleanup(&self, _: &TxtRecord) -> Result<(), DnsError> {
        Ok(())
    }
}

#[async_trait]
impl DnsView for Zones {
    async fn challenge_target(&self, name: &str) -> Result<String, DnsError> {
        answers(name).map(|()| name.to_owned())
    }
    async fn seen(&self, _: &TxtRecord) -> Result<Seen, DnsError> {
        Ok(Seen::Everywhere { silent: vec![] })
    }
    async fn values(&self, _: &str) -> Result<Vec<String>, DnsError> {
        Ok(Vec::new())
    }
}

#[test]
fn a_zone_whose_servers_do_not_answer_holds_up_its_hosts_alone() -> Result<()> {
    run(async {
        let rig = Rig::start().await?;
        let mut config = config(&rig.ca.directory());
        let dns = DnsSolver {
            provider: Arc::new(Zones),
            view: Arc::new(Zones),
            ttl: 60,
            propagation_limit: Duration::from_secs(1),
            account_label: false,
        };
        config.solvers = Solvers {
            dns: Some(dns),
            ..Solvers::default()
        };
        let keeper = rig.keeper_with(config).await?;
        let bad = wants((0..5).map(|i| format!("h{i}.bad.example")))?;
        let mut now = Timestamp::now();
        for _ in 0..8 {
            now = keeper
                .pass(&bad, now)
                .await
                .next
                .context("something is due")?;
        }
        let all: Vec<Wanted> = bad
            .iter()
            .cloned()
            .chain([want("h.good.example")?])
            .collect();
        let pass = keeper.pass(&all, now).await;
        ensure!(pass.issued == [want("h.good.example")?.id], "{pass:?}");
        ensure!(rig.orders() == 1, "{:?}", rig.ca.counts().orders);
        fn told(line: &acme::keeper::Outlook) -> bool {
            line.last_error
                .as_deref()
                .is_some_and(|e| e.contains("SERVFAIL"))
        }
        ensure!(
            pass.outlook.iter().filter(|line| told(line)).count() == 5,
            "{:?}",
            pass.outlook
        );
        Ok(())
    })
}

#[test]
fn a_renewal_window_that_is_always_over_leads_to_one_renewal_at_most() -> Result<()> {
    run(async {
        let rig = Rig::start().await?;
        let now = Timestamp::now();
        let day = SignedDuration::from_hours(24);
        let why = "https://ca.example/why";
        let mut running = Running::start(rig.keeper().await?, wants(["a.example.com".to_owned()])?);
        running
            .until(|pass| pass.outlook.iter().any(|line| line.next == Next::Renew))
            .await?;
        drop(running);
        rig.ca
            .behave(|b| b.window = Some((now - day * 2, now - day, Some(why.to_owned()))));
        let keeper = rig.keeper().await?;
        let wanted = wants(["a.example.com".to_owned()])?;
        let later = now + day * 2;
        let mut told = false;
        for i in 0..40 {
            let pass = keeper
                .pass(&wanted, later + SignedDuration::from_hours(i))
                .await;
            told |= pass.outlook[0]
                .notice
                .as_deref()
                .is_some_and(|n| n.contains("not followed") && n.contains(why));
        }
        ensure!(
            rig.certificates() == 2,
            "{} certificates",
            rig.certificates()
        );
        ensure!(told, "why it is not followed is told");
        // Another start continues from the stored state.
        let keeper = rig.keeper().await?;
        for i in 40..80 {
            keeper
                .pass(&wanted, later + SignedDuration::from_hours(i))
                .await;
        }
        ensure!(
            rig.certificates() == 2,
            "{} certificates",
            rig.certificates()
        );
        // A window that becomes valid is followed, and so is one that moves into the past
        // afterwards.
        let later = later + day * 20;
        rig.ca
            .behave(|b| b.window = Some((later + day * 30, later + day * 31, None)));
        for i in 0..20 {
            keeper
                .pass(&wanted, later + SignedDuration::from_hours(i))
                .await;
        }
        ensure!(
            rig.certificates() == 2,
            "{} certificates",
            rig.certificates()
        );
        rig.ca
            .behave(|b| b.window = Some((now - day * 2, now - day, Some(why.to_owned()))));
        for i in 20..60 {
            keeper
                .pass(&wanted, later + SignedDuration::from_hours(i))
                .await;
        }
        ensure!(
            rig.certificates() == 3,
            "{} certificates",
            rig.certificates()
        );
        Ok(())
    })
}

#[test]
fn a_clock_that_is_far_ahead_does_not_renew_in_a_loop() -> Result<()> {
    run(async {
        let rig = Rig::start().await?;
        // By our clock, each certificate is two months old when it is issued.
        rig.ca
            .behave(|b| b.ahead = SignedDuration::from_hours(-24 * 70));
        let mut running = Running::start(rig.keeper().await?, wants(["a.example.com".to_owned()])?);
        running
            .until(|pass| pass.outlook.iter().any(|line| line.next == Next::Renew))
            .await?;
        for i in 0..20 {
            let other = want(&format!("h{i}.example.com"))?;
            running.keeper.want([(
                other.id.clone(),
                Some(Wanted {
                    issuer: "nobody".to_owned(),
                    ..other
                }),
            )]);
            running.until(|pass| pass.outlook.len() == i + 2).await?;
        }
        ensure!(
            rig.certificates() == 1,
            "{} certificates",
            rig.certificates()
        );
        Ok(())
    })
}

#[test]
fn an_authorization_that_the_ca_does_not_know_costs_seconds() -> Result<()> {
    run(async {
        let rig = Rig::start().await?;
        let keeper = rig.keeper().await?;
        let wanted = wants(["a.example.com".to_owned()])?;
        rig.ca.behave(|b| b.lost_authorizations = 1);
        let now = Timestamp::now();
        let done = until_done(&keeper, &wanted, now).await?;
        ensure!(
            done < now + SignedDuration::from_secs(10) && rig.orders() == 1,
            "{}",
            done.duration_since(now)
        );
        Ok(())
    })
}

#[test]
fn a_certificate_that_ends_soon_or_comes_without_its_intermediate_replaces_nothing() -> Result<()> {
    run(async {
        let rig = Rig::start().await?;
        let keeper = rig.keeper().await?;
        let wanted = wants(["a.example.com".to_owned()])?;
        let now = Timestamp::now();
        keeper.pass(&wanted, now).await;
        let held = keeper
            .held_as(&wanted[0].id)
            .context("held")?
            .certificate
            .serial
            .clone();
        type Change = fn(&mut Behaviour);
        let worse: [(&str, Change); 2] = [
            ("ends at", |b| b.life = Some(SignedDuration::from_hours(1))),
            ("intermediate", |b| (b.life, b.leaf_only) = (None, true)),
        ];
        for (word, change) in worse {
            rig.ca.behave(change);
            keeper.renew(&wanted[0].id);
            let pass = keeper.pass(&wanted, now).await;
            ensure!(
                pass.issued.is_empty() && pass.failed[0].1.message.contains(word),
                "{pass:?}"
            );
            ensure!(
                keeper
                    .held_as(&wanted[0].id)
                    .context("held")?
                    .certificate
                    .serial
                    == held
            );
        }
        // The next order is a new one, and is accepted.
        rig.ca.behave(|b| b.leaf_only = false);
        keeper.renew(&wanted[0].id);
        let pass = keeper.pass(&wanted, now).await;
        ensure!(pass.issued.len() == 1, "{pass:?}");
        Ok(())
    })
}

#[test]
fn a_host_that_is_removed_in_the_middle_leaves_nothing_behind() -> Result<()> {
    run(async {
        let rig = Rig::start().await?;
        let gone = "a.example.com".to_owned();
        rig.ca.behave(|b| b.stuck = [gone.clone()].into());
        let mut running = Running::start(
            rig.keeper().await?,
            wants([gone.clone(), "b.example.com".to_owned()])?,
        );
        running
            .until(|pass| pass.outlook.iter().any(|line| line.next == Next::Renew))
            .await?;
        let storage = rig.storage()?;
        wait_for(async || {
            Ok(storage.list(Kind::Order).await?.len() == 1
                && rig.ca.counts().orders.contains_key(&gone))
        })
        .await?;
        let start = std::time::Instant::now();
        running.keeper.want([(want(&gone)?.id, None)]);
        wait_for(async || {
            Ok(storage.list(Kind::Order).await?.is_empty()
                && rig.ca.counts().deactivated.contains(&gone))
        })
        .await?;
        ensure!(
            start.elapsed() < Duration::from_secs(10),
            "{:?}",
            start.elapsed()
        );
        ensure!(
            rig.ca.counts().deactivated.len() == 1,
            "{:?}",
            rig.ca.counts().deactivated
        );
        Ok(())
    })
}

async fn wait_for(is_so: impl AsyncFn() -> Result<bool>) -> Result<()> {
    let until = std::time::Instant::now() + LIMIT;
    while !is_so().await? {
        ensure!(std::time::Instant::now() < until, "not in time");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

#[test]
fn damaged_entries_are_set_aside_and_what_can_be_made_anew_is() -> Result<()> {
    run(async {
        let rig = Rig::start().await?;
        let wanted = wants(["a.example.com", "b.example.com"].map(str::to_owned))?;
        let now = Timestamp::now();
        rig.keeper().await?.pass(&wanted, now).await;
        fn file(kind: Kind, name: &str, rig: &Rig) -> std::path::PathBuf {
            let key = Key::new(kind, name);
            rig.dir()
                .join("acme")
                .join(kind.as_str())
                .join(format!("{}.json", key.name()))
        }
        std::fs::write(
            file(Kind::Certificate, wanted[0].id.as_str(), &rig),
            "{ not ours",
        )?;
        std::fs::write(file(Kind::Budget, "ca", &rig), "{")?;
        for path in [
            file(Kind::Certificate, wanted[0].id.as_str(), &rig),
            file(Kind::Budget, "ca", &rig),
        ] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        }
        // A directory in place of a certificate's file.
        std::fs::create_dir(file(Kind::Certificate, "c.example.com", &rig))?;
        let keeper = rig.keeper().await?;
        ensure!(
            keeper.held_as(&wanted[1].id).is_some(),
            "the others are there"
        );
        let pass = keeper.pass(&wanted, now).await;
        ensure!(
            pass.issued == [wanted[0].id.clone()] && pass.failed.is_empty(),
            "{pass:?}"
        );
        let aside: BTreeMap<_, _> = std::fs::read_dir(rig.dir().join("acme/damaged"))?
            .filter_map(|entry| Some((entry.as_ref().ok()?.file_name().into_string().ok()?, ())))
            .collect();
        ensure!(aside.len() == 2, "{aside:?}");
        Ok(())
    })
}

#[test]
fn orders_of_one_tenant_that_come_to_no_end_hold_up_nobody_else() -> Result<()> {
    run(async {
        let rig = Rig::start().await?;
        let hosts: Vec<String> = (0..1000)
            .map(|i| format!("a{i}.mallory{i}.example"))
            .collect();
        rig.ca.behave(|b| b.stuck = hosts.iter().cloned().collect());
        // Fewer concurrent orders at the CA than a tenant has places: each of hers waits for the CA
        // for minutes.
        let config = AcmeConfig {
            max_concurrent: 2,
            attempt_timeout: Duration::from_secs(600),
            ..config(&rig.ca.directory())
        };
        let hers: Vec<Wanted> = hosts
            .iter()
            .map(|host| wanted_of_one("mallory", host))
            .collect::<Result<_>>()?;
        let mut running = Running::start(rig.keeper_with(config).await?, hers);
        // She has her share: six of eight places.
        wait_for(async || Ok(rig.ca.counts().challenges >= 6)).await?;
        let start = std::time::Instant::now();
        let alices = wanted_of_one("alice", "www.alice.example")?;
        running
            .keeper
            .want([(alices.id.clone(), Some(alices.clone()))]);
        running
            .until(|pass| {
                pass.outlook
                    .iter()
                    .any(|l| l.id == alices.id && l.next == Next::Renew)
            })
            .await?;
        ensure!(
            start.elapsed() < Duration::from_secs(60),
            "alice waited {:?}",
            start.elapsed()
        );
        ensure!(rig.orders() <= 7, "{} orders at a time", rig.orders());
        Ok(())
    })
}

#[test]
fn a_thousand_hosts_that_fail_leave_the_next_slot_of_the_account_to_somebody_else() -> Result<()> {
    run(async {
        let rig = Rig::start().await?;
        let hosts: Vec<String> = (0..300)
            .map(|i| format!("a{i}.mallory{i}.example"))
            .collect();
        rig.ca
            .behave(|b| b.failing = hosts.iter().cloned().collect());
        // Let's Encrypt's limit of orders, and no other: one more every 36 seconds.
        let limits = Limits {
            orders: Some(Rate::hours(300, 3)),
            ..Limits::UNKNOWN
        };
        let config = AcmeConfig {
            limits: Some(limits),
            ..config(&rig.ca.directory())
        };
        let keeper = rig.keeper_with(config).await?;
        let wanted = hosts.iter().map(|host| {
            Ok(Wanted {
                may_share: false,
                ..wanted_of_one("mallory", host)?
            })
        });
        let mut wanted: Vec<Wanted> = wanted.collect::<Result<_>>()?;
        let mut now = Timestamp::now();
        keeper.pass(&wanted, now).await;
        ensure!(rig.orders() == 240, "{} orders", rig.orders());
        // By now hers are due again, and so are those that were never tried.
        now += SignedDuration::from_secs(5);
        let alices = wanted_of_one("alice", "www.alice.example")?;
        wanted.push(alices.clone());
        wanted.sort_by(|a, b| a.id.cmp(&b.id));
        let asked = now;
        while keeper.held_as(&alices.id).is_none() {
            ensure!(
                now < asked + SignedDuration::from_mins(1),
                "alice waits for {}",
                now.duration_since(asked)
            );
            let pass = keeper.pass(&wanted, now).await;
            now = pass
                .next
                .context("something is due")?
                .max(now + SignedDuration::from_secs(1));
        }
        Ok(())
    })
}
