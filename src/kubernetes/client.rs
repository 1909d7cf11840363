//! The connection to the API server.

use std::path::Path;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

const CONNECT: Duration = Duration::from_secs(10);

/// Why there is no connection to an API server.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No kubeconfig and no service account.
    #[error("no API server is known: run in a pod with a service account, or say --kubeconfig ({0})")]
    Find(String),
    /// A kubeconfig that cannot be used.
    #[error("kubeconfig {path}: {why}")]
    Read {
        /// Which.
        path: String,
        /// Why not.
        why: String,
    },
    /// Certificates that cannot be used.
    #[error("TLS towards the API server: {0}")]
    Tls(String),
}

/// Makes a client from a kubeconfig, else from the pod's service account, whose token is read again as it is renewed.
///
/// # Errors
/// When neither is there or usable. The server itself is not asked yet.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<Client, ClientError> {
    // One provider for all TLS of the program. Somebody may have installed it already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut config = match kubeconfig {
        Some(path) => {
            let fail = |why: String| ClientError::Read { path: path.display().to_string(), why };
            let read = Kubeconfig::read_from(path).map_err(|error| fail(error.to_string()))?;
            Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
                .await
                .map_err(|error| fail(error.to_string()))?
        }
        None => Config::infer().await.map_err(|error| ClientError::Find(error.to_string()))?,
    };
    config.connect_timeout = Some(CONNECT);
    Client::try_from(config).map_err(|error| ClientError::Tls(error.to_string()))
}
