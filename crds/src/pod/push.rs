//! Pushes of what an agent has committed.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::PodRef;
use crate::open_enum::open_enum;

/// As `yoi_wire::bundle::check_branch_name` has it.
const BRANCH_RULE: &str = "self != 'HEAD' && self != '@' && self != 'refs' && !self.startsWith('refs/')";
const BRANCH_MESSAGE: &str = "branch is a name alone, as main or yoi/alice, not HEAD or refs/heads/main";
const FORM_RULE: &str = "!self.startsWith('-') && !self.endsWith('.') && !self.contains('..') && !self.contains('@{') && \
    !self.matches('(^|/)([.]|/|$)') && !self.matches('[.]lock(/|$)') && !self.matches('[\\\\x00-\\\\x20\\\\x7f~^:?*\\\\[\\\\\\\\]')";
const FORM_MESSAGE: &str = "branch is what git takes: it does not begin with - or end with .; no part between / is empty, begins with . or ends with .lock; \
    it holds no .., @{, space or one of ~ ^ : ? * [ \\";

/// Where an agent's commits go once its task has succeeded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PushSettings {
    /// Branch of the project's repository; `yoi/` and the YoiPod's name when absent. It may go on, and is never turned back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 200))]
    #[x_kube(validation = (BRANCH_RULE, BRANCH_MESSAGE), validation = (FORM_RULE, FORM_MESSAGE))]
    pub branch: Option<String>,
}

/// The push that was last asked for, and what became of the last one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PushStatus {
    /// Gateway: what somebody last asked for. It is under way until `endedRequest` is its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestedPush>,
    /// Operator: the Pod that pushes, while there is one. Identity of the pusher.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodRef>,
    /// Operator: the Pods that were made for one push.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<PushAttempts>,
    /// Operator: what became of the last push.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<PushOutcome>,
    /// Operator: id of the request that ended last. `outcome` may be that of a task since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_request: Option<String>,
    /// Operator: id of the task after which the push of `spec.push` was done, or has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
}

impl PushStatus {
    /// Id of the request that ended last. Of a status that another version wrote, the id of the outcome.
    #[must_use]
    pub fn last_ended(&self) -> Option<&str> {
        self.ended_request.as_deref().or_else(|| self.outcome.as_ref().map(|outcome| outcome.id.as_str()))
    }
}

/// A push that a person asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestedPush {
    /// A name for it.
    pub id: String,
    /// Without `refs/heads/`.
    #[schemars(length(max = 200))]
    pub branch: String,
    /// What is pushed.
    #[schemars(length(max = 64))]
    pub commit: String,
    /// The commit that the branch must be at to be turned to `commit`. When absent, it may only go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub expected: Option<String>,
    pub requested_at: String,
}

/// How many Pods were made for a push.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PushAttempts {
    /// Id of the push.
    pub id: String,
    /// Pods that were seen in the cluster.
    #[schemars(range(min = 0, max = 1000))]
    pub count: i32,
    /// Since when the next Pod is to be made and is not seen; absent while there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_pod_since: Option<String>,
}

/// How a push ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PushOutcome {
    /// Id of the push: that of the request, or of the task.
    pub id: String,
    pub result: PushResult,
    #[schemars(length(max = 200))]
    pub branch: String,
    /// Where the branch is; absent when nothing was pushed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub commit: Option<String>,
    /// Where the branch was before; absent when it is new, or nothing was pushed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub previous: Option<String>,
    /// For people: where it is, or why not, with git's words.
    #[schemars(length(max = 2048))]
    pub message: String,
    pub finished_at: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub enum PushResult {
    Pushed,
    /// The agent has committed nothing since its base.
    Nothing,
    Failed,
    /// Of another version.
    #[default]
    #[schemars(skip)]
    Unknown,
}
open_enum!(PushResult: Pushed, Nothing, Failed);
