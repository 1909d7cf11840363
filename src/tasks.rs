//! The tasks of the program: one that ends by itself ends it, and in the end all are waited for.

use std::time::Duration;

use anyhow::{Error, Result, anyhow};
use tokio::task::{JoinError, JoinSet};

/// How long tasks may take to end: a connected Envoy holds its stream open.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why the program ends when this task did.
pub(crate) fn ended(task: Result<Result<()>, JoinError>) -> Error {
    match task {
        Ok(Ok(())) => anyhow!("a part of the program ended by itself"),
        Ok(Err(error)) => error,
        Err(error) => error.into(),
    }
}

/// Waits for tasks that were told to end, and ends those that do not.
pub(crate) async fn join(mut tasks: JoinSet<Result<()>>) {
    let joined = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(PATIENCE, joined).await.is_err() {
        tasks.shutdown().await;
    }
}
