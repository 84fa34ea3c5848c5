//! Whom a question to the mounter is for: words for its log and nothing else.

use std::future::Future;

use serde::{Deserialize, Serialize};

/// By the word of the shim. The mounter acts on UIDs alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogContext {
    /// Namespace and name of a workspace, or of a Pod of which nothing else is known.
    pub object: Option<String>,
    /// None where the verb names the tree.
    pub uid: Option<String>,
    pub run: Option<u64>,
}

tokio::task_local! {
    static LOG_CONTEXT: LogContext;
}

impl LogContext {
    /// All that is asked of the mounter during this work is for it.
    pub async fn scope<T>(self, work: impl Future<Output = T>) -> T {
        LOG_CONTEXT.scope(self, work).await
    }

    /// Of the work that is being done; a task that it starts must be told.
    pub fn current() -> LogContext {
        LOG_CONTEXT.try_with(Clone::clone).unwrap_or_default()
    }
}
