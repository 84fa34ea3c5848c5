//! What the shim does, as pure functions of what it has observed. No clock, no disk, no client.

pub mod loans;
pub mod node_status;
pub mod orphan;
pub mod provision;
pub mod publish;
pub mod record_diff;
pub mod unclaimed;
pub mod workspace_status;
