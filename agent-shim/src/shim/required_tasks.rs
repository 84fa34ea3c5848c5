//! Tasks that the process cannot work without.

use std::collections::HashMap;
use std::future::Future;

use tokio::task::{Id, JoinSet};

/// A required task ended. The process ends too, rather than run without it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to go on: {task} ended{}", if *panicked { " by a panic" } else { "" })]
pub struct RequiredTaskEnded {
    /// The name that the task was started with.
    pub task: &'static str,
    /// Whether it panicked.
    pub panicked: bool,
}

/// Tasks that run until the process stops, by name.
#[derive(Default)]
pub struct RequiredTasks {
    tasks: JoinSet<()>,
    names: HashMap<Id, &'static str>,
}

impl RequiredTasks {
    /// Starts a task. If it ends early, the error contains `name`.
    pub fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let id = self.tasks.spawn(task).id();
        self.names.insert(id, name);
    }

    /// Waits for the first task that ends, which none should before the process stops.
    pub async fn first_end(&mut self) -> RequiredTaskEnded {
        let (id, panicked) = match self.tasks.join_next_with_id().await {
            Some(Ok((id, ()))) => (id, false),
            Some(Err(error)) => (error.id(), error.is_panic()),
            None => return RequiredTaskEnded { task: "everything", panicked: false },
        };
        RequiredTaskEnded { task: self.names.get(&id).copied().unwrap_or("a task"), panicked }
    }

    /// Waits until all tasks have ended. The caller stops them first.
    pub async fn join_all(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}
