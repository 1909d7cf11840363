//! The server is killed and restarts, without state of its clients.

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, SystemTime};

use super::client::*;
use super::on_demand::{handshake, inline};
use e2e_inside::resources::*;

use envoy_types::pb::envoy::service::discovery::v3 as discovery;
use envoy_types::pb::google::protobuf::Any;
use futures::StreamExt;
use prost::Message;
use serde_json::Value;

const SCOPES: usize = 10_000;
const SECRETS: usize = 2_000;

/// A running `xds_server`.
struct Process {
    child: Child,
    questions: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(socket: &Path, resources: &Path) -> Process {
        let mut child = Command::new(env!("CARGO_BIN_EXE_xds_server"))
            .args([socket, resources])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let questions = child.stdin.take().expect("piped");
        let answers = child.stdout.take().expect("piped");
        Process {
            child,
            questions,
            answers: BufReader::new(answers).lines(),
        }
    }

    /// Returns its counts and its clients.
    fn state(&mut self) -> Value {
        writeln!(self.questions, "state").expect("it listens");
        serde_json::from_str(&self.answers.next().expect("it answers").expect("a line"))
            .expect("JSON")
    }

    /// Waits until the one client has everything and has `secrets` secrets in use.
    async fn settled(&mut self, secrets: usize) -> Value {
        let settled = |state: &Value| {
            let stream = &state["views"][0]["streams"][0];
            let all = stream["subscriptions"].as_array().into_iter().flatten();
            stream["acknowledged"] == state["views"][0]["generation"]
                && (secrets == 0
                    || all
                        .clone()
                        .any(|s| s["kind"] == "sds" && s["names"] == secrets))
                && all.clone().all(|s| s["in_flight"] == 0)
        };
        let mut state = Value::Null;
        for _ in 0..2400 {
            state = self.state();
            if settled(&state) {
                return state;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("Envoy and the server do not settle: {:#}", state["views"]);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SIGKILL: the server cannot close its streams.
        let _gone_already = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn total(state: &Value, what: &str) -> u64 {
    let kinds = state["counts"]["kinds"].as_array().expect("counts by kind");
    kinds
        .iter()
        .map(|kind| kind[what].as_u64().expect("a count"))
        .sum()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_killed_server_comes_back_under_ten_thousand_resources_and_resends_no_byte() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("xds.sock");
    let file = dir.path().join("resources");
    let plain = free_port();
    let tls = free_port();
    let now = SystemTime::now();
    let hour = Duration::from_secs(3600);
    let authority = xds::Authority::new("test", hour, now).expect("an authority");
    let pair = authority
        .issue_server(&["*.killed.test".to_owned()], hour, now)
        .expect("issued");
    let host = |i: usize| format!("h{i}.killed.test");
    let resources = (0..SCOPES)
        .map(|i| scope(&format!("s{i}"), prefix()))
        .chain((0..=SECRETS).map(|i| secret(&host(i), &pair.certificate, &pair.key)))
        .chain([
            http_listener("plain", plain, scoped()),
            on_demand_listener("tls", tls, inline()),
        ]);
    let all = discovery::DeltaDiscoveryResponse {
        resources: resources
            .map(|r| discovery::Resource {
                name: r.name().into(),
                resource: Some(Any {
                    type_url: r.kind().type_url().into(),
                    value: r.body().to_vec(),
                }),
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    };
    std::fs::write(&file, all.encode_to_vec()).expect("the directory is ours");

    let mut server = Process::start(&socket, &file);
    let envoy = Envoy::start(dir.path(), "one", &socket, "DELTA_GRPC");
    server.settled(0).await;
    assert_eq!(status(plain, "x-key: s9999\r\n"), 200);
    let root = authority.certificate();
    let served = futures::stream::iter(0..SECRETS)
        .map(|i| async move { handshake(tls, root, &host(i)).await.is_ok() })
        .buffer_unordered(16)
        .filter(|ok| futures::future::ready(*ok));
    assert_eq!(served.count().await, SECRETS);
    let state = server.settled(SECRETS).await;
    assert_eq!(
        total(&state, "sent"),
        (SCOPES + SECRETS + 2) as u64,
        "each once"
    );

    drop(server);
    assert_eq!(
        status(plain, "x-key: s17\r\n"),
        200,
        "Envoy serves without the server"
    );
    handshake(tls, root, &host(17))
        .await
        .expect("a secret in use");

    let mut server = Process::start(&socket, &file);
    let state = server.settled(SECRETS).await;
    assert_eq!(total(&state, "sent"), 0, "{state:#}");
    assert_eq!(total(&state, "bytes"), 0, "{state:#}");
    assert_eq!(total(&state, "removed"), 0, "{state:#}");
    handshake(tls, root, &host(SECRETS))
        .await
        .expect("a name nobody had asked for");
    let state = server.settled(SECRETS + 1).await;
    assert_eq!(total(&state, "sent"), 1);
    assert_eq!(total(&state, "nacks"), 0);
    drop(envoy);
}
