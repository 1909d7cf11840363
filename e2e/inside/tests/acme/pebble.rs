//! Tests of the ACME engine with Pebble.

mod cut_off;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use acme::account::ExternalAccount;
use acme::challenge::dns::{DnsProvider, TxtRecord};
use acme::challenge::{DnsSolver, Persist, Solvers};
use acme::engine::{AcmeConfig, AcmeIssuer, RequestedProfile};
use acme::keeper::Keeper;
use acme::storage::dir::Directory;
use acme::storage::{Entry, Expect, Key, Kind, Lock, StorageError, Version};
use acme::{CertificateId, Class, IssueRequest, IssuedCertificate, Issuer, Names, Storage, Wanted};
use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use e2e::pebble::{Options, Pebble};
use e2e_inside::responders::{AlpnResponder, Responder, TestDns, roots_of};
use jiff::Timestamp;
use serde_json::json;

/// Pebble may deadlock: then the test fails instead of hanging.
const LIMIT: Duration = Duration::from_secs(300);

fn run<F: Future<Output = Result<()>>>(test: F) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        tokio::time::timeout(LIMIT, test)
            .await
            .context("no end in time: did Pebble deadlock?")?
    })
}

struct Rig {
    pebble: Pebble,
    tmp: tempfile::TempDir,
}

impl Rig {
    async fn start(options: &Options) -> Result<Self> {
        Ok(Self {
            pebble: Pebble::start(options).await?,
            tmp: tempfile::tempdir()?,
        })
    }

    fn storage(&self) -> Result<Arc<dyn Storage>> {
        Ok(Arc::new(Directory::open(self.tmp.path().join("acme"))?))
    }

    fn config(&self) -> AcmeConfig {
        let mut config = AcmeConfig::new("pebble", &self.pebble.directory());
        config.roots = roots_of(&self.pebble);
        config.registration.terms_agreed = true;
        config.timeout = Duration::from_secs(60);
        config.attempt_timeout = Duration::from_secs(180);
        config
    }

    async fn issuer(&self, config: AcmeConfig) -> Result<AcmeIssuer> {
        Ok(AcmeIssuer::open(config, self.storage()?).await?)
    }
}

fn request(names: &[&str]) -> Result<IssueRequest> {
    let names = Names::parse(names)?;
    Ok(IssueRequest::new(
        CertificateId::of("t", &names),
        names,
        Timestamp::now(),
    ))
}

/// Returns true if the chain leads to a root: the last certificate was signed by it.
fn is_under(certificate: &IssuedCertificate, root_pem: &str) -> Result<bool> {
    let chain = acme::certificate::chain_of(&certificate.chain_pem)?;
    let root = acme::certificate::chain_of(root_pem)?;
    let (_, last) = x509_parser::parse_x509_certificate(chain.last().context("a chain")?)?;
    let (_, root) = x509_parser::parse_x509_certificate(&root[0])?;
    Ok(last.issuer() == root.subject() && last.verify_signature(Some(root.public_key())).is_ok())
}

#[test]
#[ignore = "needs Pebble"]
fn http_01_with_nothing_told_to_the_responder_but_the_thumbprint() -> Result<()> {
    run(async {
        let rig = Rig::start(&Options::default()).await?;
        let issuer = rig.issuer(rig.config()).await?;
        let _responder = Responder::start(rig.pebble.http_port, &issuer.thumbprint()).await?;
        let request = request(&["a.example.com", "b.example.com"])?;
        let certificate = issuer.issue(&request).await?;
        ensure!(certificate.names == request.names);
        ensure!(is_under(&certificate, &rig.pebble.issuing_root(0).await?)?);
        // Not installed yet: a repeated request returns the same certificate, without a request to
        // the CA.
        let again = issuer.issue(&request).await?;
        ensure!(again.serial == certificate.serial && rig.pebble.issued() == 1);
        issuer.installed(&request.id).await?;
        ensure!(rig.storage()?.list(Kind::Order).await?.is_empty());
        Ok(())
    })
}

#[test]
#[ignore = "needs Pebble"]
fn a_host_that_does_not_answer_is_named_and_nothing_is_left_behind() -> Result<()> {
    run(async {
        let rig = Rig::start(&Options::default()).await?;
        let issuer = rig.issuer(rig.config()).await?;
        let _responder = Responder::start(rig.pebble.http_port, "another-thumbprint").await?;
        let request = request(&["a.example.com"])?;
        let failure = issuer
            .issue(&request)
            .await
            .expect_err("the answer is wrong");
        ensure!(failure.class == Class::HostFault, "{failure:?}");
        ensure!(failure.culprits == ["a.example.com"], "{failure:?}");
        ensure!(failure.message.contains("a.example.com"), "{failure}");
        ensure!(rig.storage()?.list(Kind::Order).await?.is_empty());
        Ok(())
    })
}

#[test]
#[ignore = "needs Pebble"]
fn dns_01_for_apex_and_wildcard_in_one_order_leaves_no_record() -> Result<()> {
    run(async {
        let rig = Rig::start(&Options::default()).await?;
        let dns = TestDns::of(&rig.pebble);
        let mut config = rig.config();
        config.solvers = Solvers {
            dns: Some(DnsSolver {
                provider: dns.clone(),
                view: dns.clone(),
                ttl: 60,
                propagation_limit: Duration::from_secs(60),
                account_label: false,
            }),
            ..Solvers::default()
        };
        let issuer = rig.issuer(config.clone()).await?;
        let certificate = issuer
            .issue(&request(&["example.com", "*.example.com"])?)
            .await?;
        ensure!(certificate.names.to_strings() == ["*.example.com", "example.com"]);
        ensure!(dns.records().await.is_empty(), "{:?}", dns.records().await);
        // By the account's label as well.
        if let Some(dns) = &mut config.solvers.dns {
            dns.account_label = true;
        }
        rig.issuer(config)
            .await?
            .issue(&request(&["*.example.org"])?)
            .await?;
        ensure!(dns.records().await.is_empty(), "{:?}", dns.records().await);
        Ok(())
    })
}

#[test]
#[ignore = "needs Pebble"]
fn dns_persist_01_by_a_record_that_stays() -> Result<()> {
    run(async {
        let rig = Rig::start(&Options::default()).await?;
        let dns = TestDns::of(&rig.pebble);
        let mut config = rig.config();
        config.solvers = Solvers {
            persist: Some(Persist {
                view: dns.clone(),
                days: None,
            }),
            ..Solvers::default()
        };
        // Without a provider, the message names the record to create, which is then created by
        // hand.
        let issuer = rig.issuer(config.clone()).await?;
        let bound = request(&["example.com", "*.example.com"])?;
        let failure = issuer
            .issue(&bound)
            .await
            .err()
            .context("there is no record")?;
        let account = issuer.account_url().await?;
        let value = format!("pebble.letsencrypt.org; accounturi={account}; policy=wildcard");
        let told = failure.to_string();
        ensure!(
            told.contains("create _validation-persist.example.com TXT"),
            "{told}"
        );
        let record = TxtRecord {
            name: "_validation-persist.example.com".to_owned(),
            value,
            ttl: 60,
        };
        dns.present(&record).await?;
        issuer.issue(&bound).await?;
        // A provider writes it once, and it stays.
        config.solvers.dns = Some(DnsSolver {
            provider: dns.clone(),
            view: dns.clone(),
            ttl: 60,
            propagation_limit: Duration::from_secs(60),
            account_label: false,
        });
        rig.issuer(config)
            .await?
            .issue(&request(&["example.org"])?)
            .await?;
        let records = dns.records().await;
        ensure!(
            records.keys().eq([
                "_validation-persist.example.com",
                "_validation-persist.example.org"
            ]),
            "{records:?}"
        );
        Ok(())
    })
}

#[test]
#[ignore = "needs Pebble"]
fn tls_alpn_01() -> Result<()> {
    run(async {
        let rig = Rig::start(&Options::default()).await?;
        let responder = Arc::new(AlpnResponder::start(rig.pebble.tls_port).await?);
        let mut config = rig.config();
        config.solvers = Solvers {
            alpn: Some(responder.clone()),
            ..Solvers::default()
        };
        rig.issuer(config)
            .await?
            .issue(&request(&["a.example.com"])?)
            .await?;
        ensure!(
            responder.shown() == 0,
            "the challenge certificate is shown no more"
        );
        Ok(())
    })
}

#[test]
#[ignore = "needs Pebble"]
fn an_external_account_is_bound_and_without_one_the_reason_is_told() -> Result<()> {
    run(async {
        let mac = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";
        let external = BTreeMap::from([("kid-1".to_owned(), mac.to_owned())]);
        let rig = Rig::start(&Options {
            external,
            always_valid: true,
            ..Options::default()
        })
        .await?;
        let failure = rig
            .issuer(rig.config())
            .await?
            .issue(&request(&["a.example.com"])?)
            .await
            .expect_err("no EAB");
        ensure!(
            failure.class == Class::Config && failure.message.contains("external account binding"),
            "{failure}"
        );
        let mut config = rig.config();
        config.registration.external = Some(ExternalAccount::new("kid-2", mac)?);
        let failure = rig
            .issuer(config.clone())
            .await?
            .issue(&request(&["a.example.com"])?)
            .await
            .expect_err("kid");
        ensure!(failure.class == Class::Account, "{failure:?}");
        config.registration.external = Some(ExternalAccount::new("kid-1", mac)?);
        rig.issuer(config)
            .await?
            .issue(&request(&["a.example.com"])?)
            .await?;
        Ok(())
    })
}

#[test]
#[ignore = "needs Pebble"]
fn a_third_of_bad_nonces_spoils_nothing() -> Result<()> {
    run(async {
        let rig = Rig::start(&Options {
            nonce_reject: 30,
            always_valid: true,
            ..Options::default()
        })
        .await?;
        let issuer = rig.issuer(rig.config()).await?;
        for i in 0..40 {
            issuer
                .issue(&request(&[&format!("h{i}.example.com")])?)
                .await?;
        }
        ensure!(rig.pebble.issued() == 40, "{}", rig.pebble.issued());
        Ok(())
    })
}

#[test]
#[ignore = "needs Pebble"]
fn an_account_that_was_deactivated_is_refused_for_good_and_the_next_one_is_new() -> Result<()> {
    run(async {
        let rig = Rig::start(&Options {
            always_valid: true,
            ..Options::default()
        })
        .await?;
        let storage = rig.storage()?;
        let key = Key::new(Kind::Account, "pebble");
        let issuer = rig.issuer(rig.config()).await?;
        issuer.issue(&request(&["a.example.com"])?).await?;
        let url = issuer.account_url().await?;
        let copy = storage
            .read(&key)
            .await?
            .context("there is an account")?
            .bytes;
        issuer.deactivate().await?;
        ensure!(storage.read(&key).await?.is_none(), "its key is forgotten");
        // A copy of the old key leads to a clear error, and no host is blamed.
        storage.write(&key, &copy, &Expect::Absent).await?;
        let failure = rig
            .issuer(rig.config())
            .await?
            .issue(&request(&["b.example.com"])?)
            .await
            .expect_err("refused");
        ensure!(
            failure.class == Class::Account && failure.culprits.is_empty(),
            "{failure:?}"
        );
        ensure!(failure.message.contains("deactivated"), "{failure}");
        storage.remove(&key).await?;
        let next = rig.issuer(rig.config()).await?;
        next.issue(&request(&["b.example.com"])?).await?;
        ensure!(next.account_url().await? != url);
        Ok(())
    })
}

#[test]
#[ignore = "needs Pebble"]
fn renewal_windows_profiles_and_chains_are_those_of_the_ca() -> Result<()> {
    run(async {
        let rig = Rig::start(&Options {
            always_valid: true,
            alternate_roots: 1,
            ..Options::default()
        })
        .await?;
        let mut config = rig.config();
        config.profile = Some(RequestedProfile {
            name: "shortlived".to_owned(),
            required: true,
        });
        let issuer = rig.issuer(config.clone()).await?;
        let mut request = request(&["a.example.com"])?;
        let first = issuer.issue(&request).await?;
        issuer.installed(&request.id).await?;
        ensure!(
            first.lifetime().as_hours() <= 6 * 24,
            "{:?}",
            first.lifetime()
        );
        let now = Timestamp::now();
        let window = issuer
            .renewal_window(&first, None, now)
            .await?
            .context("Pebble has ARI")?;
        ensure!(
            first.not_before < window.start && window.end < first.not_after,
            "{window:?}"
        );
        let leaf = first
            .chain_pem
            .split_inclusive("-----END CERTIFICATE-----\n")
            .next()
            .context("a leaf")?;
        let revoked = json!({
            "suggestedWindow": { "start": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z" },
            "explanationURL": "https://ca.example/incident",
        });
        rig.pebble.set_renewal_info(leaf, &revoked).await?;
        let window = issuer
            .renewal_window(&first, Some(&window), now)
            .await?
            .context("still there")?;
        ensure!(
            window.is_over(now)
                && window.explanation.as_deref() == Some("https://ca.example/incident")
        );
        // Replaced once, and a second time although the CA refuses `alreadyReplaced`.
        request.replaces.clone_from(&first.ari_id);
        for _ in 0..2 {
            let next = issuer.issue(&request).await?;
            issuer.installed(&request.id).await?;
            ensure!(next.serial != first.serial);
        }
        // A certificate that the CA does not know (any more): the order is placed without
        // `replaces`.
        let (authority, _) = first
            .ari_id
            .as_deref()
            .and_then(|id| id.split_once('.'))
            .context("an ARI identifier")?;
        request.replaces = Some(format!("{authority}.AQIDBAU"));
        let next = issuer.issue(&request).await?;
        issuer.installed(&request.id).await?;
        ensure!(next.serial != first.serial);
        request.replaces = None;
        config.profile = Some(RequestedProfile {
            name: "nosuch".to_owned(),
            required: true,
        });
        let failure = rig
            .issuer(config.clone())
            .await?
            .issue(&request)
            .await
            .expect_err("no such profile");
        ensure!(
            failure.class == Class::Config && failure.message.contains("default, shortlived"),
            "{failure}"
        );
        config.profile = None;
        let other = rig.pebble.issuing_root(1).await?;
        let root = acme::certificate::chain_of(&other)?;
        let (_, parsed) = x509_parser::parse_x509_certificate(&root[0])?;
        let name = parsed
            .subject()
            .iter_common_name()
            .next()
            .context("a name")?
            .as_str()?
            .to_owned();
        config.preferred_chain = Some(name);
        let mut config_default = config.clone();
        config_default.preferred_chain = None;
        let preferred = rig
            .issuer(config)
            .await?
            .issue(&self::request(&["b.example.com"])?)
            .await?;
        ensure!(is_under(&preferred, &other)?);
        let usual = rig
            .issuer(config_default)
            .await?
            .issue(&self::request(&["c.example.com"])?)
            .await?;
        ensure!(!is_under(&usual, &other)?);
        Ok(())
    })
}

#[test]
#[ignore = "needs Pebble"]
fn an_impossible_configuration_is_refused_with_its_field_before_any_order() -> Result<()> {
    run(async {
        let rig = Rig::start(&Options {
            always_valid: true,
            ..Options::default()
        })
        .await?;
        let issuer = rig.issuer(rig.config()).await?;
        for (names, word) in [
            (vec!["co.uk"], "public suffix"),
            (vec!["*.example.com"], "DNS-01"),
        ] {
            let failure = issuer.issue(&request(&names)?).await.expect_err(word);
            ensure!(
                failure.class == Class::Config && failure.message.contains(word),
                "{failure}"
            );
        }
        let many = |count: usize| {
            let names: Vec<_> = (0..count).map(|i| format!("h{i}.example.com")).collect();
            request(&names.iter().map(String::as_str).collect::<Vec<_>>())
        };
        let mut short = rig.config();
        short.profile = Some(RequestedProfile {
            name: "shortlived".to_owned(),
            required: true,
        });
        let failure = rig
            .issuer(short)
            .await?
            .issue(&many(26)?)
            .await
            .expect_err("26");
        let sentence = "26 names in one certificate, and profile shortlived of pebble takes at most 25: spread them";
        ensure!(
            failure.class == Class::Config && failure.message.starts_with(sentence),
            "{failure}"
        );
        let failure = issuer.issue(&many(101)?).await.expect_err("101");
        ensure!(
            failure.class == Class::Config
                && failure.message.contains("and pebble takes at most 100"),
            "{failure}"
        );
        ensure!(rig.pebble.orders() == 0);
        let mut untrusted = rig.config();
        untrusted.name = "untrusted".to_owned();
        untrusted.roots = acme::client::Roots::Pem(rig.pebble.issuing_root(0).await?);
        let failure = rig
            .issuer(untrusted)
            .await?
            .issue(&request(&["a.example.com"])?)
            .await
            .expect_err("untrusted");
        ensure!(
            failure.class == Class::Config && failure.message.contains("CA bundle"),
            "{failure:?}"
        );
        let mut elsewhere = rig.config();
        elsewhere.name = "elsewhere".to_owned();
        elsewhere.directory = rig.pebble.directory().replace("/dir", "/nothing");
        let failure = rig
            .issuer(elsewhere)
            .await?
            .issue(&request(&["a.example.com"])?)
            .await
            .expect_err("no directory");
        ensure!(failure.class == Class::Config, "{failure:?}");
        let mut terms = rig.config();
        terms.name = "terms".to_owned();
        terms.registration.terms_agreed = false;
        let failure = rig
            .issuer(terms)
            .await?
            .issue(&request(&["a.example.com"])?)
            .await
            .expect_err("terms");
        ensure!(
            failure.class == Class::Config && failure.message.contains("terms"),
            "{failure:?}"
        );
        ensure!(rig.pebble.issued() == 0 && rig.storage()?.list(Kind::Order).await?.is_empty());
        Ok(())
    })
}

#[test]
#[ignore = "needs Pebble"]
fn two_keepers_over_one_storage_get_each_certificate_once() -> Result<()> {
    run(async {
        let rig = Rig::start(&Options {
            always_valid: true,
            ..Options::default()
        })
        .await?;
        let wanted: Vec<_> = (0..60)
            .map(|i| {
                let names = Names::parse([format!("h{i}.example{i}.com")])?;
                Ok(Wanted {
                    id: CertificateId::of("t", &names),
                    tenant: "t".to_owned(),
                    issuer: "pebble".to_owned(),
                    names,
                    validity: None,
                    may_share: true,
                    renew_now: false,
                    hold: None,
                })
            })
            .collect::<Result<_>>()?;
        let mut keepers = Vec::new();
        for _ in 0..2 {
            let issuer: Arc<dyn Issuer> = Arc::new(rig.issuer(rig.config()).await?);
            keepers.push(Keeper::open(rig.storage()?, [issuer], 4).await?);
        }
        let now = Timestamp::now();
        let (a, b) = tokio::join!(keepers[0].pass(&wanted, now), keepers[1].pass(&wanted, now));
        ensure!(
            a.failed.is_empty() && b.failed.is_empty(),
            "{:?} {:?}",
            a.failed,
            b.failed
        );
        ensure!(
            a.issued.len() + b.issued.len() == 60 && rig.pebble.issued() == 60,
            "{}",
            rig.pebble.issued()
        );
        for keeper in &keepers {
            ensure!(keeper.certificates().len() == 60);
            let pass = keeper.pass(&wanted, now).await;
            ensure!(
                pass.issued.is_empty()
                    && pass
                        .outlook
                        .iter()
                        .all(|o| o.next == acme::keeper::Next::Renew)
            );
        }
        ensure!(rig.storage()?.list(Kind::Order).await?.is_empty());
        Ok(())
    })
}
