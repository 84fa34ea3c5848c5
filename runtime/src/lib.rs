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
//! | [`memory_use`] | what the process keeps of the machine's memory |
//! | [`model`] | the endpoint |
//! | `room` | whether the inbox has room again |
//! | [`tools`] | the one door to tools |
//! | [`serve`], [`status`], [`diff`], [`shim`] | what others ask and are told |
//! | [`signed`] | the log of the process itself |
//! | [`agent`] | the life of the process |
//! | [`args`] | flags and environment |

pub mod agent;
pub mod args;
mod chance;
pub mod conversation;
pub mod diff;
pub mod drive;
pub mod memory;
pub mod memory_use;
pub mod model;
mod room;
pub mod serve;
pub mod shim;
pub mod signed;
pub mod status;
pub mod tools;
