//! Working trees in, bundles out, and results laid on a tree: with the system's git, on real folders.

#![expect(clippy::disallowed_methods, reason = "a test starts itself again as the process that is killed")]

mod applications;
mod captures;
mod interruptions;
mod merges;
mod trees;
