//! Waiting for what no watch reports.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Calls `look` every 500 ms until it returns a value. Returns the value and the time that passed.
///
/// # Errors
/// The first error of `look`, at once. After `within`, an error that names `goal`.
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
