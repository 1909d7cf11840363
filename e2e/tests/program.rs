//! The program as a user starts it.

use anyhow::Result;
use e2e::gatewright::Gatewright;

#[test]
fn the_program_is_built_and_runs() -> Result<()> {
    let output = Gatewright::run(&["--help"])?;
    assert!(output.status.success(), "{output:?}");
    Ok(())
}

#[tokio::test]
async fn a_program_that_ends_early_is_an_error_with_its_output() -> Result<()> {
    let mut program = Gatewright::start(&["--help"])?;
    let failed = program.line("a line that no help has").await.expect_err("it ended");
    assert!(format!("{failed:#}").contains("gatewright ended"), "{failed:#}");
    Ok(())
}
