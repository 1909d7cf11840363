//! Secrets that Envoy requests at the handshake.

use super::client::*;
use e2e_inside::resources::*;

use std::time::Duration;

use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3 as hcm;
use xds::{Kind, Update, View};

pub(crate) fn inline() -> hcm::http_connection_manager::RouteSpecifier {
    hcm::http_connection_manager::RouteSpecifier::RouteConfig(routes(
        "inline",
        vec![respond(prefix(), 200)],
    ))
}

/// Returns the serial of the certificate for `host`, or the error.
pub(crate) async fn handshake(
    port: u16,
    root: &str,
    host: &str,
) -> Result<Vec<u8>, std::io::Error> {
    use rustls_pki_types::pem::PemObject;
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(rustls_pki_types::CertificateDer::from_pem_slice(root.as_bytes()).expect("PEM"))
        .expect("a root");
    let config = rustls::ClientConfig::builder_with_provider(std::sync::Arc::new(
        rustls::crypto::ring::default_provider(),
    ))
    .with_safe_default_protocol_versions()
    .expect("versions")
    .with_root_certificates(roots)
    .with_no_client_auth();
    let name = rustls_pki_types::ServerName::try_from(host.to_owned()).expect("a name");
    let tcp = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
    let handshake =
        tokio_rustls::TlsConnector::from(std::sync::Arc::new(config)).connect(name, tcp);
    // Envoy suspends a handshake as long as its secret is unanswered.
    let tls = tokio::time::timeout(PATIENCE, handshake)
        .await
        .expect("the name is answered")?;
    Ok(tls.get_ref().1.peer_certificates().expect("shown")[0].to_vec())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn secrets_are_fetched_at_the_handshake_by_their_own_view_only() {
    let now = std::time::SystemTime::now();
    let hour = Duration::from_secs(3600);
    let authority = xds::Authority::new("test", hour, now).expect("an authority");
    let host = |name: &str| {
        let pair = authority
            .issue_server(&[name.to_owned()], hour, now)
            .expect("issued");
        secret(name, &pair.certificate, &pair.key)
    };
    let mut fleet = Served::default();
    let port = free_port();
    let _envoy = Envoy::of(&fleet, "one");
    // Another tenant's view has a host that this one does not.
    fleet.cache.publish(
        &View::new("other"),
        Update {
            upserts: vec![host("theirs.test")],
            removals: vec![],
        },
    );
    let mut hosts: Vec<_> = (0..300).map(|i| host(&format!("h{i}.test"))).collect();
    hosts.push(on_demand_listener("front", port, inline()));
    let generation = fleet.publish(hosts, vec![]);
    fleet.live(generation, 1).await;
    let sent = |fleet: &Served| fleet.cache.counts().of(Kind::Secret).sent;
    assert_eq!(sent(&fleet), 0, "nobody asked yet");

    let mut first = Vec::new();
    for i in 0..200 {
        first.push(
            handshake(port, authority.certificate(), &format!("h{i}.test"))
                .await
                .expect("served"),
        );
    }
    assert_eq!(sent(&fleet), 200, "one fetch for each host in use");
    assert!(
        handshake(port, authority.certificate(), "theirs.test")
            .await
            .is_err(),
        "another view's host"
    );
    assert!(
        handshake(port, authority.certificate(), "unknown.test")
            .await
            .is_err()
    );
    assert!(
        handshake(port, authority.certificate(), "H250.test")
            .await
            .is_err(),
        "an odd spelling would be kept beside the canonical one"
    );

    // A name that was refused works once it is published.
    let generation = fleet.publish(vec![host("unknown.test")], vec![]);
    fleet.live(generation, 1).await;
    handshake(port, authority.certificate(), "unknown.test")
        .await
        .expect("served");

    // A rotation reaches the host in use only.
    let before = sent(&fleet);
    let generation = fleet.publish(vec![host("h7.test"), host("h299.test")], vec![]);
    fleet.live(generation, 1).await;
    assert_eq!(sent(&fleet), before + 1);
    assert_ne!(
        handshake(port, authority.certificate(), "h7.test")
            .await
            .expect("served"),
        first[7]
    );

    // After a reconnect with 201 secrets in use, none is resent.
    let before = sent(&fleet);
    fleet.stop().await;
    fleet.serve();
    fleet.live(generation, 1).await;
    handshake(port, authority.certificate(), "h280.test")
        .await
        .expect("a new host is served after the reconnect");
    assert_eq!(sent(&fleet), before + 1, "only the new host");

    // A removed host is refused from then on.
    let generation = fleet.publish(vec![], vec![(Kind::Secret, "h9.test".into())]);
    fleet.live(generation, 1).await;
    assert!(
        handshake(port, authority.certificate(), "h9.test")
            .await
            .is_err()
    );
    fleet.stop().await;
}
