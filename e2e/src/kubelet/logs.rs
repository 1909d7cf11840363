//! The kubelet's server of container logs for the API server:
//! `GET /containerLogs/NAMESPACE/POD/CONTAINER`.

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;

/// The resolution of `sinceTime`.
const EVERY: Duration = Duration::from_millis(50);
/// The number of recorded lengths: `sinceTime` reaches back five minutes.
const KEPT: usize = 6000;

/// The logs of all containers.
#[derive(Clone, Default)]
pub(super) struct Logs(Arc<Mutex<BTreeMap<String, Log>>>);

struct Log {
    file: PathBuf,
    /// Lengths of the file, with their times.
    lengths: VecDeque<(SystemTime, u64)>,
}

/// The running server; stopped on drop.
pub(super) struct LogServer {
    pub(super) port: u16,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for LogServer {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Logs {
    /// Sets the path of a container's log.
    pub(super) fn at(&self, container: &str, file: &Path) {
        let mut all = self.0.lock().expect("nothing panics while it is held");
        if all.get(container).is_none_or(|log| log.file != file) {
            all.insert(
                container.to_owned(),
                Log {
                    file: file.to_owned(),
                    lengths: VecDeque::new(),
                },
            );
        }
    }

    /// Returns a container's output since a time.
    fn since(&self, container: &str, since: Option<SystemTime>) -> Option<Vec<u8>> {
        let all = self.0.lock().expect("nothing panics while it is held");
        let log = all.get(container)?;
        let text = std::fs::read(&log.file).ok()?;
        let before = since.and_then(|since| log.lengths.iter().rev().find(|(at, _)| *at <= since));
        let start = before.map_or(0, |(_, length)| {
            usize::try_from(*length).unwrap_or(usize::MAX)
        });
        Some(text.get(start..).unwrap_or_default().to_vec())
    }

    fn measure(&self) {
        let now = SystemTime::now();
        for log in self
            .0
            .lock()
            .expect("nothing panics while it is held")
            .values_mut()
        {
            let Ok(found) = std::fs::metadata(&log.file) else {
                continue;
            };
            log.lengths.push_back((now, found.len()));
            if log.lengths.len() > KEPT {
                log.lengths.pop_front();
            }
        }
    }

    /// Serves on an address of the node. The API server does not verify the certificate.
    pub(super) async fn serve(&self, host: Ipv4Addr) -> Result<LogServer> {
        let made = rcgen::generate_simple_self_signed([host.to_string()])?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let config = rustls::ServerConfig::builder_with_provider(Arc::new(
            rustls::crypto::ring::default_provider(),
        ))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .context("the kubelet's certificate")?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind((host, 0)).await?;
        let port = listener.local_addr()?.port();
        let logs = self.clone();
        let measured = self.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, logs) = (acceptor.clone(), logs.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    let service = service_fn(|request| {
                        let answer = logs.answer(&request);
                        async move { Ok::<_, std::convert::Infallible>(answer) }
                    });
                    // The client may disconnect at any time.
                    let _ended = http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        let measuring = tokio::spawn(async move {
            loop {
                measured.measure();
                sleep(EVERY).await;
            }
        });
        Ok(LogServer {
            port,
            tasks: [accepting, measuring],
        })
    }

    fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        let container = request
            .uri()
            .path()
            .strip_prefix("/containerLogs/")
            .unwrap_or_default();
        let query = request.uri().query().unwrap_or_default();
        let since = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("sinceTime="));
        let since = since.and_then(|text| text.replace("%3A", ":").parse::<jiff::Timestamp>().ok());
        match self.since(container, since.map(SystemTime::from)) {
            Some(text) => Response::new(Full::new(text.into())),
            None => {
                let mut missing =
                    Response::new(Full::new(Bytes::from_static(b"no such container")));
                *missing.status_mut() = StatusCode::NOT_FOUND;
                missing
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_lines_are_omitted() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("log");
        std::fs::write(&file, "one\n").unwrap();
        let logs = Logs::default();
        logs.at("a/b/c", &file);
        logs.measure();
        std::thread::sleep(Duration::from_millis(2));
        let since = SystemTime::now();
        std::fs::write(&file, "one\ntwo\n").unwrap();
        assert_eq!(logs.since("a/b/c", Some(since)).unwrap(), b"two\n");
        assert_eq!(
            logs.since("a/b/c", Some(SystemTime::UNIX_EPOCH)).unwrap(),
            b"one\ntwo\n"
        );
        assert_eq!(logs.since("a/b/c", None).unwrap(), b"one\ntwo\n");
        assert!(logs.since("a/b/d", None).is_none());
    }
}
