//! The edges of the rim, against an API server that says what it is told to say.

mod deeds;
mod failures;
mod script;
mod status;
mod watch;
