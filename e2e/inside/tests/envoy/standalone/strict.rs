//! Manifests that would mean something else than their author thinks are refused.

use e2e::private_dir::private_dir;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::time::Duration;

use anyhow::{Context, Result};
use e2e::gatewright::Gatewright;

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

fn policy(name: &str, target: &str, rules: &str) -> String {
    format!(
        "apiVersion: gatewright.io/v1alpha1\nkind: AccessPolicy\nmetadata: {{name: {name}}}\nspec:\n  \
         targetRefs: [{{group: gateway.networking.k8s.io, kind: HTTPRoute, {target}}}]\n  {rules}\n"
    )
}

/// What was not read before opens nothing: a file of its own, one with its route, and one that is
/// cut off.
#[tokio::test]
#[ignore = "needs Envoy"]
async fn a_new_policy_that_cannot_be_read_closes_its_host() -> Result<()> {
    let mut site = Standalone::start().await?;
    let good = "clientAddress: {allow: [127.0.0.0/8]}";
    for (number, rules) in [
        "clientAddress: {alow: [127.0.0.0/8]}",
        "enforcement: report\n  clientAddress: {allow: [127.0.0.0/8]}",
        "apiKey: {headers: [x-key]}\n  clientAddress: {allow: [127.0.0.0/8]}",
        "clientAddress: {allow: [5]}",
        "clientAddress: {allow: [127.0.0",
    ]
    .into_iter()
    .enumerate()
    {
        let (name, host) = (format!("r{number}"), format!("r{number}.example.org"));
        let target = format!("name: {name}");
        site.save("web.yaml", &route(&name, &host, "web"))?;
        site.until(&host, Some(200))
            .await
            .with_context(|| format!("{rules}: before"))?;
        site.save("policy.yaml", &policy(&name, &target, rules))?;
        site.until(&host, Some(500)).await.context(rules)?;
        site.save("policy.yaml", &policy(&name, &target, good))?;
        site.until(&host, Some(200))
            .await
            .with_context(|| format!("{rules}: mended"))?;
        fs::remove_file(site.file("policy.yaml"))?;
        // Both in one new file.
        let (name, host) = (format!("b{number}"), format!("b{number}.example.org"));
        let target = format!("name: {name}");
        let file = route(&name, &host, "web") + "---\n" + &policy(&name, &target, rules);
        site.save(&format!("{name}.yaml"), &file)?;
        site.program.line(&format!("{name}.yaml:")).await?;
        // The HTTPRoute of a later file is served: the broken file was read before it.
        let (late, late_host) = (format!("late{number}"), format!("late{number}.example.org"));
        site.save("late.yaml", &route(&late, &late_host, "web"))?;
        site.until(&late_host, Some(200))
            .await
            .with_context(|| format!("{rules}: later"))?;
        let status = site.status(&host).await?;
        assert!(
            matches!(status, 500 | 404),
            "{rules} beside its route: {status}"
        );
    }
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn a_policy_on_a_rule_that_is_not_there_closes_the_route() -> Result<()> {
    let mut site = Standalone::start().await?;
    let named = route("web", "web.example.org", "web")
        .replace("  - backendRefs", "  - name: admin\n    backendRefs");
    site.save("web.yaml", &named)?;
    site.program.line("httproute default/web: ").await?;
    let rules = "clientAddress: {allow: [127.0.0.0/8]}";
    site.save(
        "policy.yaml",
        &policy("guard", "name: web, sectionName: admin", rules),
    )?;
    site.until("web.example.org", Some(200))
        .await
        .context("the rule is there")?;
    site.save(
        "web.yaml",
        &named.replace("name: admin", "name: administration"),
    )?;
    site.until("web.example.org", Some(500))
        .await
        .context("renamed")?;
    let (_, text) = site.ask(&["status", "accesspolicy/guard"])?;
    assert!(
        text.contains("TargetNotFound") && text.contains("has no rule of name \"admin\""),
        "{text}"
    );
    let url = format!("https://web.example.org:{}/", site.port);
    let (code, text) = site.ask(&["explain", &url])?;
    assert!(
        code == 1 && text.contains("accesspolicy default/guard: TargetNotFound"),
        "{text}"
    );
    site.save("web.yaml", &named)?;
    site.until("web.example.org", Some(200))
        .await
        .context("named again")?;
    Ok(())
}

/// A file of which nobody can tell what it guards: at a start the program is not ready with it.
#[tokio::test]
#[ignore = "needs Envoy"]
async fn a_start_with_a_policy_that_nobody_can_read_is_not_ready() -> Result<()> {
    let site = Standalone::start().await?;
    let socket = site.state.path().join("admin.sock");
    site.save(
        "policy.yaml",
        "apiVersion: gatewright.io/v1alpha1\nkind: AccessPolicy\nmetadata: {na",
    )?;
    let mut site = site;
    site.program.line("policy.yaml:").await?;
    let ready = gatewright_control::ask(&socket, "/readyz").await?;
    assert!(
        ready.starts_with("ok\n") && ready.contains("an AccessPolicy in it may be without effect"),
        "{ready}"
    );
    let state = private_dir()?;
    let dir = site.manifests.path().display().to_string();
    let private = state.path().display().to_string();
    let mut second =
        Gatewright::start(&["standalone", &dir, "--state-dir", &private, "--no-envoy"])?;
    second.line("admin socket").await?;
    let socket = state.path().join("admin.sock");
    let refused = async {
        loop {
            match gatewright_control::ask(&socket, "/readyz").await {
                Err(error) if error.to_string().contains("policy.yaml") => {
                    break Ok(error.to_string());
                }
                Ok(text) => anyhow::bail!("it is ready: {text}"),
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    let why = tokio::time::timeout(e2e_inside::served::PATIENCE, refused)
        .await
        .context("it was never told")??;
    assert!(
        why.contains("an AccessPolicy in it may be without effect"),
        "{why}"
    );
    Ok(())
}
