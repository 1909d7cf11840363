//! Certificates by a CA whose template is worse than before: what Envoy or TLS clients refuse
//! replaces nothing.

use acme::certificate::chain_of;
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use e2e_inside::rig::{Rig, run, want};
use hyper::Response;
use jiff::{SignedDuration, Timestamp};
use rcgen::{CertificateParams, CustomExtension, ExtendedKeyUsagePurpose, KeyUsagePurpose};

type Template = fn(&mut CertificateParams);

fn critical(params: &mut CertificateParams) {
    let mut extension = CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0]);
    extension.set_criticality(true);
    params.custom_extensions.push(extension);
}

fn must_staple(params: &mut CertificateParams) {
    let features = vec![0x30, 3, 2, 1, 5];
    params
        .custom_extensions
        .push(CustomExtension::from_oid_content(
            &[1, 3, 6, 1, 5, 5, 7, 1, 24],
            features,
        ));
}

fn for_encipherment(params: &mut CertificateParams) {
    params.key_usages = vec![KeyUsagePurpose::KeyEncipherment];
}

fn for_clients(params: &mut CertificateParams) {
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
}

fn for_servers(params: &mut CertificateParams) {
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
}

fn without_end(params: &mut CertificateParams) {
    params.not_after = rcgen::date_time_ymd(9999, 12, 31);
}

#[test]
fn a_renewal_that_envoy_or_clients_refuse_replaces_nothing() -> Result<()> {
    run(async {
        let rig = Rig::start().await?;
        let keeper = rig.keeper().await?;
        let wanted = [want("a.example.com")?];
        keeper.pass(&wanted, Timestamp::now()).await;
        let serial = || -> Result<String> {
            Ok(keeper
                .certificates()
                .first()
                .context("a certificate")?
                .certificate
                .serial
                .clone())
        };
        let held = serial()?;
        let worse: [(Template, &str); 4] = [
            (for_encipherment, "keyUsage without digitalSignature"),
            (for_clients, "extKeyUsage without serverAuth"),
            (must_staple, "OCSP stapling"),
            (critical, "critical extension 1.2.3.4"),
        ];
        for (template, says) in worse {
            rig.ca.behave(|b| b.template = Some(template));
            keeper.renew(&wanted[0].id);
            let pass = keeper.pass(&wanted, Timestamp::now()).await;
            ensure!(
                pass.issued.is_empty() && pass.failed[0].1.message.contains(says),
                "{says}: {pass:?}"
            );
            ensure!(serial()? == held, "{says}: the certificate was replaced");
            let told = keeper.pass(&wanted, Timestamp::now()).await.outlook[0]
                .last_error
                .clone();
            ensure!(
                told.as_ref().is_some_and(|told| told.contains(says)),
                "{says}: {told:?}"
            );
        }
        for template in [Some(for_servers as Template), None] {
            let before = serial()?;
            rig.ca.behave(|b| b.template = template);
            keeper.renew(&wanted[0].id);
            let pass = keeper.pass(&wanted, Timestamp::now()).await;
            ensure!(
                pass.issued.len() == 1 && serial()? != before,
                "a good template: {pass:?}"
            );
        }
        Ok(())
    })
}

#[test]
fn a_first_certificate_that_envoy_refuses_is_told() -> Result<()> {
    run(async {
        let rig = Rig::start().await?;
        let keeper = rig.keeper().await?;
        let wanted = [want("a.example.com")?];
        rig.ca.behave(|b| b.template = Some(must_staple));
        let pass = keeper.pass(&wanted, Timestamp::now()).await;
        ensure!(
            pass.issued.is_empty() && pass.failed[0].1.message.contains("Envoy does not load it"),
            "{pass:?}"
        );
        let told = keeper.pass(&wanted, Timestamp::now()).await.outlook[0]
            .last_error
            .clone();
        ensure!(
            told.is_some_and(|told| told.contains("OCSP stapling")),
            "the next attempt says so"
        );
        // Clients alone refuse this one: it is stored, and what is wrong is known.
        rig.ca.behave(|b| b.template = Some(for_clients));
        let other = [want("b.example.com")?];
        keeper.pass(&other, Timestamp::now()).await;
        let stored = keeper
            .certificates()
            .into_iter()
            .next()
            .context("it is stored")?;
        let refusal = stored
            .certificate
            .refusal(Timestamp::now())
            .unwrap_or_default();
        ensure!(refusal.contains("TLS clients refuse it"), "{refusal:?}");
        Ok(())
    })
}

#[test]
fn a_certificate_without_an_end_is_taken() -> Result<()> {
    run(async {
        let rig = Rig::start().await?;
        let keeper = rig.keeper().await?;
        let wanted = [want("a.example.com")?];
        rig.ca.behave(|b| b.template = Some(without_end));
        let pass = keeper.pass(&wanted, Timestamp::now()).await;
        ensure!(pass.issued.len() == 1, "{pass:?}");
        let pass = keeper
            .pass(&wanted, Timestamp::now() + SignedDuration::from_hours(24))
            .await;
        ensure!(
            pass.issued.is_empty() && pass.failed.is_empty(),
            "it is not ordered again: {pass:?}"
        );
        let orders = rig.ca.counts().orders;
        ensure!(orders["a.example.com"] == 1, "{orders:?}");
        Ok(())
    })
}

/// A change of a chain.
type Change = fn(&str) -> String;

/// Changes chains on their way.
fn changed(rig: &Rig, change: Change) {
    rig.ca
        .mangle(Box::new(move |_: &str, answer: Response<Bytes>| {
            answer.map(|body| match std::str::from_utf8(&body) {
                Ok(text) if text.starts_with("-----BEGIN") => {
                    Bytes::from(change(&text.replace("\r\n", "\n")))
                }
                _ => body,
            })
        }));
}

#[test]
fn every_certificate_of_a_chain_is_read_or_the_part_is_told() -> Result<()> {
    run(async {
        let rig = Rig::start().await?;
        let keeper = rig.keeper().await?;
        let readable: [(&str, Change); 4] = [
            ("no line end between", |text| {
                text.replace("-----\n-----", "----------")
            }),
            ("CR LF", |text| text.replace('\n', "\r\n")),
            ("another label", |text| {
                text.replace("CERTIFICATE", "X509 CERTIFICATE")
            }),
            ("the leaf twice", |text| {
                let end = text.find("-----END CERTIFICATE-----\n").unwrap_or_default() + 26;
                format!("{}{text}", &text[..end])
            }),
        ];
        for (number, (what, change)) in readable.into_iter().enumerate() {
            changed(&rig, change);
            let wanted = [want(&format!("h{number}.example.com"))?];
            let pass = keeper.pass(&wanted, Timestamp::now()).await;
            ensure!(pass.issued.len() == 1, "{what}: {pass:?}");
            let stored = keeper
                .certificates()
                .into_iter()
                .find(|stored| stored.id == wanted[0].id);
            let chain = stored
                .context("it is stored")?
                .certificate
                .chain_pem
                .clone();
            ensure!(chain_of(&chain)?.len() == 2, "{what}: {chain}");
            let begins = chain
                .lines()
                .filter(|line| *line == "-----BEGIN CERTIFICATE-----")
                .count();
            ensure!(begins == 2, "{what} is stored as others read it: {chain}");
        }
        let unreadable: [(&str, Change, &str); 2] = [
            (
                "a misspelt boundary",
                |text| text.replacen("-----\n-----BEGIN", "-----\n----BEGIN", 1),
                "base64 data outside",
            ),
            (
                "a part without an end",
                |text| {
                    text.trim_end_matches("-----END CERTIFICATE-----\n")
                        .to_owned()
                },
                "part 2",
            ),
        ];
        for (number, (what, change, says)) in unreadable.into_iter().enumerate() {
            changed(&rig, change);
            let pass = keeper
                .pass(
                    &[want(&format!("x{number}.example.com"))?],
                    Timestamp::now(),
                )
                .await;
            ensure!(
                pass.issued.is_empty() && pass.failed[0].1.message.contains(says),
                "{what}: {pass:?}"
            );
        }
        Ok(())
    })
}
