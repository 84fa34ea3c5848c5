//! The built-in agent, as a library. It opens no connection but that to the model and knows no cluster.
//!
//! Whoever embeds it starts with [`engine::Engine`]; `examples/project.rs` is an agent in a terminal.
//!
//! | Module | Does |
//! |---|---|
//! | [`engine`] | keeps projects |
//! | [`project`] | a folder, what works in it, and its record |
//! | [`agent_config`] | what the model is given beside the conversation |
//! | [`conversation`] | decides what to do next, from state and event; has no clock and does no I/O |
//! | [`decision`] | says whether a call of a tool may begin, and why not |
//! | [`driver`] | carries out what the conversation decides |
//! | [`live_feed`] | shows attached clients what is not in the log yet |
//! | [`signals`] | makes CloudEvents of the log |
//! | [`follow`] | puts log and live feed together for whoever follows a session |
//! | [`log_reads`] | bounds what reads of the log hold in memory |
//! | [`model`] | calls the model's endpoint |
//! | [`open_session`] | holds log and inbox of the open session |
//! | [`outside_events`] | gives a conversation events from outside |
//! | [`assets`] | reads the skills and commands of a tree, and says what they stand for |
//! | [`tools`] | checks and runs tool calls |
//! | [`policy`] | says what the policy allows; it reads no disk |
//! | `secrets` | takes secrets out of what calls return |
//! | [`subagents`] | says what a conversation asks of its sub-agents |
//! | [`processes`] | starts, ends and reaps programs |
//! | [`frame`] | keeps them from what is not theirs |
//! | [`program`] | drives a program that is the agent |
//! | [`peers`] | what an agent asks of others; whoever embeds the engine answers it |
//! | `peers_error` | why others have not answered |
//! | [`tree_context`] | what the model is told of the tree |
//! | [`foreign_json`] | JSON that another program wrote |
//! | [`tree_git`] | keeps git from starting programs that the tree names |
//! | `bounded_json` | JSON for programs, of which no text is long |
//! | `estimate` | tokens by size, where no endpoint has counted them |
//! | [`error_text`] | errors in words |

pub mod agent_config;
pub mod assets;
mod bounded_json;
pub mod children;
pub mod conversation;
pub mod decision;
pub mod driver;
pub mod engine;
pub mod error_text;
mod estimate;
pub mod follow;
pub mod foreign_json;
pub mod frame;
pub mod live_feed;
pub mod log_reads;
pub mod model;
pub mod open_session;
pub mod outside_events;
pub mod peers;
mod peers_error;
pub mod policy;
pub mod processes;
pub mod program;
pub mod project;
mod secrets;
pub mod signals;
pub mod subagents;
pub mod tools;
pub mod tree_context;
pub mod tree_git;
