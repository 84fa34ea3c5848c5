//! Waiting for what no watch reports.

use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use yoi_test_support::eventually_in;

const PAUSE: Duration = Duration::from_millis(500);

/// Calls `look` every 500 ms until it returns a value. Returns the value and the time that passed. `usual` is how long that takes at most on a quiet
/// machine: see [`yoi_test_support::limit`].
///
/// # Errors
/// The first error of `look`, at once. After the limit, an error that names `goal`.
pub async fn poll_until<T>(usual: Duration, goal: impl Display, look: impl AsyncFnMut() -> Result<Option<T>>) -> Result<(T, Duration)> {
    let start = Instant::now();
    let found = eventually_in(usual, PAUSE, goal, anyhow::Error::msg, look).await?;
    Ok((found, start.elapsed()))
}

/// As [`poll_until`], where a look that does not find its goal returns what it saw instead. After the limit, the error says what the last one saw.
///
/// # Errors
/// As [`poll_until`].
pub async fn poll_seen<T, S: Display>(
    usual: Duration,
    goal: impl Display,
    mut look: impl AsyncFnMut() -> Result<Result<T, S>>,
) -> Result<(T, Duration)> {
    let (start, last) = (Instant::now(), Mutex::new(String::new()));
    let last = || last.lock().unwrap_or_else(PoisonError::into_inner);
    let late = |late: String| anyhow!("{late}: {}", last());
    let found = eventually_in(usual, PAUSE, goal, late, async || match look().await? {
        Ok(found) => Ok(Some(found)),
        Err(seen) => {
            *last() = seen.to_string();
            Ok(None)
        }
    });
    Ok((found.await?, start.elapsed()))
}
