//! The plugin's own binary, as people and programs run it, against an API server that holds objects and follows a script.

mod agents;
mod api_server;
mod apply;
mod approvals;
mod assets;
mod attach;
mod completion;
mod connection;
mod conversations;
mod diff;
mod engine;
mod folders;
#[path = "../../../runtime/tests/agent/generated_history.rs"]
mod generated_history;
mod host;
mod in_clone;
mod init;
mod lists;
mod log_and_send;
mod merges;
mod plugin;
mod pull;
mod push;
mod restores;
mod rm;
mod scopes;
mod sessions;
mod steering;
mod stopped;
mod sync;
mod sync_watch;
mod terminal;
mod trees;
mod waiting;
mod workspaces;
