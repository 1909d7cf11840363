//! `e2e/run` repeats each test that fails alone, with a program in place of cargo that prints what
//! libtest prints.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// Fails the tests of `FAIL` at the first run, and those of `FAIL_AGAIN` also alone.
const CARGO: &str = r#"#!/bin/sh
[ "$1" = test ] || exit 0
case "$*" in
*--exact*) failing=$FAIL_AGAIN ;;
*) failing=$FAIL ;;
esac
tests=$FAIL
case "$*" in *--exact*) tests=$(echo "$*" | sed 's/.*--exact \([^ ]*\).*/\1/') ;; esac
status=0
for test in $tests; do
    case " $failing " in
    *" $test "*) echo "test $test ... FAILED"; status=101 ;;
    *) echo "test $test ... ok" ;;
    esac
done
if [ $status != 0 ]; then
    echo "failures:"
    for test in $failing; do printf -- '---- %s stdout ----\nbecause of %s\n' "$test" "$test"; done
    echo "failures:"
fi
exit $status
"#;

fn run(directory: &Path, fail: &str, fail_again: &str) -> Output {
    let cargo = directory.join("cargo");
    std::fs::write(&cargo, CARGO).expect("it is writable");
    std::fs::set_permissions(&cargo, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/e2e/run"))
        .arg("envoy")
        .env("CARGO", cargo)
        .env("CARGO_TARGET_DIR", directory)
        .env("FAIL", fail)
        .env("FAIL_AGAIN", fail_again)
        .output()
        .expect("Python is installed")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_test_that_passes_alone_is_flaky_and_its_first_output_is_kept() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = run(directory.path(), "a::one a::two", "");
    assert!(output.status.success(), "two may be: {}", said(&output));
    assert!(
        said(&output).contains("FLAKY envoy a::one"),
        "it is reported: {}",
        said(&output)
    );
    let kept = std::fs::read_to_string(directory.path().join("flaky/envoy-a-one.log"));
    assert_eq!(kept.expect("it is kept"), "because of a::one\n");
}

#[test]
fn a_test_that_fails_twice_fails_the_run() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = run(directory.path(), "a::one a::two", "a::two");
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(
        said(&output).contains("FAILED envoy a::two"),
        "it is named: {}",
        said(&output)
    );
}

#[test]
fn three_flaky_tests_fail_the_run() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = run(directory.path(), "a b c", "");
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
}

#[test]
fn many_failed_tests_are_not_repeated() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = run(directory.path(), "a b c d e f g h i j k", "");
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(
        said(&output).contains("none is repeated"),
        "{}",
        said(&output)
    );
}
