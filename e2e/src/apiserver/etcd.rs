//! Direct access to the API server's data in etcd: thousands of copies take seconds, where the API
//! server would take minutes.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// Most writes of one transaction (`--max-txn-ops`).
const AT_ONCE: usize = 100;

/// A connection to etcd's JSON gateway.
pub struct Etcd {
    sender: SendRequest<Full<Bytes>>,
    connection: JoinHandle<hyper::Result<()>>,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Etcd {
    pub(super) async fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address)
            .await
            .context("connecting to etcd")?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        Ok(Self {
            sender,
            connection: tokio::spawn(connection),
        })
    }

    /// Returns all entries whose key begins with `prefix`.
    pub async fn all(&mut self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>> {
        // A prefix query in etcd is a range whose end is the prefix with its last byte incremented.
        let mut end = prefix.as_bytes().to_vec();
        *end.last_mut().context("a prefix")? += 1;
        let range = json!({"key": STANDARD.encode(prefix), "range_end": STANDARD.encode(end)});
        let found = self.ask("/v3/kv/range", &range).await?;
        let bytes = |value: &Value| {
            STANDARD
                .decode(value.as_str().unwrap_or_default())
                .context("base64")
        };
        let all = found["kvs"].as_array().into_iter().flatten();
        all.map(|kv| Ok((String::from_utf8(bytes(&kv["key"])?)?, bytes(&kv["value"])?)))
            .collect()
    }

    /// Writes entries.
    pub async fn put(&mut self, all: &[(String, String)]) -> Result<()> {
        for some in all.chunks(AT_ONCE) {
            let put = |(key, value): &(String, String)| json!({"request_put": {"key": STANDARD.encode(key), "value": STANDARD.encode(value)}});
            self.ask(
                "/v3/kv/txn",
                &json!({"success": some.iter().map(put).collect::<Vec<_>>()}),
            )
            .await?;
        }
        Ok(())
    }

    async fn ask(&mut self, path: &str, question: &Value) -> Result<Value> {
        let request = Request::post(path)
            .header("host", "etcd")
            .body(Full::from(question.to_string()))?;
        self.sender.ready().await?;
        let answer = self.sender.send_request(request).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        ensure!(
            status.is_success(),
            "etcd answered {status}: {}",
            String::from_utf8_lossy(&body)
        );
        Ok(serde_json::from_slice(&body)?)
    }
}
