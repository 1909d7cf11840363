//! Manifests that would mean something else than their author thinks are refused.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};

use anyhow::Result;

use super::{Standalone, route};

/// Hosts that no route has.
const STRANGER: &str = "stranger.example.org";

#[tokio::test]
#[ignore = "needs Envoy"]
async fn an_empty_hostname_is_refused_and_what_was_served_stays() -> Result<()> {
    let mut site = Standalone::start().await?;
    site.save("web.yaml", &route("web", "web.example.org", "web"))?;
    site.program.line("httproute default/web: ").await?;
    for hostnames in [
        "[\"\"]",
        "[web.example.org, \"\"]",
        "[\"\", web.example.org]",
    ] {
        site.save(
            "web.yaml",
            &route("web", "web.example.org", "web").replace("[web.example.org]", hostnames),
        )?;
        let line = site.program.line("is empty").await?;
        assert!(
            line.contains("web.yaml:6: httproute default/web: spec.hostnames["),
            "{line}"
        );
        assert_eq!(site.status(STRANGER).await?, 404, "{hostnames}");
        assert_eq!(site.status("web.example.org").await?, 200, "{hostnames}");
        let text = fs::read_to_string(site.file("web.yaml"))?;
        fs::write(
            site.file("web.yaml"),
            text.replace("kind: HTTPRoute", "kind: GRPCRoute"),
        )?;
        site.program
            .line("grpcroute default/web: spec.hostnames[")
            .await?;
        assert_eq!(
            site.status(STRANGER).await?,
            404,
            "{hostnames} of a GRPCRoute"
        );
    }
    let (code, text) = lint(&site)?;
    assert!(code == 1 && text.contains("spec.hostnames["), "{text}");
    let base = fs::read_to_string(site.file("base.yaml"))?;
    site.save(
        "base.yaml",
        &base.replace("hostname: \"*.example.org\"", "hostname: \"\""),
    )?;
    let line = site
        .program
        .line("gateway default/edge: spec.listeners[")
        .await?;
    assert!(line.contains("hostname: is empty"), "{line}");
    Ok(())
}

fn lint(site: &Standalone) -> Result<(i32, String)> {
    let output =
        e2e::gatewright::Gatewright::run(&["lint", &site.manifests.path().display().to_string()])?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    Ok((output.status.code().unwrap_or(-1), text))
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn a_key_that_is_there_twice_is_refused_and_what_was_served_stays() -> Result<()> {
    let mut site = Standalone::start().await?;
    site.save("web.yaml", &route("web", "web.example.org", "web"))?;
    site.program.line("httproute default/web: ").await?;
    let twice = "  hostnames: [web.example.org]\n  hostnames: [two.example.org]\n";
    let text =
        route("web", "web.example.org", "web").replace("  hostnames: [web.example.org]\n", twice);
    site.save(
        "web.yaml",
        &(text + "---\n" + &route("beside", "beside.example.org", "web")),
    )?;
    let line = site.program.line("duplicate key").await?;
    assert!(
        line.contains("web.yaml:7: ") && line.contains("\"hostnames\""),
        "{line}"
    );
    site.program.line("httproute default/beside: ").await?;
    for (host, expected) in [
        ("web.example.org", 200),
        ("two.example.org", 404),
        ("beside.example.org", 200),
    ] {
        assert_eq!(site.status(host).await?, expected, "{host}");
    }
    Ok(())
}

/// Files of mode 664 are usual where each user has a group of their own.
#[tokio::test]
#[ignore = "needs Envoy"]
async fn files_that_only_their_owner_s_own_group_may_write_are_read() -> Result<()> {
    let mut site = Standalone::start().await?;
    let add = |name: &str, group: u32| -> Result<()> {
        let new = site.file(&format!(".{name}"));
        fs::write(&new, route(name, &format!("{name}.example.org"), "web"))?;
        fs::set_permissions(&new, fs::Permissions::from_mode(0o664))?;
        chown(&new, None, Some(group))?;
        Ok(fs::rename(new, site.file(&format!("{name}.yaml")))?)
    };
    // Group root has root alone; daemon's has another user.
    add("own", 0)?;
    add("other", 1)?;
    site.program.line("httproute default/own: ").await?;
    let line = site
        .program
        .line("may be written by others (mode 664)")
        .await?;
    assert!(line.contains("other.yaml"), "{line}");
    assert_eq!(site.status("own.example.org").await?, 200);
    assert_eq!(site.status("other.example.org").await?, 404);
    Ok(())
}
