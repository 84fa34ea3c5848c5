//! What the tools share that ask about one child.

use schemars::JsonSchema;
use serde::Deserialize;

use super::peers_error_sentence;
use crate::children::Children;
use crate::peers::PeersError;
use crate::tools::arguments::not_empty;
use crate::tools::result::CallResult;
use crate::tools::tool::{ToolContext, default_time_limit, with_timeout};

// No doc comment: it would be in the schema.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChildName {
    /// Name of an agent that you started.
    #[serde(deserialize_with = "not_empty")]
    #[schemars(length(min = 1))]
    pub(super) name: String,
}

/// Asks within the time limit of a call, of an agent that may start others.
pub(super) async fn ask<'a, F>(context: &'a ToolContext, request: impl FnOnce(&'a dyn Children) -> F) -> CallResult
where
    F: Future<Output = Result<CallResult, PeersError>>,
{
    let children = match context.children() {
        Ok(children) => children,
        Err(refusal) => return CallResult::refused(refusal),
    };
    let answer = async { request(children).await.unwrap_or_else(|error| CallResult::failed(peers_error_sentence(&error))) };
    with_timeout(default_time_limit(&context.limits), answer).await
}
