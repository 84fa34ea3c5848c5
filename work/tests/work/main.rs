//! Working trees in, bundles out, and results laid on a tree: with the system's git, on real folders.

mod applications;
mod captures;
mod interruptions;
mod trees;
