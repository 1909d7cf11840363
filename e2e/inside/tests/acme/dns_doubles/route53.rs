//! Route 53 where moto is too lenient: PENDING, throttling, races, refusals.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use acme::challenge::dns::{DnsError, DnsProvider, DnsRetry};
use acme::dns::{AwsKeys, AwsSource, Route53, Route53Config, Secret};
use hyper::Method;

use super::double::{Call, Double, Reply, reply};
use super::{NAME, SECRET, error, record};

fn keys() -> AwsSource {
    let secret_access_key = Secret::new(SECRET);
    AwsSource::Static(AwsKeys {
        access_key_id: "AKIATEST".to_owned(),
        secret_access_key,
        session_token: None,
    })
}

fn provider(double: &Double) -> Route53 {
    let mut config = Route53Config::new(keys());
    config.endpoint = Some(double.url());
    config.pace = Duration::ZERO;
    config.poll = Duration::from_millis(1);
    Route53::new(config).expect("a good configuration")
}

fn refuse(status: u16, code: &str, message: &str) -> Reply {
    reply(
        status,
        format!(
            "<ErrorResponse xmlns=\"https://route53.amazonaws.com/doc/2013-04-01/\"><Error><Type>Sender</Type>\
             <Code>{code}</Code><Message>{message}</Message></Error><RequestId>1</RequestId></ErrorResponse>"
        ),
    )
}

fn invalid_batch(message: &str) -> Reply {
    reply(
        400,
        format!(
            "<InvalidChangeBatch><Messages><Message>{message}</Message></Messages></InvalidChangeBatch>"
        ),
    )
}

fn zones(list: &[(&str, &str, bool)], next: Option<(&str, &str)>) -> Reply {
    let zones: String = list
        .iter()
        .map(|(id, name, private)| {
            format!(
                "<HostedZone><Id>/hostedzone/{id}</Id><Name>{name}.</Name><Config><PrivateZone>{private}</PrivateZone>\
                 </Config></HostedZone>"
            )
        })
        .collect();
    let next = match next {
        None => "<IsTruncated>false</IsTruncated>".to_owned(),
        Some((name, id)) => format!(
            "<IsTruncated>true</IsTruncated><NextDNSName>{name}.</NextDNSName><NextHostedZoneId>{id}</NextHostedZoneId>"
        ),
    };
    reply(
        200,
        format!("<R><HostedZones>{zones}</HostedZones>{next}</R>"),
    )
}

fn change(status: &str) -> Reply {
    reply(
        200,
        format!("<R><ChangeInfo><Id>/change/C1</Id><Status>{status}</Status></ChangeInfo></R>"),
    )
}

/// A simulated service with one zone, and other answers by the test.
fn around_a_zone(call: &Call, rest: impl Fn(&Call) -> Reply) -> Reply {
    match call.path.as_str() {
        "/2013-04-01/hostedzonesbyname" => zones(&[("Z1", "example.com", false)], None),
        _ => rest(call),
    }
}

fn deletes(call: &Call) -> bool {
    call.body.contains("<Action>DELETE</Action>")
}

#[tokio::test]
async fn a_change_is_waited_for_until_it_is_insync() {
    let looks = AtomicUsize::new(0);
    let double = Double::start(move |call| {
        around_a_zone(call, |call| {
            match (call.method.as_str(), call.path.as_str()) {
                ("POST", "/2013-04-01/hostedzone/Z1/rrset") => change("PENDING"),
                ("GET", "/2013-04-01/change/C1") => match looks.fetch_add(1, Ordering::SeqCst) {
                    0 | 1 => change("PENDING"),
                    2 => refuse(400, "Throttling", "Rate exceeded"),
                    3 => change("INSYNC"),
                    more => panic!("look {more} after INSYNC"),
                },
                other => panic!("{other:?}"),
            }
        })
    })
    .await;
    provider(&double)
        .present(&record("v1"))
        .await
        .expect("presented");
    assert_eq!(double.count(Method::GET, "/change/C1"), 4);
    let post = double
        .calls()
        .into_iter()
        .find(|call| call.method == Method::POST)
        .expect("a change");
    for part in [
        "<Action>UPSERT</Action>",
        "<Name>_acme-challenge.www.example.com.</Name><Type>TXT</Type><SetIdentifier>v1</SetIdentifier>",
        "<MultiValueAnswer>true</MultiValueAnswer>",
        "<Value>&quot;v1&quot;</Value>",
    ] {
        assert!(post.body.contains(part), "{part} in {}", post.body);
    }
    let signature = post.header("authorization");
    assert!(
        signature.starts_with("AWS4-HMAC-SHA256 Credential=AKIATEST/"),
        "{signature}"
    );
    assert!(
        signature.contains(
            "/us-east-1/route53/aws4_request, SignedHeaders=content-type;host;x-amz-date,"
        ),
        "{signature}"
    );
}

#[tokio::test]
async fn a_change_that_stays_pending_is_given_up() {
    let double = Double::start(|call| around_a_zone(call, |_| change("PENDING"))).await;
    let mut config = Route53Config::new(keys());
    config.endpoint = Some(double.url());
    config.pace = Duration::ZERO;
    config.poll = Duration::from_millis(1);
    config.insync_limit = Duration::from_millis(50);
    let provider = Route53::new(config).expect("a good configuration");
    let error = error(provider.present(&record("v1")).await);
    assert!(
        matches!(&error, DnsError::Unavailable { message, .. } if message.contains("is still PENDING")),
        "{error:?}"
    );
    assert_eq!(error.retry(), DnsRetry::Later);
}

#[tokio::test]
async fn throttling_comes_as_400_and_is_no_refusal() {
    for code in ["Throttling", "PriorRequestNotComplete"] {
        let double =
            Double::start(move |call| around_a_zone(call, |_| refuse(400, code, "wait"))).await;
        let wanted = DnsError::Throttled {
            provider: "route53".into(),
            retry_after: None,
        };
        assert_eq!(
            error(provider(&double).present(&record("v1")).await),
            wanted
        );
        assert_eq!(error(provider(&double).zone_of(NAME).await), wanted);
    }
}

#[tokio::test]
async fn refusals_say_what_to_do() {
    let double = Double::start(|call| {
        around_a_zone(call, |_| {
            refuse(
                403,
                "AccessDenied",
                "User: arn:aws:iam::1:user/u is not authorized",
            )
        })
    })
    .await;
    let denied = error(provider(&double).zone_of(NAME).await);
    assert!(matches!(denied, DnsError::Credentials { .. }), "{denied:?}");
    assert!(denied.to_string().contains("allow route53:"), "{denied}");

    let canonical = format!("The canonical string should have been {SECRET}");
    let double = Double::start(move |_| refuse(403, "SignatureDoesNotMatch", &canonical)).await;
    let wrong = error(provider(&double).zone_of(NAME).await);
    assert!(
        wrong.to_string().contains("check access key, secret key"),
        "{wrong}"
    );

    let double = Double::start(|call| {
        around_a_zone(call, |_| {
            invalid_batch("RRSet already exists with a simple policy")
        })
    })
    .await;
    let blocked = error(provider(&double).present(&record("v1")).await);
    assert!(matches!(blocked, DnsError::Refused { .. }), "{blocked:?}");
    assert!(
        blocked
            .to_string()
            .contains("without the multivalue answer policy"),
        "{blocked}"
    );
}

#[tokio::test]
async fn cleanup_quotes_the_stored_record_and_loses_races_quietly() {
    let stored = "<R><ResourceRecordSets><ResourceRecordSet><Name>_acme-challenge.www.example.com.</Name><Type>TXT</Type>\
         <SetIdentifier>v1</SetIdentifier><MultiValueAnswer>true</MultiValueAnswer><TTL>300</TTL><ResourceRecords>\
         <ResourceRecord><Value>\"v1\"</Value></ResourceRecord></ResourceRecords></ResourceRecordSet></ResourceRecordSets>\
         <IsTruncated>false</IsTruncated></R>";
    let double = Double::start(move |call| {
        around_a_zone(call, |call| match call.method {
            Method::GET => reply(200, stored),
            // Another replica deleted it first.
            _ => invalid_batch("it was not found"),
        })
    })
    .await;
    let provider = provider(&double);
    provider.cleanup(&record("v1")).await.expect("gone");
    // A record with another identifier is not ours.
    provider
        .cleanup(&record("v2"))
        .await
        .expect("nothing there");
    let sent: Vec<Call> = double.calls().into_iter().filter(deletes).collect();
    let ttls: Vec<&str> = sent
        .iter()
        .map(|call| {
            call.body
                .split(['<', '>'])
                .skip_while(|t| *t != "TTL")
                .nth(1)
        })
        .map(|t| t.expect("a TTL"))
        .collect();
    assert_eq!(
        ttls,
        ["60", "300", "60"],
        "ours, then the stored one, then ours of the other value"
    );
}

#[tokio::test]
async fn only_public_zones_count_on_every_page() {
    let double = Double::start(|call| match call.path.as_str() {
        "/2013-04-01/hostedzonesbyname" => {
            match (call.parameter("dnsname"), call.parameter("hostedzoneid")) {
                (Some("www.example.com"), _) => {
                    zones(&[("Z9", "www.example.com", true)], Some(("zzz.com", "Z3")))
                }
                (Some("example.com"), None) => {
                    zones(&[("ZP", "example.com", true)], Some(("example.com", "ZQ")))
                }
                (Some("example.com."), Some("ZQ")) => zones(
                    &[("ZQ", "example.com", false), ("ZR", "zzz.com", false)],
                    None,
                ),
                (Some("_acme-challenge.www.example.com"), None) => {
                    zones(&[("ZQ", "example.com", false)], None)
                }
                other => panic!("{other:?}"),
            }
        }
        "/2013-04-01/hostedzone/ZQ/rrset" => change("INSYNC"),
        other => panic!("{other}"),
    })
    .await;
    provider(&double)
        .present(&record("v1"))
        .await
        .expect("presented");
}

#[tokio::test]
async fn two_public_zones_of_one_name_have_to_be_chosen_from() {
    let double = Double::start(|call| match call.path.as_str() {
        "/2013-04-01/hostedzonesbyname" => zones(
            &[("ZA", "example.com", false), ("ZB", "example.com", false)],
            None,
        ),
        "/2013-04-01/hostedzone/ZB" => zones(&[("ZB", "example.com", false)], None),
        "/2013-04-01/hostedzone/ZP" => zones(&[("ZP", "example.com", true)], None),
        "/2013-04-01/hostedzone/ZX" => zones(&[("ZX", "example.org", false)], None),
        "/2013-04-01/hostedzone/ZB/rrset" => change("INSYNC"),
        _ => refuse(404, "NoSuchHostedZone", "No hosted zone found"),
    })
    .await;
    let ambiguous = error(provider(&double).zone_of(NAME).await);
    assert!(
        ambiguous
            .to_string()
            .contains("several public zones example.com (ZA, ZB)"),
        "{ambiguous}"
    );
    fn with(id: &str, double: &Double) -> Route53 {
        let mut config = Route53Config::new(keys());
        config.endpoint = Some(double.url());
        config.pace = Duration::ZERO;
        config.hosted_zone_id = Some(id.to_owned());
        Route53::new(config).expect("a good configuration")
    }
    with("/hostedzone/ZB", &double)
        .present(&record("v1"))
        .await
        .expect("presented");
    for (id, wanted) in [
        ("ZP", "is a private zone"),
        ("ZX", "is the zone example.org"),
        ("ZN", "does not exist"),
    ] {
        let error = error(with(id, &double).zone_of(NAME).await);
        assert!(
            matches!(error, DnsError::NoZone { .. }) && error.to_string().contains(wanted),
            "{error:?}"
        );
    }
}

#[test]
fn bad_configuration_names_the_field() {
    let make = |change: fn(&mut Route53Config)| {
        let mut config = Route53Config::new(keys());
        change(&mut config);
        error(Route53::new(config)).to_string()
    };
    fn key(id: &str) -> AwsSource {
        let secret_access_key = Secret::new(SECRET);
        AwsSource::Static(AwsKeys {
            access_key_id: id.to_owned(),
            secret_access_key,
            session_token: None,
        })
    }
    assert!(make(|c| c.region = Some("Frankfurt".into())).contains("region: "));
    assert!(make(|c| c.hosted_zone_id = Some("../x".into())).contains("hostedZoneID: "));
    assert!(make(|c| c.endpoint = Some("http://aws.example".into())).contains("endpoint: "));
    assert!(
        error(Route53::new(Route53Config::new(key("AKIA TEST"))))
            .to_string()
            .contains("accessKeyID: ")
    );
}
