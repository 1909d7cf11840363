//! TCP connections to a CA: without Nagle's delay, with a time limit, through a proxy where one is
//! configured, and never to a denied network.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tower::Service;

use crate::denied_networks::DeniedNetworks;

/// Largest response to CONNECT that is read.
const LONGEST_ANSWER: usize = 8 << 10;

/// An HTTP proxy, used by CONNECT (RFC 9110, 9.3.6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    /// `host:port`.
    pub address: String,
    /// Hosts that are reached without the proxy: names, `.suffix`es, or `*`.
    pub except: Vec<String>,
}

impl Proxy {
    /// Reads `http://host:port` and the list of `NO_PROXY`.
    pub fn parse(url: &str, no_proxy: &str) -> Option<Self> {
        let uri: Uri = url.parse().ok()?;
        let address = format!("{}:{}", uri.host()?, uri.port_u16().unwrap_or(80));
        let except = no_proxy
            .split(',')
            .map(|e| e.trim().to_ascii_lowercase())
            .filter(|e| !e.is_empty())
            .collect();
        Some(Self { address, except })
    }

    /// Reads `HTTPS_PROXY` and `NO_PROXY` (also in lower case) from the environment.
    pub fn from_env() -> Option<Self> {
        let var = |name: &str| {
            std::env::var(name)
                .or_else(|_| std::env::var(name.to_ascii_lowercase()))
                .ok()
        };
        Self::parse(&var("HTTPS_PROXY")?, &var("NO_PROXY").unwrap_or_default())
    }

    fn applies_to(&self, host: &str) -> bool {
        let host = host.trim_matches(['[', ']']).to_ascii_lowercase();
        !self.except.iter().any(|e| {
            let bare = e.trim_start_matches('.');
            e == "*"
                || host == bare
                || host
                    .strip_suffix(bare)
                    .is_some_and(|rest| rest.ends_with('.'))
        })
    }
}

#[derive(Clone)]
pub(crate) struct Connector {
    proxy: Option<Proxy>,
    denied: DeniedNetworks,
    limit: Duration,
}

impl Connector {
    pub(crate) fn new(proxy: Option<Proxy>, denied: DeniedNetworks, limit: Duration) -> Self {
        Self {
            proxy,
            denied,
            limit,
        }
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<TcpStream>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let proxy = self.proxy.clone();
        let denied = self.denied.clone();
        let limit = self.limit;
        Box::pin(async move {
            tokio::time::timeout(limit, connect(&uri, proxy.as_ref(), &denied))
                .await
                .unwrap_or_else(|_| {
                    Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        "connection timed out",
                    ))
                })
                .map(TokioIo::new)
        })
    }
}

async fn connect(
    uri: &Uri,
    proxy: Option<&Proxy>,
    denied: &DeniedNetworks,
) -> io::Result<TcpStream> {
    let host = uri
        .host()
        .ok_or_else(|| io::Error::other("the URL has no host"))?;
    let default = if uri.scheme_str() == Some("http") {
        80
    } else {
        443
    };
    let target = format!("{host}:{}", uri.port_u16().unwrap_or(default));
    let Some(proxy) = proxy.filter(|p| p.applies_to(host)) else {
        let addresses = denied.look_up(&target).await?;
        let stream = TcpStream::connect(&*addresses).await?;
        stream.set_nodelay(true)?;
        return Ok(stream);
    };
    // A proxy resolves names itself and could find addresses that `denied` was not asked about: it
    // is given an address that passed.
    let target = if denied.is_empty() {
        target
    } else {
        denied.look_up(&target).await?[0].to_string()
    };
    let mut stream = TcpStream::connect(&proxy.address)
        .await
        .map_err(|e| io::Error::new(e.kind(), format!("proxy {}: {e}", proxy.address)))?;
    stream.set_nodelay(true)?;
    stream
        .write_all(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").as_bytes())
        .await?;
    let mut answer = Vec::new();
    // Byte by byte, so that no bytes of the tunnel are consumed.
    while !answer.ends_with(b"\r\n\r\n") {
        if answer.len() == LONGEST_ANSWER {
            return Err(io::Error::other(format!(
                "proxy {} answers endlessly",
                proxy.address
            )));
        }
        answer.push(stream.read_u8().await?);
    }
    let first = String::from_utf8_lossy(&answer);
    let status = first.split(' ').nth(1).unwrap_or_default();
    if status.len() == 3 && status.starts_with('2') {
        Ok(stream)
    } else {
        Err(io::Error::other(format!(
            "proxy {} refuses with status {status:?}",
            proxy.address
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceptions_are_names_and_suffixes() {
        let proxy =
            Proxy::parse("http://proxy:3128", "localhost, .internal,ca.example").expect("a proxy");
        for (host, applies) in [
            ("localhost", false),
            ("a.internal", false),
            ("ca.example", false),
            ("badca.example", true),
        ] {
            assert_eq!(proxy.applies_to(host), applies, "{host}");
        }
    }

    #[tokio::test]
    async fn nothing_is_sent_to_a_denied_network() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("binds");
        let port = listener.local_addr().expect("bound").port();
        let denied = DeniedNetworks::new([
            "127.0.0.0/8".parse().expect("a network"),
            "::1/128".parse().expect("a network"),
        ]);
        let proxy = Proxy {
            address: format!("127.0.0.1:{port}"),
            except: vec![],
        };
        for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "[::1]"] {
            let uri: Uri = format!("https://{host}:{port}/dir").parse().expect("a URL");
            let error = connect(&uri, None, &denied)
                .await
                .expect_err("it is denied");
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{host}");
            let error = connect(&uri, Some(&proxy), &denied)
                .await
                .expect_err("it is denied");
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{host}");
        }
        let quiet = tokio::time::timeout(Duration::from_millis(50), listener.accept()).await;
        assert!(quiet.is_err(), "nobody came");
    }

    #[tokio::test]
    async fn a_tunnel_is_asked_for_and_a_refusal_named() {
        for (reply, works) in [("200 OK", true), ("403 Forbidden", false)] {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
                .await
                .expect("binds");
            let proxy = Proxy {
                address: listener.local_addr().expect("bound").to_string(),
                except: vec![],
            };
            let serve = tokio::spawn(async move {
                let (mut stream, _) = listener.accept().await.expect("accepts");
                let mut asked = [0; 512];
                let n = stream.read(&mut asked).await.expect("reads");
                stream
                    .write_all(format!("HTTP/1.1 {reply}\r\n\r\nhello").as_bytes())
                    .await
                    .expect("writes");
                String::from_utf8_lossy(&asked[..n]).into_owned()
            });
            let uri: Uri = "https://ca.example/dir".parse().expect("a URL");
            let stream = connect(&uri, Some(&proxy), &DeniedNetworks::default()).await;
            assert!(
                serve
                    .await
                    .expect("served")
                    .starts_with("CONNECT ca.example:443 HTTP/1.1\r\n")
            );
            match stream {
                Ok(mut stream) => {
                    assert!(works);
                    let mut hello = [0; 5];
                    stream
                        .read_exact(&mut hello)
                        .await
                        .expect("the tunnel's first bytes are not lost");
                    assert_eq!(&hello, b"hello");
                }
                Err(e) => assert!(!works && e.to_string().contains("403"), "{e}"),
            }
        }
    }
}
