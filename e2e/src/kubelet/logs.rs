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

/// The resolution of the times of lines.
const EVERY: Duration = Duration::from_millis(50);
/// The number of recorded lengths: times reach back five minutes.
const KEPT: usize = 6000;

/// The logs of all containers.
#[derive(Clone, Default)]
pub(super) struct Logs(Arc<Mutex<BTreeMap<String, Log>>>);

struct Log {
    file: PathBuf,
    /// Lengths of the file, with their times.
    lengths: VecDeque<(SystemTime, u64)>,
}

impl Log {
    /// Returns when the byte before an offset was written: each has a time of its own.
    fn written(&self, end: u64) -> SystemTime {
        let later = self.lengths.partition_point(|(_, length)| *length < end);
        let before = later.checked_sub(1).and_then(|at| self.lengths.get(at));
        let (at, length) = (
            self.lengths.get(later).map(|(at, _)| *at),
            before.map_or(0, |(_, length)| *length),
        );
        at.unwrap_or_else(SystemTime::now) + Duration::from_nanos(end - length)
    }
}

/// The part of a log that is asked for.
#[derive(Default)]
struct Asked {
    since: Option<SystemTime>,
    /// The number of lines from the end.
    tail: Option<usize>,
    /// The number of bytes.
    limit: Option<usize>,
    timestamps: bool,
}

impl Asked {
    fn of(query: &str) -> Self {
        let field = |name: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs
                .find(|(field, _)| *field == name)
                .map(|(_, value)| value)
        };
        let since = field("sinceTime").map(|text| text.replace("%3A", ":"));
        let since = since.and_then(|text| text.parse::<jiff::Timestamp>().ok());
        Self {
            since: since.map(SystemTime::from),
            tail: field("tailLines").and_then(|text| text.parse().ok()),
            limit: field("limitBytes").and_then(|text| text.parse().ok()),
            timestamps: field("timestamps") == Some("true"),
        }
    }
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

    /// Returns the part of a container's output that is asked for.
    fn read(&self, container: &str, asked: &Asked) -> Option<Vec<u8>> {
        self.measure();
        let all = self.0.lock().expect("nothing panics while it is held");
        let log = all.get(container)?;
        let text = std::fs::read(&log.file).ok()?;
        let mut end = 0;
        let lines = text.split_inclusive(|byte| *byte == b'\n').map(|line| {
            end += line.len() as u64;
            (log.written(end), line)
        });
        let since = lines.filter(|(at, _)| asked.since.is_none_or(|since| *at >= since));
        let mut lines: Vec<(SystemTime, &[u8])> = since.collect();
        if let Some(tail) = asked.tail {
            lines.drain(..lines.len().saturating_sub(tail));
        }
        let mut read = Vec::new();
        for (at, line) in lines {
            if asked.timestamps {
                let at = jiff::Timestamp::try_from(at).ok()?;
                read.extend(format!("{at:.9} ").bytes());
            }
            read.extend(line);
        }
        read.truncate(asked.limit.unwrap_or(usize::MAX));
        Some(read)
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
        match self.read(container, &Asked::of(query)) {
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
    fn a_part_of_a_log_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("log");
        std::fs::write(&file, "one\n").unwrap();
        let logs = Logs::default();
        logs.at("a/b/c", &file);
        logs.measure();
        std::thread::sleep(Duration::from_millis(2));
        let since = Some(SystemTime::now());
        std::fs::write(&file, "one\ntwo\nthree\n").unwrap();
        let read = |asked: Asked| logs.read("a/b/c", &asked).unwrap();
        let later = Asked {
            since,
            ..Asked::default()
        };
        assert_eq!(read(later), b"two\nthree\n");
        assert_eq!(read(Asked::default()), b"one\ntwo\nthree\n");
        assert_eq!(read(Asked::of("tailLines=1")), b"three\n");
        assert_eq!(read(Asked::of("limitBytes=5")), b"one\nt");
        let times = String::from_utf8(read(Asked::of("timestamps=true"))).unwrap();
        let times: Vec<&str> = times
            .lines()
            .filter_map(|line| line.split(' ').next())
            .collect();
        assert_eq!(times.len(), 3, "{times:?}");
        assert!(times.is_sorted() && times[1] != times[2], "{times:?}");
        let again = String::from_utf8(read(Asked::of("timestamps=true"))).unwrap();
        assert!(
            again.starts_with(times[0]),
            "a line keeps its time: {again}"
        );
        assert!(logs.read("a/b/d", &Asked::default()).is_none());
    }
}
