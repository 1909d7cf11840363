//! A real moto server: an independent implementation of AWS's Route 53 and STS.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

use crate::port::free_port;
use crate::process::Process;

const START_LIMIT: Duration = Duration::from_secs(180);

/// A running moto; killed on drop, its log shown when the test panics.
#[derive(Debug)]
pub struct Moto {
    _process: Process,
    address: SocketAddr,
}

impl Moto {
    /// Starts moto on a free port of 127.0.0.1 and waits until it answers.
    pub async fn start() -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("moto")
            .tempdir()
            .context("making a directory for moto")?;
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        let arguments = ["-H", "127.0.0.1", "-p", &address.port().to_string()].map(str::to_owned);
        let mut process = Process::start(&binary()?, &arguments, dir)?;
        process.accepts("moto", address, START_LIMIT).await?;
        Ok(Self {
            _process: process,
            address,
        })
    }

    /// Returns its URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Makes a hosted zone and returns its identifier.
    pub async fn zone(&self, name: &str, private: bool) -> Result<String> {
        let vpc = if private {
            "<VPC><VPCRegion>us-east-1</VPCRegion><VPCId>vpc-1</VPCId></VPC>"
        } else {
            ""
        };
        let body = format!(
            "<CreateHostedZoneRequest xmlns=\"https://route53.amazonaws.com/doc/2013-04-01/\"><Name>{name}.</Name>{vpc}\
             <CallerReference>{name}{private}</CallerReference><HostedZoneConfig><PrivateZone>{private}</PrivateZone>\
             </HostedZoneConfig></CreateHostedZoneRequest>"
        );
        let answer = self.call("POST", "/2013-04-01/hostedzone", &body).await?;
        between(&answer, "<Id>/hostedzone/", "</Id>")
    }

    /// Sends the inner `Changes` of a change batch and expects success.
    pub async fn change(&self, zone: &str, changes: &str) -> Result<()> {
        let body = format!(
            "<ChangeResourceRecordSetsRequest xmlns=\"https://route53.amazonaws.com/doc/2013-04-01/\"><ChangeBatch>\
             <Changes>{changes}</Changes></ChangeBatch></ChangeResourceRecordSetsRequest>"
        );
        self.call(
            "POST",
            &format!("/2013-04-01/hostedzone/{zone}/rrset"),
            &body,
        )
        .await
        .map(|_| ())
    }

    /// Returns all records of a zone, as XML.
    pub async fn records(&self, zone: &str) -> Result<String> {
        self.call(
            "GET",
            &format!("/2013-04-01/hostedzone/{zone}/rrset?maxitems=300"),
            "",
        )
        .await
    }

    async fn call(&self, method: &str, path: &str, body: &str) -> Result<String> {
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.url()))
            // moto identifies the service by the scope of the signature, which it does not verify.
            .header(
                "authorization",
                "AWS4-HMAC-SHA256 Credential=test/20200101/us-east-1/route53/aws4_request",
            )
            .body(Full::new(Bytes::from(body.to_owned())))?;
        let client = Client::builder(TokioExecutor::new()).build_http();
        let answer = client.request(request).await.context("asking moto")?;
        let status = answer.status();
        let text = String::from_utf8(answer.into_body().collect().await?.to_bytes().to_vec())?;
        ensure!(status.is_success(), "moto answers {status}: {text}");
        Ok(text)
    }
}

fn between(text: &str, from: &str, to: &str) -> Result<String> {
    let rest = text
        .split_once(from)
        .with_context(|| format!("no {from} in {text}"))?
        .1;
    Ok(rest
        .split_once(to)
        .with_context(|| format!("no {to} in {text}"))?
        .0
        .to_owned())
}

/// Returns `GATEWRIGHT_MOTO`, or the program that `e2e/tools` installed.
fn binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("GATEWRIGHT_MOTO") {
        return Ok(path.into());
    }
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/venv/bin/moto_server");
    tools.canonicalize().context(
        "moto is missing: run e2e/tools install, or set GATEWRIGHT_MOTO to its moto_server",
    )
}
