//! The operator against a scripted API server, and what it reads beside that: a Node, the folder of presets, its own permissions.

mod apply;
mod chart_values;
mod events;
mod failures;
mod nodes;
mod peers;
mod presets;
mod rbac;
mod server;
mod status;
mod watch;
