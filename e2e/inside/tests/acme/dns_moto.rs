//! Route 53 and STS with moto, an independent implementation of AWS's documentation.

use std::time::Duration;

use acme::challenge::dns::{DnsError, DnsProvider, TxtRecord};
use acme::dns::{AwsKeys, AwsSource, Route53, Route53Config, Secret};
use anyhow::Result;
use e2e::moto::Moto;
use futures::future::try_join_all;

const NAME: &str = "_acme-challenge.www.example.com";

fn keys() -> AwsSource {
    let secret_access_key = Secret::new("secret");
    AwsSource::Static(AwsKeys {
        access_key_id: "AKIATEST".to_owned(),
        secret_access_key,
        session_token: None,
    })
}

fn provider(moto: &Moto, source: AwsSource) -> Route53 {
    let mut config = Route53Config::new(source);
    config.endpoint = Some(moto.url());
    config.pace = Duration::ZERO;
    config.poll = Duration::from_millis(10);
    Route53::new(config).expect("a good configuration")
}

fn record(value: impl Into<String>) -> TxtRecord {
    TxtRecord {
        name: NAME.to_owned(),
        value: value.into(),
        ttl: 60,
    }
}

/// Returns the values of TXT records at [`NAME`].
async fn values(moto: &Moto, zone: &str) -> Result<Vec<String>> {
    let records = moto.records(zone).await?;
    let sets = records
        .split("<ResourceRecordSet>")
        .filter(|set| set.contains(&format!("<Name>{NAME}.</Name>")));
    let mut values: Vec<String> = sets
        .flat_map(|set| set.split("<Value>").skip(1))
        .filter_map(|rest| rest.split_once("</Value>"))
        .map(|(value, _)| value.replace("&quot;", "\"").trim_matches('"').to_owned())
        .collect();
    values.sort();
    Ok(values)
}

#[tokio::test]
#[ignore = "needs moto"]
async fn values_come_and_go_one_by_one_in_the_public_zone() -> Result<()> {
    let moto = Moto::start().await?;
    let private = moto.zone("example.com", true).await?;
    let public = moto.zone("example.com", false).await?;
    let provider = provider(&moto, keys());
    assert_eq!(provider.zone_of(NAME).await?, "example.com");
    let records: Vec<TxtRecord> = (0..6).map(|i| record(format!("value-{i}"))).collect();
    try_join_all(records.iter().map(|record| provider.present(record))).await?;
    provider.present(&records[0]).await?;
    let all: Vec<String> = records.iter().map(|record| record.value.clone()).collect();
    assert_eq!(values(&moto, &public).await?, all);
    // A new process knows only the records; a repeated removal succeeds.
    let restarted = self::provider(&moto, keys());
    for record in &records[1..] {
        restarted.cleanup(record).await?;
        restarted.cleanup(record).await?;
    }
    assert_eq!(values(&moto, &public).await?, ["value-0"]);
    assert_eq!(values(&moto, &private).await?, Vec::<String>::new());
    // A record that was stored with another time to live, for example by an older configuration.
    restarted
        .cleanup(&TxtRecord {
            ttl: 300,
            ..records[0].clone()
        })
        .await?;
    assert_eq!(values(&moto, &public).await?, Vec::<String>::new());
    Ok(())
}

#[tokio::test]
#[ignore = "needs moto"]
async fn foreign_records_around_ours_stay_over_several_pages() -> Result<()> {
    let moto = Moto::start().await?;
    let zone = moto.zone("example.com", false).await?;
    moto.change(&zone, &(0..150).map(|i| {
        format!(
            "<Change><Action>CREATE</Action><ResourceRecordSet><Name>{NAME}.</Name><Type>TXT</Type>\
             <SetIdentifier>foreign-{i:03}</SetIdentifier><MultiValueAnswer>true</MultiValueAnswer><TTL>60</TTL>\
             <ResourceRecords><ResourceRecord><Value>\"foreign-{i:03}\"</Value></ResourceRecord></ResourceRecords>\
             </ResourceRecordSet></Change>"
        )
    }).collect::<String>())
        .await?;
    let provider = provider(&moto, keys());
    // It sorts after the foreign ones, and is found although a page has a hundred.
    let ours = record("zzz-ours");
    provider.present(&ours).await?;
    assert_eq!(values(&moto, &zone).await?.len(), 151);
    provider.cleanup(&ours).await?;
    provider.cleanup(&ours).await?;
    let left = values(&moto, &zone).await?;
    assert_eq!(
        left,
        (0..150)
            .map(|i| format!("foreign-{i:03}"))
            .collect::<Vec<_>>()
    );
    Ok(())
}

#[tokio::test]
#[ignore = "needs moto"]
async fn more_zones_than_a_page_holds() -> Result<()> {
    let moto = Moto::start().await?;
    let public = moto.zone("example.com", false).await?;
    // More records than fit on one page of the listing.
    for i in 0..130 {
        moto.zone(&format!("a{i:03}.example"), false).await?;
    }
    let provider = provider(&moto, keys());
    assert_eq!(provider.zone_of(NAME).await?, "example.com");
    assert_eq!(
        provider.zone_of("_acme-challenge.x.a129.example").await?,
        "a129.example"
    );
    provider.present(&record("v")).await?;
    assert_eq!(values(&moto, &public).await?, ["v"]);
    let error = provider
        .zone_of("_acme-challenge.example.org")
        .await
        .expect_err("no such zone");
    assert!(matches!(error, DnsError::NoZone { .. }), "{error:?}");
    provider
        .cleanup(&TxtRecord {
            name: "_acme-challenge.example.org".to_owned(),
            ..record("v")
        })
        .await?;
    Ok(())
}

#[tokio::test]
#[ignore = "needs moto"]
async fn a_web_identity_is_exchanged_for_keys() -> Result<()> {
    let moto = Moto::start().await?;
    moto.zone("example.com", false).await?;
    let dir = tempfile::tempdir()?;
    let token_file = dir.path().join("token");
    std::fs::write(&token_file, "header.claims.signature\n")?;
    let source = AwsSource::WebIdentity {
        role_arn: "arn:aws:iam::123456789012:role/dns".to_owned(),
        token_file,
        session_name: "gatewright".to_owned(),
        sts_endpoint: Some(moto.url()),
    };
    assert_eq!(provider(&moto, source).zone_of(NAME).await?, "example.com");
    Ok(())
}
