//! The agent's side of Yoi: PID 1 of an agent Pod.
//!
//! It takes the session's lock, replays the log, serves its lines to the gateway and drives the conversation: model, tools, model, until
//! there is nothing to do. It has no API token and listens nowhere.
//!
//! | Module | Is |
//! |---|---|
//! | [`conversation`] | the thought: state, event, intent; no clock, no I/O |
//! | [`drive`] | carries intents out |
//! | [`memory`] | log and inbox of the open session |
//! | [`model`] | the endpoint |
//! | [`tools`] | the one door to tools |
//! | [`serve`], [`status`], [`diff`], [`shim`] | what others ask and are told |
//! | [`agent`] | the life of the process |
//! | [`args`] | flags and environment |

pub mod agent;
pub mod args;
mod chance;
pub mod conversation;
pub mod diff;
pub mod drive;
pub mod memory;
pub mod model;
pub mod serve;
pub mod shim;
pub mod status;
pub mod tools;
