//! The agent's side of Yoi: PID 1 of an agent Pod.
//!
//! It takes the session's lock, replays the log, serves HTTP/2 on its lines to the gateway, and drives the conversation: it calls the
//! model, runs the tools that the model asks for, and calls the model again, until there is nothing left to do. It has no API token and
//! listens on no port.
//!
//! | Module | Does |
//! |---|---|
//! | [`agent`] | runs the process: lock, replay, serve, drive, stop |
//! | [`reader`] | serves what a stopped agent has done: no lock, no model, nothing written |
//! | `agent_config` | forms system prompt, tools and model options from the manifest |
//! | [`args`] | reads flags, environment and manifest |
//! | [`serve`] | answers the gateway's requests: log, inbox, control, attach, export, diff, bundle |
//! | [`bundle`] | packs what the agent has committed, and commits what it has not |
//! | [`merge`], [`merge_process`] | merge another agent's work into the tree, in a process of its own |
//! | [`diff`], [`shim_client`] | find what the agent changed, by git and by the node's shim |
//! | [`status`] | keeps the runtime's report and sends it to the gateway |
//! | `gateway_dial` | says how the gateway is dialled |
//! | [`gateway_peers`] | asks the gateway for other agents, and sends them messages |
//! | [`fence`] | ends who could still write where paths are lent |
//! | `frame` | says what is closed to the agent's processes |
//! | `new_session` | refuses a session volume that somebody else has written on |
//! | `disk_space` | finds out when a full session volume takes messages again |
//! | [`log_origin`] | adds agent and session to each line of the process's own log |
//! | [`allocator`] | limits the memory that the C library keeps |
//! | [`model_secrets`] | takes keys, headers and certificates out of the environment, where tools would find them |
//! | `secret_restart` | ends the process when endpoints want other Secrets, at times at which the kubelet starts it again at once |
//! | `token_limit` | follows `spec.limits.tokens` while the process runs |
//! | `annotation_file` | follows a file that holds an annotation of the Pod |
//! | `rest` | decides when the agent goes to rest |
//! | `refusal` | refuses a request of the gateway |
//! | `request_gate` | closes to requests when the agent goes to rest |
//! | [`program`] | reads the preset of an agent that is a program, and opens proxy and socket to its runs |
//! | [`program_socket`] | is how a program's hooks and its MCP server reach this process |
//! | [`asset_copy`] | copies skills and commands of an image, in a container of that image that ends before the agent's starts |
//! | [`hook`] | is called by a program before and after each of its tools, in a process of its own |
//! | [`program_tools`] | offers the runtime's tools to a program over MCP, in a process of its own |
//! | `ssh` | starts OpenSSH's server of the image for a person |
//! | `stop_signal` | cancels a token at SIGTERM, and ends the process in time |
//! | `rng` | gives random numbers |

pub mod agent;
mod agent_config;
pub mod allocator;
mod annotation_file;
pub mod args;
pub mod asset_copy;
pub mod bundle;
pub mod diff;
mod disk_space;
pub mod fence;
mod frame;
mod gateway_dial;
pub mod gateway_peers;
pub mod git_defaults;
pub mod git_repository;
mod hidden_paths;
pub mod hook;
pub mod log_origin;
pub mod merge;
pub mod merge_process;
pub mod model_secrets;
mod new_session;
mod policy_watch;
pub mod program;
pub mod program_socket;
pub mod program_tools;
pub mod reader;
mod refusal;
mod request_gate;
mod rest;
mod rng;
mod secret_restart;
pub mod serve;
pub mod shim_client;
mod ssh;
pub mod status;
mod stop_signal;
mod token_limit;
