//! `global` of a chart that contains this one: a registry and pull secrets reach every pod, and
//! other keys are refused.

use std::collections::BTreeSet;
use std::process::Command as Program;

use anyhow::{Context, Result, ensure};
use e2e::apiserver::manifests::documents;
use e2e::helm::{Helm, NAMESPACE, chart};
use serde_json::{Value, json};

use super::hardened::{EVERYTHING, containers, pods};

/// Returns all objects of the chart at a path, with the pod of `helm test`.
fn rendered(helm: &Helm, path: &str, set: &str) -> Result<Vec<Value>> {
    let text = helm.run(&[
        "template",
        "gatewright",
        path,
        "--namespace",
        NAMESPACE,
        "--set",
        set,
    ])?;
    Ok(documents(&text)?
        .into_iter()
        .filter(|object| !object.is_null())
        .collect())
}

/// Returns the images of all pods. Each pod has these pull secrets.
fn images(all: &[Value], secrets: &Value) -> BTreeSet<String> {
    let pods = pods(all);
    assert_eq!(
        pods.len(),
        6,
        "the controller, the Envoys of each fleet, the definitions, and the test"
    );
    let mut images = BTreeSet::new();
    for (name, pod) in pods {
        assert_eq!(pod["imagePullSecrets"], *secrets, "{name}");
        images.extend(
            containers(pod).filter_map(|container| container["image"].as_str().map(str::to_owned)),
        );
    }
    images
}

#[test]
#[ignore = "needs Helm: e2e/tools install helm"]
fn a_registry_and_pull_secrets_reach_every_pod() -> Result<()> {
    let helm = Helm::new(None)?;
    let chart = chart().display().to_string();
    let tag = "distroless-v1.40.0";
    let own = env!("CARGO_PKG_VERSION");
    for (set, secrets, expected) in [
        (
            "global.imageRegistry=mirror.example,global.imagePullSecrets={a,b},imagePullSecrets[0].name=a",
            json!([{"name": "a"}, {"name": "b"}]),
            [
                format!("mirror.example/envoyproxy/envoy:{tag}"),
                format!("mirror.example/gatewright:{own}"),
            ],
        ),
        (
            "global.imageRegistry=localhost:5000/path/,global.imagePullSecrets[0].name=b,image.repository=ours.example/x/gw",
            json!([{"name": "b"}]),
            [
                format!("localhost:5000/path/envoyproxy/envoy:{tag}"),
                format!("localhost:5000/path/x/gw:{own}"),
            ],
        ),
        // Without a registry of its own, the first part is a part of the name.
        (
            "global.imageRegistry=m.example,envoy.image.repository=team/envoy,global.imagePullSecrets=null",
            Value::Null,
            [
                format!("m.example/gatewright:{own}"),
                format!("m.example/team/envoy:{tag}"),
            ],
        ),
        (
            "global.imageRegistry=null",
            Value::Null,
            [
                format!("docker.io/envoyproxy/envoy:{tag}"),
                format!("gatewright:{own}"),
            ],
        ),
    ] {
        let found = images(
            &rendered(&helm, &chart, &format!("{EVERYTHING},{set}"))?,
            &secrets,
        );
        assert_eq!(found, BTreeSet::from(expected), "{set}");
        // `gatewright images` reads the same values.
        let file = helm.home().join("values.yaml");
        let registry = set
            .split(',')
            .find_map(|one| one.strip_prefix("global.imageRegistry="))
            .context("one")?;
        let other = |path: &str| {
            set.split(',')
                .find_map(|one| one.strip_prefix(path).map(str::to_owned))
        };
        let mut values = json!({"global": {"imageRegistry": if registry == "null" { Value::Null } else { json!(registry) }}});
        if let Some(repository) = other("image.repository=") {
            values["image"]["repository"] = json!(repository);
        }
        if let Some(repository) = other("envoy.image.repository=") {
            values["envoy"]["image"]["repository"] = json!(repository);
        }
        std::fs::write(&file, values.to_string())?;
        let told = gatewright::images::images(&[std::fs::read_to_string(&file)?])?;
        assert_eq!(
            told.into_iter()
                .map(|image| image.reference)
                .collect::<BTreeSet<_>>(),
            found,
            "{set}"
        );
    }
    Ok(())
}

#[test]
#[ignore = "needs Helm: e2e/tools install helm"]
fn what_nothing_reads_is_refused() -> Result<()> {
    let helm = Helm::new(None)?;
    for (wrong, word) in [
        (
            "global.storageClass=fast",
            "global.storageClass: nothing reads it",
        ),
        (
            "global.imageregistry=mirror.example",
            "global.imageregistry: nothing reads it",
        ),
        (
            "global.image.registry=mirror.example",
            "global.image: nothing reads it",
        ),
        (
            "global.imageRegistry=https://mirror.example",
            "imageRegistry",
        ),
        ("global.imageRegistry=mirror.example/a b", "imageRegistry"),
        ("global.imageRegistry={a}", "imageRegistry"),
        ("global.imagePullSecrets=a", "imagePullSecrets"),
        ("global.imagePullSecrets={1}", "imagePullSecrets"),
        ("global.imagePullSecrets[0].nam=a", "imagePullSecrets"),
    ] {
        let told = helm
            .template(&["--set", wrong])
            .expect_err(wrong)
            .to_string();
        assert!(told.contains(word), "{wrong}: {told}");
    }
    Ok(())
}

/// A chart that contains this one may have keys below `global` for its other parts.
#[test]
#[ignore = "needs Helm: e2e/tools install helm"]
fn a_part_of_another_chart_takes_what_is_meant_for_it() -> Result<()> {
    let helm = Helm::new(None)?;
    let above = helm.home().join("above");
    std::fs::create_dir_all(above.join("charts"))?;
    std::fs::write(
        above.join("Chart.yaml"),
        "{apiVersion: v2, name: above, version: 1.0.0}",
    )?;
    let copied = Program::new("cp")
        .arg("-r")
        .arg(chart())
        .arg(above.join("charts/gatewright"))
        .status()?;
    ensure!(copied.success(), "cp: {copied}");
    let inner: Vec<String> = EVERYTHING
        .split(',')
        .map(|set| format!("gatewright.{set}"))
        .collect();
    let set = format!(
        "{},global.imageRegistry=mirror.example,global.imagePullSecrets={{a}},global.storageClass=fast",
        inner.join(",")
    );
    let found = images(
        &rendered(&helm, &above.display().to_string(), &set)?,
        &json!([{"name": "a"}]),
    );
    assert!(
        found.len() == 2
            && found
                .iter()
                .all(|image| image.starts_with("mirror.example/")),
        "{found:?}"
    );
    Ok(())
}
