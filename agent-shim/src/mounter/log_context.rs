//! The object that a request to the mounter is for. The mounter only logs it.

use std::future::Future;

use serde::{Deserialize, Serialize};

/// The object that work is for, as the shim names it. The mounter acts on the UIDs of the request alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogContext {
    /// Namespace and name of a workspace, or of a Pod of which nothing else is known.
    pub object: Option<String>,
    /// UID of that object. None where the request names the tree.
    pub uid: Option<String>,
    /// The run of the YoiPod, where it is known.
    pub run: Option<u64>,
}

tokio::task_local! {
    static LOG_CONTEXT: LogContext;
}

impl LogContext {
    /// Runs `work`. Its requests to the mounter have this context.
    pub async fn scope<T>(self, work: impl Future<Output = T>) -> T {
        LOG_CONTEXT.scope(self, work).await
    }

    /// The context of the running task. A task that is spawned does not inherit it.
    pub fn current() -> LogContext {
        LOG_CONTEXT.try_with(Clone::clone).unwrap_or_default()
    }
}
