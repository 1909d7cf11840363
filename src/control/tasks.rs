//! The names of tasks, for the report of a panic, and the panic of a task that another one waits
//! for.

use tokio::task::futures::TaskLocalFuture;
use tokio::task::{JoinError, JoinHandle, spawn_blocking};

tokio::task_local! {
    /// The name of the running task.
    static NAME: &'static str;
}

/// Names a task, from its first poll to its end.
pub fn named<F: Future>(name: &'static str, task: F) -> TaskLocalFuture<&'static str, F> {
    NAME.scope(name, task)
}

/// Spawns a call that blocks, under a name, on a thread where it may.
pub fn blocking<T: Send + 'static>(
    name: &'static str,
    call: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    spawn_blocking(move || NAME.sync_scope(name, call))
}

/// Returns the name of the running task.
pub fn name() -> Option<&'static str> {
    NAME.try_with(|name| *name).ok()
}

/// Returns the result of a task that was joined; `None` if it was aborted. Its panic goes on in the
/// caller, so that it ends the program.
pub fn joined<T>(ended: Result<T, JoinError>) -> Option<T> {
    match ended {
        Ok(done) => Some(done),
        Err(error) if error.is_cancelled() => None,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_and_its_calls_that_block_have_names_and_their_panics_go_on() {
        assert_eq!(name(), None);
        assert_eq!(
            tokio::spawn(named("this one", async { name() }))
                .await
                .expect("it ends"),
            Some("this one")
        );
        assert_eq!(joined(blocking("a call", name).await), Some(Some("a call")));
        let aborted = tokio::spawn(named("other", std::future::pending::<()>()));
        aborted.abort();
        assert_eq!(joined(aborted.await), None);
        let waits = tokio::spawn(async {
            joined(tokio::spawn(named("inner", async { panic!("bare") })).await)
        });
        let panic = waits.await.expect_err("it panics").into_panic();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"bare"));
    }
}
