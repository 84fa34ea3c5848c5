//! The thought of the shim: from what was seen to what to do. No clock, no disk, no client.

pub mod making;
pub mod mounting;
pub mod node;
pub mod status;
pub mod stray;
pub mod sweep;
