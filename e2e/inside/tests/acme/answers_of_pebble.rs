//! Single answers of Pebble, changed by a proxy in front of it: one order each, and its
//! certificate.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use acme::client::Roots;
use acme::engine::{AcmeConfig, AcmeIssuer};
use acme::keeper::{Keeper, Next};
use acme::storage::dir::Directory;
use acme::{Issuer, Storage, Wanted};
use anyhow::{Context, Result, ensure};
use e2e::acme_proxy::AcmeProxy;
use e2e::pebble::{Options, Pebble};
use e2e::testca::Mangle;
use e2e_inside::answers::{Oddities, Resource, edit, unknown};
use e2e_inside::responders::Responder;
use e2e_inside::rig::{run, want};
use jiff::Timestamp;
use serde_json::json;
use tokio::time::{Instant, sleep_until};

const HOST: &str = "shop.example.org";

/// Pebble behind a proxy, and a keeper with an issuer there.
struct Site {
    pebble: Pebble,
    proxy: AcmeProxy,
    tmp: tempfile::TempDir,
    responder: Option<Responder>,
}

impl Site {
    async fn start(options: &Options, mangle: Mangle) -> Result<Self> {
        let pebble = Pebble::start(options).await?;
        let proxy = AcmeProxy::start(&pebble, mangle).await?;
        Ok(Self {
            pebble,
            proxy,
            tmp: tempfile::tempdir()?,
            responder: None,
        })
    }

    fn config(&self) -> AcmeConfig {
        let mut config = AcmeConfig::new("ca", &self.proxy.directory());
        config.roots = Roots::Pem(self.proxy.ca_pem().to_owned());
        config.registration.terms_agreed = true;
        config.timeout = Duration::from_secs(60);
        config
    }

    /// A keeper as after a start of the program.
    async fn keeper(&mut self, config: AcmeConfig) -> Result<Arc<Keeper>> {
        let storage: Arc<dyn Storage> = Arc::new(Directory::open(self.tmp.path().join("acme"))?);
        let issuer = Arc::new(AcmeIssuer::open(config, storage.clone()).await?);
        // The account is the same after a start, and so is its thumbprint.
        if self.responder.is_none() {
            self.responder =
                Some(Responder::start(self.pebble.http_port, &issuer.thumbprint()).await?);
        }
        let issuer: Arc<dyn Issuer> = issuer;
        Ok(Keeper::open(storage, [issuer], 8).await?)
    }

    /// Waits for the certificate, in real time, and returns the failures on the way.
    async fn issued(&self, keeper: &Arc<Keeper>, wanted: &[Wanted]) -> Result<Vec<String>> {
        let until = Instant::now() + Duration::from_secs(120);
        let mut failures = Vec::new();
        loop {
            let pass = keeper.pass(wanted, Timestamp::now()).await;
            failures.extend(pass.failed.iter().map(|(_, failure)| failure.to_string()));
            if pass.outlook.iter().all(|line| line.next == Next::Renew) {
                return Ok(failures);
            }
            let next = pass
                .next
                .context("something is due")?
                .duration_since(Timestamp::now());
            let next = Instant::now() + Duration::try_from(next).unwrap_or_default();
            ensure!(next < until, "no certificate: {failures:#?}");
            sleep_until(next).await;
        }
    }

    fn has_issued(&self, orders: usize) -> Result<()> {
        let placed = self.pebble.orders();
        let issued = self.pebble.issued();
        ensure!(
            placed == orders && issued == orders,
            "{placed} orders, {issued} certificates"
        );
        Ok(())
    }
}

#[test]
#[ignore = "needs Pebble"]
fn odd_members_of_orders_and_of_the_directory_cost_nothing() -> Result<()> {
    run(async {
        let mangle: Mangle = Box::new(|path, answer| match Resource::of(path) {
            resource if resource.is_order() => edit(answer, |body| {
                body["replaces"] = json!("");
                if body["status"] != "pending" {
                    body["authorizations"] = json!(null);
                }
            }),
            Resource::Directory => edit(answer, |body| body["meta"] = json!(null)),
            Resource::Authorization => edit(answer, |body| {
                body["identifier"]["value"] = json!("SHOP.EXAMPLE.ORG")
            }),
            _ => answer,
        });
        let mut site = Site::start(&Options::default(), mangle).await?;
        let keeper = site.keeper(site.config()).await?;
        let wanted = [want(HOST)?];
        for orders in 1..=2 {
            let failures = site.issued(&keeper, &wanted).await?;
            ensure!(failures.is_empty(), "{failures:?}");
            site.has_issued(orders)?;
            keeper.renew(&wanted[0].id);
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs Pebble"]
fn relative_urls_are_resolved() -> Result<()> {
    run(async {
        let mangle: Mangle = Box::new(|path, mut answer| {
            let location = answer.headers().get("location").and_then(|value| {
                value
                    .to_str()
                    .ok()?
                    .splitn(4, '/')
                    .nth(3)
                    .map(str::to_owned)
            });
            if let Some(path) = location.filter(|_| path != "/sign-me-up") {
                answer.headers_mut().insert(
                    "location",
                    format!("/{path}").parse().expect("a path is a header"),
                );
            }
            if Resource::of(path).is_order() {
                return edit(answer, |body| {
                    for url in ["finalize", "certificate"] {
                        if let Some(path) = body[url]
                            .as_str()
                            .and_then(|text| text.splitn(4, '/').nth(3))
                        {
                            body[url] = format!("../{path}").into();
                        }
                    }
                });
            }
            answer
        });
        let mut site = Site::start(&Options::default(), mangle).await?;
        let keeper = site.keeper(site.config()).await?;
        let failures = site.issued(&keeper, &[want(HOST)?]).await?;
        ensure!(failures.is_empty(), "{failures:?}");
        site.has_issued(1)
    })
}

/// Each resource of an attempt is unknown for 1.5 seconds from the first request for it, as on a
/// replica that lags.
fn lagging(resource: Resource, told: Arc<Mutex<BTreeSet<String>>>) -> Mangle {
    let mut since: Option<Instant> = None;
    Box::new(move |path, answer| {
        if Resource::of(path) != resource
            || since.get_or_insert_with(Instant::now).elapsed() > Duration::from_millis(1500)
        {
            return answer;
        }
        told.lock()
            .expect("nobody panics while holding it")
            .insert(path.to_owned());
        unknown(answer)
    })
}

#[test]
#[ignore = "needs Pebble"]
fn a_replica_of_the_ca_that_lags_costs_no_order_also_after_a_restart() -> Result<()> {
    run(async {
        for resource in [
            Resource::Order,
            Resource::Authorization,
            Resource::Certificate,
        ] {
            let lagged = Arc::new(Mutex::new(BTreeSet::new()));
            let mut site =
                Site::start(&Options::default(), lagging(resource, lagged.clone())).await?;
            let wanted = [want(HOST)?];
            let pass = site
                .keeper(site.config())
                .await?
                .pass(&wanted, Timestamp::now())
                .await;
            ensure!(pass.failed.len() == 1, "{resource:?}: {pass:?}");
            let keeper = site.keeper(site.config()).await?;
            site.issued(&keeper, &wanted).await?;
            site.has_issued(1)
                .with_context(|| format!("{resource:?}"))?;
            ensure!(
                !lagged
                    .lock()
                    .expect("nobody panics while holding it")
                    .is_empty(),
                "{resource:?} was not asked for"
            );
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs Pebble"]
fn an_alternate_chain_that_cannot_be_fetched_leaves_the_cas_own() -> Result<()> {
    run(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let silent = format!("https://{}/alternate", listener.local_addr()?);
        for link in [
            "https://127.0.0.9:9/alternate",
            &silent,
            "/nowhere",
            "https://no.such.host.invalid/",
            "ftp://x/",
            "http://",
            "",
        ] {
            let header = format!("<{link}>;rel=\"alternate\"");
            let mangle: Mangle = Box::new(move |path, mut answer| {
                if Resource::of(path) == Resource::Certificate {
                    answer
                        .headers_mut()
                        .insert("link", header.parse().expect("a header"));
                }
                answer
            });
            let mut site = Site::start(&Options::default(), mangle).await?;
            let config = AcmeConfig {
                preferred_chain: Some("A Root That Nobody Has".to_owned()),
                timeout: Duration::from_secs(5),
                ..site.config()
            };
            let keeper = site.keeper(config).await?;
            let failures = site.issued(&keeper, &[want(HOST)?]).await?;
            ensure!(failures.is_empty(), "{link}: {failures:?}");
            site.has_issued(1).with_context(|| link.to_owned())?;
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs Pebble"]
fn an_external_account_that_the_ca_refuses_is_named() -> Result<()> {
    run(async {
        let key = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";
        let options = Options {
            external: [("known".to_owned(), key.to_owned())].into(),
            ..Options::default()
        };
        let mut site = Site::start(&options, Box::new(|_, answer| answer)).await?;
        let external = acme::account::ExternalAccount::new("stranger", key)?
            .in_file(Some("/run/secrets/hmac".into()));
        let mut config = site.config();
        config.registration.external = Some(external);
        let failed = site
            .keeper(config)
            .await?
            .pass(&[want(HOST)?], Timestamp::now())
            .await
            .failed;
        let told = &failed[0].1.message;
        ensure!(
            told.contains("\"stranger\" by the key in /run/secrets/hmac")
                && !told.contains("new-account"),
            "{told}"
        );
        Ok(())
    })
}

#[test]
#[ignore = "needs Pebble"]
fn oddities_at_random_cost_one_order_for_a_certificate() -> Result<()> {
    run(async {
        for seed in 0..6 {
            let seed = seed ^ u64::from(std::process::id());
            let mut oddities = Oddities::new(seed);
            let mut site = Site::start(
                &Options::default(),
                Box::new(move |path, answer| oddities.mangle(path, answer)),
            )
            .await?;
            let wanted = [want(HOST)?];
            let mut now = Timestamp::now();
            let keeper = site.keeper(site.config()).await?;
            let mut failures = Vec::new();
            loop {
                // At the time that the pass before named: nothing waits for a back-off.
                let pass = keeper.pass(&wanted, now).await;
                failures.extend(pass.failed.iter().map(|(_, failure)| failure.to_string()));
                if pass.outlook.iter().all(|line| line.next == Next::Renew) {
                    break;
                }
                ensure!(failures.len() < 60, "seed {seed}: {failures:#?}");
                now = pass.next.context("something is due")?;
            }
            site.has_issued(1)
                .with_context(|| format!("seed {seed}: {failures:#?}"))?;
        }
        Ok(())
    })
}
