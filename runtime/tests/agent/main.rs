//! Tests of the binary against a scripted model and a fake gateway.

// The scripted model is a binary of another crate, so its modules are included by path.
#[path = "../../../e2e/src/bin/scripted-model/anthropic.rs"]
mod anthropic;
#[path = "../../../e2e/src/bin/scripted-model/broken_response.rs"]
mod broken_response;
#[path = "../../../e2e/src/bin/scripted-model/conversation.rs"]
mod conversation;
#[path = "../../../e2e/src/bin/scripted-model/openai.rs"]
mod openai;
#[path = "../../../e2e/src/bin/scripted-model/script.rs"]
mod script;
#[path = "../../../e2e/src/bin/scripted-model/server.rs"]
mod server;

mod degraded;
mod diffs;
mod gateway;
mod harness;
mod messages;
mod people;
mod readers;
mod recorded_logs;
mod restarts;
mod runs;
mod shells;
mod skip;
