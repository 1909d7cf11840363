//! Issues certificates to Envoy pods: the API server reviews the pod's token, and the authority of
//! xDS signs. Every replica does so; nothing is written.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use gatewright_control::envoy_certificates::{AUDIENCE, Certified, CertifyEnvoys, Refusal};
use gatewright_control::envoy_identity::PodIdentity;
use gatewright_control::server_tls::server_tls;
use gatewright_core::model::Zone;
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, PostParams};
use rustls::ServerConfig;
use tokio::sync::watch;
use tracing::warn;
use xds::{Pair, TlsError};

use super::pod::pods;
use super::pod_review::{claim, confirm};
use super::{CaRotation, EnvoyAccounts};

/// The label of a node with its zone.
const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// The authority that signs now, and the TLS configuration of the port.
#[derive(Clone)]
pub struct Signing {
    trust: CaRotation,
    tls: Arc<ServerConfig>,
}

impl Signing {
    /// Creates the state from an authority and the server certificate of the port.
    ///
    /// # Errors
    /// When the server certificate cannot be used.
    pub fn new(trust: CaRotation, shown: &Pair) -> Result<Self, TlsError> {
        let tls = server_tls(
            shown.certificate.as_bytes(),
            shown.key.as_bytes(),
            &[&rustls::version::TLS13],
        )
        .map_err(|error| TlsError::Configure(error.to_string()))?;
        Ok(Self { trust, tls })
    }
}

/// Signs certificates for pods.
pub struct PodCertificates {
    /// The client by which tokens are reviewed.
    pub client: Client,
    /// The namespace of the pods.
    pub namespace: String,
    /// The service accounts whose pods are Envoys.
    pub accounts: EnvoyAccounts,
    /// The lifetime of a certificate.
    pub life: Duration,
    /// The authority that signs; `None` while it is not known.
    pub signing: watch::Receiver<Option<Signing>>,
}

impl PodCertificates {
    async fn who(&self, token: &str) -> Result<PodIdentity, Refusal> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: token.to_owned(),
                audiences: Some(vec![AUDIENCE.to_owned()]),
            },
            ..TokenReview::default()
        };
        let reviews: Api<TokenReview> = Api::all(self.client.clone());
        let status = reviews
            .create(&PostParams::default(), &review)
            .await
            .map_err(away)?
            .status
            .unwrap_or_default();
        let claim = claim(status, &self.namespace, &self.accounts)?;
        let pod = pods(self.client.clone(), &self.namespace)
            .get_opt(&claim.name)
            .await
            .map_err(away)?;
        confirm(claim, pod, &self.namespace)
    }

    /// The zone of a node. An Envoy without it uses endpoints of all zones, so that a failure is no
    /// reason to refuse a certificate.
    async fn zone(&self, node: &str) -> Option<Zone> {
        let nodes: Api<DynamicObject> =
            Api::all_with(self.client.clone(), &ApiResource::erase::<Node>(&()));
        // A list, since the controller may list nodes and get none by name.
        let named = ListParams::default().fields(&format!("metadata.name={node}"));
        let found = match nodes.list_metadata(&named).await {
            Ok(found) => found,
            Err(error) => {
                warn!(node, "the zone of an Envoy is not known: {error}");
                return None;
            }
        };
        let labels = found.items.into_iter().next()?.metadata.labels?;
        Zone::parse(labels.get(ZONE_LABEL)?).ok()
    }
}

fn away(error: kube::Error) -> Refusal {
    Refusal::Unavailable(format!("the API server cannot be asked: {error}"))
}

#[async_trait]
impl CertifyEnvoys for PodCertificates {
    fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.signing
            .borrow()
            .as_ref()
            .map(|signing| signing.tls.clone())
    }

    async fn certify(&self, token: &str, request: &str) -> Result<Certified, Refusal> {
        let identity = self.who(token).await?;
        // The state is read after the review, since the pod may have been revoked meanwhile.
        let signing = self.signing.borrow().clone();
        let trust = signing
            .ok_or_else(|| Refusal::Unavailable("there is no xDS CA yet".to_owned()))?
            .trust;
        if trust.revoked().has_pod(&identity) {
            let namespace = &identity.pod.namespace;
            let name = &identity.pod.name;
            let how = format!(
                "delete it to have another in its place (kubectl -n {namespace} delete pod {name})"
            );
            return Err(Refusal::Forbidden(format!(
                "pod {namespace}/{name} is revoked: {how}"
            )));
        }
        let now = SystemTime::now();
        let life = self.life.min(trust.left(now));
        let signed = trust
            .signer()
            .sign_client(request, &identity.to_string(), life, now);
        let certificate = signed.map_err(|error| Refusal::Invalid(error.to_string()))?;
        let zone = self.zone(&identity.pod.node).await;
        let until = Timestamp::try_from(now + life).unwrap_or(Timestamp::MAX);
        Ok(Certified {
            certificate,
            identity,
            zone,
            until,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use gatewright_control::envoy_access::EnvoyAccess;
    use gatewright_control::envoy_identity::EnvoyPod;
    use gatewright_core::model::EnvoyFleet;
    use hyper::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};
    use xds::CertificateRequest;

    use super::super::ca_rotation;
    use super::*;

    const HERE: &str = "gatewright-system";

    /// An API server that accepts the token `good` of pod `envoy-a`; the pod exists if `there`.
    fn server(there: Arc<AtomicBool>) -> Client {
        let service = tower::service_fn(move |request: Request<Body>| {
            let there = there.load(Ordering::SeqCst);
            async move {
                let is_review = request.uri().path().ends_with("tokenreviews");
                let is_of_nodes = request.uri().path().ends_with("/nodes");
                let sent = request.into_body().collect_bytes().await.expect("a body");
                let sent: Value = serde_json::from_slice(&sent).unwrap_or_default();
                let (code, body) = if is_review {
                    assert_eq!(sent["spec"]["audiences"], json!([AUDIENCE]));
                    let user = json!({"username": format!("system:serviceaccount:{HERE}:gatewright-envoy"),
                        "extra": {"authentication.kubernetes.io/pod-name": ["envoy-a"],
                            "authentication.kubernetes.io/pod-uid": ["u-1"]}});
                    let is_good = sent["spec"]["token"] == "good";
                    let status =
                        json!({"authenticated": is_good, "user": user, "audiences": [AUDIENCE]});
                    (201, json!({"spec": {"token": ""}, "status": status}))
                } else if is_of_nodes {
                    let labels = json!({ZONE_LABEL: "eu-1a"});
                    let node = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
                        "metadata": {"name": "node-a", "labels": labels}});
                    (
                        200,
                        json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
                            "metadata": {}, "items": [node]}),
                    )
                } else if there {
                    let spec = json!({"serviceAccountName": "gatewright-envoy", "nodeName": "node-a", "containers": []});
                    (
                        200,
                        json!({"metadata": {"name": "envoy-a", "namespace": HERE, "uid": "u-1"}, "spec": spec}),
                    )
                } else {
                    (
                        404,
                        json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404, "message": ""}),
                    )
                };
                let body = Body::from(body.to_string().into_bytes());
                Ok::<_, std::convert::Infallible>(
                    Response::builder()
                        .status(code)
                        .body(body)
                        .expect("an answer"),
                )
            }
        });
        Client::new(service, "default")
    }

    fn trust() -> CaRotation {
        let decided = ca_rotation::decide(
            None,
            None,
            &[],
            SystemTime::now(),
            Duration::from_secs(3600),
        );
        decided.expect("an authority").trust
    }

    fn signing(trust: &CaRotation) -> Option<Signing> {
        let hour = Duration::from_secs(3600);
        let shown = trust
            .signer()
            .issue_server(&["xds".to_owned()], hour, SystemTime::now())
            .expect("issued");
        Some(Signing::new(trust.clone(), &shown).expect("TLS"))
    }

    #[tokio::test]
    async fn a_pod_gets_a_certificate_until_it_is_gone_or_revoked() {
        let there = Arc::new(AtomicBool::new(true));
        let (sender, receiver) = watch::channel(None);
        let life = Duration::from_secs(600);
        let accounts = EnvoyAccounts {
            fleets: vec![EnvoyFleet::Shared],
            access: EnvoyAccess::default(),
        };
        let client = server(there.clone());
        let by = PodCertificates {
            client,
            namespace: HERE.to_owned(),
            accounts,
            life,
            signing: receiver,
        };
        let asked = CertificateRequest::new().expect("a key").request;
        assert!(by.tls().is_none());
        assert!(
            matches!(
                by.certify("good", &asked).await,
                Err(Refusal::Unavailable(_))
            ),
            "there is no authority"
        );

        let trust = trust();
        sender.send_replace(signing(&trust));
        let made = by.certify("good", &asked).await.expect("it is that pod");
        assert_eq!(made.identity.pod.node, "node-a");
        let zone = made.zone.as_ref().map(Zone::as_str);
        assert_eq!(zone, Some("eu-1a"), "the zone is that of the node");
        assert!(
            trust
                .signer()
                .issued_client(&made.certificate, SystemTime::now())
        );
        let later = SystemTime::now() + life + Duration::from_secs(2);
        assert!(!trust.signer().issued_client(&made.certificate, later));
        assert!(made.until <= Timestamp::try_from(SystemTime::now() + life).expect("a time"));
        assert!(matches!(
            by.certify("forged", &asked).await,
            Err(Refusal::Unauthenticated(_))
        ));
        assert!(matches!(
            by.certify("good", "no request").await,
            Err(Refusal::Invalid(_))
        ));

        let mut revoked = trust.revoked().clone();
        revoked
            .add_pod(&made.identity, Timestamp::now())
            .expect("room");
        sender.send_replace(signing(&trust.refusing(revoked)));
        let told = by.certify("good", &asked).await;
        assert!(
            matches!(&told, Err(Refusal::Forbidden(why)) if why.contains("is revoked: delete it")),
            "{told:?}"
        );
        let other = PodIdentity {
            pod: EnvoyPod {
                uid: "u-2".to_owned(),
                ..made.identity.pod
            },
            ..made.identity
        };
        let mut revoked = trust.revoked().clone();
        revoked.add_pod(&other, Timestamp::now()).expect("room");
        sender.send_replace(signing(&trust.refusing(revoked)));
        assert!(
            by.certify("good", &asked).await.is_ok(),
            "the one before had its name"
        );

        there.store(false, Ordering::SeqCst);
        let told = by.certify("good", &asked).await;
        assert!(
            matches!(&told, Err(Refusal::Forbidden(why)) if why.contains("it is gone")),
            "{told:?}"
        );
    }
}
