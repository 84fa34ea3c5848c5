//! The shipped binary, against a scripted model and a gateway of the test's own.

// The model is a binary of another crate; its modules are taken as they are.
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

mod bench;
mod diffs;
mod gateway;
mod messages;
mod must;
mod poor;
mod restarts;
mod runs;
mod shells;
