//! Sources of AWS keys: static keys, a web identity, the container's credential agent, or the
//! instance's metadata service.
//!
//! Temporary keys are cached until five minutes before they expire; token files are read each time,
//! since they rotate.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::HeaderValue;
use hyper::{Request, StatusCode};
use jiff::Timestamp;
use serde::Deserialize;
use tokio::sync::Mutex;
use zeroize::Zeroizing;

use super::super::api::{quote, refusal};
use super::super::http::{Answer, Endpoint, Http, encode};
use super::super::secret::Secret;
use super::xml;
use crate::challenge::dns::DnsError;

const PROVIDER: &str = "route53";
/// Time before their expiry at which temporary keys are renewed.
const EARLY: Duration = Duration::from_secs(300);
/// Largest token file, in bytes.
const TOKEN_LIMIT: usize = 64 * 1024;
/// The URL of the metadata service of EC2 instances.
pub const IMDS_ENDPOINT: &str = "http://169.254.169.254";
/// The URL of the credential agent of ECS tasks.
const ECS_ENDPOINT: &str = "http://169.254.170.2";

/// A set of AWS keys.
#[derive(Clone)]
pub struct AwsKeys {
    /// Identifies the keys; not secret.
    pub access_key_id: String,
    /// The signing key.
    pub secret_access_key: Secret,
    /// The session token of temporary keys.
    pub session_token: Option<Secret>,
}

/// The source of AWS keys.
pub enum AwsSource {
    /// Static keys.
    Static(AwsKeys),
    /// `AssumeRoleWithWebIdentity`: a service account of EKS (IRSA) or any OIDC token in a file.
    WebIdentity {
        /// `arn:aws:iam::…:role/…`
        role_arn: String,
        /// File that contains the token.
        token_file: PathBuf,
        /// The session name in CloudTrail.
        session_name: String,
        /// The STS endpoint, if not the region's.
        sts_endpoint: Option<String>,
    },
    /// The credential agent of ECS tasks and of EKS Pod Identity.
    Container {
        /// Full URI of the agent.
        uri: String,
        /// File that contains the token that the agent requires; None where it requires none.
        token_file: Option<PathBuf>,
    },
    /// The metadata service of EC2, version 2 only.
    Imds {
        /// The endpoint, if not [`IMDS_ENDPOINT`].
        endpoint: Option<String>,
    },
}

impl AwsSource {
    /// Chooses the source that the AWS SDKs would choose by the environment, in their order: static
    /// keys, web identity, container, instance.
    ///
    /// Only for issuers of the operator: a tenant must not use the identity of this process.
    pub fn from_env(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        if let (Some(access_key_id), Some(secret)) =
            (set("AWS_ACCESS_KEY_ID"), set("AWS_SECRET_ACCESS_KEY"))
        {
            let session_token = set("AWS_SESSION_TOKEN").map(Secret::new);
            return Self::Static(AwsKeys {
                access_key_id,
                secret_access_key: Secret::new(secret),
                session_token,
            });
        }
        if let (Some(role_arn), Some(file)) =
            (set("AWS_ROLE_ARN"), set("AWS_WEB_IDENTITY_TOKEN_FILE"))
        {
            let session_name =
                set("AWS_ROLE_SESSION_NAME").unwrap_or_else(|| "gatewright".to_owned());
            let sts_endpoint = set("AWS_ENDPOINT_URL_STS");
            return Self::WebIdentity {
                role_arn,
                token_file: file.into(),
                session_name,
                sts_endpoint,
            };
        }
        let token_file = set("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE").map(PathBuf::from);
        if let Some(path) = set("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") {
            return Self::Container {
                uri: format!("{ECS_ENDPOINT}{path}"),
                token_file,
            };
        }
        if let Some(uri) = set("AWS_CONTAINER_CREDENTIALS_FULL_URI") {
            return Self::Container { uri, token_file };
        }
        Self::Imds {
            endpoint: set("AWS_EC2_METADATA_SERVICE_ENDPOINT"),
        }
    }

    /// Rejects settings that are invalid, without a request.
    pub(crate) fn check(&self) -> Result<(), String> {
        fn endpoint(field: &str, url: &str) -> Result<(), String> {
            Endpoint::parse(url)
                .map(|_| ())
                .map_err(|message| format!("{field}: {message}"))
        }
        match self {
            Self::Static(keys) => {
                if keys.access_key_id.is_empty()
                    || !keys
                        .access_key_id
                        .bytes()
                        .all(|b| b.is_ascii_alphanumeric())
                {
                    return Err(
                        "accessKeyID: must be letters and digits such as AKIA…; check for spaces"
                            .to_owned(),
                    );
                }
                if keys.secret_access_key.is_empty() {
                    return Err("secretAccessKey: is empty".to_owned());
                }
                if let Some(token) = &keys.session_token
                    && HeaderValue::from_str(token.expose()).is_err()
                {
                    return Err("sessionToken: holds characters that no token has".to_owned());
                }
                Ok(())
            }
            Self::WebIdentity {
                role_arn,
                token_file,
                sts_endpoint,
                ..
            } => {
                if !role_arn.starts_with("arn:") {
                    return Err(format!("roleARN: {role_arn:?} must begin with arn:"));
                }
                if !token_file.is_absolute() {
                    return Err(format!(
                        "tokenFile: {} must be an absolute path",
                        token_file.display()
                    ));
                }
                sts_endpoint
                    .as_deref()
                    .map_or(Ok(()), |url| endpoint("stsEndpoint", url))
            }
            Self::Container { uri, .. } => endpoint("uri", uri.split('?').next().unwrap_or(uri)),
            Self::Imds { endpoint: url } => {
                endpoint("endpoint", url.as_deref().unwrap_or(IMDS_ENDPOINT))
            }
        }
    }
}

/// A source, with a cache of its temporary keys.
pub(crate) struct AwsCredentials {
    source: AwsSource,
    region: String,
    http: Http,
    held: Mutex<Option<Temporary>>,
}

#[derive(Clone)]
struct Temporary {
    keys: AwsKeys,
    ends: SystemTime,
}

impl AwsCredentials {
    pub(crate) fn new(source: AwsSource, region: &str, http: Http) -> Self {
        // Metadata services are near; an absent one must not delay an order.
        let http = if matches!(source, AwsSource::WebIdentity { .. }) {
            http
        } else {
            http.with_limit(Duration::from_secs(5))
        };
        Self {
            source,
            region: region.to_owned(),
            http,
            held: Mutex::new(None),
        }
    }

    /// Returns keys that are valid now.
    pub(crate) async fn keys(&self, now: SystemTime) -> Result<AwsKeys, DnsError> {
        if let AwsSource::Static(keys) = &self.source {
            return Ok(keys.clone());
        }
        // An asynchronous lock, held during the request, so that concurrent orders fetch new keys
        // once.
        let mut held = self.held.lock().await;
        if let Some(held) = held.as_ref().filter(|held| now + EARLY < held.ends) {
            return Ok(held.keys.clone());
        }
        let fresh = self.fetch().await?;
        let keys = fresh.keys.clone();
        *held = Some(fresh);
        Ok(keys)
    }

    async fn fetch(&self) -> Result<Temporary, DnsError> {
        match &self.source {
            AwsSource::Static(_) => unreachable!("static keys are never fetched"),
            AwsSource::WebIdentity {
                role_arn,
                token_file,
                session_name,
                sts_endpoint,
            } => {
                let token = read_token(token_file).await?;
                let suffix = if self.region.starts_with("cn-") {
                    ".cn"
                } else {
                    ""
                };
                let regional = format!("https://sts.{}.amazonaws.com{suffix}", self.region);
                let endpoint = Endpoint::parse(sts_endpoint.as_deref().unwrap_or(&regional))
                    .map_err(config("stsEndpoint"))?;
                let form = format!(
                    "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn={}&RoleSessionName={}&WebIdentityToken={}",
                    encode(role_arn),
                    encode(session_name),
                    encode(token.expose())
                );
                let request = Request::post(endpoint.url("/"))
                    .header("content-type", "application/x-www-form-urlencoded")
                    .body(Full::new(Bytes::from(form)));
                let answer = self.send(request).await?;
                if !answer.status.is_success() {
                    let said = xml::message(&answer.body).unwrap_or_default();
                    let said = quote(&token.blot(&said));
                    let fix = "let the role's trust policy accept this service account's issuer, subject and audience";
                    return Err(match refusal(PROVIDER, role_arn, &answer, &said, fix) {
                        DnsError::Refused { message, .. } => DnsError::Credentials {
                            provider: PROVIDER.to_owned(),
                            message: format!("{message}; {fix}"),
                        },
                        other => other,
                    });
                }
                sts_keys(&answer)
            }
            AwsSource::Container { uri, token_file } => {
                let mut request = Request::get(uri);
                if let Some(file) = token_file {
                    let token = read_token(file).await?;
                    let mut value = HeaderValue::from_str(token.expose()).map_err(|_| {
                        credentials(format!(
                            "{} holds characters that no token has",
                            file.display()
                        ))
                    })?;
                    value.set_sensitive(true);
                    request = request.header("authorization", value);
                }
                let answer = self.send(request.body(Full::default())).await?;
                json_keys(&answer, "the container's credential agent")
            }
            AwsSource::Imds { endpoint } => {
                let endpoint = Endpoint::parse(endpoint.as_deref().unwrap_or(IMDS_ENDPOINT))
                    .map_err(config("endpoint"))?;
                self.instance_keys(&endpoint).await
            }
        }
    }

    /// Gets keys by IMDSv2 ("Retrieve instance metadata" in the EC2 user guide): a session token by
    /// `PUT`, then the role, then its keys.
    async fn instance_keys(&self, endpoint: &Endpoint) -> Result<Temporary, DnsError> {
        const ROLES: &str = "/latest/meta-data/iam/security-credentials/";
        const LABEL: &str = "the instance's metadata service";
        let request = Request::put(endpoint.url("/latest/api/token"))
            .header("x-aws-ec2-metadata-token-ttl-seconds", "300")
            .body(Full::default());
        let answer = self.send(request).await?;
        if !answer.status.is_success() {
            return Err(refusal(
                PROVIDER,
                LABEL,
                &answer,
                "",
                "allow IMDSv2 (http_tokens) and a hop limit of 2",
            ));
        }
        let mut token = HeaderValue::from_bytes(&answer.body)
            .map_err(|_| protocol(format!("{LABEL} gave a session token that is none")))?;
        token.set_sensitive(true);
        let get = |path: String| {
            let request =
                Request::get(endpoint.url(&path)).header("x-aws-ec2-metadata-token", token.clone());
            self.send(request.body(Full::default()))
        };
        let roles = get(ROLES.to_owned()).await?;
        let role = String::from_utf8_lossy(&roles.body)
            .lines()
            .next()
            .unwrap_or_default()
            .trim()
            .to_owned();
        if roles.status == StatusCode::NOT_FOUND || role.is_empty() {
            return Err(credentials(
                "this instance has no IAM role; attach an instance profile".to_owned(),
            ));
        }
        if !roles.status.is_success() {
            return Err(refusal(
                PROVIDER,
                LABEL,
                &roles,
                "",
                "allow IMDSv2 for this instance",
            ));
        }
        json_keys(&get(format!("{ROLES}{}", encode(&role))).await?, LABEL)
    }

    async fn send(
        &self,
        request: hyper::http::Result<Request<Full<Bytes>>>,
    ) -> Result<Answer, DnsError> {
        let request =
            request.map_err(|error| protocol(format!("building the request: {error}")))?;
        self.http
            .send(request)
            .await
            .map_err(|message| DnsError::Unavailable {
                provider: PROVIDER.to_owned(),
                message,
            })
    }
}

async fn read_token(file: &std::path::Path) -> Result<Secret, DnsError> {
    let text = tokio::fs::read_to_string(file)
        .await
        .map(Zeroizing::new)
        .map_err(|error| {
            credentials(format!(
                "reading the token file {}: {error}",
                file.display()
            ))
        })?;
    if text.trim().is_empty() || text.len() > TOKEN_LIMIT {
        return Err(credentials(format!(
            "the token file {} is empty or too large",
            file.display()
        )));
    }
    Ok(Secret::new(text.as_str()))
}

fn sts_keys(answer: &Answer) -> Result<Temporary, DnsError> {
    let text = std::str::from_utf8(&answer.body)
        .map_err(|_| protocol("STS answered no text".to_owned()))?;
    let document = xml::parse(text).map_err(protocol)?;
    let field = |name: &str| {
        let root = xml::find(document.root(), "Credentials")?;
        xml::text(root, name)
    };
    let keys = (
        field("AccessKeyId"),
        field("SecretAccessKey"),
        field("SessionToken"),
        field("Expiration"),
    );
    let (Some(id), Some(secret), Some(token), Some(ends)) = keys else {
        return Err(protocol(
            "STS answered without complete credentials".to_owned(),
        ));
    };
    temporary(id, secret, Some(token), ends)
}

/// Parses the document that ECS, EKS Pod Identity and IMDS share.
fn json_keys(answer: &Answer, label: &str) -> Result<Temporary, DnsError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Document {
        access_key_id: String,
        secret_access_key: String,
        token: Option<String>,
        expiration: String,
    }
    if !answer.status.is_success() {
        return Err(refusal(
            PROVIDER,
            label,
            answer,
            "",
            "let this workload have a role there",
        ));
    }
    // The message of the parser could quote a secret, so it is omitted.
    let document: Document = serde_json::from_slice(&answer.body).map_err(|_| {
        protocol(format!(
            "{label} answered without AccessKeyId, SecretAccessKey and Expiration"
        ))
    })?;
    let secret = Zeroizing::new(document.secret_access_key);
    let token = document.token.map(Zeroizing::new);
    temporary(
        &document.access_key_id,
        &secret,
        token.as_ref().map(|token| token.as_str()),
        &document.expiration,
    )
}

fn temporary(
    id: &str,
    secret: &str,
    token: Option<&str>,
    ends: &str,
) -> Result<Temporary, DnsError> {
    let ends: Timestamp = ends
        .parse()
        .map_err(|_| protocol("the keys' expiration is not a time".to_owned()))?;
    let session_token = token.map(Secret::new);
    let keys = AwsKeys {
        access_key_id: id.to_owned(),
        secret_access_key: Secret::new(secret),
        session_token,
    };
    AwsSource::Static(keys.clone()).check().map_err(protocol)?;
    Ok(Temporary {
        keys,
        ends: ends.into(),
    })
}

fn config(field: &'static str) -> impl Fn(String) -> DnsError {
    move |message| DnsError::Config {
        provider: PROVIDER.to_owned(),
        message: format!("{field}: {message}"),
    }
}

fn credentials(message: String) -> DnsError {
    DnsError::Credentials {
        provider: PROVIDER.to_owned(),
        message,
    }
}

fn protocol(message: String) -> DnsError {
    DnsError::Protocol {
        provider: PROVIDER.to_owned(),
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(pairs: &'static [(&str, &str)]) -> AwsSource {
        AwsSource::from_env(|name| {
            pairs
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_environment_is_read_in_the_order_of_the_sdks() {
        let keys = ("AWS_ACCESS_KEY_ID", "AKIA1");
        assert!(matches!(from(&[]), AwsSource::Imds { endpoint: None }));
        // An access key without its secret is no credential.
        const HALF: &[(&str, &str)] = &[
            ("AWS_ACCESS_KEY_ID", "AKIA1"),
            ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/x"),
        ];
        let AwsSource::Container { uri, .. } = from(HALF) else {
            panic!("not the container's agent")
        };
        assert_eq!(
            uri.as_str(),
            "http://169.254.170.2/v2/x",
            "the relative address is that of ECS"
        );
        assert_eq!(keys.1, "AKIA1", "the keys are those of the first source");
        const ALL: &[(&str, &str)] = &[
            ("AWS_ACCESS_KEY_ID", "AKIA1"),
            ("AWS_SECRET_ACCESS_KEY", "s"),
            ("AWS_ROLE_ARN", "arn:aws:iam::1:role/r"),
            ("AWS_WEB_IDENTITY_TOKEN_FILE", "/t"),
        ];
        assert!(matches!(from(ALL), AwsSource::Static(_)));
        assert!(matches!(from(&ALL[2..]), AwsSource::WebIdentity { .. }));
    }

    #[test]
    fn an_agent_elsewhere_must_be_https() {
        let far = AwsSource::Container {
            uri: "http://10.0.0.9/creds".to_owned(),
            token_file: None,
        };
        assert!(
            far.check()
                .expect_err("a foreign plain address")
                .contains("https")
        );
        let near = AwsSource::Container {
            uri: "http://169.254.170.23/v1/credentials".to_owned(),
            token_file: None,
        };
        assert_eq!(near.check(), Ok(()));
    }
}
