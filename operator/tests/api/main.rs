//! The edges of the rim, against an API server that says what it is told to say.

mod apply;
mod failures;
mod server;
mod status;
mod watch;
