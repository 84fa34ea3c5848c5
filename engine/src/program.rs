//! A program that is the agent: one process is one run.

pub mod event;
pub mod parser;
