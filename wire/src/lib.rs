//! What Yoi's processes say to each other: types and paths, no sockets.
//!
//! Everything here is data. A process that speaks one of these words opens its own connection (see `yoi-line`), and whoever reads one
//! checks identity first: no field in here is ever proof of who sent it.

pub mod entry;
pub mod hub;
pub mod identity;
pub mod manifest;
pub mod node;
pub mod people;

mod error_chain;

pub use error_chain::error_chain;
