//! The provider that runs a program.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use acme::challenge::dns::{DnsError, DnsProvider, DnsRetry};
use acme::dns::{Exec, ExecConfig, Secret};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{Mutex, MutexGuard};

use super::{NAME, SECRET, error, record};

/// A script that is run as a provider.
///
/// One at a time: a program that another test starts meanwhile inherits, for a moment, the file
/// that is open for writing, and such a file cannot be executed.
struct Script {
    dir: TempDir,
    _turn: MutexGuard<'static, ()>,
}

static TURN: Mutex<()> = Mutex::const_new(());

impl Script {
    async fn new(text: &str) -> Self {
        let turn = TURN.lock().await;
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("script");
        std::fs::write(
            &path,
            format!("#!/bin/sh\ncd '{}'\n{text}\n", dir.path().display()),
        )
        .expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700))
            .expect("executable");
        Self { dir, _turn: turn }
    }

    fn provider(&self, limit: Duration) -> Exec {
        Exec::new(ExecConfig {
            program: self.dir.path().join("script"),
            args: vec!["an argument".to_owned()],
            env: BTreeMap::from([("API_TOKEN".to_owned(), Secret::new(SECRET))]),
            limit,
        })
        .expect("a good configuration")
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(file)).expect("the script wrote it")
    }
}

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn it_is_told_on_standard_input() {
    let script = Script::new(
        r#"echo "$1" > args; env > env; cat >> in; echo >> in; echo '{"zone":"example.com"}'"#,
    )
    .await;
    let provider = script.provider(LONG);
    assert_eq!(provider.zone_of(NAME).await.as_deref(), Ok("example.com"));
    provider.present(&record("v")).await.expect("presented");
    provider.cleanup(&record("v")).await.expect("cleaned up");
    let told: Vec<Value> = script
        .read("in")
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(
        told,
        [
            json!({"version": 1, "action": "zone", "name": NAME}),
            json!({"version": 1, "action": "present", "name": NAME, "value": "v", "ttl": 60}),
            json!({"version": 1, "action": "cleanup", "name": NAME, "value": "v", "ttl": 60}),
        ]
    );
    assert_eq!(script.read("args"), "an argument\n");
    let env = script.read("env");
    assert!(env.contains(&format!("API_TOKEN={SECRET}")), "{env}");
    assert!(
        !env.contains("CARGO"),
        "our own environment is not handed on: {env}"
    );
}

#[tokio::test]
async fn exit_codes_are_sorted_and_its_secret_is_blotted_out() {
    for (code, check) in [
        (
            65,
            (|e| matches!(e, DnsError::NoZone { .. })) as fn(&DnsError) -> bool,
        ),
        (75, |e| {
            matches!(e, DnsError::Unavailable { .. }) && e.retry() == DnsRetry::Later
        }),
        (77, |e| matches!(e, DnsError::Credentials { .. })),
        (1, |e| {
            matches!(e, DnsError::Refused { .. }) && e.retry() == DnsRetry::Never
        }),
    ] {
        let script = Script::new(&format!(
            "echo \"token $API_TOKEN is bad\" >&2; exit {code}"
        ))
        .await;
        let error = error(script.provider(LONG).present(&record("v")).await);
        assert!(check(&error), "{code}: {error:?}");
        assert!(
            error.to_string().contains("token [redacted] is bad"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_talkative_one_that_reads_nothing_is_no_trouble() {
    let script =
        Script::new("head -c 3000000 /dev/zero | tr '\\0' x; head -c 3000000 /dev/zero | tr '\\0' y >&2; exit 1").await;
    let error = error(
        script
            .provider(LONG)
            .present(&record(&"v".repeat(200_000)))
            .await,
    );
    assert!(
        error.to_string().len() < 1000 && error.to_string().contains("yyy"),
        "{error}"
    );
}

#[tokio::test]
async fn one_that_never_ends_is_killed() {
    let script = Script::new("echo $$ > pid; exec sleep 1000").await;
    let error = error(
        script
            .provider(Duration::from_millis(2500))
            .present(&record("v"))
            .await,
    );
    assert!(
        matches!(&error, DnsError::Unavailable { message, .. } if message.contains("did not end within 2.5 s")),
        "{error:?}"
    );
    let process = std::path::PathBuf::from(format!("/proc/{}/cmdline", script.read("pid").trim()));
    // The kernel kills it, and the runtime reaps it, some time after the call has returned.
    while std::fs::read(&process).is_ok_and(|line| !line.is_empty()) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A shell waits for another program, or has left it behind with its output.
#[tokio::test]
async fn what_it_started_is_killed_with_it() {
    for text in [
        "sleep 1000 & echo $! > pid; wait",
        "sleep 1000 & echo $! > pid",
        "sh -c 'echo $$ > pid; sleep 1000'; true",
    ] {
        let script = Script::new(text).await;
        let error = error(
            script
                .provider(Duration::from_millis(2500))
                .present(&record("v"))
                .await,
        );
        assert!(
            matches!(error, DnsError::Unavailable { .. }),
            "{text}: {error:?}"
        );
        let process =
            std::path::PathBuf::from(format!("/proc/{}/cmdline", script.read("pid").trim()));
        let killed = async {
            while std::fs::read(&process).is_ok_and(|line| !line.is_empty()) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(LONG, killed)
            .await
            .unwrap_or_else(|_| panic!("{text}: it runs on"));
    }
}

#[test]
fn a_program_that_is_not_there_is_bad_configuration() {
    for (program, wanted) in [
        ("relative", "must be an absolute path"),
        ("/nonexistent/program", "is not a file"),
    ] {
        let config = ExecConfig {
            program: program.into(),
            args: vec![],
            env: BTreeMap::new(),
            limit: LONG,
        };
        assert!(error(Exec::new(config)).to_string().contains(wanted));
    }
}

#[tokio::test]
async fn the_example_of_the_documentation_keeps_exactly_its_records() {
    let dir = tempfile::tempdir().expect("a directory");
    let records = dir.path().join("records");
    let program =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/dns/hook.sh");
    let args = vec!["example.com".to_owned(), records.display().to_string()];
    let provider = Exec::new(ExecConfig {
        program,
        args,
        env: BTreeMap::new(),
        limit: LONG,
    })
    .expect("it is there");
    assert_eq!(provider.zone_of(NAME).await.as_deref(), Ok("example.com"));
    fn kept(records: &std::path::PathBuf) -> String {
        std::fs::read_to_string(records).expect("it is kept")
    }
    // A value that exists may be added again, and a missing one be removed.
    for value in ["one", "two", "one"] {
        provider.present(&record(value)).await.expect("presented");
    }
    assert_eq!(kept(&records), format!("{NAME} one\n{NAME} two\n"));
    for _ in 0..2 {
        provider.cleanup(&record("one")).await.expect("cleaned up");
    }
    assert_eq!(kept(&records), format!("{NAME} two\n"));
    let elsewhere = error(provider.zone_of("_acme-challenge.www.example.org").await);
    assert!(
        matches!(&elsewhere, DnsError::NoZone { message, .. } if message.contains("is not in")),
        "{elsewhere}"
    );
}
