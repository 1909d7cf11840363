//! RFC 2136 with BIND: accepted and refused updates, and our messages.

use acme::challenge::dns::{DnsError, DnsProvider, DnsRetry, DnsView, Seen, TxtRecord};
use acme::dns::{Authorities, Recursive, Resolver, Rfc2136, Rfc2136Config, Secret, TsigHash};
use anyhow::Result;
use e2e::bind::{Bind, BindKey, BindZone};
use futures::future::try_join_all;

const SECRET: &str = "Zm9yIHRlc3RzIG9ubHk6IGZvcnR5LWVpZ2h0IGJ5dGVzIG9mIGEga2V5IQ==";
const OTHER_SECRET: &str = "YW5vdGhlciBrZXkgdGhhdCBuYW1lZCBoYXMgbmV2ZXIgc2Vlbg==";
const NAME: &str = "_acme-challenge.www.example.test";

fn key(name: &str, hash: TsigHash) -> BindKey {
    BindKey {
        name: name.to_owned(),
        algorithm: hash.as_str().to_owned(),
        secret: SECRET.to_owned(),
    }
}

fn provider(bind: &Bind, key_name: &str, algorithm: TsigHash, secret: &str) -> Rfc2136 {
    Rfc2136::new(Rfc2136Config {
        nameserver: bind.address().to_string(),
        key_name: key_name.to_owned(),
        algorithm,
        secret: Secret::new(secret),
        zone: None,
    })
    .expect("a good configuration")
}

fn record(name: &str, value: &str) -> TxtRecord {
    TxtRecord {
        name: name.to_owned(),
        value: value.to_owned(),
        ttl: 60,
    }
}

async fn has(bind: &Bind, record: &TxtRecord) -> Result<bool> {
    let view =
        Authorities::new(Resolver::new(vec![bind.address()])?).with_port(bind.address().port());
    Ok(matches!(view.seen(record).await?, Seen::Everywhere { .. }))
}

#[tokio::test]
#[ignore = "needs BIND"]
async fn every_sha2_key_adds_and_removes_exactly_one_value() -> Result<()> {
    let hashes = [TsigHash::Sha256, TsigHash::Sha384, TsigHash::Sha512];
    let keys = hashes.map(|hash| key(hash.as_str(), hash));
    let zones = keys
        .clone()
        .map(|key| BindZone::new(&format!("{}.test", key.name)).open_to(&key.name));
    let bind = Bind::start(&keys, &zones).await?;
    for hash in hashes {
        let name = format!("_acme-challenge.www.{}.test", hash.as_str());
        let provider = provider(&bind, hash.as_str(), hash, SECRET);
        assert_eq!(
            provider.zone_of(&name).await?,
            format!("{}.test", hash.as_str())
        );
        let ours = record(&name, "ours");
        let foreign = record(&name, "foreign");
        provider.present(&foreign).await?;
        assert!(!has(&bind, &ours).await?);
        provider.present(&ours).await?;
        provider.present(&ours).await?;
        assert!(has(&bind, &ours).await?);
        provider.cleanup(&ours).await?;
        provider.cleanup(&ours).await?;
        assert!(!has(&bind, &ours).await?);
        assert!(has(&bind, &foreign).await?);
    }
    Ok(())
}

#[tokio::test]
#[ignore = "needs BIND"]
async fn twenty_values_at_one_name_come_and_go_together() -> Result<()> {
    let bind = Bind::start(
        &[key("k", TsigHash::Sha256)],
        &[BindZone::new("example.test").open_to("k")],
    )
    .await?;
    let provider = provider(&bind, "k", TsigHash::Sha256, SECRET);
    let records: Vec<TxtRecord> = (0..20)
        .map(|i| record(NAME, &format!("value-{i:02}-{}", "x".repeat(32))))
        .collect();
    try_join_all(records.iter().map(|record| provider.present(record))).await?;
    // Twenty such values exceed a UDP answer, so that this look-up uses TCP as well.
    for record in &records {
        assert!(has(&bind, record).await?, "{record:?}");
    }
    try_join_all(records[1..].iter().map(|record| provider.cleanup(record))).await?;
    assert!(has(&bind, &records[0]).await?);
    for record in &records[1..] {
        assert!(!has(&bind, record).await?, "{record:?}");
    }
    Ok(())
}

#[tokio::test]
#[ignore = "needs BIND"]
async fn a_wrong_key_is_named_and_its_secret_is_not() -> Result<()> {
    let bind = Bind::start(
        &[key("k", TsigHash::Sha256)],
        &[BindZone::new("example.test").open_to("k")],
    )
    .await?;
    for (provider, wanted) in [
        (
            provider(&bind, "k", TsigHash::Sha256, OTHER_SECRET),
            "the secret of TSIG key k is not the one",
        ),
        (
            provider(&bind, "unknown", TsigHash::Sha256, SECRET),
            "does not know a TSIG key unknown with hmac-sha256",
        ),
        (
            provider(&bind, "k", TsigHash::Sha512, SECRET),
            "does not know a TSIG key k with hmac-sha512",
        ),
    ] {
        let error = provider.zone_of(NAME).await.expect_err(wanted);
        assert!(matches!(error, DnsError::Credentials { .. }), "{error:?}");
        assert!(error.to_string().contains(wanted), "{error}");
        assert!(!error.to_string().contains(SECRET) && !error.to_string().contains(OTHER_SECRET));
        assert_eq!(error.retry(), DnsRetry::Never);
        assert!(provider.present(&record(NAME, "v")).await.is_err());
    }
    assert!(!has(&bind, &record(NAME, "v")).await?);
    Ok(())
}

#[tokio::test]
#[ignore = "needs BIND"]
async fn a_zone_that_is_not_there_is_no_zone() -> Result<()> {
    let bind = Bind::start(
        &[key("k", TsigHash::Sha256)],
        &[BindZone::new("example.test").open_to("k")],
    )
    .await?;
    let searching = provider(&bind, "k", TsigHash::Sha256, SECRET);
    let elsewhere = "_acme-challenge.www.elsewhere.example";
    let error = searching
        .zone_of(elsewhere)
        .await
        .expect_err("a foreign zone");
    assert!(matches!(error, DnsError::NoZone { .. }), "{error:?}");
    // A record in none of our zones counts as removed.
    searching.cleanup(&record(elsewhere, "v")).await?;

    fn configured(zone: &str, bind: &Bind) -> Rfc2136 {
        Rfc2136::new(Rfc2136Config {
            nameserver: bind.address().to_string(),
            key_name: "k".to_owned(),
            algorithm: TsigHash::Sha256,
            secret: Secret::new(SECRET),
            zone: Some(zone.to_owned()),
        })
        .expect("a good configuration")
    }
    // BIND answers NOTAUTH for a zone that it does not have, with a signature.
    let error = configured("elsewhere.example", &bind)
        .present(&record(elsewhere, "v"))
        .await
        .expect_err("a foreign zone");
    assert!(matches!(error, DnsError::NoZone { .. }), "{error:?}");
    assert!(
        error
            .to_string()
            .contains("is not authoritative for the zone"),
        "{error}"
    );
    let error = configured("example.test", &bind)
        .present(&record(elsewhere, "v"))
        .await
        .expect_err("not in that zone");
    assert!(
        error
            .to_string()
            .contains("the configured zone example.test does not hold it"),
        "{error}"
    );
    Ok(())
}

#[tokio::test]
#[ignore = "needs BIND"]
async fn a_policy_that_refuses_is_found_before_an_order() -> Result<()> {
    let zone = BindZone::new("example.test").policy(&format!("grant k name {NAME} TXT;"));
    let bind = Bind::start(
        &[key("k", TsigHash::Sha256)],
        &[zone, BindZone::new("closed.test")],
    )
    .await?;
    let provider = provider(&bind, "k", TsigHash::Sha256, SECRET);
    assert_eq!(provider.zone_of(NAME).await?, "example.test");
    provider.present(&record(NAME, "v")).await?;
    assert!(has(&bind, &record(NAME, "v")).await?);
    for refused in [
        "_acme-challenge.other.example.test",
        "_acme-challenge.closed.test",
    ] {
        let error = provider
            .zone_of(refused)
            .await
            .expect_err("a policy refuses");
        assert!(matches!(error, DnsError::Refused { .. }), "{error:?}");
        assert!(
            error
                .to_string()
                .contains(&format!("update-policy {{ grant k name {refused} TXT; }}")),
            "{error}"
        );
        assert!(provider.present(&record(refused, "v")).await.is_err());
        assert!(!has(&bind, &record(refused, "v")).await?);
    }
    Ok(())
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable() {
    let port = e2e::port::free_port().expect("a free port");
    let provider = Rfc2136::new(Rfc2136Config {
        nameserver: format!("127.0.0.1:{port}"),
        key_name: "k".to_owned(),
        algorithm: TsigHash::Sha256,
        secret: Secret::new(SECRET),
        zone: None,
    })
    .expect("a good configuration");
    let error = provider.zone_of(NAME).await.expect_err("nobody is there");
    assert!(matches!(error, DnsError::Unavailable { .. }), "{error:?}");
    assert_eq!(error.retry(), DnsRetry::Later);
}

#[tokio::test]
#[ignore = "needs BIND"]
async fn a_cname_that_was_not_followed_is_told_where_the_key_is_refused() -> Result<()> {
    let target = "_acme-challenge.www.other.test";
    let grant = format!("grant k name {target} TXT;");
    let zones = [
        BindZone::new("example.test")
            .records("*.www CNAME elsewhere.other.test.\n_acme-challenge.a CNAME b.other.test.")
            .policy("grant nobody name x TXT;"),
        BindZone::new("other.test").policy(&grant),
    ];
    let bind = Bind::start(
        &[key("k", TsigHash::Sha256), key("nobody", TsigHash::Sha256)],
        &zones,
    )
    .await?;
    let provider = provider(&bind, "k", TsigHash::Sha256, SECRET);
    for (name, told) in [
        (NAME, "elsewhere.other.test"),
        ("_acme-challenge.a.example.test", "b.other.test"),
    ] {
        for error in [
            provider.zone_of(name).await.err(),
            provider.present(&record(name, "v")).await.err(),
        ] {
            let error = error.expect("it is refused");
            assert!(matches!(error, DnsError::Refused { .. }), "{error:?}");
            assert!(
                error.to_string().contains(&format!("a CNAME to {told}")),
                "{error}"
            );
        }
    }
    let error = provider
        .zone_of("_acme-challenge.b.example.test")
        .await
        .expect_err("it is refused")
        .to_string();
    assert!(!error.contains("CNAME"), "{error}");
    assert_eq!(provider.zone_of(target).await?, "other.test");
    Ok(())
}

#[tokio::test]
#[ignore = "needs BIND"]
async fn a_resolver_alone_follows_exact_cnames_and_none_of_a_wildcard() -> Result<()> {
    let zone = BindZone::new("example.test")
        .records("_acme-challenge.a CNAME b.other.test.\n*.www CNAME c.other.test.\nx TXT \"v\"");
    let bind = Bind::start(
        &[],
        &[zone, BindZone::new("other.test").records("b CNAME d")],
    )
    .await?;
    let view = Recursive::new(Resolver::new(vec![bind.address()])?);
    for (name, target) in [
        ("_acme-challenge.a.example.test", "d.other.test"),
        (NAME, NAME),
        (
            "_acme-challenge.example.test",
            "_acme-challenge.example.test",
        ),
    ] {
        assert_eq!(view.challenge_target(name).await?, target);
    }
    assert_eq!(view.values("x.example.test").await?, ["v"]);
    // Where the resolver has no answer, the name stays as it is.
    let silent = Recursive::new(Resolver::new(vec![([127, 0, 0, 1], 1).into()])?);
    assert_eq!(
        silent
            .challenge_target("_acme-challenge.a.example.test")
            .await?,
        "_acme-challenge.a.example.test"
    );
    Ok(())
}
