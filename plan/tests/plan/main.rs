//! What a plan decides of objects that are written down here, kind by kind. The generated clusters are those of `stable`.

mod deletion;
mod edges;
mod ending;
mod family;
mod loans;
mod network_policies;
mod nodes;
mod nudge_deleting_claims;
mod prepare;
mod push;
mod reader;
mod rest;
mod samples;
mod unexpected_objects;
