//! What the command line prints and how it ends, as transcripts: `tests/cli/*.trycmd`, each run in a copy of the folder
//! beside it. `TRYCMD=overwrite cargo test --workspace --test cli` writes them anew.

#[test]
fn transcripts_are_what_is_printed() {
    // The width of a help text must not be that of somebody's terminal.
    let cases = trycmd::TestCases::new();
    cases.register_bin("gatewright", std::path::Path::new(env!("CARGO_BIN_EXE_gatewright")));
    cases.env("COLUMNS", "100").env("NO_COLOR", "1").case("tests/cli/*.trycmd");
}
