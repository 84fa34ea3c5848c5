//! One module for each verb.

pub mod approvals;
pub mod attach;
pub mod diff;
pub mod doctor;
pub mod explain;
pub mod export;
pub mod init;
pub mod log;
pub mod ls;
pub mod patch;
pub mod peer;
pub mod pull;
pub mod push;
pub mod refresh;
pub mod restart;
pub mod rm;
pub mod run;
pub mod selection;
pub mod send;
pub mod steer;
pub mod stop_start;
pub mod take;
pub mod top;
pub mod trees;
pub mod version;
pub mod workspace;
