//! A program that is the agent: one process is one run.

pub mod access;
pub mod agent;
pub mod calls;
pub mod event;
mod home;
mod home_size;
pub mod lines;
mod live_lines;
pub mod output_parser;
pub mod parser;
pub mod proxy;
pub mod run;
pub mod run_tokens;
mod text;
