//! What the gateway asks of the runtime of an agent that lends paths of its tree: to end every process of the agent that could still write there.
//!
//! A cover closes a path to whoever opens it. Who has opened something before goes on as before, so the runtime looks for all of them.

use serde::{Deserialize, Serialize};

/// The most processes that an answer names.
pub const MAX_NAMED: usize = 16;

/// Paths that are lent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FenceRequest {
    /// Id of the loan, for the log.
    pub loan: String,
    /// The paths that the loan lets be written, relative to the tree, of plain names. The node has covered them before: this agent sees them read-only.
    pub paths: Vec<String>,
}

/// What the runtime found. Said again, it looks again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FenceResponse {
    /// Nothing in the agent's container can write below the paths: it looked, and found nobody, itself neither.
    pub fenced: bool,
    /// The processes that it ended for it; at most [`MAX_NAMED`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<HoldingProcess>,
    /// Not fenced: who holds something there, whatever was done; at most [`MAX_NAMED`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<HoldingProcess>,
    /// Not fenced: why these paths cannot be lent as they are, a sentence that names the path. A repetition alone does not help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// A process that could write below a path, although it is covered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HoldingProcess {
    /// Its pid in the agent's container; 1 is the runtime itself.
    pub pid: u32,
    /// Its name, as the kernel has it.
    pub program: String,
    /// By what it holds. A newer runtime may name a way that this version does not know.
    pub by: String,
    /// The path that it holds, as the kernel tells it; empty where there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
}

impl FenceResponse {
    /// One sentence for people and models: why the paths are not fenced. Empty: they are.
    #[must_use]
    pub fn why_not(&self) -> String {
        let name = |held: &HoldingProcess| {
            format!("process {} ({}) by its {} {}", held.pid, held.program, held.by, held.path).trim_end().to_owned()
        };
        match (&self.refused, self.fenced) {
            (_, true) => String::new(),
            (Some(why), false) => why.clone(),
            (None, false) => {
                let left: Vec<String> = self.left.iter().map(name).collect();
                format!("what is to be lent is still held: {}", left.join("; "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_who_holds_what_or_why_the_paths_cannot_be_lent() {
        let held = HoldingProcess { pid: 7, program: "tail".into(), by: "descriptor".into(), path: "/workspace/src/a".into() };
        let moved = HoldingProcess { path: String::new(), by: "mount namespace".into(), ..held.clone() };
        let left = FenceResponse { left: vec![held, moved], ..FenceResponse::default() };
        assert_eq!(
            left.why_not(),
            "what is to be lent is still held: process 7 (tail) by its descriptor /workspace/src/a; process 7 (tail) by its mount namespace"
        );
        let refused = FenceResponse { refused: Some("src/a has another name".into()), ..left };
        assert_eq!(refused.why_not(), "src/a has another name");
        assert_eq!(FenceResponse { fenced: true, ..FenceResponse::default() }.why_not(), "");
    }
}
