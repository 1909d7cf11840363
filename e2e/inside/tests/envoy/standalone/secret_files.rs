//! Secrets with files in place of data, as certbot, lego and acme.sh lay them out: renewals are
//! served without a restart, and half of one is not.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::tls_backend::{Pair, TestRoot};
use e2e_inside::served::PATIENCE;
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

use super::{Standalone, route, with};

const HOST: &str = "own.example.org";

/// A directory of certificates as certbot's: `live/own` has links into `archive/own`.
struct Certbot {
    dir: TempDir,
    version: usize,
}

impl Certbot {
    fn new() -> Result<Self> {
        let dir = tempfile::tempdir()?;
        for part in ["live/own", "archive/own"] {
            fs::create_dir_all(dir.path().join(part))?;
        }
        Ok(Self { dir, version: 0 })
    }

    fn at(&self, part: &str) -> PathBuf {
        self.dir.path().join(part)
    }

    /// Writes a new version beside the others, which is not served yet.
    fn archive(&mut self, pair: &Pair) -> Result<()> {
        self.version += 1;
        for (name, text) in [
            ("fullchain", pair.certificate.pem()),
            ("privkey", pair.key.serialize_pem()),
        ] {
            let file = self.at(&format!("archive/own/{name}{}.pem", self.version));
            fs::write(&file, text)?;
            fs::set_permissions(file, fs::Permissions::from_mode(0o600))?;
        }
        Ok(())
    }

    /// Turns a link of `live` to the newest version, by a rename.
    fn turn(&self, name: &str) -> Result<()> {
        let target = format!("../../archive/own/{name}{}.pem", self.version);
        let new = self.at(&format!("live/own/.{name}.new"));
        symlink(target, &new)?;
        fs::rename(new, self.at(&format!("live/own/{name}.pem"))).context("renaming the link")
    }

    /// The Secret of these files.
    fn secret(&self) -> String {
        secret(
            &self.at("live/own/fullchain.pem"),
            &self.at("live/own/privkey.pem"),
        )
    }

    /// The setting by which the program may read them.
    fn setting(&self) -> String {
        format!(
            "manifests.secretFiles=[{{directory: {}}}]",
            self.dir.path().display()
        )
    }
}

fn secret(chain: &Path, key: &Path) -> String {
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: own\n  annotations:\n    \
         gatewright.io/files: \"tls.crt={},tls.key={}\"\ntype: kubernetes.io/tls\n",
        chain.display(),
        key.display()
    )
}

/// A site whose host has the certificate of a Secret `own`.
async fn site(setting: &str) -> Result<Standalone> {
    let site = Standalone::start_with(&["--set", setting]).await?;
    let base = fs::read_to_string(site.file("base.yaml"))?;
    let listener = format!(
        "  - name: own\n    hostname: {HOST}\n    protocol: HTTPS\n    port: {}\n    \
         tls: {{certificateRefs: [{{name: own}}]}}\n",
        site.port
    );
    site.save("base.yaml", &with(&base, "", &listener))?;
    site.save("route.yaml", &route("own", HOST, "web"))?;
    Ok(site)
}

/// Waits until this certificate is shown, in a handshake with an answer.
async fn shown(site: &Standalone, pair: &Pair) -> Result<()> {
    let there = async {
        while !shows(site, pair).await {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, there)
        .await
        .with_context(|| format!("it is never shown: {}", site.program.output()))
}

async fn shows(site: &Standalone, pair: &Pair) -> bool {
    presented(site).await.as_deref() == Some(&**pair.certificate.der())
}

/// The certificate that is shown for the host.
async fn presented(site: &Standalone) -> Option<Vec<u8>> {
    let answer = site.probe(HOST).send().await.ok()?;
    let peer = answer.peer?;
    Some(peer.chain.first()?.to_vec())
}

/// Waits until `status` of the program has a text.
async fn status_says(site: &Standalone, text: &str) -> Result<String> {
    let said = async {
        loop {
            let (_, status) = site.ask(&["status", "-o", "json"])?;
            if status.contains(text) {
                return Ok(status);
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, said)
        .await
        .with_context(|| format!("status never says {text}"))?
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn a_renewal_by_links_is_served_at_once_and_half_of_one_is_not() -> Result<()> {
    let root = TestRoot::new("certbot")?;
    let pairs = [
        root.issue(HOST, None)?,
        root.issue(HOST, None)?,
        root.issue(HOST, None)?,
    ];
    let [first, second, third] = &pairs;
    let mut certbot = Certbot::new()?;
    let mut site = site(&certbot.setting()).await?;

    // The Secret is there before its files.
    site.save("secret.yaml", &certbot.secret())?;
    let missing = site.program.line("fullchain.pem cannot be read").await?;
    assert!(missing.contains("own"), "{missing}");
    certbot.archive(first)?;
    certbot.turn("privkey")?;
    certbot.turn("fullchain")?;
    shown(&site, first).await?;

    // A renewal.
    certbot.archive(second)?;
    certbot.turn("fullchain")?;
    certbot.turn("privkey")?;
    shown(&site, second).await?;
    let output = site.program.output();
    ensure!(
        !output.contains("does not match"),
        "a whole renewal: {output}"
    );

    // Half of one: the last good pair is served, and the files are named.
    certbot.archive(third)?;
    certbot.turn("fullchain")?;
    let status = status_says(&site, "does not match the first certificate").await?;
    let key = certbot.at("live/own/privkey.pem");
    assert!(
        status.contains(&key.display().to_string()) && status.contains("default/own"),
        "{status}"
    );
    ensure!(shows(&site, second).await, "the last good pair is served");

    // A file that is gone does not end it either.
    fs::remove_file(&key)?;
    status_says(&site, "privkey.pem cannot be read").await?;
    ensure!(shows(&site, second).await, "the last good pair is served");
    certbot.turn("privkey")?;
    shown(&site, third).await
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn files_that_are_written_in_place_are_served_whole() -> Result<()> {
    let root = TestRoot::new("lego")?;
    let dir = tempfile::tempdir()?;
    let [chain, key] = ["own.crt", "own.key"].map(|name| dir.path().join(name));
    let site = site(&format!(
        "manifests.secretFiles=[{{directory: {}}}]",
        dir.path().display()
    ))
    .await?;
    site.save("secret.yaml", &secret(&chain, &key))?;
    for _ in 0..5 {
        let pair = root.issue(HOST, None)?;
        fs::write(&key, pair.key.serialize_pem())?;
        fs::write(&chain, pair.certificate.pem())?;
        shown(&site, &pair).await?;
    }
    // The whole directory is exchanged.
    let pair = root.issue(HOST, None)?;
    let old = dir.path().with_extension("old");
    fs::rename(dir.path(), &old)?;
    fs::create_dir(dir.path())?;
    fs::write(&chain, pair.certificate.pem())?;
    fs::write(&key, pair.key.serialize_pem())?;
    shown(&site, &pair).await?;
    fs::remove_dir_all(old)?;
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn files_of_another_namespace_or_directory_are_not_read() -> Result<()> {
    let root = TestRoot::new("others")?;
    let mut certbot = Certbot::new()?;
    certbot.archive(&root.issue(HOST, None)?)?;
    certbot.turn("privkey")?;
    certbot.turn("fullchain")?;
    let setting = format!(
        "manifests.secretFiles=[{{directory: {}, namespaces: [other]}}]",
        certbot.dir.path().display()
    );
    let site = site(&setting).await?;
    site.save("secret.yaml", &certbot.secret())?;
    let status = status_says(&site, "may not be read").await?;
    assert!(status.contains("manifests.secretFiles"), "{status}");
    ensure!(
        presented(&site).await.is_none(),
        "the host has no certificate"
    );
    // A link beside the manifest leads to no others.
    symlink(certbot.at("live/own"), site.file("certs"))?;
    let chain = site.file("certs/fullchain.pem");
    site.save(
        "secret.yaml",
        &secret(&chain, &site.file("certs/privkey.pem")),
    )?;
    status_says(&site, "is a link to").await?;
    ensure!(
        presented(&site).await.is_none(),
        "the host has no certificate"
    );
    // Copies beside the manifest need no setting.
    fs::remove_file(site.file("certs"))?;
    let pair = root.issue(HOST, None)?;
    fs::write(site.file("own.pem"), pair.certificate.pem())?;
    fs::write(site.file("own.key"), pair.key.serialize_pem())?;
    site.save(
        "secret.yaml",
        &secret(Path::new("own.pem"), Path::new("own.key")),
    )?;
    shown(&site, &pair).await
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn users_of_a_file_are_admitted_as_it_changes() -> Result<()> {
    const SECRET: &str = "alice:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n";
    const OTHER: &str = "alice:{SHA}0JQeaNqPOBUf+Gph/Fn3xc+fyqI=\n";
    let site = Standalone::start().await?;
    site.save("route.yaml", &route("own", HOST, "web"))?;
    fs::write(site.file("staff"), SECRET)?;
    site.save(
        "users.yaml",
        "apiVersion: v1\nkind: Secret\ntype: gatewright.io/htpasswd\n\
         metadata: {name: staff, annotations: {gatewright.io/files: .htpasswd=staff}}\n---\n\
         apiVersion: gatewright.io/v1alpha1\nkind: AccessPolicy\nmetadata: {name: own}\nspec:\n  \
         targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: own}]\n  \
         basicAuth: {users: {name: staff}}\n",
    )?;
    let until = async |status: u16| {
        let probe = || {
            let credentials = "Basic YWxpY2U6c2VjcmV0";
            site.probe(HOST).header("authorization", credentials)
        };
        let answered = async {
            while probe().send().await.ok().map(|answer| answer.status) != Some(status) {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, answered)
            .await
            .with_context(|| format!("never answered {status}: {}", site.program.output()))
    };
    until(200).await?;
    fs::write(site.file("staff"), OTHER)?;
    until(401).await?;
    fs::write(site.file("staff"), SECRET)?;
    until(200).await?;
    // Without users the policy closes its target.
    fs::remove_file(site.file("staff"))?;
    until(500).await
}
