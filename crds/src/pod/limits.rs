//! How far an agent may go, and when its conversation is compacted.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    /// Model calls in one run.
    #[serde(default = "default_turns")]
    #[schemars(range(min = 1, max = 10_000))]
    pub turns_per_run: i32,
    /// Seconds that one tool call may take.
    #[serde(default = "default_tool_seconds")]
    #[schemars(range(min = 1, max = 86_400))]
    pub tool_seconds: i32,
    /// Tokens in and out over the agent's life, as the endpoint counts them, cached ones included. Past it each run ends as LimitReached. A change reaches a
    /// running agent without a restart. No limit when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000_000_000_000i64))]
    pub tokens: Option<i64>,
    /// Of an agent that is a program: after so many seconds without a word on its standard output or its standard error the program is ended, and its run
    /// fails as ProgramSilent. No limit when absent: a build, a long test or a slow model may be silent for hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 604_800))]
    pub silence_seconds: Option<i32>,
    /// Of an agent with delegation: how many agents it may have started that are not deleted. 8 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub children: Option<i32>,
    /// Of a built-in agent: how many conversations may run beside `main`. 16 when absent. A smaller one ends none that runs: it counts for starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 16))]
    pub conversations: Option<i32>,
    /// So long after this object was made nothing runs the agent any more, e.g. `8h`; at least `10s`. It is told in a condition and an Event before. A longer
    /// one, or none, lets the agent go on. No limit when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 7), regex(pattern = r"^[0-9]{1,6}(s|m|h)$"))]
    #[x_kube(validation = ("duration(self) >= duration('10s')", "lifetime must be at least 10s"))]
    pub lifetime: Option<String>,
}

fn default_turns() -> i32 {
    50
}

fn default_tool_seconds() -> i32 {
    30
}

impl Limits {
    /// How many children an agent may have.
    #[must_use]
    pub fn most_children(&self) -> usize {
        self.children.map_or(8, |children| usize::try_from(children).unwrap_or_default())
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            turns_per_run: default_turns(),
            tool_seconds: default_tool_seconds(),
            tokens: None,
            silence_seconds: None,
            children: None,
            conversations: None,
            lifetime: None,
        }
    }
}

/// When and how far the conversation is compacted, in tokens as the endpoint counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = ("!has(self.at) || (has(self.keep) ? self.keep : 20000) < self.at", "keep must be less than at; it is 20000 when absent"))]
pub struct Compaction {
    /// Above this many tokens of a request. Absent: 80 % of the window, when it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1_000, max = 1_000_000_000))]
    pub at: Option<i64>,
    /// How many tokens of the latest turns stay as they are; 20000 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000_000))]
    pub keep: Option<i64>,
}

impl Compaction {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Compaction::default()
    }
}
