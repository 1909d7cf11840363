//! A Python program of this folder as a child process.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use e2e_inside::served::Served;
use serde::Deserialize;
use serde_json::Value;

pub(crate) fn interpreter() -> PathBuf {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/python");
    assert!(
        python.exists(),
        "no Python with grpcio at {}; run: e2e/tools install grpc",
        python.display()
    );
    python
}

pub(crate) fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/xds/grpc")
        .join(name)
}

/// One response, as the client saw it.
#[derive(Debug, Deserialize)]
pub(crate) struct Seen {
    kind: String,
    pub(crate) came: Vec<String>,
    pub(crate) gone: Vec<String>,
    held: BTreeMap<String, String>,
    version: String,
}

/// A running `client.py`; killed on drop.
pub(crate) struct Client {
    process: Child,
    requests: Option<ChildStdin>,
    responses: Lines<BufReader<ChildStdout>>,
    last: HashMap<String, Seen>,
}

impl Client {
    pub(crate) fn start(served: &Served, protocol: &str, node: &str) -> Client {
        let mut process = Command::new(interpreter())
            .arg(script("client.py"))
            .arg(served.socket())
            .args([protocol, node])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("Python starts");
        let requests = process.stdin.take();
        let responses = BufReader::new(process.stdout.take().expect("piped")).lines();
        Client {
            process,
            requests,
            responses,
            last: HashMap::new(),
        }
    }

    pub(crate) fn send(&mut self, request: Value) {
        writeln!(self.requests.as_mut().expect("not stopped"), "{request}")
            .expect("the client reads");
    }

    /// Returns the next response, of any kind.
    pub(crate) fn next(&mut self) -> Seen {
        let line = self
            .responses
            .next()
            .expect("the client still runs")
            .expect("a line");
        let seen: Seen = serde_json::from_str(&line).expect("JSON");
        let copy = serde_json::from_str(&line).expect("JSON");
        self.last.insert(seen.kind.clone(), copy);
        seen
    }

    /// Returns the response after which the resources of `kind` satisfy `done`.
    pub(crate) fn until(
        &mut self,
        kind: &str,
        done: impl Fn(&BTreeMap<String, String>) -> bool,
    ) -> Seen {
        loop {
            let seen = self.next();
            if seen.kind == kind && done(&seen.held) {
                return seen;
            }
        }
    }

    /// Returns versions by name.
    pub(crate) fn held(&self, kind: &str) -> BTreeMap<String, String> {
        self.last[kind].held.clone()
    }

    /// Returns the version of all of them, in the state-of-the-world protocol.
    pub(crate) fn version(&self, kind: &str) -> String {
        self.last[kind].version.clone()
    }

    /// Closes the stream from the client's side.
    pub(crate) fn stop(mut self) {
        self.requests = None;
        assert!(
            self.process.wait().expect("it ends").success(),
            "the stream ended with an error"
        );
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _gone_already = self.process.kill();
        let _reaped = self.process.wait();
    }
}
