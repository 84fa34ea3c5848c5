//! The endpoint: four wire formats over one script. Other crates' tests include this module by its path.

mod answer;
mod broken_response;
mod chat;
pub mod conversation;
mod digest;
mod errors;
mod gemini;
mod json;
mod messages;
mod pieces;
mod prefix_cache;
mod recorder;
mod responses;
mod rule;
pub mod script;
pub mod server;
mod sse;
mod tokens;
pub mod wire;
