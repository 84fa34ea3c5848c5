//! Paths that a model, a person or a tree gives: nothing outside the tree is read or touched.
//!
//! Every input is tried by every tool that takes a path, in a tree of its own with canaries around it. Hands that only compare prefixes are
//! held to the same promises, and have to break them: a harness that does not find them out finds nothing.

mod all_inputs;
mod fixture;
mod inputs;
mod races;
mod repositories;
mod subjects;
