//! Why a project cannot be started or asked.

use std::io;
use std::path::PathBuf;

use yoi_session::Error as SessionError;
use yoi_wire::approval::ApprovalRefusal;
use yoi_wire::conversation::MAIN;
use yoi_wire::engine_api::RunToolRefusal;
use yoi_wire::subagent::SubagentTemplateError;

use crate::frame::FrameError;
use crate::model::ModelError;
use crate::outside_events::SendEventError;
use crate::policy::PolicyError;

/// Why a project cannot be started or asked.
#[derive(Debug, thiserror::Error)]
pub enum ProjectError {
    #[error("{id:?} is no id of a project: 1 to 63 lower-case letters, digits and `-`, which is neither first nor last")]
    Id { id: String },
    #[error("project {id} runs already in this engine; stop it first")]
    AlreadyStarted { id: String },
    #[error("there is no project {id} in this engine")]
    Unknown { id: String },
    #[error("failed to use the folder {} as the root of the project", path.display())]
    Root { path: PathBuf, source: io::Error },
    #[error("{} cannot hold the record of the project: {why}", path.display())]
    State { path: PathBuf, why: String },
    #[error("failed to make {}", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error("failed to put the agent's programs into their frame")]
    Frame(#[from] FrameError),
    #[error("failed to use the record of the project")]
    Session(#[from] SessionError),
    #[error("a project needs a tokio runtime with several threads: its log blocks while it is written")]
    OneThread,
    #[error("conversation {conversation} does not run: {why}")]
    Ended { conversation: String, why: String },
    #[error(
        "{name:?} is no name for another conversation: 1 to 63 lower-case letters, digits and `-`, which is neither first nor last, and not {MAIN:?}"
    )]
    ConversationName { name: String },
    #[error("there is no conversation {name}; there are {known}")]
    UnknownConversation { name: String, known: String },
    #[error("conversation {name} is a sub-agent's: it was started for one task by another conversation, and is not started again")]
    IsSubagent { name: String },
    #[error(transparent)]
    Subagent(#[from] SubagentTemplateError),
    #[error("conversation {name} runs already")]
    ConversationRuns { name: String },
    #[error("conversation {name} was not started: {limit} run beside {MAIN}, which is the most; stop one first")]
    TooManyConversations { name: String, limit: usize },
    #[error(
        "conversation {name} was not started: there are {limit} beside {MAIN}, the stopped ones among them, which is the most; start one of them again"
    )]
    TooManyStored { name: String, limit: usize },
    #[error("conversation {MAIN} is not stopped by itself: it ends with its project")]
    MainIsNotStopped,
    #[error(
        "there is no projection {key:?}; there are timeline, llm_context, diagnostics, mode_runtime, pending_tool_calls, subagent_status"
    )]
    UnknownProjection { key: String },
    #[error(transparent)]
    Approval(#[from] ApprovalRefusal),
    #[error(transparent)]
    RunTool(#[from] RunToolRefusal),
    #[error(transparent)]
    SendEvent(#[from] SendEventError),
    #[error("the message was not taken: {limit} messages wait to be read")]
    InboxFull { limit: usize },
    #[error("the message was not taken: it has more than {limit} bytes")]
    TooLong { limit: usize },
    #[error("the message was not taken: its id is more than an hour old, and ids of that time are forgotten")]
    TooOld,
}
