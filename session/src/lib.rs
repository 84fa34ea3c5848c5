//! An agent's session log and its inbox, on the session volume.
//!
//! # Flow
//! [`Lock::take`] the volume, [`current::read`] which session the agent has, [`Log::open`] it (or [`Log::create`] one, append its first
//! entries and then [`current::write`]), [`Inbox::open`] with what the log already delivered, append [`LogState::recovery`], serve. When
//! [`Log::segment_bytes`] is enough, when the conversation was compacted, and on [`Error::ForeignAppend`]: [`Log::rotate`].
//!
//! # Guarantees
//! - [`Log::append`] returns `Ok` only for entries that survive a power cut. After any failure the log refuses to go on until it is opened
//!   again; it never acknowledges by mistake.
//! - Whatever the crash, opening finds every acknowledged entry once, in order, and at most some more of the append that was under way.
//! - A complete line that is damaged is an error with file and line, never skipped; an unfinished last append is cut and reported.
//! - A session is a chain of segments: each head names the segment before, its last entry and that line's digest. Opening reads the last
//!   segment alone. A segment counts once `current.json` names it, which is after it is durable; whatever the crash, the session ends with
//!   the old segment or the new one. A missing, doubled or altered link is an error with both files.
//! - A token of a [`Reader`] stays valid when the session goes on in another segment, and when reader or writer restarts.
//! - A message is accepted only when it is durable, and it gets into the log once.
//!
//! # Assumptions
//! - One sector (512 bytes) is written whole or not at all, and `fdatasync` means what it says.
//! - `flock` excludes other writers of the volume, or the run generation does.
//!
//! # On the volume
//! ```text
//! <root>/lock                                  flock; one line for every Pod that held it
//! <root>/current.json                          the session of this agent, and its last segment
//! <root>/sessions/<session>/<segment>.jsonl    one entry a line
//! <root>/sessions/<session>/inbox/<n>.json     one accepted message that is not in the log yet
//! <root>/conversations/<name>/                 another conversation of the agent: all of this but the lock, and its record
//! ```
//! Every line, of every file, is a JSON object whose first member is its checksum: see [`frame`].

#![deny(missing_docs, clippy::unwrap_used, clippy::expect_used)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

pub mod conversations;
pub mod current;
pub mod disk;
mod error;
pub mod fold;
pub mod frame;
pub mod inbox;
mod layout;
mod lock;
mod log;
mod reader;
mod record_file;
mod timestamp;

pub use error::{ChainDamage, Damage, Error, ErrorReason, Result};
pub use fold::LogState;
pub use inbox::{Inbox, InboxMessage, PutOutcome, Sender, Wake};
pub use lock::{Holder, Lock};
pub use log::{Log, MAX_LINE, Preallocate, Replay, TornTail};
pub use reader::{Reader, StoredEntry, Token};
pub use timestamp::{parse_rfc3339, rfc3339_millis};
