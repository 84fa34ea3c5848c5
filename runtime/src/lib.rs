//! The agent's side of Yoi: PID 1 of an agent Pod.
//!
//! It takes the session's lock, replays the log, serves its lines to the gateway and drives the conversation: model, tools, model, until
//! there is nothing to do. It has no API token and listens nowhere.
//!
//! | Module | Is |
//! |---|---|
//! | [`conversation`] | the thought: state, event, intent; no clock, no I/O |
//! | [`driver`] | carries intents out |
//! | [`open_session`] | log and inbox of the open session |
//! | [`allocator`] | what the process keeps of the machine's memory |
//! | [`model`] | the endpoint |
//! | `disk_space` | whether the inbox has room again |
//! | [`tools`] | the one door to tools |
//! | [`serve`], [`status`], [`diff`], [`shim_client`] | what others ask and are told |
//! | [`log_origin`] | the log of the process itself |
//! | [`agent`] | the life of the process |
//! | [`args`] | flags and environment |

pub mod agent;
pub mod allocator;
pub mod args;
pub mod conversation;
pub mod diff;
mod disk_space;
pub mod driver;
pub mod log_origin;
pub mod model;
pub mod open_session;
pub mod processes;
mod rng;
pub mod serve;
pub mod shim_client;
pub mod status;
pub mod tools;
