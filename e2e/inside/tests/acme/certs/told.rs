//! Messages for people: the next step, failures and their fixes; each once, with different exit
//! statuses.

use e2e::private_dir::private_dir;
use std::collections::HashSet;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use e2e::gatewright::{CONFIGURATION, Gatewright, binary};
use e2e::testca::TestCa;
use e2e_inside::world::free_port;

use super::site::Site;

const HOST: &str = "a.example.com";

/// Returns the cell of a host's row in a column of the table.
fn cell(table: &str, host: &str, heading: &str) -> Result<String> {
    let head = table
        .lines()
        .find(|line| line.starts_with("HOST"))
        .context("a heading")?;
    let columns: Vec<usize> = ["HOST", "ISSUER", "EXPIRES", "NEXT", "WHEN", "LAST ERROR"]
        .iter()
        .map(|name| head.find(name).context("a column"))
        .collect::<Result<_>>()?;
    let from = head.find(heading).context("the column")?;
    let to = columns
        .into_iter()
        .find(|start| *start > from)
        .unwrap_or(usize::MAX);
    let row = table
        .lines()
        .find(|line| line.starts_with(host))
        .with_context(|| table.to_owned())?;
    Ok(row
        .chars()
        .skip(from)
        .take(to.saturating_sub(from))
        .collect::<String>()
        .trim()
        .to_owned())
}

#[tokio::test]
#[ignore = "needs Envoy and Pebble"]
async fn next_says_what_comes_and_last_error_what_happened_and_nobody_tells_a_token() -> Result<()>
{
    let mut site = Site::new().await?;
    site.publish(&[(HOST, "public")])?;
    // The CA validates at a port where nobody listens.
    let issuers = site.state.path().join("issuers.yaml");
    fs::write(
        &issuers,
        format!(
            "{CONFIGURATION}issuers: {{public: {{directory: \"{}\", caBundle: {}, agreeToTerms: true, preflight: Skip, httpPort: {}}}}}\n",
            site.pebble.directory(),
            site.state.path().join("pebble.pem").display(),
            free_port()?
        ),
    )?;
    site.start_with(&["--config", &issuers.display().to_string()])?;
    let row = site.row(HOST, |row| row["lastError"].is_string()).await?;
    let error = row["lastError"].as_str().context("an error")?;
    ensure!(
        error.contains("connection refused") && error.contains("/.well-known/acme-challenge/…"),
        "{row}"
    );
    let (code, table) = site.ask(&["certs"])?;
    let next = cell(&table, HOST, "NEXT")?;
    ensure!(
        code == 1
            && next
                == "trying again; correct the DNS of the name, or the server that answers for it",
        "{code} {next}\n{table}"
    );
    ensure!(
        cell(&table, HOST, "WHEN")?.starts_with("in ")
            && cell(&table, HOST, "LAST ERROR")? == error,
        "{table}"
    );
    // The pre-flight check has no findings; the last failure is shown all the same.
    let (code, text) = site.ask(&["certs", "check", HOST])?;
    let failed = format!("{HOST}: the last attempt failed: {error}");
    ensure!(
        text.contains(&failed) && text.contains("at once by `gatewright certs renew`"),
        "{code} {text}"
    );
    // A certificate that waits does not count as being issued.
    let (_, status) = site.ask(&["status"])?;
    ensure!(
        status.contains("is not issued by public yet: ") && !status.contains("is being issued"),
        "{status}"
    );
    let log = site
        .program
        .as_ref()
        .map(Gatewright::output)
        .context("it runs")?;
    for text in [&table, &text, &status, &log] {
        let told = text
            .split("/acme-challenge/")
            .skip(1)
            .find(|rest| rest.starts_with(|c: char| c.is_ascii()));
        ensure!(told.is_none(), "a token is told: {told:?}");
    }
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn a_refusal_of_the_account_is_reported_with_the_remedy() -> Result<()> {
    let mut site = Site::new().await?;
    let ca = TestCa::start().await?;
    site.publish(&[(HOST, "acme")])?;
    site.start_with(&[
        "--set",
        &format!("issuers.acme.directory={}", ca.directory()),
        "--set",
        "issuers.acme.preflight=Skip",
    ])?;
    site.row(HOST, |row| row["expires"].is_string()).await?;
    ca.behave(|b| b.deactivated = true);
    ensure!(site.ask(&["certs", "renew", HOST])?.0 == 0);
    let row = site.row(HOST, |row| row["lastError"].is_string()).await?;
    let error = row["lastError"].as_str().context("an error")?;
    ensure!(
        error.contains("gatewright certs new-account") && !error.contains("is being issued"),
        "{row}"
    );
    let (code, table) = site.ask(&["certs"])?;
    ensure!(
        cell(&table, HOST, "NEXT")? == "trying again; correct the account of the issuer",
        "{table}"
    );
    // It is still served: this is no error of the host.
    ensure!(code == 0, "{code} {table}");
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn the_reserve_of_a_limit_and_who_issued_are_told() -> Result<()> {
    let mut site = Site::new().await?;
    let ca = TestCa::start().await?;
    let second = TestCa::start().await?;
    let issuers = site.state.path().join("issuers.yaml");
    fs::write(
        &issuers,
        format!(
            "{CONFIGURATION}issuers:\n  first:\n    directory: \"{}\"\n    preflight: Skip\n    fallback: [second]\n    \
             limits: {{certificatesPerDomain: {{count: 10, hours: 168}}}}\n  \
             second: {{directory: \"{}\", preflight: Skip}}\n",
            ca.directory(),
            second.directory()
        ),
    )?;
    site.publish(&[(HOST, "first")])?;
    site.start_with(&["--config", &issuers.display().to_string()])?;
    let row = site.row(HOST, |row| row["expires"].is_string()).await?;
    ensure!(row["issuedBy"].is_null(), "{row}");
    let (_, table) = site.ask(&["certs"])?;
    let reserve =
        "9 of 10 left, 2 of them reserved for certificates about to end and for `certs renew`";
    ensure!(table.contains(reserve), "{table}");
    // The first issuer cannot issue: another one did, and the table names it.
    ca.behave(|b| {
        b.limit = Some((
            "too many certificates (10) already issued for \"example.com\"".to_owned(),
            7200,
        ))
    });
    site.publish(&[(HOST, "first"), ("b.example.com", "first")])?;
    let row = site
        .row("b.example.com", |row| row["expires"].is_string())
        .await?;
    ensure!(
        row["issuedBy"]
            .as_str()
            .is_some_and(|by| by.starts_with("second@")),
        "{row}"
    );
    let (_, table) = site.ask(&["certs"])?;
    ensure!(
        cell(&table, "b.example.com", "ISSUER")?.contains("(issued by second@"),
        "{table}"
    );
    // No other message appears than before.
    ensure!(
        !cell(&table, HOST, "ISSUER")?.contains("issued by"),
        "{table}"
    );
    Ok(())
}

#[test]
#[ignore = "builds the program"]
fn nobody_who_answers_is_another_status_than_an_error_and_each_error_is_told_once() -> Result<()> {
    let state = private_dir()?;
    let private = state.path().display().to_string();
    for args in [&["certs"][..], &["certs", "check", HOST], &["status"]] {
        let output = Gatewright::run(&[args, &["--state-dir", &private]].concat())?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(
            output.status.code() == Some(3),
            "{args:?}: {:?} {text}",
            output.status
        );
        ensure!(
            text.matches("No such file").count() == 1,
            "{args:?}: {text}"
        );
    }
    let empty = tempfile::tempdir()?;
    let dir = empty.path().display().to_string();
    let nonsense = state.path().join("nonsense.pem");
    fs::write(&nonsense, "no certificate")?;
    let nonsense = nonsense.display().to_string();
    for (more, word) in [
        (["--set", "issuers.acme.caBundle=/nowhere"], "No such file"),
        (
            ["--set", &format!("issuers.acme.caBundle={nonsense}")],
            "expected certificates in PEM",
        ),
        (["--set", "issuers.acme.contacts=[me]"], "expected mailto:"),
        (["--config", "/nowhere/gatewright.yaml"], "No such file"),
    ] {
        let args = [
            "standalone",
            &dir,
            "--no-envoy",
            "--state-dir",
            &private,
            "--set",
            "issuers.acme.directory=letsencrypt",
        ];
        let output = Gatewright::run(&[&args[..], &more].concat())?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(
            output.status.code() == Some(1) && text.matches(word).count() == 1,
            "{more:?}: {text}"
        );
        // The message names the issuer once, and the file.
        let named = more[1]
            .strip_prefix("issuers.acme.caBundle=")
            .is_none_or(|file| text.contains(&format!("issuer acme: caBundle: {file}: ")));
        ensure!(
            named && text.matches("issuer acme").count() <= 1,
            "{more:?}: {text}"
        );
    }
    Ok(())
}

#[test]
#[ignore = "builds the program"]
fn the_log_filter_is_gatewright_log_else_rust_log() -> Result<()> {
    let manifests = tempfile::tempdir()?;
    fs::write(
        manifests.path().join("a.yaml"),
        "apiVersion: v1\nkind: Service\nmetadata: {name: [odd]}\n",
    )?;
    fn said(
        variables: &[(&str, &str)],
        manifests: &tempfile::TempDir,
    ) -> std::result::Result<HashSet<&'static str>, anyhow::Error> {
        let mut command = Command::new(binary()?);
        command
            .arg("translate")
            .arg(manifests.path())
            .env_remove("GATEWRIGHT_LOG")
            .env_remove("RUST_LOG");
        let output = command.envs(variables.iter().copied()).output()?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok(["WARN", "GATEWRIGHT_LOG=", "RUST_LOG="]
            .into_iter()
            .filter(|word| text.contains(word))
            .collect())
    }
    fn words(words: &[&'static str]) -> HashSet<&'static str> {
        words.iter().copied().collect::<HashSet<_>>()
    }
    ensure!(
        said(&[], &manifests)? == words(&["WARN"]),
        "a mistake is warned of"
    );
    ensure!(said(&[("RUST_LOG", "off")], &manifests)?.is_empty());
    ensure!(
        said(
            &[("RUST_LOG", "off"), ("GATEWRIGHT_LOG", "warn")],
            &manifests
        )? == words(&["WARN"])
    );
    ensure!(
        said(&[("RUST_LOG", "a=b=c")], &manifests)? == words(&["WARN", "RUST_LOG="]),
        "a filter that makes no sense is told"
    );
    Ok(())
}
