//! Files that are saved, broken, deleted, and open to others.

use super::*;

#[tokio::test]
#[ignore = "needs Envoy"]
async fn saving_breaking_and_deleting_files() -> Result<()> {
    let mut site = Standalone::start().await?;
    site.save("web.yaml", &route("web", "web.example.org", "web"))?;
    let line = site.program.line("httproute default/web: ").await?;
    assert!(line.contains("1 host changed, acked 1/1 in"), "{line}");
    assert_eq!(site.status("web.example.org").await?, 200);

    // A broken file is reported with its line, and affects nothing else.
    site.save(
        "web.yaml",
        &(route("web", "web.example.org", "web") + "---\nkind: [\n"),
    )?;
    let line = site.program.line("not YAML").await?;
    assert!(line.contains("web.yaml:1"), "{line}");
    assert_eq!(site.status("web.example.org").await?, 200);
    site.save(
        "web.yaml",
        &route("web", "web.example.org", "web").replace("rules:", "rulez:"),
    )?;
    let line = site.program.line("unknown field").await?;
    assert!(
        line.contains("web.yaml:7") && line.contains("httproute default/web"),
        "{line}"
    );
    assert_eq!(site.status("web.example.org").await?, 200);
    let url = format!("https://web.example.org:{}/", site.port);
    for command in [&["status"][..], &["explain", &url]] {
        for output in ["table", "json"] {
            let (code, text) = site.ask(&[command, &["-o", output]].concat())?;
            let expected = i32::from(command[0] == "status");
            assert_eq!(
                code, expected,
                "a stale file is wrong, and its URL works: {text}"
            );
            assert!(text.contains("web.yaml is served as it was at"), "{text}");
            assert!(
                text.contains("web.yaml:7: ") && text.contains("unknown field"),
                "{text}"
            );
        }
    }

    // An object that is in two files belongs to the first.
    site.save("web.yaml", &route("web", "web.example.org", "web"))?;
    site.save("zzz.yaml", &route("web", "other.example.org", "web"))?;
    let line = site.program.line("is already defined in").await?;
    assert!(
        line.contains("zzz.yaml:1") && line.contains("web.yaml"),
        "{line}"
    );

    // A half-written file is no error while the other half may follow.
    for attempt in 0.. {
        let name = format!("slow{attempt}");
        let whole = route(&name, &format!("{name}.example.org"), "web");
        let first = &whole[..whole.find("backendRefs").context("it has them")? + 14];
        let file = site.file(&format!("{name}.yaml"));
        fs::write(&file, first)?;
        let began = std::time::Instant::now();
        fs::write(&file, &whole)?;
        let took = began.elapsed();
        site.program
            .line(&format!("httproute default/{name}: 1 host changed"))
            .await?;
        // On a busy machine the other half may be too late; then it is repeated.
        if took < std::time::Duration::from_millis(20) {
            let said = site.program.output();
            assert!(!said.contains(&format!("{name}.yaml")), "{said}");
            break;
        }
        assert!(attempt < 50, "two writes take {took:?}");
    }

    fs::remove_file(site.file("zzz.yaml"))?;
    fs::remove_file(site.file("web.yaml"))?;
    site.program
        .line("httproute default/web deleted: 1 host changed")
        .await?;
    assert_eq!(site.status("web.example.org").await?, 404);
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn files_that_others_may_change_are_refused() -> Result<()> {
    let mut site = Standalone::start().await?;
    let outside = tempfile::tempdir()?;
    let target = outside.path().join("out.yaml");
    fs::write(&target, route("out", "out.example.org", "web"))?;
    std::os::unix::fs::symlink(&target, site.file("out.yaml"))?;
    let line = site.program.line("out.yaml: is a link to").await?;
    assert!(line.contains("--allow-unsafe-manifests"), "{line}");
    let open = site.file(".open.yaml.new");
    fs::write(&open, route("open", "open.example.org", "web"))?;
    fs::set_permissions(&open, fs::Permissions::from_mode(0o666))?;
    fs::rename(open, site.file("open.yaml"))?;
    site.program
        .line("may be written by others (mode 666)")
        .await?;
    assert_eq!(site.status("open.example.org").await?, 404);
    Ok(())
}
