//! Failures of orders that several hosts share.

use super::*;

#[test]
fn an_outage_while_shared_orders_are_finalized_costs_neither_orders_nor_hours() -> Result<()> {
    run(async {
        let rig = Rig::start().await?;
        let keeper = rig
            .keeper_with(fifty_a_week(config(&rig.ca.directory())))
            .await?;
        let wanted = wants((0..120).map(|i| format!("h{i}.example.com")))?;
        rig.ca.behave(|b| b.failing_finalizes = 2);
        let now = Timestamp::now();
        let done = until_done(&keeper, &wanted, now).await?;
        ensure!(
            rig.orders() == 5 && rig.certificates() == 5,
            "{:?}",
            rig.ca.counts().orders.values()
        );
        ensure!(
            done < now + SignedDuration::from_mins(1),
            "{}",
            done.duration_since(now)
        );
        Ok(())
    })
}

#[test]
fn shared_orders_are_taken_up_by_a_program_that_starts_anew_also_with_the_budget_spent()
-> Result<()> {
    run(async {
        let rig = Rig::start().await?;
        let limits = Limits {
            domain: Some(Rate::hours(5, 7 * 24)),
            ..Limits::UNKNOWN
        };
        let config = AcmeConfig {
            limits: Some(limits),
            ..config(&rig.ca.directory())
        };
        let wanted = wants((0..120).map(|i| format!("h{i}.example.com")))?;
        rig.ca.behave(|b| b.failing_finalizes = 5);
        let now = Timestamp::now();
        rig.keeper_with(config.clone())
            .await?
            .pass(&wanted, now)
            .await;
        ensure!(
            rig.orders() == 5 && rig.certificates() == 0,
            "{:?}",
            rig.ca.counts()
        );
        // The budget is spent, and nothing is needed.
        let done = until_done(&rig.keeper_with(config).await?, &wanted, now).await?;
        ensure!(
            rig.orders() == 5 && rig.certificates() == 5,
            "{:?}",
            rig.ca.counts().orders.values()
        );
        ensure!(
            done < now + SignedDuration::from_mins(1),
            "{}",
            done.duration_since(now)
        );
        Ok(())
    })
}

#[test]
fn a_shared_order_that_is_refused_without_a_culprit_is_halved_until_it_stands_alone() -> Result<()>
{
    run(async {
        let rig = Rig::start().await?;
        let limits = Limits {
            // Enough that the last six, after orders of 25, 12 and 6, need less than half of what
            // is left: the rest would be halved once more, a day later.
            domain: Some(Rate::hours(30, 7 * 24)),
            ..Limits::UNKNOWN
        };
        let keeper = rig
            .keeper_with(AcmeConfig {
                limits: Some(limits),
                ..config(&rig.ca.directory())
            })
            .await?;
        let wanted = wants((0..100).map(|i| format!("h{i}.example.com")))?;
        let refusal = Refusal {
            status: 400,
            kind: "malformed",
            detail: "no".to_owned(),
            ..Refusal::default()
        };
        rig.ca.behave(|b| {
            b.refusing.insert("h7.example.com".to_owned(), refusal);
        });
        let mut now = Timestamp::now();
        for _ in 0..12 {
            let pass = keeper.pass(&wanted, now).await;
            now = pass.next.context("something is due")?;
        }
        let waiting: Vec<String> = wanted
            .iter()
            .filter(|w| keeper.held_as(&w.id).is_none())
            .map(|w| w.names.to_string())
            .collect();
        let held: BTreeSet<String> = keeper
            .certificates()
            .iter()
            .flat_map(|c| c.certificate.names.to_strings())
            .collect();
        ensure!(
            held.len() == 99 && !held.contains("h7.example.com"),
            "{}: {waiting:?}",
            held.len()
        );
        ensure!(rig.orders() < 15, "{} orders", rig.orders());
        Ok(())
    })
}

#[test]
fn the_pause_of_one_name_holds_that_name_alone() -> Result<()> {
    run(async {
        let rig = Rig::start().await?;
        let keeper = rig.keeper().await?;
        let link = "https://portal.letsencrypt.org/sfe/v1/unpause?jwt=abc";
        let detail = format!(
            "Your account is temporarily prevented from requesting certificates for a.example.com and possibly others. \
             Please visit: {link}"
        );
        let refusal = Refusal {
            status: 429,
            kind: "rateLimited",
            detail,
            ..Refusal::default()
        };
        rig.ca.behave(|b| {
            b.refusing.insert("a.example.com".to_owned(), refusal);
        });
        let wanted = wants(["a.example.com", "b.example.com", "c.example.org"].map(str::to_owned))?;
        let now = Timestamp::now();
        let pass = keeper.pass(&wanted, now).await;
        ensure!(pass.issued.len() == 2 && pass.failed.len() == 1, "{pass:?}");
        let failure = &pass.failed[0].1;
        ensure!(
            failure.class == Class::Paused && failure.message.contains(link),
            "{failure:?}"
        );
        let line = pass
            .outlook
            .iter()
            .find(|line| line.last_error.is_some())
            .context("its line")?;
        ensure!(
            line.next == Next::Retry(Class::Paused)
                && line.at > now + SignedDuration::from_hours(23),
            "{line:?}"
        );
        Ok(())
    })
}

#[test]
fn an_unknown_refusal_holds_its_order_and_the_account_only_when_it_is_refused_for_others_too()
-> Result<()> {
    run(async {
        let rig = Rig::start().await?;
        let keeper = rig.keeper().await?;
        fn refusal(seconds: u32) -> Refusal {
            Refusal {
                status: 429,
                kind: "rateLimited",
                detail: "the moon is full".to_owned(),
                retry_after: Some(seconds),
                ..Refusal::default()
            }
        }
        rig.ca.behave(|b| {
            b.refusing.insert("a.example.com".to_owned(), refusal(3600));
        });
        let now = Timestamp::now();
        let pass = keeper
            .pass(
                &wants(["a.example.com", "b.example.com"].map(str::to_owned))?,
                now,
            )
            .await;
        ensure!(pass.issued.len() == 1 && pass.failed.len() == 1, "{pass:?}");
        ensure!(rig.ca.counts().asked == 2);
        let hosts: Vec<String> = (0..3).map(|i| format!("x.example{i}.com")).collect();
        rig.ca.behave(|b| {
            b.refusing
                .extend(hosts.iter().map(|h| (h.clone(), refusal(3600))))
        });
        keeper.pass(&wants(hosts)?, now).await;
        let asked = rig.ca.counts().asked;
        let pass = keeper
            .pass(&wants(["free.example.net".to_owned()])?, now)
            .await;
        ensure!(
            pass.issued.is_empty() && rig.ca.counts().asked == asked,
            "{pass:?}"
        );
        let waits = matches!(&pass.outlook[0].next, Next::Wait(why) if why.contains("new orders of the account"));
        ensure!(waits, "{:?}", pass.outlook);
        let pass = keeper
            .pass(
                &wants(["free.example.net".to_owned()])?,
                now + SignedDuration::from_mins(61),
            )
            .await;
        ensure!(pass.issued.len() == 1, "{pass:?}");
        Ok(())
    })
}

#[test]
fn a_refused_name_is_found_in_subproblems_and_the_others_go_on() -> Result<()> {
    run(async {
        let rig = Rig::start().await?;
        let limits = Limits {
            domain: Some(Rate::hours(10, 7 * 24)),
            ..Limits::UNKNOWN
        };
        let keeper = rig
            .keeper_with(AcmeConfig {
                limits: Some(limits),
                ..config(&rig.ca.directory())
            })
            .await?;
        let wanted = wants((0..20).map(|i| format!("h{i}.example.com")))?;
        let bad = "h3.example.com".to_owned();
        let refusal = Refusal {
            status: 400,
            kind: "rejectedIdentifier",
            detail: "forbidden by policy (and more)".to_owned(),
            subproblems: vec![bad.clone()],
            ..Refusal::default()
        };
        rig.ca.behave(|b| {
            b.refusing.insert(bad.clone(), refusal);
        });
        let now = Timestamp::now();
        keeper.pass(&wanted, now).await;
        let pass = keeper.pass(&wanted, now).await;
        ensure!(
            rig.orders() == 1 && rig.certificates() == 1,
            "{:?}",
            rig.ca.counts().orders
        );
        let failed: Vec<_> = pass
            .outlook
            .iter()
            .filter(|line| line.last_error.is_some())
            .collect();
        ensure!(
            failed.len() == 1 && failed[0].names.first().as_str() == bad,
            "{failed:?}"
        );
        Ok(())
    })
}
