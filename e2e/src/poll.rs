//! Waiting for what no watch tells.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Looks again and again until there is something to give, and says how long that took.
///
/// # Errors
/// What a look itself fails with, at once; and when nothing came in time, the goal.
pub async fn poll_until<T>(within: Duration, goal: &str, mut look: impl AsyncFnMut() -> Result<Option<T>>) -> Result<(T, Duration)> {
    let start = Instant::now();
    loop {
        if let Some(found) = look().await? {
            return Ok((found, start.elapsed()));
        }
        if start.elapsed() > within {
            bail!("not within {within:?}: {goal}");
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
