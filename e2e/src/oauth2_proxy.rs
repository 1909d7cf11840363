//! oauth2-proxy as an authorization server, with the options of `docs/access.md`.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::oidc::{CLIENT_ID, CLIENT_SECRET, ISSUER_HOST, Provider};
use crate::port::free_port;
use crate::process::Process;

const START_LIMIT: Duration = Duration::from_secs(30);
/// The key of its cookies: 32 bytes.
const COOKIE_SECRET: &str = "open-sesame-open-sesame-open-ses";

/// A running oauth2-proxy; killed on drop.
#[derive(Debug)]
pub struct Oauth2Proxy {
    process: Process,
    address: SocketAddr,
}

impl Oauth2Proxy {
    /// Starts it for a provider, which it finds at its address: no name server knows its host.
    ///
    /// # Errors
    /// When it is not installed, or does not start.
    pub async fn start(provider: &Provider) -> Result<Self> {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/oauth2-proxy");
        ensure!(
            program.exists(),
            "no oauth2-proxy at {}; run: e2e/tools install oauth2-proxy",
            program.display()
        );
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        let dir = tempfile::Builder::new().prefix("oauth2").tempdir()?;
        let at = provider.address();
        let args = [
            // As docs/access.md has them.
            "--reverse-proxy=true".to_owned(),
            "--upstream=static://200".to_owned(),
            "--skip-provider-button=true".to_owned(),
            "--set-xauthrequest=true".to_owned(),
            "--email-domain=*".to_owned(),
            "--provider=oidc".to_owned(),
            format!("--http-address={address}"),
            format!("--oidc-issuer-url=https://{ISSUER_HOST}"),
            format!("--client-id={CLIENT_ID}"),
            format!("--client-secret={CLIENT_SECRET}"),
            format!("--cookie-secret={COOKIE_SECRET}"),
            // What a discovery would find, with the address in place of the host.
            "--skip-oidc-discovery=true".to_owned(),
            format!("--login-url=https://{ISSUER_HOST}/auth"),
            format!("--redeem-url=https://{at}/oauth/token"),
            format!("--oidc-jwks-url=https://{at}/keys"),
            "--ssl-insecure-skip-verify=true".to_owned(),
            "--oidc-email-claim=sub".to_owned(),
            "--scope=openid profile".to_owned(),
        ];
        let mut process = Process::start(&program, &args, dir)?;
        process
            .accepts("oauth2-proxy", address, START_LIMIT)
            .await?;
        Ok(Self { process, address })
    }

    /// The address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its output so far.
    pub fn log(&self) -> String {
        self.process.log()
    }
}
