//! Settings that are refused, with a message and without an order.

use e2e::private_dir::private_dir;
use std::fs;

use anyhow::{Result, ensure};
use e2e::gatewright::Gatewright;

use super::site::Site;

/// Runs the program until it ends with a refusal, and returns its message.
fn refused(args: &[&str]) -> Result<String> {
    let state = private_dir()?;
    let empty = tempfile::tempdir()?;
    let dir = empty.path().display().to_string();
    let private = state.path().display().to_string();
    let output = Gatewright::run(
        &[
            &["standalone", &dir, "--no-envoy", "--state-dir", &private],
            args,
        ]
        .concat(),
    )?;
    ensure!(!output.status.success(), "{args:?} was taken");
    Ok(String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
#[ignore = "builds the program"]
fn invalid_settings_are_refused_at_the_start_with_a_sentence() -> Result<()> {
    let dir = tempfile::tempdir()?;
    fn file(
        name: &str,
        text: &str,
        dir: &tempfile::TempDir,
    ) -> std::result::Result<String, anyhow::Error> {
        let path = dir.path().join(name);
        fs::write(&path, text)?;
        Ok(path.display().to_string())
    }
    let le = ["--set", "issuers.acme.directory=letsencrypt"];
    let empty = file("empty", "", &dir)?;
    let nonsense = file("nonsense.pem", "no certificate", &dir)?;
    let two =
        "issuers.acme.dns={cloudflare: {tokenFile: /t}, exec: {program: /bin/true}}".to_owned();
    let unknown = "issuers.acme.dns={cloudfare: {tokenFile: /t}}".to_owned();
    let missing = "issuers.acme.dns={cloudflare: {tokenFile: /nowhere/token}}".to_owned();
    let tsig =
        "issuers.acme.dns={rfc2136: {nameserver: 127.0.0.1, keyName: k, algorithm: hmac-md5, \
                keyFile: /t}}"
            .to_owned();
    let cases: &[(&[&str], &str)] = &[
        (
            &["--set", "issuers.acme.directory=lets-encrypt"],
            "--set issuers.acme.directory: \"lets-encrypt\": expected letsencrypt",
        ),
        (
            &["--set", "issuers.acme.directory=http://ca.example.com/dir"],
            "it must begin with https://",
        ),
        (
            &[
                "--set",
                "issuers.acme.directory=letsencrypt",
                "--set",
                "issuers.acme.caBundle=/nowhere",
            ],
            "caBundle: /nowhere: No such file",
        ),
        (
            &[
                "--set",
                "issuers.acme.directory=letsencrypt",
                "--set",
                &format!("issuers.acme.caBundle={nonsense}"),
            ],
            "expected certificates in PEM",
        ),
        (
            &[
                "--set",
                "issuers.acme.directory=letsencrypt",
                "--set",
                "issuers.acme.contacts=[me]",
            ],
            "--set issuers.acme.contacts: \"me\": expected mailto:",
        ),
        (
            &[
                "--set",
                "issuers.acme.directory=letsencrypt",
                "--set",
                "issuers.acme.externalAccount.keyId=k",
                "--set",
                &format!("issuers.acme.externalAccount.keyFile={empty}"),
            ],
            ": it is empty",
        ),
        (
            &[
                "--set",
                "issuers.acme.directory=letsencrypt",
                "--set",
                "issuers.acme.externalAccount.keyId=k",
                "--set",
                &format!("issuers.acme.externalAccount.keyFile={nonsense}"),
            ],
            "the MAC key is neither base64url nor base64",
        ),
        (
            &[le[0], le[1], "--set", &two],
            "--set issuers.acme.dns: 2 providers: expected one of cloudflare",
        ),
        (
            &[le[0], le[1], "--set", &unknown],
            "unknown field `cloudfare`",
        ),
        (
            &[le[0], le[1], "--set", &missing],
            "dns.cloudflare.tokenFile: /nowhere/token: No such file",
        ),
        (
            &[le[0], le[1], "--set", &tsig],
            "dns.rfc2136.algorithm: \"hmac-md5\": expected hmac-sha256",
        ),
        (
            &["--set", &format!("issuers.acme.caBundle={nonsense}")],
            "issuers.acme: missing field `directory`",
        ),
    ];
    for (args, word) in cases {
        let said = refused(args)?;
        ensure!(said.contains(word), "{args:?}: {said}");
    }
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy and Pebble"]
async fn names_no_ca_could_certify_cost_no_order() -> Result<()> {
    let mut site = Site::new().await?;
    fs::write(
        site.state.path().join("pebble.pem"),
        site.pebble.issuing_root(0).await?,
    )?;
    site.publish(&[
        ("co.uk", "acme"),
        ("*.example.com", "acme"),
        ("a.example.com", "acme"),
        ("192.0.2.1", "acme"),
    ])?;
    site.start(&[])?;
    for (host, word) in [
        ("co.uk", "co.uk is a public suffix"),
        ("*.example.com", "a wildcard needs a DNS-01 provider"),
        // The bundle is another CA's: nothing is sent to a server that cannot be authenticated.
        ("a.example.com", "check the CA bundle of the issuer"),
    ] {
        let row = site.row(host, |row| row["lastError"].is_string()).await?;
        ensure!(
            row["lastError"]
                .as_str()
                .is_some_and(|text| text.contains(word)),
            "{host}: {row}"
        );
    }
    let (_, text) = site.ask(&["status"])?;
    ensure!(
        text.contains("hostname \"192.0.2.1\" is an IP address: a DNS name is expected"),
        "{text}"
    );
    ensure!(site.pebble.orders() == 0);
    Ok(())
}
