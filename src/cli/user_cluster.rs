//! The cluster that a command reads, with a person's namespace in it.

use anyhow::Result;
use clap::Args;
use gatewright_kubernetes::connect_as_user;
use kube::Client;

use super::Cluster;

/// The cluster and the namespace of the person who asks.
#[derive(Clone, Debug, Default, Args)]
pub struct UserCluster {
    /// Your namespace in the cluster: files without metadata.namespace are for it, and what you may
    /// not read in all namespaces is read there [default: that of the context]
    #[arg(short, long, help_heading = "Cluster")]
    pub namespace: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub cluster: Cluster,
}

impl UserCluster {
    /// The client of the kubeconfig, and the namespace of the person; `None` if no cluster is
    /// asked.
    ///
    /// # Errors
    /// When there is no usable kubeconfig.
    pub async fn connect(&self) -> Result<Option<(Client, String)>> {
        if !self.cluster.is_asked() {
            return Ok(None);
        }
        let (client, own) = self.cluster.connect().await?;
        Ok(Some((client, self.namespace.clone().unwrap_or(own))))
    }
}

impl Cluster {
    /// The client of the kubeconfig, and the namespace of its context.
    ///
    /// # Errors
    /// When there is no usable kubeconfig.
    pub async fn connect(&self) -> Result<(Client, String)> {
        let (path, context) = (self.kubeconfig.as_deref(), self.context.as_deref());
        Ok(connect_as_user(path, context).await?)
    }
}
