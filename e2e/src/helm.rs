//! Runs the real Helm on the chart of `deploy/`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;

use crate::apiserver::ApiServer;
use crate::apiserver::manifests::documents;
use crate::deploy::folder;

/// The namespace for which the chart is rendered.
pub const NAMESPACE: &str = "gatewright-system";

/// Returns the path of the chart.
pub fn chart() -> PathBuf {
    folder().join("chart")
}

/// Returns the example values of the chart: the path of each file by its name.
pub fn examples() -> Result<BTreeMap<String, String>> {
    let entries = std::fs::read_dir(chart().join("examples"))?;
    let named = entries.map(|entry| {
        let path = entry?.path();
        let name = path
            .file_stem()
            .context("a name")?
            .to_string_lossy()
            .into_owned();
        Ok((name, path.display().to_string()))
    });
    let all: BTreeMap<String, String> = named.collect::<Result<_>>()?;
    ensure!(all.len() >= 5, "examples are missing: {all:?}");
    Ok(all)
}

/// Values under all others: the name of the image, which a chart of a checkout does not have.
const IMAGE: &str = "image: {repository: gatewright}\n";

/// Helm with a home directory of its own.
#[derive(Debug)]
pub struct Helm {
    home: TempDir,
    kubeconfig: Option<PathBuf>,
}

impl Helm {
    /// Makes a Helm; with a kubeconfig it can access that cluster.
    pub fn new(kubeconfig: Option<PathBuf>) -> Result<Self> {
        let home = tempfile::Builder::new().prefix("helm").tempdir()?;
        std::fs::write(home.path().join("image.yaml"), IMAGE)?;
        Ok(Self { home, kubeconfig })
    }

    /// Returns a private directory, removed on drop.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Runs Helm and returns its output, or an error with its messages.
    pub fn run(&self, arguments: &[&str]) -> Result<String> {
        let helm = folder().join("../.tools/helm");
        ensure!(
            helm.exists(),
            "no Helm at {}; run: e2e/tools install helm",
            helm.display()
        );
        let mut program = Command::new(helm);
        for name in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            program.env(name, self.home.path());
        }
        if let Some(kubeconfig) = &self.kubeconfig {
            program.env("KUBECONFIG", kubeconfig);
        }
        let (verb, rest) = arguments.split_first().context("a command of Helm")?;
        program.arg(verb);
        if ["install", "lint", "template", "upgrade"].contains(verb) {
            program
                .arg("--values")
                .arg(self.home.path().join("image.yaml"));
        }
        program.args(rest);
        let out = program.output()?;
        ensure!(
            out.status.success(),
            "helm {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&out.stderr)
        );
        Ok(String::from_utf8(out.stdout)?)
    }

    /// Grants the controller the rights that the chart gives with the experimental channel.
    pub async fn grant_experimental_channel(&self, server: &ApiServer) -> Result<()> {
        let experimental = ["--set", "configuration.gatewayApi.channel=Experimental"];
        for object in self
            .template(&experimental)?
            .into_iter()
            .filter(|one| one["kind"] == "ClusterRole")
        {
            server.put(object).await?;
        }
        Ok(())
    }

    /// The objects that the chart renders, without those of `helm test` and of an upgrade.
    pub fn template(&self, more: &[&str]) -> Result<Vec<Value>> {
        let chart = chart().display().to_string();
        let arguments = [
            &[
                "template",
                "gatewright",
                &chart,
                "--namespace",
                NAMESPACE,
                "--no-hooks",
            ],
            more,
        ]
        .concat();
        Ok(documents(&self.run(&arguments)?)?
            .into_iter()
            .filter(|object| !object.is_null())
            .collect())
    }
}
