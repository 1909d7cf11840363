//! Transcripts of the command line, with output and exit status: `tests/cli/*.trycmd`, each run in a copy of the folder
//! beside it. `TRYCMD=overwrite cargo test --workspace --test cli` rewrites them.

#[test]
fn transcripts_are_what_is_printed() {
    // The width of a help text must not depend on the terminal.
    let cases = trycmd::TestCases::new();
    cases.register_bin("gatewright", std::path::Path::new(env!("CARGO_BIN_EXE_gatewright")));
    cases.env("COLUMNS", "100").env("NO_COLOR", "1").case("tests/cli/*.trycmd");
}
