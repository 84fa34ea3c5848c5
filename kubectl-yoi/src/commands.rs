//! One module for each verb.

pub mod agents;
pub mod diff;
pub mod doctor;
pub mod explain;
pub mod log;
pub mod ls;
pub mod peer;
pub mod run;
pub mod send;
pub mod workspace;
