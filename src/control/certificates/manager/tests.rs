use super::*;
use acme::storage::dir::Directory;

fn want(host: &str, issuer: &str) -> CertificateRequest {
    CertificateRequest {
        secret: ObjectName::new("alice", format!("{host}-tls").replace('*', "wildcard")),
        hostnames: BTreeSet::from([Hostname::parse(host).expect("a hostname")]),
        issuer: IssuerRef::Named(Arc::from(issuer)),
    }
}

async fn manager(dir: &std::path::Path) -> CertificateManager {
    let authority = Authority::open(dir.join("ca"), Timestamp::now()).expect("opens");
    let storage = Arc::new(Directory::open(dir.join("acme")).expect("opens"));
    let (authority, issuers) = (Arc::new(authority), BTreeMap::new());
    let config = CertificateManagerConfig {
        storage,
        authority,
        issuers,
        at_once: 4,
        places: None,
        secret_targets: None,
    };
    CertificateManager::open(config).await.expect("opens")
}

/// Runs the manager until every wanted certificate is settled. Returns the updates; a certificate
/// of `None` was taken back.
async fn until_settled(
    manager: &CertificateManager,
    wants: Vec<CertificateRequest>,
) -> Vec<CertificateUpdate> {
    manager.want(wants);
    let (out, mut certificate_updates) = mpsc::channel(64);
    let (stopper, stop) = watch::channel(false);
    let mut all = Vec::new();
    let take = async {
        while !manager.is_settled() || all.is_empty() {
            all.extend(
                certificate_updates
                    .recv()
                    .await
                    .expect("the certificate manager goes on"),
            );
        }
        stopper.send_replace(true);
    };
    tokio::join!(manager.run(out, stop), take);
    all
}

#[tokio::test]
async fn certificates_are_handed_out_once_survive_a_restart_and_are_taken_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let first = manager(dir.path()).await;
    let wants = vec![
        want("a.example.org", INTERNAL_CA),
        want("*.b.example.org", INTERNAL_CA),
    ];
    let all = until_settled(&first, wants.clone()).await;
    let issued = all
        .iter()
        .filter(|h| matches!(h, CertificateUpdate::Certificate(_, Some(_))))
        .count();
    assert_eq!(issued, 2, "{all:?}");
    assert_eq!(first.take_updates().len(), 0, "{all:?}");
    drop(first);

    let again = manager(dir.path()).await;
    again.want(wants.clone());
    assert_eq!(
        again.take_updates().len(),
        2,
        "what is there is handed out before anything runs"
    );
    again.want(wants[..1].to_vec());
    let back = again.take_updates();
    assert!(
        matches!(&back[..], [CertificateUpdate::Certificate(secret, None)] if *secret == wants[1].secret),
        "{back:?}"
    );
}

#[tokio::test]
async fn an_unobtainable_certificate_is_reported_and_affects_no_others() {
    let dir = tempfile::tempdir().expect("a directory");
    let manager = manager(dir.path()).await;
    let wants = vec![
        want("a.example.org", INTERNAL_CA),
        want("b.example.org", "nobody"),
        want("co.uk", INTERNAL_CA),
    ];
    let all = until_settled(&manager, wants).await;
    let issued = all
        .iter()
        .filter(|h| matches!(h, CertificateUpdate::Certificate(_, Some(_))))
        .count();
    assert_eq!(issued, 1, "{all:?}");
    let told = manager.tell();
    let error = |host: &str| {
        let row = told
            .certificates
            .iter()
            .find(|row| row.hosts == [host])
            .expect("each wanted certificate has a row");
        row.last_error.clone().unwrap_or_default()
    };
    assert_eq!(error("a.example.org"), "");
    assert!(
        error("b.example.org").contains("there are internal-ca"),
        "{}",
        error("b.example.org")
    );
    assert!(
        error("co.uk").contains("public suffix"),
        "{}",
        error("co.uk")
    );
    let error = manager
        .renew("x.example.net")
        .expect_err("no listener wants it");
    assert!(
        error.contains("no listener wants a certificate for x.example.net from an issuer"),
        "{error}"
    );
    assert!(
        error.contains("`gatewright explain https://x.example.net:PORT/` shows it"),
        "{error}"
    );
}
