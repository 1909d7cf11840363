//! Looking before an order is spent: whoever knows DNS and the data plane says what is in the way.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};
use ring::rand::{SecureRandom, SystemRandom};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::challenge::ChallengeKind;
use crate::challenge::http::PREFIX;
use crate::client::Directory;
use crate::names::DnsName;

/// An answer to a challenge is at most this long (Let's Encrypt reads 128 bytes of body); the head comes on top.
const LARGEST_ANSWER: u64 = 16 << 10;

/// How much a finding weighs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strictness {
    /// A finding stops the order.
    Strict,
    /// A finding is told, and the order placed.
    #[default]
    Warn,
    /// Nobody looks.
    Skip,
}

/// What is asked about a name.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// The name.
    pub name: &'a DnsName,
    /// How it would be proven.
    pub kind: ChallengeKind,
    /// The CA's directory, with its names for CAA.
    pub directory: &'a Directory,
    /// Our account at the CA.
    pub account_url: &'a str,
    /// The thumbprint of the account's key.
    pub thumbprint: &'a str,
}

/// Looks. Each finding is a stable sentence that names the cause and the fix.
#[async_trait]
pub trait Preflight: Send + Sync {
    /// What is in the way; nothing when the name is ready.
    async fn findings(&self, question: &Question<'_>) -> Vec<String>;
}

/// A pre-flight and what it weighs.
#[derive(Clone)]
pub struct Gate {
    /// Who looks.
    pub preflight: Arc<dyn Preflight>,
    /// How much a finding weighs.
    pub strictness: Strictness,
}

/// Asks one server, as the CA would, for a challenge that nobody placed: a stateless responder answers it.
///
/// `address` is where port 80 of the name is served, our own Envoy: no name is looked up and no redirect followed.
pub async fn self_check(
    name: &DnsName,
    thumbprint: &str,
    address: SocketAddr,
    limit: Duration,
) -> Result<(), SelfCheckError> {
    let mut random = [0; 32];
    SystemRandom::new().fill(&mut random).expect("the operating system gives random bytes");
    let token = BASE64_URL_SAFE_NO_PAD.encode(random);
    let host = name.base().to_owned();
    let asked = tokio::time::timeout(limit, ask(address, &host, &format!("{PREFIX}{token}"))).await;
    let (status, location, body) = match asked {
        Err(_) => return Err(SelfCheckError::Silent { host, address, limit }),
        Ok(Err(error)) => return Err(SelfCheckError::Unreachable { host, address, why: error.to_string() }),
        Ok(Ok(answer)) => answer,
    };
    match (status, location) {
        (200, _) if body.trim_end() == format!("{token}.{thumbprint}") => Ok(()),
        (200, _) => Err(SelfCheckError::Wrong { host, address }),
        (300..400, Some(to)) => Err(SelfCheckError::Redirected { host, address, to: to.chars().take(200).collect() }),
        (status, _) => Err(SelfCheckError::Status { host, address, status }),
    }
}

async fn ask(address: SocketAddr, host: &str, path: &str) -> std::io::Result<(u16, Option<String>, String)> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: gatewright\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(LARGEST_ANSWER).read_to_end(&mut answer).await?;
    let text = String::from_utf8_lossy(&answer);
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(|| std::io::Error::other("no HTTP answer"))?;
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok());
    let status = status.ok_or_else(|| std::io::Error::other("no HTTP status"))?;
    let header = |name: &str| {
        head.lines()
            .filter_map(|l| l.split_once(':'))
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, v)| v.trim())
    };
    let chunked = header("transfer-encoding").is_some_and(|v| v.eq_ignore_ascii_case("chunked"));
    // One chunk is all such a short body comes in.
    let body = if chunked { body.split("\r\n").nth(1).unwrap_or_default() } else { body };
    Ok((status, header("location").map(str::to_owned), body.to_owned()))
}

/// Why a challenge would not be answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelfCheckError {
    /// No connection.
    #[error("{address} cannot be reached for {host}: {why}; is the listener on port 80 programmed?")]
    Unreachable {
        /// The name.
        host: String,
        /// Where.
        address: SocketAddr,
        /// Why.
        why: String,
    },
    /// No answer.
    #[error("{address} does not answer for {host} within {limit:?}")]
    Silent {
        /// The name.
        host: String,
        /// Where.
        address: SocketAddr,
        /// How long we waited.
        limit: Duration,
    },
    /// A redirect.
    #[error("{address} redirects the challenge of {host} to {to}; exempt /.well-known/acme-challenge/ from redirects")]
    Redirected {
        /// The name.
        host: String,
        /// Where.
        address: SocketAddr,
        /// Where to.
        to: String,
    },
    /// Another status.
    #[error(
        "{address} answers the challenge of {host} with status {status}; exempt /.well-known/acme-challenge/ from routes, authentication and limits"
    )]
    Status {
        /// The name.
        host: String,
        /// Where.
        address: SocketAddr,
        /// The status.
        status: u16,
    },
    /// Another body.
    #[error(
        "{address} answers the challenge of {host} with something else; another ACME client or route answers that path"
    )]
    Wrong {
        /// The name.
        host: String,
        /// Where.
        address: SocketAddr,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that answers one request with what `reply` makes of its path.
    async fn check(reply: impl Fn(&str) -> String + Send + 'static) -> Result<(), SelfCheckError> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let address = listener.local_addr().expect("bound");
        let serve = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("accepts");
            let mut asked = [0; 2048];
            let n = stream.read(&mut asked).await.expect("reads");
            let path = String::from_utf8_lossy(&asked[..n]).split(' ').nth(1).expect("a path").to_owned();
            stream.write_all(reply(&path).as_bytes()).await.expect("writes");
        });
        let name = DnsName::parse("a.example.com").expect("a name");
        let result = self_check(&name, "thumb", address, Duration::from_secs(10)).await;
        serve.await.expect("served");
        result
    }

    #[tokio::test]
    async fn the_answer_of_a_stateless_responder_is_taken_plain_or_chunked() {
        let body = |path: &str| crate::challenge::http::answer(path, "thumb").expect("a token");
        check(move |p| format!("HTTP/1.1 200 OK\r\n\r\n{}", body(p))).await.expect("plain");
        check(move |p| {
            let body = body(p);
            format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len())
        })
        .await
        .expect("chunked");
    }

    #[tokio::test]
    async fn each_wrong_answer_is_a_sentence_with_its_fix() {
        for (reply, word) in [
            ("HTTP/1.1 301 Moved\r\nLocation: https://a.example.com/x\r\n\r\n", "redirects"),
            ("HTTP/1.1 401 Unauthorized\r\n\r\n", "status 401"),
            ("HTTP/1.1 200 OK\r\n\r\nwelcome", "another ACME client"),
            ("nonsense", "cannot be reached"),
        ] {
            let error = check(move |_| reply.to_owned()).await.expect_err(word).to_string();
            assert!(error.contains(word) && error.contains("a.example.com"), "{error}");
        }
    }
}
