//! What is nobody's fault costs no host its back-off, and no domain its certificates: an outage of
//! the CA, an order that was given up, a full disk.

use std::path::Path;

use acme::failure::Cause;
use acme::{IssueRequest, Issuer};
use e2e::disk::Disk;

use super::*;

#[test]
fn after_an_outage_of_the_ca_the_first_failure_of_a_name_waits_a_minute() -> Result<()> {
    run(async {
        let rig = Rig::start().await?;
        let keeper = rig.keeper().await?;
        let wanted = wants(["a.example.com".to_owned()])?;
        let mut now = Timestamp::now();
        for _ in 0..8 {
            rig.ca.behave(|b| b.html_errors = 20);
            let pass = keeper.pass(&wanted, now).await;
            ensure!(pass.failed.len() == 1, "the CA is away: {pass:?}");
            now = pass.next.context("another try")?;
        }
        rig.ca.behave(|b| {
            b.html_errors = 0;
            b.failing = ["a.example.com".to_owned()].into();
        });
        keeper.pass(&wanted, now).await;
        let failed = keeper.last_failure(&wanted[0].id).context("a failure")?;
        ensure!(failed.last.class == Class::HostFault, "{failed:?}");
        let wait = failed.not_before.duration_since(now);
        ensure!(
            wait <= SignedDuration::from_mins(2),
            "the first failure of the name: {wait:?}"
        );
        Ok(())
    })
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let status = std::process::Command::new("cp")
        .arg("-a")
        .args([from, to])
        .status()?;
    ensure!(status.success(), "cp -a {}", from.display());
    Ok(())
}

#[test]
fn an_order_that_was_given_up_before_a_kill_is_not_the_fault_of_its_host() -> Result<()> {
    run(async {
        let rig = Rig::start().await?;
        let host = "a.example.com";
        rig.ca.behave(|b| b.stuck = [host.to_owned()].into());
        let mut config = config(&rig.ca.directory());
        config.attempt_timeout = Duration::from_millis(200);
        let storage = rig.storage()?;
        let issuer = AcmeIssuer::open(config, storage).await?;
        let wanted = want(host)?;
        let request = IssueRequest::new(wanted.id.clone(), wanted.names.clone(), Timestamp::now());
        let stuck = issuer.issue(&request).await;
        ensure!(stuck.is_err(), "the CA does not decide");
        let (acme, before) = (rig.dir().join("acme"), rig.dir().join("before"));
        copy(&acme, &before)?;
        issuer.abandon(&wanted.id).await?;
        ensure!(
            rig.ca.counts().deactivated.contains(host),
            "the CA was told"
        );
        drop(issuer);
        // Killed before any of that was written.
        std::fs::remove_dir_all(&acme)?;
        copy(&before, &acme)?;
        rig.ca.behave(|b| b.stuck.clear());

        let keeper = rig.keeper().await?;
        let now = Timestamp::now();
        let pass = keeper.pass(std::slice::from_ref(&wanted), now).await;
        ensure!(pass.failed.len() == 1, "the order has ended: {pass:?}");
        let failed = keeper.last_failure(&wanted.id).context("a failure")?;
        ensure!(
            failed.counted(Cause::Name) == 0,
            "the host did nothing: {failed:?}"
        );
        let pass = keeper
            .pass(
                std::slice::from_ref(&wanted),
                now + SignedDuration::from_secs(2),
            )
            .await;
        ensure!(pass.issued == [wanted.id], "another order: {pass:?}");
        Ok(())
    })
}

#[test]
fn orders_that_fail_cost_their_domain_no_certificates() -> Result<()> {
    run(async {
        let rig = Rig::start().await?;
        let host = "bad.example.com";
        rig.ca.behave(|b| b.failing = [host.to_owned()].into());
        let keeper = rig
            .keeper_with(fifty_a_week(config(&rig.ca.directory())))
            .await?;
        let wanted = wants([host.to_owned()])?;
        let mut now = Timestamp::now();
        for _ in 0..4 {
            let pass = keeper.pass(&wanted, now).await;
            ensure!(pass.failed.len() == 1, "its answer is wrong: {pass:?}");
            now = pass.outlook[0].at;
        }
        let domain = acme::budget::Scope::Domain("example.com".to_owned());
        let left = keeper.budgets()["ca"].left(&domain, now);
        ensure!(left == Some(50), "no certificate was issued: {left:?}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root, for a disk of its own"]
fn on_a_full_disk_no_order_is_placed_that_could_not_be_stored() -> Result<()> {
    run(async {
        let rig = Rig::start().await?;
        let disk = Disk::mount(rig.dir())?;
        let keeper = rig.keeper().await?;
        let mut now = Timestamp::now();
        let first = wants(["first.example.com".to_owned()])?;
        let pass = keeper.pass(&first, now).await;
        ensure!(pass.issued.len() == 1, "there is space: {pass:?}");
        let reserve = rig.dir().join("acme/reserve");
        for has_reserve in [true, false] {
            for pages in 0..24 {
                if !has_reserve && reserve.exists() {
                    std::fs::remove_file(&reserve)?;
                }
                let host = format!("h{pages}-{has_reserve}.example.com");
                let wanted = wants([host.clone()])?;
                disk.fill_but(pages * 4096)?;
                let pass = keeper.pass(&wanted, now).await;
                let placed = rig.ca.counts().orders.get(&host).copied();
                ensure!(
                    has_reserve || placed.is_none(),
                    "{pages} pages are no room for an order and its certificate: {pass:?}"
                );
                disk.free()?;
                for _ in 0..3 {
                    now += SignedDuration::from_mins(15);
                    keeper.pass(&wanted, now).await;
                }
                ensure!(
                    keeper.held_as(&wanted[0].id).is_some(),
                    "there is space again, after {pages} pages"
                );
                let placed = rig.ca.counts().orders.get(&host).copied();
                ensure!(placed == Some(1), "{pages} pages: {placed:?} orders");
            }
        }
        Ok(())
    })
}
