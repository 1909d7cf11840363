//! Who answers `explain` and `status`: a running program, a cluster, or a support bundle of either.

use anyhow::Result;
use gatewright_control::StatusQuery;
use kube::Client;
use serde_json::Value;

use crate::answer::answer;
use crate::bundle::{Bundle, Of};
use crate::cli::{Cluster, RunningProgram};
use crate::client::ClusterView;

/// Who answers.
pub enum Source {
    /// The program behind an admin socket.
    Program,
    /// An API server, or a bundle of it.
    Cluster {
        /// The client.
        client: Client,
        /// The namespace of the person.
        namespace: String,
        /// The namespace of the installation.
        installation: String,
    },
    /// A bundle of a program.
    Bundle(Box<Bundle>),
}

impl Source {
    /// Returns who is asked by the options of a command.
    ///
    /// # Errors
    /// When a bundle cannot be read, or there is no usable kubeconfig.
    pub async fn of(
        program: &RunningProgram,
        cluster: &Cluster,
        namespace: Option<&str>,
    ) -> Result<Self> {
        let (client, own, installation) = match &program.bundle {
            Some(file) => {
                let bundle = Bundle::open(file)?;
                if bundle.contents.of == Of::Program {
                    return Ok(Self::Bundle(Box::new(bundle)));
                }
                bundle.client()?
            }
            None if cluster.is_asked() => {
                let (client, own) = cluster.connect().await?;
                (client, own, cluster.installation.clone())
            }
            None => return Ok(Self::Program),
        };
        Ok(Self::Cluster {
            client,
            namespace: namespace.map_or(own, str::to_owned),
            installation,
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
            Self::Bundle(bundle) => Ok((bundle.status(query)?, Vec::new())),
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
