//! Who answers `explain` and `status`: a running program, or a cluster.

use anyhow::Result;
use gatewright_control::StatusQuery;
use kube::Client;
use serde_json::Value;

use crate::answer::answer;
use crate::cli::{Cluster, RunningProgram};
use crate::client::ClusterView;

/// Who answers.
pub enum Source {
    /// The program behind an admin socket.
    Program,
    /// An API server.
    Cluster {
        /// The client.
        client: Client,
        /// The namespace of the person.
        namespace: String,
        /// The namespace of the installation.
        installation: String,
    },
}

impl Source {
    /// Returns who is asked by the options of a command.
    ///
    /// # Errors
    /// When there is no usable kubeconfig.
    pub async fn of(cluster: &Cluster, namespace: Option<&str>) -> Result<Self> {
        if !cluster.is_asked() {
            return Ok(Self::Program);
        }
        let (client, own) = cluster.connect().await?;
        Ok(Self::Cluster {
            client,
            namespace: namespace.map_or(own, str::to_owned),
            installation: cluster.installation.clone(),
        })
    }

    /// Returns statuses, and lines about what may not be read.
    ///
    /// # Errors
    /// When nobody answers.
    pub async fn status(
        &self,
        program: &RunningProgram,
        query: &StatusQuery,
    ) -> Result<(Value, Vec<String>)> {
        match self {
            Self::Program => Ok((answer(program, &query.path()).await?, Vec::new())),
            Self::Cluster {
                client,
                namespace,
                installation,
            } => {
                let view = ClusterView::of(client.clone(), namespace, installation).await?;
                Ok((view.status(query).await?, view.marks()))
            }
        }
    }
}
