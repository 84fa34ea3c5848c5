//! No path leads a tool out of the tree, whether a model, a person or a link in the tree gives it.
//!
//! Every input is given to every tool that takes a path, in a tree of its own with canary files around it. Tools that only compare prefixes
//! are tried in the same way and have to fail, which shows that the harness finds faults.

mod all_inputs;
mod fixture;
mod hook;
mod inputs;
mod races;
mod repositories;
#[path = "../agent/skip.rs"]
mod skip;
mod subjects;
