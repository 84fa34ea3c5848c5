//! Tests of the binary against a scripted model and a fake gateway.

// The scripted model is a binary of another crate, so its modules are included by path.
#[path = "../../../e2e/src/bin/scripted-model/anthropic.rs"]
mod anthropic;
#[path = "../../../e2e/src/bin/scripted-model/nonsense.rs"]
mod nonsense;
#[path = "../../../e2e/src/bin/scripted-model/openai.rs"]
mod openai;
#[path = "../../../e2e/src/bin/scripted-model/script.rs"]
mod script;
#[path = "../../../e2e/src/bin/scripted-model/server.rs"]
mod server;
#[path = "../../../e2e/src/bin/scripted-model/talk.rs"]
mod talk;

mod degraded;
mod diffs;
mod gateway;
mod harness;
mod messages;
mod restarts;
mod runs;
mod shells;
mod skip;
