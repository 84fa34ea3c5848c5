//! Why a request to other agents has no answer.

use yoi_wire::hub::Refusal;

/// Why a request to others has no answer that can be used.
#[derive(Debug, thiserror::Error)]
pub enum PeersError {
    /// It was refused, with a reason.
    #[error("{}", .0.message)]
    Refused(Refusal),
    /// It was not sent, so it had no effect.
    #[error("{message}")]
    NotSent {
        /// Why, with all causes.
        message: String,
        /// Whether another try at once may get through.
        retry: bool,
    },
    /// It was sent, and what became of it is not known.
    #[error("{message}")]
    Unanswered {
        /// Why, with all causes.
        message: String,
        /// Whether another try at once may get an answer.
        retry: bool,
    },
}
