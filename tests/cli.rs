//! Transcripts of the command line, with output and exit status: `tests/cli/*.trycmd`, each run in
//! a copy of the folder beside it. `TRYCMD=overwrite cargo test --workspace --test cli` rewrites
//! them.

/// As `gatewright completion bash | head -3` does once `head` has ended.
#[test]
fn a_command_whose_reader_has_gone_ends_quietly() {
    for arguments in [
        &["completion", "bash"][..],
        &["images"],
        &["images", "-o", "json"],
        &["version"],
        &["lint", "tests/cli/lint.in"],
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_gatewright"));
        let child = command
            .args(arguments)
            .stdout(writer)
            .stderr(std::process::Stdio::piped())
            .spawn();
        let output = child.expect("started").wait_with_output().expect("ended");
        assert!(
            output.status.code() == Some(141) && output.stderr.is_empty(),
            "{arguments:?}: {output:?}"
        );
    }
}

#[test]
fn transcripts_are_what_is_printed() {
    // The width of a help text must not depend on the terminal.
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_gatewright"));
    let folder = tempfile::tempdir().expect("a folder");
    let plugin = folder.path().join("kubectl-gatewright");
    std::os::unix::fs::symlink(program, &plugin).expect("a link");
    let cases = trycmd::TestCases::new();
    cases.register_bin("gatewright", program);
    cases.register_bin("kubectl-gatewright", plugin.as_path());
    cases
        .env("COLUMNS", "100")
        .env("NO_COLOR", "1")
        .case("tests/cli/*.trycmd");
}
