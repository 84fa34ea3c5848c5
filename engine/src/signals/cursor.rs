//! How far somebody has read the events of a conversation.

use std::fmt;
use std::str::FromStr;

use yoi_session::{Error, Token};

/// After an entry of the log, and after some of the events of the next one. Its text is that of the token, and `~N` behind it for so many events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The last entry all of whose events were read.
    pub token: Token,
    /// How many events of the next one were read.
    pub taken: usize,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.taken {
            0 => write!(f, "{}", self.token),
            taken => write!(f, "{}~{taken}", self.token),
        }
    }
}

impl FromStr for Cursor {
    type Err = Error;

    fn from_str(given: &str) -> Result<Self, Error> {
        let bad = || Error::BadToken { given: given.to_owned() };
        let (token, taken) = match given.split_once('~') {
            None => (given, 0),
            Some((token, taken)) => (token, taken.parse().map_err(|_| bad())?),
        };
        Ok(Self { token: token.parse().map_err(|_| bad())?, taken })
    }
}
