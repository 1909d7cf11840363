//! The sources of AWS keys: web identity, the container's credential agent, the instance's metadata
//! service.

use std::time::Duration;

use acme::challenge::dns::{DnsError, DnsProvider};
use acme::dns::{AwsSource, Route53, Route53Config};
use hyper::Method;
use serde_json::json;

use super::double::{Call, Double, Reply, reply};
use super::{NAME, SECRET, error};

const FAR: &str = "2999-01-01T00:00:00Z";

/// A Route 53 that accepts only requests that are signed with these temporary keys.
fn route53(call: &Call, key: &str) -> Reply {
    let signed = call
        .header("authorization")
        .starts_with(&format!("AWS4-HMAC-SHA256 Credential={key}/"))
        && call
            .header("authorization")
            .contains("x-amz-security-token")
        && call.header("x-amz-security-token") == SECRET;
    match (signed, call.method == Method::POST) {
        (false, _) => reply(
            403,
            "<E><Error><Code>InvalidClientTokenId</Code><Message/></Error></E>",
        ),
        (true, true) => reply(
            400,
            "<InvalidChangeBatch><Messages><Message>not found</Message></Messages></InvalidChangeBatch>",
        ),
        (true, false) => reply(
            200,
            "<R><HostedZone><Id>/hostedzone/Z1</Id><Name>example.com.</Name><Config><PrivateZone>false</PrivateZone></Config>\
             </HostedZone><IsTruncated>false</IsTruncated></R>",
        ),
    }
}

fn provider(double: &Double, source: AwsSource) -> Route53 {
    let mut config = Route53Config::new(source);
    config.endpoint = Some(double.url());
    config.pace = Duration::ZERO;
    config.poll = Duration::from_millis(1);
    Route53::new(config).expect("a good configuration")
}

fn document(key: &str, expiration: &str) -> serde_json::Value {
    json!({"Code": "Success", "AccessKeyId": key, "SecretAccessKey": SECRET, "Token": SECRET, "Expiration": expiration})
}

#[tokio::test]
async fn the_instances_metadata_is_asked_by_version_two_only() {
    let double = Double::start(|call| match (call.method.as_str(), call.path.as_str()) {
        ("PUT", "/latest/api/token")
            if !call
                .header("x-aws-ec2-metadata-token-ttl-seconds")
                .is_empty() =>
        {
            reply(200, "session")
        }
        (_, path)
            if path.starts_with("/latest/")
                && call.header("x-aws-ec2-metadata-token") != "session" =>
        {
            reply(401, "")
        }
        ("GET", "/latest/meta-data/iam/security-credentials/") => reply(200, "role-name\n"),
        ("GET", "/latest/meta-data/iam/security-credentials/role-name") => {
            reply(200, document("ASIAIMDS", FAR))
        }
        _ => route53(call, "ASIAIMDS"),
    })
    .await;
    let provider = provider(
        &double,
        AwsSource::Imds {
            endpoint: Some(double.url()),
        },
    );
    assert_eq!(provider.zone_of(NAME).await.as_deref(), Ok("example.com"));
    assert_eq!(provider.zone_of(NAME).await.as_deref(), Ok("example.com"));
    assert_eq!(
        double.count(Method::PUT, "/latest/api/token"),
        1,
        "keys are kept"
    );
}

#[tokio::test]
async fn an_instance_without_a_role_is_told_so() {
    let double = Double::start(|call| match call.method {
        Method::PUT => reply(200, "session"),
        _ => reply(404, "<html>not found</html>"),
    })
    .await;
    let error = error(
        provider(
            &double,
            AwsSource::Imds {
                endpoint: Some(double.url()),
            },
        )
        .zone_of(NAME)
        .await,
    );
    assert!(
        matches!(&error, DnsError::Credentials { message, .. } if message.contains("attach an instance profile")),
        "{error:?}"
    );
}

#[tokio::test]
async fn the_containers_agent_gets_a_token_read_anew_and_keys_that_end_are_renewed() {
    let double = Double::start(move |call| match call.path.as_str() {
        "/creds" => {
            // Expired keys are fetched again before each request.
            reply(200, document("ASIAECS", "2000-01-01T00:00:00Z"))
        }
        _ => route53(call, "ASIAECS"),
    })
    .await;
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("token");
    std::fs::write(&file, "first\n").expect("written");
    let source = AwsSource::Container {
        uri: format!("{}/creds", double.url()),
        token_file: Some(file.clone()),
    };
    let mut config = Route53Config::new(source);
    config.endpoint = Some(double.url());
    config.pace = Duration::ZERO;
    let provider = Route53::new(config).expect("a good configuration");
    provider
        .cleanup(&super::record("v"))
        .await
        .expect("nothing there");
    std::fs::write(&file, "second\n").expect("written");
    provider
        .cleanup(&super::record("v"))
        .await
        .expect("nothing there");
    let mut tokens: Vec<String> = double
        .calls()
        .iter()
        .filter(|call| call.path == "/creds")
        .map(|call| call.header("authorization").to_owned())
        .collect();
    assert!(tokens.len() > 2, "{tokens:?}");
    tokens.dedup();
    assert_eq!(tokens, ["first", "second"]);
}

#[tokio::test]
async fn a_web_identity_becomes_keys() {
    let double = Double::start(|call| match call.path.as_str() {
        "/" => {
            assert!(call.header("authorization").is_empty(), "this call is not signed");
            for part in [
                "Action=AssumeRoleWithWebIdentity",
                "RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr",
                "RoleSessionName=gatewright",
                "WebIdentityToken=ey.web.identity",
            ] {
                assert!(call.body.contains(part), "{part} in {}", call.body);
            }
            reply(
                200,
                format!(
                    "<R xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><Credentials><AccessKeyId>ASIAWEB</AccessKeyId>\
                     <SecretAccessKey>{SECRET}</SecretAccessKey><SessionToken>{SECRET}</SessionToken>\
                     <Expiration>{FAR}</Expiration></Credentials></R>"
                ),
            )
        }
        _ => route53(call, "ASIAWEB"),
    })
    .await;
    assert_eq!(
        provider(&double, web_identity(&double, "ey.web.identity").0)
            .zone_of(NAME)
            .await
            .as_deref(),
        Ok("example.com")
    );
}

#[tokio::test]
async fn a_refused_web_identity_is_not_quoted() {
    let double = Double::start(|call| {
        let token = call.body.rsplit_once('=').expect("a form").1.to_owned();
        reply(400, format!("<E><Error><Code>InvalidIdentityToken</Code><Message>bad {token}</Message></Error></E>"))
    })
    .await;
    let (source, dir) = web_identity(&double, SECRET);
    let refused = error(provider(&double, source).zone_of(NAME).await);
    assert!(
        matches!(&refused, DnsError::Credentials { message, .. } if message.contains("trust policy")),
        "{refused:?}"
    );
    let source = web_identity_in(&double, dir.path().join("elsewhere"));
    let missing = error(provider(&double, source).zone_of(NAME).await);
    assert!(
        matches!(&missing, DnsError::Credentials { message, .. } if message.contains("elsewhere")),
        "{missing:?}"
    );
}

fn web_identity(double: &Double, token: &str) -> (AwsSource, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("token");
    std::fs::write(&file, token).expect("written");
    (web_identity_in(double, file), dir)
}

fn web_identity_in(double: &Double, token_file: std::path::PathBuf) -> AwsSource {
    AwsSource::WebIdentity {
        role_arn: "arn:aws:iam::1:role/r".to_owned(),
        token_file,
        session_name: "gatewright".to_owned(),
        sts_endpoint: Some(double.url()),
    }
}
