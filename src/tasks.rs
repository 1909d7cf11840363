//! The tasks of the program, each with a name: a task that fails or ends by itself ends the
//! program, with its name in the error; and at the end all are joined.

use std::any::Any;
use std::collections::HashMap;
use std::panic::PanicHookInfo;
use std::time::Duration;

use anyhow::{Error, Result, anyhow};
use gatewright_control::tasks::{name, named};
use tokio::task::{Id, JoinError, JoinHandle, JoinSet};

/// The maximum time until all tasks have ended: a connected Envoy holds its stream open.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// The tasks that run until the program ends.
#[derive(Default)]
pub(crate) struct Tasks {
    tasks: JoinSet<Result<()>>,
    names: HashMap<Id, &'static str>,
}

impl Tasks {
    /// Spawns a task.
    pub(crate) fn spawn(
        &mut self,
        name: &'static str,
        task: impl Future<Output = Result<()>> + Send + 'static,
    ) {
        let id = self.tasks.spawn(named(name, task)).id();
        self.names.insert(id, name);
    }

    /// Spawns a task that has no error of its own.
    pub(crate) fn spawn_infallible(
        &mut self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        self.spawn(name, async move {
            task.await;
            Ok(())
        });
    }

    /// Waits until a task ends. Returns the error by which the program ends.
    pub(crate) async fn ended(&mut self) -> Error {
        let (id, ended) = match self.tasks.join_next_with_id().await {
            Some(Ok((id, result))) => (id, Ok(result)),
            Some(Err(error)) => (error.id(), Err(error)),
            None => std::future::pending().await,
        };
        why(
            self.names.get(&id).copied().unwrap_or("without a name"),
            ended,
        )
    }

    /// Waits for the tasks, which were told to stop, and aborts those that do not.
    pub(crate) async fn end(mut self) {
        let joined = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, joined)
            .await
            .is_err()
        {
            self.tasks.shutdown().await;
        }
    }
}

/// Spawns a task that ends before the others do.
pub(crate) fn spawn(
    name: &'static str,
    task: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    tokio::spawn(named(name, task))
}

/// Returns the error of the program that the end of this task causes.
pub(crate) fn why(name: &str, ended: Result<Result<()>, JoinError>) -> Error {
    match ended {
        Ok(Ok(())) => anyhow!("the task {name} ended unexpectedly"),
        Ok(Err(error)) => error.context(format!("the task {name}")),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => anyhow!("the task {name} panicked: {}", message(&*panic)),
            Err(_) => anyhow!("the task {name} was cancelled"),
        },
    }
}

/// Returns the message of a panic.
fn message(panic: &dyn Any) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("nothing was said")
}

/// Logs every panic with its task or thread, and its place, including panics of tasks that are
/// joined.
pub fn log_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info: &PanicHookInfo| {
        let thread = std::thread::current();
        // Tasks of the crates that know nothing of ours have spans.
        let task = name()
            .or_else(|| tracing::Span::current().metadata().map(|span| span.name()))
            .or(thread.name())
            .unwrap_or("without a name");
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(task, place, "panicked: {}", message(info.payload()));
        if std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0") {
            before(info);
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ended(task: impl Future<Output = Result<()>> + Send + 'static) -> String {
        let mut tasks = Tasks::default();
        tasks.spawn("other", std::future::pending());
        tasks.spawn("this one", task);
        format!("{:#}", tasks.ended().await)
    }

    #[tokio::test]
    async fn a_task_that_ends_is_named_with_the_reason() {
        assert_eq!(
            ended(async { Ok(()) }).await,
            "the task this one ended unexpectedly"
        );
        assert_eq!(
            ended(async { Err(anyhow!("no disk")) }).await,
            "the task this one: no disk"
        );
        let number = 7;
        let text = "text";
        assert_eq!(
            ended(async move { panic!("{number} of {text}") }).await,
            "the task this one panicked: 7 of text"
        );
        assert_eq!(
            ended(async { panic!("bare") }).await,
            "the task this one panicked: bare"
        );
    }
}
