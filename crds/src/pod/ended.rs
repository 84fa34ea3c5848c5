//! What has ended an agent that did not stop by a person's word.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::open_enum::open_enum;

/// An agent that nothing runs any more, although its `desiredState` is not Stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EndedStatus {
    /// When the operator saw it, RFC 3339.
    pub since: String,
    pub by: EndedBy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub enum EndedBy {
    /// Its task was done, and `completion` is Stop.
    Task,
    /// `limits.lifetime` is over.
    Lifetime,
    /// Of another version.
    #[schemars(skip)]
    Unknown,
}
open_enum!(EndedBy: Task, Lifetime);
