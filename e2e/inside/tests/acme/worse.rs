//! Invalid or worse certificates from a CA: none replaces a working one, and nothing is fetched to
//! repair them.

use std::time::Duration;

use acme::Wanted;
use acme::keeper::Keeper;
use anyhow::{Context, Result, ensure};
use e2e_inside::rig::{Rig, run, want};
use jiff::Timestamp;
use tokio::net::TcpListener;
use tokio::time::timeout;

fn serial(keeper: &Keeper, wanted: &Wanted) -> Result<String> {
    Ok(keeper
        .held_as(&wanted.id)
        .context("held")?
        .certificate
        .serial
        .clone())
}

#[test]
fn a_leaf_alone_is_refused_and_nobody_looks_where_it_says_its_issuer_is() -> Result<()> {
    run(async {
        let rig = Rig::start().await?;
        let keeper = rig.keeper().await?;
        let wanted = [want("a.example.com")?];
        keeper.pass(&wanted, Timestamp::now()).await;
        let held = serial(&keeper, &wanted[0])?;
        let elsewhere = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/issuer.der", elsewhere.local_addr()?);
        rig.ca
            .behave(|b| (b.leaf_only, b.issuer_at) = (true, Some(url.clone())));
        keeper.renew(&wanted[0].id);
        let pass = keeper.pass(&wanted, Timestamp::now()).await;
        ensure!(
            pass.issued.is_empty() && pass.failed[0].1.message.contains("intermediate"),
            "{pass:?}"
        );
        ensure!(serial(&keeper, &wanted[0])? == held);
        ensure!(
            timeout(Duration::ZERO, elsewhere.accept()).await.is_err(),
            "it was looked for at {url}"
        );
        // A complete chain with this extension is accepted.
        rig.ca.behave(|b| b.leaf_only = false);
        keeper.renew(&wanted[0].id);
        let pass = keeper.pass(&wanted, Timestamp::now()).await;
        ensure!(
            pass.issued.len() == 1 && serial(&keeper, &wanted[0])? != held,
            "{pass:?}"
        );
        Ok(())
    })
}

#[test]
fn a_certificate_for_a_key_of_another_type_is_refused() -> Result<()> {
    run(async {
        let rig = Rig::start().await?;
        let keeper = rig.keeper().await?;
        let held = [want("a.example.com")?];
        let new = [want("a.example.com")?, want("b.example.com")?];
        keeper.pass(&held, Timestamp::now()).await;
        let before = serial(&keeper, &held[0])?;
        rig.ca.behave(|b| b.other_key = true);
        keeper.renew(&held[0].id);
        let pass = keeper.pass(&new, Timestamp::now()).await;
        let is_told =
            |text: &str| text.contains("the private key does not belong to the certificate");
        ensure!(pass.issued.is_empty() && pass.failed.len() == 2, "{pass:?}");
        ensure!(
            pass.failed
                .iter()
                .all(|(_, failure)| is_told(&failure.message)),
            "{pass:?}"
        );
        ensure!(serial(&keeper, &held[0])? == before && keeper.held_as(&new[1].id).is_none());
        // The next orders are new ones, and are accepted.
        rig.ca.behave(|b| b.other_key = false);
        new.iter().for_each(|want| keeper.renew(&want.id));
        let pass = keeper.pass(&new, Timestamp::now()).await;
        ensure!(
            pass.issued.len() == 2 && serial(&keeper, &held[0])? != before,
            "{pass:?}"
        );
        Ok(())
    })
}
