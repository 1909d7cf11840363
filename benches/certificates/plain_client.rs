//! The least that an ACME client can do: nothing is persisted, nothing is checked, and no wait is
//! longer than a poll. Its rate is the ceiling of a client that does more.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use instant_acme::{
    Account, ChallengeType, Identifier, KeyAuthorization, NewAccount, NewOrder, OrderStatus,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

const POLL: Duration = Duration::from_millis(10);

/// Registers an account at a CA whose server has a certificate of `ca_pem`.
pub(crate) async fn account(directory: String, ca_pem: &str) -> Result<Account> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca_pem.as_bytes())?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut tcp = HttpConnector::new();
    tcp.set_nodelay(true);
    tcp.enforce_http(false);
    let builder = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_only();
    let client = Client::builder(TokioExecutor::new())
        .build(builder.enable_http1().enable_http2().wrap_connector(tcp));
    let new = NewAccount {
        contact: &[],
        terms_of_service_agreed: true,
        only_return_existing: false,
    };
    let builder = Account::builder_with_http(Box::new(client));
    Ok(builder.create(&new, directory, None).await?.0)
}

/// Orders a certificate for each name, with this number of orders at a time. `answer` makes the
/// answer to a challenge of HTTP-01 known before the CA asks for it.
pub(crate) async fn issue(
    account: &Account,
    names: Vec<String>,
    workers: usize,
    answer: impl Fn(&KeyAuthorization) + Clone + Send + Sync + 'static,
) -> Result<()> {
    let (next, names) = (Arc::new(AtomicUsize::new(0)), Arc::new(names));
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..workers {
        let (account, next) = (account.clone(), next.clone());
        let (names, answer) = (names.clone(), answer.clone());
        running.spawn(async move {
            while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                one(&account, name, &answer).await?;
            }
            Ok::<_, anyhow::Error>(())
        });
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    Ok(())
}

async fn one(account: &Account, name: &str, answer: &impl Fn(&KeyAuthorization)) -> Result<()> {
    let mut order = account
        .new_order(&NewOrder::new(&[Identifier::Dns(name.to_owned())]))
        .await?;
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        let challenge = authorization.challenge(ChallengeType::Http01);
        let mut challenge = challenge.context("HTTP-01 is offered")?;
        answer(&challenge.key_authorization());
        challenge.set_ready().await?;
    }
    while order.refresh().await?.status == OrderStatus::Pending {
        tokio::time::sleep(POLL).await;
    }
    let key = rcgen::KeyPair::generate()?;
    let csr = rcgen::CertificateParams::new(vec![name.to_owned()])?.serialize_request(&key)?;
    order.finalize_csr(csr.der()).await?;
    while order.state().status != OrderStatus::Valid {
        ensure!(
            order.state().status != OrderStatus::Invalid,
            "{name} is invalid"
        );
        order.refresh().await?;
        if order.state().status != OrderStatus::Valid {
            tokio::time::sleep(POLL).await;
        }
    }
    order.certificate().await?.context("it is issued").map(drop)
}
