//! The operator against a scripted API server.

mod apply;
mod failures;
mod peers;
mod server;
mod status;
mod watch;
