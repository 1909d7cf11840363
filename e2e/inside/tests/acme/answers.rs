//! Answers of a CA that are written oddly: a member that a step does not need never hinders it, and
//! an order is never placed twice.

mod replicas;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use acme::challenge::dns::{DnsError, DnsProvider, DnsView, Seen, TxtRecord};
use acme::challenge::{DnsSolver, Solvers};
use acme::engine::AcmeConfig;
use acme::keeper::{Keeper, Next};
use acme::{Class, Names, Wanted};
use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use e2e::testca::Mangle;
use e2e_inside::answers::{Oddities, Resource, edit, unknown};
use e2e_inside::rig::{Rig, config, run, want};
use hyper::StatusCode;
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::{Value, json};

const HOST: &str = "a.example.com";

/// Runs passes until the certificate is there, each at the time that the one before named; returns
/// the failures on the way.
async fn until_issued(keeper: &Arc<Keeper>, wanted: &[Wanted]) -> Result<Vec<String>> {
    let mut now = Timestamp::now();
    let mut failures = Vec::new();
    for _ in 0..200 {
        let pass = keeper.pass(wanted, now).await;
        failures.extend(
            pass.failed
                .iter()
                .map(|(_, failure)| format!("{:?}: {failure}", failure.class)),
        );
        if pass.outlook.iter().all(|line| line.next == Next::Renew) {
            return Ok(failures);
        }
        now = pass
            .next
            .context("something is due")?
            .max(now + SignedDuration::from_secs(1));
    }
    anyhow::bail!("no certificate: {failures:#?}")
}

/// One order, one certificate and no failure, while the CA changes a member of a resource, before
/// and at a renewal.
fn harmless(
    resource: Resource,
    when: &'static str,
    member: &'static str,
    value: Value,
) -> Result<()> {
    run(async {
        let rig = Rig::start().await?;
        let told = format!("{resource:?} {when} {member} {value}");
        rig.ca.mangle(Box::new(move |path, answer| {
            let is_it = Resource::of(path) == resource
                || resource == Resource::Order && Resource::of(path).is_order();
            if !is_it {
                return answer;
            }
            edit(answer, |body| {
                if when.is_empty()
                    || body["status"]
                        .as_str()
                        .is_some_and(|status| when.contains(status))
                {
                    body[member] = value.clone();
                }
            })
        }));
        rig.ca.behave(|b| b.processing = (1, None));
        let keeper = rig.keeper().await?;
        let wanted = [want(HOST)?];
        for round in 1..=2 {
            let failures = until_issued(&keeper, &wanted).await?;
            ensure!(failures.is_empty(), "{told}: {failures:?}");
            ensure!(
                rig.orders() == round && rig.certificates() == round,
                "{told}: {} orders",
                rig.orders()
            );
            keeper.renew(&wanted[0].id);
        }
        Ok(())
    })
}

#[test]
fn a_member_that_the_step_does_not_need_hinders_nothing() -> Result<()> {
    let later = "ready processing valid";
    for nothing in [json!(null), json!(""), json!(7), json!([null]), json!({})] {
        for (resource, when, members) in [
            (
                Resource::Order,
                later,
                &["authorizations", "expires", "identifiers"][..],
            ),
            (
                Resource::Order,
                "",
                &["error", "replaces", "profile", "notBefore", "notAfter"],
            ),
            (Resource::Order, "pending processing valid", &["finalize"]),
            (
                Resource::Order,
                "pending ready processing",
                &["certificate"],
            ),
            (
                Resource::Authorization,
                "valid",
                &["identifier", "challenges", "wildcard", "expires"],
            ),
            (Resource::Authorization, "pending", &["wildcard", "expires"]),
            (
                Resource::Challenge,
                "",
                &["type", "url", "token", "error", "validated"],
            ),
            (
                Resource::Directory,
                "",
                &["meta", "keyChange", "revokeCert", "renewalInfo"],
            ),
        ] {
            for member in members {
                harmless(resource, when, member, nothing.clone())?;
            }
        }
    }
    Ok(())
}

#[test]
fn challenges_are_found_whatever_their_authorization_looks_like() -> Result<()> {
    run(async {
        type Change = fn(&mut Value);
        let changes: [(&str, Change); 6] = [
            ("upper case", |body| {
                body["identifier"]["value"] = json!("A.Example.COM")
            }),
            ("a dot at the end", |body| {
                body["identifier"]["value"] = json!("a.example.com.")
            }),
            ("no type", |body| {
                body["identifier"] = json!({ "value": HOST })
            }),
            ("processing", |body| {
                for challenge in body["challenges"].as_array_mut().into_iter().flatten() {
                    challenge["status"] = json!("processing");
                    challenge["error"] = json!({ "type": "urn:ietf:params:acme:error:connection", "detail": "last time" });
                }
            }),
            ("unknown types", |body| {
                let strange = json!([null, 7, { "type": 9 }, { "type": "http-02", "token": {}, "url": null, "status": "odd" }]);
                let all = strange
                    .as_array()
                    .into_iter()
                    .chain(body["challenges"].as_array())
                    .flatten()
                    .cloned();
                body["challenges"] = all.collect();
            }),
            ("case of the type", |body| {
                for challenge in body["challenges"].as_array_mut().into_iter().flatten() {
                    challenge["type"] = challenge["type"].as_str().map(str::to_uppercase).into();
                }
            }),
        ];
        for (told, change) in changes {
            let rig = Rig::start().await?;
            rig.ca
                .mangle(Box::new(move |path, answer| match Resource::of(path) {
                    Resource::Authorization => edit(answer, change),
                    _ => answer,
                }));
            let failures = until_issued(&rig.keeper().await?, &[want(HOST)?]).await?;
            ensure!(
                failures.is_empty() && rig.orders() == 1,
                "{told}: {failures:?}"
            );
        }
        Ok(())
    })
}

/// A provider that takes every record.
struct AnyZone;

#[async_trait]
impl DnsProvider for AnyZone {
    fn name(&self) -> &str {
        "any"
    }
    async fn zone_of(&self, _: &str) -> Result<String, DnsError> {
        Ok("example.com".to_owned())
    }
    async fn present(&self, _: &TxtRecord) -> Result<(), DnsError> {
        Ok(())
    }
    async fn cleanup(&self, _: &TxtRecord) -> Result<(), DnsError> {
        Ok(())
    }
}

#[async_trait]
impl DnsView for AnyZone {
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

fn by_dns(directory: &str) -> AcmeConfig {
    let provider = Arc::new(AnyZone);
    let view = Arc::new(AnyZone);
    let propagation_limit = Duration::from_secs(1);
    let dns = DnsSolver {
        provider,
        view,
        ttl: 60,
        propagation_limit,
        account_label: false,
    };
    AcmeConfig {
        solvers: Solvers {
            dns: Some(dns),
            ..Solvers::default()
        },
        ..config(directory)
    }
}

#[test]
fn a_wildcard_is_proven_whether_or_not_its_authorization_says_that_it_is_one() -> Result<()> {
    run(async {
        type Change = fn(&mut Value);
        let changes: [(&str, Change); 4] = [
            ("left out", |body| {
                body.as_object_mut()
                    .into_iter()
                    .for_each(|body| body.retain(|name, _| name != "wildcard"))
            }),
            ("null", |body| body["wildcard"] = json!(null)),
            ("in words", |body| body["wildcard"] = json!("yes")),
            ("a star", |body| {
                if body["wildcard"] == true {
                    body["identifier"]["value"] = json!("*.example.com");
                }
            }),
        ];
        for (told, change) in changes {
            for names in [&["*.example.com"][..], &["example.com", "*.example.com"]] {
                let rig = Rig::start().await?;
                rig.ca
                    .mangle(Box::new(move |path, answer| match Resource::of(path) {
                        Resource::Authorization => edit(answer, change),
                        _ => answer,
                    }));
                let keeper = rig.keeper_with(by_dns(&rig.ca.directory())).await?;
                let wanted = Wanted {
                    names: Names::parse(names)?,
                    ..want("example.com")?
                };
                let failures = until_issued(&keeper, &[wanted]).await?;
                ensure!(
                    failures.is_empty() && rig.orders() == 1,
                    "{told} {names:?}: {failures:?}"
                );
            }
        }
        Ok(())
    })
}

#[test]
fn a_star_twice_is_told_as_one() -> Result<()> {
    run(async {
        let rig = Rig::start().await?;
        rig.ca
            .mangle(Box::new(|path, answer| match Resource::of(path) {
                Resource::Authorization => edit(answer, |body| {
                    body["identifier"]["value"] = json!("*.victim.example");
                    body["wildcard"] = json!(true);
                }),
                _ => answer,
            }));
        let keeper = rig.keeper_with(by_dns(&rig.ca.directory())).await?;
        let failed = keeper
            .pass(&[want("*.example.com")?], Timestamp::now())
            .await
            .failed;
        let told = &failed[0].1.message;
        ensure!(
            told.contains("\"*.victim.example\"") && !told.contains("*.*"),
            "{told}"
        );
        Ok(())
    })
}

#[test]
fn an_order_whose_body_cannot_be_read_is_kept_and_what_it_lacks_is_told() -> Result<()> {
    run(async {
        for (body, told) in [
            ("<html>", "the order is no JSON object"),
            ("", "the order is no JSON object"),
            (
                r#"{"status":"pending"}"#,
                "the order has no usable authorizations: expected a list of URLs, found nothing",
            ),
            (
                r#"{"status":"odd"}"#,
                "the order has no usable status: expected one of pending, ready",
            ),
        ] {
            let rig = Rig::start().await?;
            let mut left = 5;
            rig.ca.mangle(Box::new(move |path, answer| {
                let is_it = Resource::of(path).is_order() && left > 0;
                left -= i32::from(is_it);
                if is_it {
                    answer.map(|_| body.into())
                } else {
                    answer
                }
            }));
            let failures = until_issued(&rig.keeper().await?, &[want(HOST)?]).await?;
            ensure!(
                !failures.is_empty() && failures.iter().all(|failure| failure.contains(told)),
                "{failures:?}"
            );
            ensure!(
                failures
                    .iter()
                    .all(|failure| failure.starts_with("Transient: ")),
                "{failures:?}"
            );
            ensure!(
                rig.ca.counts().asked == 1 && rig.certificates() == 1,
                "{:?}",
                rig.ca.counts()
            );
        }
        Ok(())
    })
}

#[test]
fn an_order_without_its_location_is_told() -> Result<()> {
    run(async {
        let rig = Rig::start().await?;
        rig.ca.mangle(Box::new(|path, mut answer| {
            if Resource::of(path) == Resource::NewOrder {
                answer.headers_mut().remove("location");
            }
            answer
        }));
        let failed = rig
            .keeper()
            .await?
            .pass(&[want(HOST)?], Timestamp::now())
            .await
            .failed;
        ensure!(
            failed[0].1.class == Class::Bug
                && failed[0].1.message.contains("newOrder has no Location"),
            "{failed:?}"
        );
        Ok(())
    })
}

#[test]
fn problems_are_classified_by_what_can_be_read_of_them() -> Result<()> {
    run(async {
        for (status, problem, class, told) in [
            (
                400,
                json!({ "type": "urn:ietf:params:acme:error:rejectedIdentifier", "detail": ["no"], "status": "400" }),
                Class::Policy,
                "status 400",
            ),
            (
                403,
                json!({ "type": "urn:ietf:params:acme:error:caa", "title": "CAA says no", "subproblems": null }),
                Class::Policy,
                "CAA says no",
            ),
            (
                429,
                json!({ "type": "urn:ietf:params:acme:error:rateLimited", "detail": "slowly", "status": 99_999, "subproblems": [1] }),
                Class::RateLimited,
                "slowly",
            ),
            (
                403,
                json!({ "type": null, "detail": "<b>Blocked</b>" }),
                Class::Account,
                "a proxy or a firewall",
            ),
        ] {
            let rig = Rig::start().await?;
            let told_by_ca = problem.to_string();
            rig.ca.mangle(Box::new(move |path, answer| {
                if Resource::of(path) != Resource::NewOrder {
                    return answer;
                }
                let mut answer = answer.map(|_| told_by_ca.clone().into());
                *answer.status_mut() = StatusCode::from_u16(status).expect("a status");
                answer.headers_mut().remove("location");
                answer
            }));
            let failed = rig
                .keeper()
                .await?
                .pass(&[want(HOST)?], Timestamp::now())
                .await
                .failed;
            let failure = &failed[0].1;
            ensure!(
                failure.class == class && failure.message.contains(told),
                "{problem}: {failure:?}"
            );
            ensure!(!failure.message.contains("new-account"), "{failure}");
        }
        Ok(())
    })
}

#[test]
fn a_directory_that_moved_and_a_nonce_that_is_refused_are_told() -> Result<()> {
    run(async {
        for (part, status, told) in [
            (
                "directory",
                301,
                "another address, https://ca.example/dir; redirects are not followed",
            ),
            (
                "directory",
                308,
                "another address, https://ca.example/dir; redirects are not followed",
            ),
            ("new-nonce", 405, "HEAD http://"),
            (
                "new-nonce",
                403,
                "(newNonce) answered with status 403 and without a Replay-Nonce",
            ),
        ] {
            let rig = Rig::start().await?;
            rig.ca.mangle(Box::new(move |path, mut answer| {
                if path.contains(part) {
                    *answer.status_mut() = StatusCode::from_u16(status).expect("a status");
                    answer.headers_mut().insert(
                        "location",
                        "https://ca.example/dir".parse().expect("a URL is a header"),
                    );
                }
                answer.headers_mut().remove("replay-nonce");
                answer
            }));
            let failed = rig
                .keeper()
                .await?
                .pass(&[want(HOST)?], Timestamp::now())
                .await
                .failed;
            ensure!(
                failed[0].1.message.contains(told),
                "{part} {status}: {failed:?}"
            );
        }
        Ok(())
    })
}

#[test]
fn a_refused_download_and_a_page_in_place_of_the_certificate_cost_no_order() -> Result<()> {
    run(async {
        for status in [200, 403] {
            let rig = Rig::start().await?;
            let mut left = 3;
            rig.ca.mangle(Box::new(move |path, answer| {
                if Resource::of(path) != Resource::Certificate || left == 0 {
                    return answer;
                }
                left -= 1;
                let problem = json!({ "type": "urn:ietf:params:acme:error:unauthorized", "detail": "not you" });
                let mut answer = answer.map(|_| problem.to_string().into());
                *answer.status_mut() = StatusCode::from_u16(status).expect("a status");
                answer
            }));
            let failures = until_issued(&rig.keeper().await?, &[want(HOST)?]).await?;
            let told = if status == 403 {
                "refuses its download: not you"
            } else {
                "at the URL of the certificate there is none"
            };
            ensure!(
                failures.len() == 3 && failures.iter().all(|failure| failure.contains(told)),
                "{failures:?}"
            );
            ensure!(
                rig.ca.counts().asked == 1 && rig.certificates() == 1,
                "{:?}",
                rig.ca.counts()
            );
        }
        Ok(())
    })
}

#[test]
fn a_certificate_with_the_host_www_added_is_used_and_one_with_another_name_is_not() -> Result<()> {
    run(async {
        let rig = Rig::start().await?;
        rig.ca.behave(|b| b.added = vec![format!("www.{HOST}")]);
        let keeper = rig.keeper().await?;
        let wanted = [want(HOST)?];
        for orders in 1..=2 {
            let failures = until_issued(&keeper, &wanted).await?;
            ensure!(
                failures.is_empty() && rig.orders() == orders,
                "{failures:?}"
            );
            let pass = keeper.pass(&wanted, Timestamp::now()).await;
            ensure!(pass.issued.is_empty() && rig.orders() == orders, "{pass:?}");
            keeper.renew(&wanted[0].id);
        }
        rig.ca
            .behave(|b| b.added = vec!["other.example.com".to_owned()]);
        let failed = keeper.pass(&wanted, Timestamp::now()).await.failed;
        ensure!(
            failed.len() == 1 && failed[0].1.class == Class::Bug,
            "{failed:?}"
        );
        Ok(())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, max_shrink_iters: 0, ..ProptestConfig::default() })]

    /// Whatever is odd in a CA's answers, there is one order, and in the end its certificate.
    #[test]
    fn any_oddities_cost_one_order_for_a_certificate(seed in any::<u64>(), wildcard in any::<bool>(), slow in 0u32..3) {
        let outcome: Result<(usize, BTreeMap<String, usize>)> = run_for(async {
            let rig = Rig::start().await?;
            let mut oddities = Oddities::new(seed);
            let mangle: Mangle = Box::new(move |path, answer| oddities.mangle(path, answer));
            rig.ca.mangle(mangle);
            rig.ca.behave(|b| b.processing = (slow, None));
            let directory = rig.ca.directory();
            let keeper = rig.keeper_with(if wildcard { by_dns(&directory) } else { config(&directory) }).await?;
            until_issued(&keeper, &[want(if wildcard { "*.example.com" } else { HOST })?]).await?;
            Ok((rig.ca.counts().asked, rig.ca.counts().certificates))
        });
        let (orders, certificates) = outcome.map_err(|error| TestCaseError::fail(format!("{error:#}")))?;
        prop_assert_eq!(orders, 1, "orders were placed");
        prop_assert!(certificates.values().eq([&1]), "{:?}", certificates);
    }
}

/// Runs a test that has a result.
fn run_for<T: Send + 'static>(test: impl Future<Output = Result<T>>) -> Result<T> {
    let mut outcome = None;
    run(async {
        outcome = Some(test.await?);
        Ok(())
    })?;
    outcome.context("it has ended")
}

#[test]
fn a_ca_without_a_challenge_that_we_know_is_told_in_words() -> Result<()> {
    run(async {
        let rig = Rig::start().await?;
        rig.ca.mangle(Box::new(|path, answer| {
            if Resource::of(path) != Resource::Authorization {
                return answer;
            }
            answer.map(|body| {
                String::from_utf8_lossy(&body)
                    .replace("-01\"", "-99\"")
                    .into()
            })
        }));
        let failed = rig
            .keeper()
            .await?
            .pass(&[want(HOST)?], Timestamp::now())
            .await
            .failed;
        let message = &failed[0].1.message;
        ensure!(
            message.contains("no challenge of a known type")
                && message.contains("configured are http-01"),
            "{message}"
        );
        Ok(())
    })
}
