//! The self-check: requests a challenge from our own server, as the CA would.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};
use bytes::Bytes;
use futures::future::join_all;
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use ring::rand::{SecureRandom, SystemRandom};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::challenge::http::PREFIX;
use crate::names::DnsName;

/// Largest response that is read, head and body each (Let's Encrypt reads 128 bytes of body).
const MAX_RESPONSE_BYTES: usize = 16 << 10;
/// Most names that are checked at the same time.
const MAX_CONCURRENT: usize = 32;
/// Time for which a connection is reused. The CA uses a new one: a check over an older one proves
/// less and less about it.
const MAX_CONNECTION_AGE: Duration = Duration::from_secs(2);

type Driver = http1::Connection<TokioIo<TcpStream>, Empty<Bytes>>;

/// The self-check. It requests challenges with random tokens, which a stateless responder answers.
/// Resolves no names and follows no redirects.
///
/// An address may have several servers behind it, one of which is dead. Therefore a name is checked
/// over several connections at the same time, which are reused for the next name only while all of
/// them answer.
#[derive(Debug)]
pub struct SelfCheck {
    limit: Duration,
    permits: Semaphore,
    kept: Mutex<HashMap<SocketAddr, Vec<Connection>>>,
}

impl SelfCheck {
    /// Makes a self-check with a time limit for each answer.
    pub fn new(limit: Duration) -> Self {
        Self {
            limit,
            permits: Semaphore::new(MAX_CONCURRENT),
            kept: Mutex::default(),
        }
    }

    /// Requests a challenge of a name from the server at an address, over `connections`
    /// connections, each of which must return the thumbprint. The first request goes alone: a
    /// server that does not know the name yet gets one request only.
    pub async fn check(
        &self,
        name: &DnsName,
        thumbprint: &str,
        address: SocketAddr,
        connections: usize,
    ) -> Result<(), SelfCheckError> {
        let _permit = self.permits.acquire().await.expect("nobody closes it");
        let probe = Probe {
            host: name.base(),
            thumbprint,
            address,
            limit: self.limit,
        };
        let mut kept = self.take(address, connections).into_iter();
        let (first, answered) = probe.send(kept.next()).await;
        if let Err(error) = answered {
            if error.is_server_failure() {
                self.forget(address)
            } else {
                self.keep(address, first.into_iter().chain(kept))
            }
            return Err(error);
        }
        let others = join_all((1..connections).map(|_| probe.send(kept.next()))).await;
        let (others, answered): (Vec<_>, Vec<_>) = others.into_iter().unzip();
        match answered.into_iter().find_map(Result::err) {
            Some(error) => {
                self.forget(address);
                Err(error)
            }
            None => {
                self.keep(
                    address,
                    others.into_iter().chain([first]).flatten().chain(kept),
                );
                Ok(())
            }
        }
    }

    fn take(&self, address: SocketAddr, most: usize) -> Vec<Connection> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(there) = kept.get_mut(&address) else {
            return Vec::new();
        };
        there.retain(Connection::is_reusable);
        let rest = there.len().saturating_sub(most);
        there.split_off(rest)
    }

    fn keep(&self, address: SocketAddr, connections: impl Iterator<Item = Connection>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.entry(address)
            .or_default()
            .extend(connections.filter(Connection::is_reusable));
        kept.retain(|_, there| {
            there.retain(Connection::is_reusable);
            !there.is_empty()
        });
    }

    /// Closes the reusable connections: those that lead to a working server would hide the dead
    /// one.
    fn forget(&self, address: SocketAddr) {
        self.kept
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&address);
    }
}

/// The request of a self-check, and the server that it is sent to.
struct Probe<'a> {
    host: &'a str,
    thumbprint: &'a str,
    address: SocketAddr,
    limit: Duration,
}

impl Probe<'_> {
    /// Sends the request over a kept connection, else over a new one; returns the connection if it
    /// can be reused. That the server closed a kept connection meanwhile is no failure of the
    /// check.
    async fn send(
        &self,
        kept: Option<Connection>,
    ) -> (Option<Connection>, Result<(), SelfCheckError>) {
        let mut random = [0; 32];
        SystemRandom::new()
            .fill(&mut random)
            .expect("the operating system gives random bytes");
        let token = BASE64_URL_SAFE_NO_PAD.encode(random);
        let host = self.host.to_owned();
        let address = self.address;
        let exchange = async {
            if let Some(mut kept) = kept
                && let Ok(answer) = kept.exchange(&host, &token).await
            {
                return Ok((kept, answer));
            }
            let mut new = Connection::open(address).await?;
            new.exchange(&host, &token)
                .await
                .map(|answer| (new, answer))
        };
        let (connection, answer) = match timeout(self.limit, exchange).await {
            Err(_) => {
                return (
                    None,
                    Err(SelfCheckError::Silent {
                        host,
                        address,
                        limit: self.limit,
                    }),
                );
            }
            Ok(Err(why)) => {
                return (
                    None,
                    Err(SelfCheckError::Unreachable { host, address, why }),
                );
            }
            Ok(Ok(done)) => done,
        };
        let expected = format!("{token}.{}", self.thumbprint);
        let answered = match (answer.status.as_u16(), answer.location) {
            (200, _) if answer.body.trim_ascii_end() == expected.as_bytes() => Ok(()),
            (200, _) => Err(SelfCheckError::Wrong { host, address }),
            (300..400, Some(to)) => {
                // The token differs in each request.
                let to = to.replace(&token, "…").chars().take(200).collect();
                Err(SelfCheckError::Redirected { host, address, to })
            }
            (status, _) => Err(SelfCheckError::Status {
                host,
                address,
                status,
            }),
        };
        (Some(connection), answered)
    }
}

/// A server's answer.
struct Answer {
    status: StatusCode,
    location: Option<String>,
    body: Bytes,
}

/// A connection, which is driven only during an exchange.
struct Connection {
    sender: http1::SendRequest<Empty<Bytes>>,
    /// None once the connection has ended.
    driver: Option<Pin<Box<Driver>>>,
    opened: Instant,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("opened", &self.opened)
            .finish_non_exhaustive()
    }
}

impl Connection {
    async fn open(address: SocketAddr) -> Result<Self, String> {
        let stream = TcpStream::connect(address)
            .await
            .map_err(|error| error.to_string())?;
        stream
            .set_nodelay(true)
            .map_err(|error| error.to_string())?;
        let mut builder = http1::Builder::new();
        builder.max_buf_size(MAX_RESPONSE_BYTES);
        let (sender, driver) = builder
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| error.to_string())?;
        Ok(Self {
            sender,
            driver: Some(Box::pin(driver)),
            opened: Instant::now(),
        })
    }

    fn is_reusable(&self) -> bool {
        self.driver.is_some() && self.opened.elapsed() < MAX_CONNECTION_AGE
    }

    async fn exchange(&mut self, host: &str, token: &str) -> Result<Answer, String> {
        let request = Request::get(format!("{PREFIX}{token}"))
            .header(header::HOST, host)
            .header(header::USER_AGENT, "gatewright")
            .body(Empty::new())
            .map_err(|error| error.to_string())?;
        let (sender, Some(driver)) = (&mut self.sender, &mut self.driver) else {
            return Err("the connection is closed".to_owned());
        };
        let mut answer = std::pin::pin!(async {
            sender.ready().await.map_err(|error| error.to_string())?;
            let (head, body) = sender
                .send_request(request)
                .await
                .map_err(|error| error.to_string())?
                .into_parts();
            let location = head.headers.get(header::LOCATION);
            let location = location.map(|to| String::from_utf8_lossy(to.as_bytes()).into_owned());
            let body = match Limited::new(body, MAX_RESPONSE_BYTES).collect().await {
                Ok(body) => body.to_bytes(),
                // A body of this size is no answer to a challenge.
                Err(error) if error.is::<LengthLimitError>() => Bytes::new(),
                Err(error) => return Err(error.to_string()),
            };
            Ok(Answer {
                status: head.status,
                location,
                body,
            })
        });
        tokio::select! {
            biased;
            answer = &mut answer => return answer,
            _ = driver => {}
        }
        // The connection has ended: an answer that arrived before is available; without one the
        // request fails at once.
        self.driver = None;
        answer.await
    }
}

impl SelfCheckError {
    /// Returns true if the failure is the server's, and so applies to all of its names.
    fn is_server_failure(&self) -> bool {
        matches!(self, Self::Silent { .. } | Self::Unreachable { .. })
    }
}

/// The reason why the self-check failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelfCheckError {
    /// The connection failed or broke.
    #[error(
        "{address} cannot be reached for {host}: {why}; is the listener on port 80 programmed?"
    )]
    Unreachable {
        /// The name.
        host: String,
        /// The address of the server.
        address: SocketAddr,
        /// The cause.
        why: String,
    },
    /// No answer within the time limit.
    #[error("{address} does not answer for {host} within {limit:?}")]
    Silent {
        /// The name.
        host: String,
        /// The address of the server.
        address: SocketAddr,
        /// The time limit.
        limit: Duration,
    },
    /// The answer is a redirect.
    #[error(
        "{address} redirects the challenge of {host} to {to}; exempt /.well-known/acme-challenge/ from redirects"
    )]
    Redirected {
        /// The name.
        host: String,
        /// The address of the server.
        address: SocketAddr,
        /// The target of the redirect.
        to: String,
    },
    /// The answer has an unexpected status.
    #[error(
        "{address} answers the challenge of {host} with status {status}; exempt /.well-known/acme-challenge/ from routes, authentication and limits"
    )]
    Status {
        /// The name.
        host: String,
        /// The address of the server.
        address: SocketAddr,
        /// The HTTP status.
        status: u16,
    },
    /// The body is not the key authorization.
    #[error(
        "{address} answers the challenge of {host} with something else; another ACME client or route answers that path"
    )]
    Wrong {
        /// The name.
        host: String,
        /// The address of the server.
        address: SocketAddr,
    },
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::try_join_all;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::task::JoinSet;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    fn host(i: usize) -> DnsName {
        DnsName::parse(&format!("h{i}.example.com")).expect("a name")
    }

    /// Checks a server that answers one request with `reply` of its path.
    async fn check(reply: impl Fn(&str) -> String + Send + 'static) -> Result<(), SelfCheckError> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let address = listener.local_addr().expect("bound");
        let serve = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("accepts");
            let mut asked = [0; 2048];
            let n = stream.read(&mut asked).await.expect("reads");
            let path = String::from_utf8_lossy(&asked[..n])
                .split(' ')
                .nth(1)
                .expect("a path")
                .to_owned();
            stream
                .write_all(reply(&path).as_bytes())
                .await
                .expect("writes");
        });
        let name = DnsName::parse("a.example.com").expect("a name");
        let result = SelfCheck::new(LIMIT)
            .check(&name, "thumb", address, 1)
            .await;
        serve.await.expect("served");
        result
    }

    #[tokio::test]
    async fn the_answer_of_a_stateless_responder_is_accepted_plain_or_chunked() {
        fn body(path: &str) -> String {
            crate::challenge::http::answer(path, "thumb").expect("a token")
        }
        check(move |p| format!("HTTP/1.1 200 OK\r\n\r\n{}", body(p)))
            .await
            .expect("plain");
        check(move |p| {
            let body = body(p);
            format!(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
                body.len()
            )
        })
        .await
        .expect("chunked");
    }

    #[tokio::test]
    async fn each_wrong_answer_is_a_sentence_with_its_fix() {
        let long = format!(
            "HTTP/1.1 200 OK\r\n\r\n{}",
            "x".repeat(2 * MAX_RESPONSE_BYTES)
        );
        for (reply, word) in [
            (
                "HTTP/1.1 301 Moved\r\nLocation: https://a.example.com/x\r\n\r\n",
                "redirects",
            ),
            ("HTTP/1.1 401 Unauthorized\r\n\r\n", "status 401"),
            ("HTTP/1.1 200 OK\r\n\r\nwelcome", "another ACME client"),
            (&long, "another ACME client"),
            ("nonsense", "cannot be reached"),
        ] {
            let reply = reply.to_owned();
            let error = check(move |_| reply.clone())
                .await
                .expect_err(word)
                .to_string();
            assert!(
                error.contains(word) && error.contains("a.example.com"),
                "{error}"
            );
        }
    }

    /// A server that keeps connections open, as Envoy does; connections for which `is_dead` is true
    /// get no answer.
    struct Server {
        address: SocketAddr,
        connections: Arc<AtomicUsize>,
        _tasks: JoinSet<()>,
    }

    async fn server(is_dead: impl Fn(usize) -> bool + Send + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let address = listener.local_addr().expect("bound");
        let connections = Arc::<AtomicUsize>::default();
        let mut tasks = JoinSet::new();
        let count = connections.clone();
        tasks.spawn(async move {
            let mut held = JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                if is_dead(count.fetch_add(1, Ordering::Relaxed)) {
                    continue;
                }
                held.spawn(async move {
                    let mut asked = [0; 2048];
                    while let Ok(n @ 1..) = stream.read(&mut asked).await {
                        let path = String::from_utf8_lossy(&asked[..n])
                            .split(' ')
                            .nth(1)
                            .expect("a path")
                            .to_owned();
                        let body = crate::challenge::http::answer(&path, "thumb").expect("a token");
                        let answer = format!(
                            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
                            body.len()
                        );
                        stream.write_all(answer.as_bytes()).await.expect("writes");
                    }
                });
            }
        });
        Server {
            address,
            connections,
            _tasks: tasks,
        }
    }

    #[tokio::test]
    async fn connections_are_reused_and_names_checked_concurrently() {
        let server = server(|_| false).await;
        // Far longer than the test takes on a busy machine: a check that waited for the
        // connection's end would wait this long.
        let limit = Duration::from_secs(120);
        let check = SelfCheck::new(limit);
        let start = Instant::now();
        for i in 0..50 {
            check
                .check(&host(i), "thumb", server.address, 6)
                .await
                .expect("answered");
        }
        assert_eq!(server.connections.load(Ordering::Relaxed), 6);
        let names: Vec<_> = (0..100).map(host).collect();
        try_join_all(
            names
                .iter()
                .map(|name| check.check(name, "thumb", server.address, 6)),
        )
        .await
        .expect("answered");
        assert!(server.connections.load(Ordering::Relaxed) <= 6 * MAX_CONCURRENT);
        // The server does not close the connections, and the check does not wait for that.
        assert!(start.elapsed() < limit / 2, "{:?}", start.elapsed());
    }

    #[tokio::test]
    async fn a_live_server_does_not_hide_a_dead_one_behind_the_same_address() {
        // Every third of the first thirty connections leads to the dead server.
        let server = server(|n| n < 30 && n % 3 == 2).await;
        let check = SelfCheck::new(LIMIT);
        let mut failed = 0;
        while check
            .check(&host(0), "thumb", server.address, 6)
            .await
            .is_err()
        {
            failed += 1;
        }
        assert!(
            server.connections.load(Ordering::Relaxed) > 30 && failed >= 3,
            "{failed} rows failed"
        );
    }

    #[tokio::test]
    async fn a_reused_connection_that_was_closed_is_no_failure_of_the_check() {
        let server = server(|_| false).await;
        let check = SelfCheck::new(LIMIT);
        check
            .check(&host(0), "thumb", server.address, 1)
            .await
            .expect("answered");
        // The server is replaced by another one at the same address.
        let Server {
            address,
            _tasks: mut tasks,
            ..
        } = server;
        tasks.shutdown().await;
        let listener = TcpListener::bind(address).await.expect("binds");
        let again = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("accepts");
            let mut asked = [0; 2048];
            let n = stream.read(&mut asked).await.expect("reads");
            let path = String::from_utf8_lossy(&asked[..n])
                .split(' ')
                .nth(1)
                .expect("a path")
                .to_owned();
            let body = crate::challenge::http::answer(&path, "thumb").expect("a token");
            stream
                .write_all(format!("HTTP/1.1 200 OK\r\n\r\n{body}").as_bytes())
                .await
                .expect("writes");
        });
        check
            .check(&host(1), "thumb", address, 1)
            .await
            .expect("answered");
        again.await.expect("served");
    }
}
