//! The container image: the same program gives the same digest, it runs as nobody, and nothing is
//! in it that is not needed. It is one for each platform, of programs that stand alone.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use e2e::deploy::folder;
use e2e::gatewright::binary;
use serde_json::Value;

/// `deploy/image/build` for programs of platforms.
fn command(archive: &Path, programs: &[(&str, &Path)]) -> Command {
    let mut build = Command::new(folder().join("image/build"));
    for (platform, program) in programs {
        build
            .arg("--binary")
            .arg(format!("{platform}={}", program.display()));
    }
    build.args(["--version", "0.0.1", "--output"]).arg(archive);
    build
}

/// Builds it into an archive and returns its digest.
pub(super) fn build(archive: &Path, programs: &[(&str, &Path)], more: &[&str]) -> Result<String> {
    let out = command(archive, programs).args(more).output()?;
    ensure!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    Ok(String::from_utf8(out.stdout)?.trim().to_owned())
}

/// Why it is not built.
fn refused(dir: &Path, platform: &str, program: &Path) -> Result<String> {
    let out = command(&dir.join("refused.tar"), &[(platform, program)]).output()?;
    ensure!(
        !out.status.success(),
        "{platform}={} was taken",
        program.display()
    );
    Ok(String::from_utf8(out.stderr)?)
}

/// A JSON document of an archive.
pub(super) fn document(archive: &Path, name: &str) -> Result<Value> {
    Ok(serde_json::from_slice(&tar(&[
        "-xOf",
        &archive.display().to_string(),
        name,
    ])?)?)
}

/// The name in an archive of what has this digest.
pub(super) fn blob(digest: &Value) -> Result<String> {
    let hash = digest
        .as_str()
        .and_then(|name| name.strip_prefix("sha256:"))
        .context("a digest")?;
    Ok(format!("blobs/sha256/{hash}"))
}

/// Returns the platforms of an image: those of its index and of the configurations, which agree.
pub(super) fn platforms(archive: &Path) -> Result<Vec<String>> {
    let top = document(archive, "index.json")?;
    let index = document(archive, &blob(&top["manifests"][0]["digest"])?)?;
    let mut platforms = Vec::new();
    for manifest in index["manifests"].as_array().context("manifests")? {
        let config = document(archive, &blob(&manifest["digest"])?)?;
        let config = document(archive, &blob(&config["config"]["digest"])?)?;
        ensure!(
            manifest["platform"]["architecture"] == config["architecture"],
            "{manifest} {config}"
        );
        platforms.push(
            config["architecture"]
                .as_str()
                .map(str::to_owned)
                .context("an architecture")?,
        );
    }
    Ok(platforms)
}

pub(super) fn tar(arguments: &[&str]) -> Result<Vec<u8>> {
    let out = Command::new("tar").args(arguments).output()?;
    ensure!(
        out.status.success(),
        "tar {}: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&out.stderr)
    );
    Ok(out.stdout)
}

#[test]
#[ignore = "needs a built gatewright and python3"]
fn the_image_is_reproducible_and_has_nothing_but_the_program() -> Result<()> {
    let dir = tempfile::Builder::new().prefix("image").tempdir()?;
    let one = dir.path().join("one.tar");
    let two = dir.path().join("two.tar");
    let program = binary()?;
    let programs = [("linux/amd64", program.as_path())];
    let digest = build(&one, &programs, &["--with-libraries"])?;
    assert_eq!(build(&two, &programs, &["--with-libraries"])?, digest);
    assert_eq!(
        std::fs::read(&one)?,
        std::fs::read(&two)?,
        "the archives are the same to the byte"
    );

    let index = document(&one, "index.json")?;
    assert_eq!(index["manifests"][0]["digest"], digest.as_str());
    let manifest = document(&one, &blob(&index["manifests"][0]["digest"])?)?;
    let config = document(&one, &blob(&manifest["config"]["digest"])?)?;
    assert_eq!(config["config"]["User"], "65532:65532");
    assert_eq!(config["config"]["Entrypoint"][0], "/usr/bin/gatewright");
    assert_eq!(
        config["config"]["Labels"]["org.opencontainers.image.version"],
        "0.0.1"
    );
    assert_eq!(config["created"], "1970-01-01T00:00:00Z");
    // Docker before 25 reads this one.
    assert_eq!(
        document(&one, "manifest.json")?[0]["RepoTags"][0],
        "gatewright:0.0.1"
    );

    let layer = dir.path().join("layer.tar.gz");
    std::fs::write(
        &layer,
        tar(&[
            "-xOf",
            &one.display().to_string(),
            &blob(&manifest["layers"][0]["digest"])?,
        ])?,
    )?;
    let listed = String::from_utf8(tar(&["-tzf", &layer.display().to_string()])?)?;
    let files: BTreeSet<&str> = listed.lines().filter(|path| !path.ends_with('/')).collect();
    let ours = [
        "etc/group",
        "etc/nsswitch.conf",
        "etc/passwd",
        "etc/ssl/certs/ca-certificates.crt",
        "usr/bin/gatewright",
    ];
    let more: Vec<&&str> = files
        .iter()
        .filter(|file| !ours.contains(file) && !file.contains(".so"))
        .collect();
    assert!(
        more.is_empty() && ours.iter().all(|file| files.contains(file)),
        "{files:?}"
    );
    Ok(())
}

/// A static program of a machine, as far as one looks at it, perhaps with symbols.
fn program(path: &Path, machine: u8, has_symbols: bool) -> Result<()> {
    let mut file = vec![0; 64];
    file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    file[18] = machine;
    // One section behind the header, which is a table of symbols.
    (file[40], file[58], file[60]) = (64, 64, u8::from(has_symbols));
    file.extend([[0; 4], [2, 0, 0, 0]].concat());
    file.extend([0; 56]);
    Ok(std::fs::write(path, file)?)
}

const AMD64: u8 = 62;
const ARM64: u8 = 183;

#[test]
#[ignore = "needs python3"]
fn an_image_has_each_platform_and_programs_that_stand_alone() -> Result<()> {
    let dir = tempfile::Builder::new().prefix("image").tempdir()?;
    let [amd64, arm64, symbols, archive] =
        ["amd64", "arm64", "symbols", "image.tar"].map(|name| dir.path().join(name));
    program(&amd64, AMD64, false)?;
    program(&arm64, ARM64, false)?;
    program(&symbols, ARM64, true)?;
    let digest = build(
        &archive,
        &[("linux/amd64", &amd64), ("linux/arm64", &arm64)],
        &[],
    )?;
    let top = document(&archive, "index.json")?;
    assert_eq!(top["manifests"][0]["digest"], digest.as_str());
    assert_eq!(platforms(&archive)?, ["amd64", "arm64"]);

    let told = refused(dir.path(), "linux/arm64", &amd64)?;
    assert!(told.contains("is for amd64, expected arm64"), "{told}");
    let told = refused(dir.path(), "linux/arm64", &symbols)?;
    assert!(told.contains("has symbols"), "{told}");
    let told = refused(dir.path(), "linux/amd64", &binary()?)?;
    assert!(told.contains("is linked dynamically"), "{told}");
    Ok(())
}

/// The way of `make image` to a program for arm64, with a small one: the whole takes ten minutes.
#[test]
#[ignore = "needs compilers for arm64 and QEMU: e2e/tools install cross"]
fn a_program_for_arm64_is_static_and_runs() -> Result<()> {
    let dir = tempfile::Builder::new().prefix("arm64").tempdir()?;
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text);
    std::fs::create_dir(dir.path().join("src"))?;
    write(
        "Cargo.toml",
        "[package]\nname = 'gatewright'\nversion = '0.0.1'\nedition = '2024'\n[workspace]\n\
         [profile.image]\ninherits = 'release'\nstrip = 'symbols'\n",
    )?;
    write(
        "Cargo.lock",
        "version = 4\n[[package]]\nname = 'gatewright'\nversion = '0.0.1'\n",
    )?;
    // Names are looked up by the C library.
    write(
        "src/main.rs",
        "use std::net::ToSocketAddrs;\n\
         fn main() { println!(\"{} {:?}\", std::env::consts::ARCH, (\"127.0.0.1\", 1).to_socket_addrs().unwrap().next()) }\n",
    )?;
    let target = "aarch64-unknown-linux-gnu";
    let mut compile = Command::new(folder().join("image/compile"));
    compile
        .arg(target)
        .arg(dir.path())
        .env("CARGO_TARGET_DIR", dir.path().join("target"))
        .env_remove("RUSTFLAGS");
    let out = compile.output()?;
    ensure!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let program = dir
        .path()
        .join("target")
        .join(target)
        .join("image/gatewright");
    build(
        &dir.path().join("image.tar"),
        &[("linux/arm64", &program)],
        &[],
    )?;
    let out = Command::new(folder().join("../.tools/qemu-aarch64"))
        .arg(&program)
        .output()?;
    assert_eq!(
        String::from_utf8(out.stdout)?,
        "aarch64 Some(127.0.0.1:1)\n"
    );
    Ok(())
}
