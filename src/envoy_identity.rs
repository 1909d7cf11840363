//! Identity of an Envoy in a pod: gets a certificate for the pod from the controller, by the pod's
//! token, and renews it.
//!
//! ```text
//! token, CA certificates (mounted by the kubelet) ==> POST to the controller ==> tls.crt, tls.key, ca.crt, zone ==> Envoy
//! ```
//!
//! The private key is created here and never sent. Changed CA certificates are passed on at once,
//! even while the controller does not answer, and a certificate of the new CA is requested.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use gatewright_control::envoy_certificates::{PATH, ZONE_HEADER};
use gatewright_core::inputs::parse_certificate;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tracing::{info, warn};
use xds::{CLOCK_SKEW, CertificateRequest, Pair};

use crate::controller::XDS_NAME;
use crate::replace::publish;
use crate::{cli, tls_client};

/// The timeout of a request, from the connection to the end of the response.
const EXCHANGE: Duration = Duration::from_secs(20);
/// The interval at which the CA certificates are read.
const LOOK: Duration = Duration::from_secs(2);
/// The first and the maximum pause after failures.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];
/// The minimum time between two renewals, whatever the clock says.
const SOONEST: Duration = Duration::from_secs(5);
/// The maximum size of a response.
const ANSWER: usize = 64 << 10;

/// The file with the zone of the node, beside those of the certificate.
pub(crate) const ZONE_FILE: &str = "zone";

/// What the controller gives to a pod.
#[derive(Debug)]
struct Issued {
    pair: Pair,
    /// The zone of the node; empty without one.
    zone: String,
}

/// The certificate that Envoy has.
#[derive(Clone, Debug)]
struct EnvoyCertificate {
    pair: Pair,
    /// The CA certificates that it was requested with.
    roots: String,
    /// The zone of the node; empty without one.
    zone: String,
    issued: SystemTime,
    ends: SystemTime,
}

impl EnvoyCertificate {
    fn new(Issued { pair, zone }: Issued, roots: String) -> Result<Self> {
        let read = parse_certificate(pair.certificate.as_bytes(), pair.key.as_bytes())
            .context("the certificate")?;
        Ok(Self {
            pair,
            roots,
            zone,
            issued: read.not_before + CLOCK_SKEW,
            ends: read.not_after,
        })
    }

    /// Reads the files of an earlier start.
    fn of(dir: &Path) -> Option<Self> {
        let pair = Pair {
            certificate: read("tls.crt", dir)?,
            key: read("tls.key", dir)?,
        };
        let zone = read(ZONE_FILE, dir).unwrap_or_default();
        Self::new(Issued { pair, zone }, read("ca.crt", dir)?).ok()
    }

    /// Returns the time of the renewal: when a third of the lifetime is left.
    fn due(&self) -> SystemTime {
        self.issued + self.ends.duration_since(self.issued).unwrap_or_default() / 3 * 2
    }

    fn files<'a>(&'a self, roots: &'a str) -> [(&'static str, &'a str); 4] {
        [
            ("tls.crt", &self.pair.certificate),
            ("tls.key", &self.pair.key),
            ("ca.crt", roots),
            (ZONE_FILE, &self.zone),
        ]
    }
}

fn read(name: &str, dir: &Path) -> Option<String> {
    std::fs::read_to_string(dir.join(name)).ok()
}

/// Returns whether another certificate is needed: there is none, it is due, or the CA certificates
/// have changed.
fn wanted(held: Option<&EnvoyCertificate>, roots: &str, now: SystemTime) -> bool {
    held.is_none_or(|held| held.roots != roots || held.due() <= now)
}

/// Renews the certificate until a signal; with `--once`, until there is a certificate.
///
/// # Errors
/// When files cannot be written. An unavailable controller is retried.
pub async fn envoy_identity(options: cli::EnvoyIdentity) -> Result<bool> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        done = keep(&options) => done,
        _ = terminate.recv() => Ok(!options.once),
        _ = interrupt.recv() => Ok(!options.once),
    }
}

async fn keep(options: &cli::EnvoyIdentity) -> Result<bool> {
    let dir = &options.dir;
    let mut held = EnvoyCertificate::of(dir);
    // The CA certificates that were last written for Envoy.
    let mut written = held.as_ref().map(|held| held.roots.clone());
    let mut said = String::new();
    let mut pause = PAUSES[0];
    loop {
        let failed = match std::fs::read_to_string(&options.roots) {
            Err(error) => Some(format!("{}: {error}", options.roots.display())),
            Ok(roots) => {
                if let Some(held) = &held
                    && written.as_ref() != Some(&roots)
                {
                    write(&held.files(&roots), dir)?;
                    written = Some(roots.clone());
                }
                if wanted(held.as_ref(), &roots, SystemTime::now()) {
                    match obtain(options, &roots)
                        .await
                        .and_then(|issued| EnvoyCertificate::new(issued, roots.clone()))
                    {
                        Ok(new) => {
                            write(&new.files(&roots), dir)?;
                            let until = Timestamp::try_from(new.ends).unwrap_or(Timestamp::MAX);
                            info!(%until, "certificate from {}", options.controller);
                            (written, held) = (Some(roots), Some(new));
                            sleep(if options.once {
                                Duration::ZERO
                            } else {
                                SOONEST
                            })
                            .await;
                            None
                        }
                        Err(error) => Some(format!("{error:#}")),
                    }
                } else {
                    None
                }
            }
        };
        let Some(why) = failed else {
            if options.once {
                return Ok(true);
            }
            (said, pause) = (String::new(), PAUSES[0]);
            sleep(LOOK).await;
            continue;
        };
        if why != said {
            warn!("no certificate yet: {why}");
            said = why;
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSES[1]);
    }
}

fn write(files: &[(&str, &str)], dir: &Path) -> Result<()> {
    publish(dir, files).with_context(|| format!("--dir {}", dir.display()))
}

/// Requests a certificate for a new key from the controller.
async fn obtain(options: &cli::EnvoyIdentity, roots: &str) -> Result<Issued> {
    let token = std::fs::read_to_string(&options.token)
        .with_context(|| options.token.display().to_string())?;
    let CertificateRequest { request, key } = CertificateRequest::new()?;
    let asked = ask(&options.controller, roots, token.trim(), request);
    let at = &options.controller;
    let answer = timeout(EXCHANGE, asked).await;
    let answer =
        answer.with_context(|| format!("{at} does not answer within {} s", EXCHANGE.as_secs()))?;
    let Answer { certificate, zone } = answer.with_context(|| format!("asking {at}"))?;
    Ok(Issued {
        pair: Pair { certificate, key },
        zone,
    })
}

/// The response of the controller.
struct Answer {
    certificate: String,
    /// The zone of the node; empty without one.
    zone: String,
}

async fn ask(at: &str, roots: &str, token: &str, request: String) -> Result<Answer> {
    let config = tls_client::trusting(roots)?;
    // The name in the server certificate does not depend on the controller's address.
    let name = ServerName::try_from(XDS_NAME)?;
    let tcp = TcpStream::connect(at).await.context("connecting")?;
    let io = TlsConnector::from(Arc::new(config))
        .connect(name, tcp)
        .await
        .context("TLS")?;
    let (mut client, connection) = hyper::client::conn::http1::handshake(TokioIo::new(io)).await?;
    let request = Request::post(PATH)
        .header(header::HOST, XDS_NAME)
        .header(header::AUTHORIZATION, format!("Bearer {token}"))
        .header(header::CONTENT_TYPE, "application/x-pem-file")
        .body(Full::new(Bytes::from(request)))
        // The error is dropped, since it would contain the token.
        .ok()
        .context("the token is no text of one line")?;
    let exchange = async {
        let answer = client.send_request(request).await?;
        let status = answer.status();
        let zone = answer.headers().get(ZONE_HEADER);
        let zone = zone.and_then(|zone| zone.to_str().ok()).unwrap_or_default();
        let zone = zone.to_owned();
        let Ok(body) = Limited::new(answer.into_body(), ANSWER).collect().await else {
            bail!("no whole answer")
        };
        let text = String::from_utf8_lossy(&body.to_bytes()).into_owned();
        ensure!(status == StatusCode::OK, "{status}: {}", text.trim());
        Ok(Answer {
            certificate: text,
            zone,
        })
    };
    tokio::pin!(exchange);
    tokio::select! {
        answer = &mut exchange => answer,
        // The connection ends after the response, or by an error.
        ended = connection => match ended {
            Ok(()) => exchange.await,
            Err(error) => Err(error.into()),
        },
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use gatewright_control::envoy_certificates::{
        Answers, Certified, CertifyEnvoys, Refusal, serve,
    };
    use gatewright_control::envoy_identity::{EnvoyPod, PodIdentity};
    use gatewright_core::model::{EnvoyFleet, Zone};
    use rustls::ServerConfig;
    use rustls_pki_types::pem::PemObject;
    use rustls_pki_types::{CertificateDer, PrivateKeyDer};
    use tokio::net::TcpListener;
    use tokio::sync::watch;
    use xds::Authority;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    /// A signer that accepts the token `good`.
    struct Signer {
        authority: Authority,
        tls: Arc<ServerConfig>,
    }

    impl Signer {
        fn new(server: &str) -> Self {
            let now = SystemTime::now();
            let authority = Authority::new("test", HOUR, now).expect("an authority");
            let shown = authority
                .issue_server(&[server.to_owned()], HOUR, now)
                .expect("issued");
            let chain = CertificateDer::from_pem_slice(shown.certificate.as_bytes())
                .expect("a certificate");
            let key = PrivateKeyDer::from_pem_slice(shown.key.as_bytes()).expect("a key");
            let tls = ServerConfig::builder_with_provider(Arc::new(
                rustls::crypto::ring::default_provider(),
            ))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![chain], key)
            .expect("a pair");
            Self {
                authority,
                tls: Arc::new(tls),
            }
        }
    }

    #[async_trait]
    impl CertifyEnvoys for Signer {
        fn tls(&self) -> Option<Arc<ServerConfig>> {
            Some(self.tls.clone())
        }

        async fn certify(&self, token: &str, request: &str) -> Result<Certified, Refusal> {
            if token != "good" {
                return Err(Refusal::Forbidden(
                    "the token is of somebody else".to_owned(),
                ));
            }
            let pod = EnvoyPod {
                namespace: "n".to_owned(),
                name: "envoy-a".to_owned(),
                uid: "u-1".to_owned(),
                node: "node-a".to_owned(),
            };
            let identity = PodIdentity {
                fleet: EnvoyFleet::Shared,
                pod,
            };
            let now = SystemTime::now();
            let signed = self
                .authority
                .sign_client(request, &identity.to_string(), HOUR, now);
            let certificate = signed.map_err(|error| Refusal::Invalid(error.to_string()))?;
            Ok(Certified {
                certificate,
                identity,
                zone: Some(Zone::parse("eu-1a").expect("a zone")),
                until: Timestamp::try_from(now + HOUR).expect("a time"),
            })
        }
    }

    /// The options of a pod with this directory, and the controller that it requests from.
    async fn pod(dir: &Path, signer: Signer) -> (cli::EnvoyIdentity, watch::Sender<bool>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let controller = listener.local_addr().expect("it has one").to_string();
        let (stopper, stop) = watch::channel(false);
        tokio::spawn(serve(listener, Arc::new(signer), Answers::default(), stop));
        let [token, roots, dir] = ["token", "ca.crt", "tls"].map(|name| dir.join(name));
        std::fs::write(&token, "good\n").expect("written");
        (
            cli::EnvoyIdentity {
                controller,
                token,
                roots,
                dir,
                once: true,
            },
            stopper,
        )
    }

    #[tokio::test]
    async fn a_certificate_is_got_from_whom_the_roots_vouch_for_and_lies_there_for_envoy() {
        let dir = tempfile::tempdir().expect("a directory");
        let signer = Signer::new(XDS_NAME);
        let roots = signer.authority.certificate().to_owned();
        let other = Signer::new(XDS_NAME);
        let (options, _stopper) = pod(dir.path(), signer).await;
        std::fs::write(&options.roots, &roots).expect("written");
        assert!(keep(&options).await.expect("it is got"));
        let held = EnvoyCertificate::of(&options.dir).expect("it is there");
        assert_eq!(held.roots, roots);
        assert_eq!(
            read(ZONE_FILE, &options.dir).as_deref(),
            Some("eu-1a"),
            "the zone lies beside it"
        );
        assert!(!wanted(Some(&held), &roots, SystemTime::now()));

        fn why(told: Result<Issued>) -> String {
            format!("{:#}", told.expect_err("there is none"))
        }
        let text = why(obtain(&options, other.authority.certificate()).await);
        assert!(text.contains("TLS") && !text.contains("good"), "{text}");
        assert!(why(obtain(&options, "").await).contains("no certificate in PEM"));
        std::fs::write(&options.token, "stolen").expect("written");
        let text = why(obtain(&options, &roots).await);
        assert!(
            text.contains("403 Forbidden: the token is of somebody else")
                && !text.contains("stolen"),
            "{text}"
        );
        std::fs::write(&options.token, "two\nlines").expect("written");
        let text = why(obtain(&options, &roots).await);
        assert!(
            text.contains("no text of one line") && !text.contains("two"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn a_server_by_another_name_gets_no_token() {
        let dir = tempfile::tempdir().expect("a directory");
        let signer = Signer::new("elsewhere.example.org");
        let roots = signer.authority.certificate().to_owned();
        let (options, _stopper) = pod(dir.path(), signer).await;
        let told = obtain(&options, &roots).await.expect_err("it is another");
        assert!(format!("{told:#}").contains("TLS"), "{told:#}");
    }

    fn held(now: SystemTime, life: Duration) -> EnvoyCertificate {
        let authority = Authority::new("test", 2 * life, now).expect("an authority");
        let pair = authority
            .issue_client("spiffe://test/pod", life, now)
            .expect("issued");
        let zone = String::new();
        EnvoyCertificate::new(Issued { pair, zone }, authority.certificate().to_owned())
            .expect("a certificate")
    }

    #[test]
    fn a_certificate_is_renewed_when_a_third_of_its_life_is_left_or_its_ca_is_another() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000);
        for life in [Duration::from_secs(15), 24 * HOUR] {
            let held = held(now, life);
            let roots = held.roots.clone();
            assert!(!wanted(
                Some(&held),
                &roots,
                now + life / 3 * 2 - Duration::from_secs(1)
            ));
            assert!(wanted(Some(&held), &roots, now + life / 3 * 2));
            assert!(wanted(Some(&held), "another", now));
            assert!(wanted(None, &roots, now));
        }
    }

    #[test]
    fn intact_state_of_an_earlier_run_is_used_and_broken_state_is_not() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(EnvoyCertificate::of(dir.path()).is_none());
        let left = held(SystemTime::now(), HOUR);
        publish(dir.path(), &left.files(&left.roots)).expect("written");
        let found = EnvoyCertificate::of(dir.path()).expect("it is there");
        assert_eq!(
            found.pair.certificate,
            left.pair.certificate.clone(),
            "the certificate is the earlier one"
        );
        assert_eq!(
            found.roots,
            left.roots.clone(),
            "the roots are the earlier ones"
        );
        assert_eq!(found.ends, left.ends, "the end is the earlier one");
        let other = held(SystemTime::now(), HOUR);
        let files = [
            ("tls.crt", &*left.pair.certificate),
            ("tls.key", &*other.pair.key),
            ("ca.crt", ""),
        ];
        publish(dir.path(), &files).expect("written");
        assert!(
            EnvoyCertificate::of(dir.path()).is_none(),
            "the key is of another"
        );
    }
}
