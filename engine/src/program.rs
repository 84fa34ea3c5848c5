//! A program that is the agent: one process is one run.

pub mod calls;
pub mod event;
pub mod proxy;
pub mod run_tokens;
