//! How tests wait: until something is true, with a limit that grows with the slowness of the machine. And how many of very many cases they try: [`Share`].
//!
//! No test sleeps or compares the time that passed with a number of its own; `cargo xtask test` refuses both outside this crate. A wait ends as soon as
//! its goal is there, so a generous limit costs a test that passes nothing.
//!
//! # Which one
//! | A test wants | It uses |
//! |---|---|
//! | that something becomes true | [`wait_until`], [`eventually`] |
//! | that something it started ends | [`in_time`] |
//! | that something never happens | no wait: a later event of the same queue has come, and the first has not |
//! | that something comes no sooner than after so long | [`assert_no_sooner`] |
//! | that something takes at most so long | the order of two events; a true bound is a benchmark, or a test of the group `timing` |

#![deny(missing_docs)]

mod share;

use std::fmt::Display;
use std::time::{Duration, Instant};

pub use share::{DAY, Share, THOROUGH, thorough};

/// The environment variable with the machine's slowness: 1 is a quiet machine of two cores, 2 takes twice as long. `cargo xtask test` measures and sets it.
pub const SLOWNESS: &str = "YOI_TEST_SLOWNESS";

/// More than that is no slow machine but a broken one.
const MOST: f64 = 10.0;

/// No wait is given up before this time, times the slowness: what passes in milliseconds alone takes seconds beside a compiler.
const LEAST: Duration = Duration::from_secs(60);

/// How often a wait looks.
const PAUSE: Duration = Duration::from_millis(20);

/// Returns how many times longer than on a quiet machine of two cores things may take here: at least 1, at most 10, and 1 where nobody measured.
#[must_use]
pub fn slowness() -> f64 {
    parse_slowness(std::env::var(SLOWNESS).ok().as_deref())
}

fn parse_slowness(value: Option<&str>) -> f64 {
    value.and_then(|value| value.parse::<f64>().ok()).filter(|value| value.is_finite()).unwrap_or(1.0).clamp(1.0, MOST)
}

/// Returns how long to wait for what takes `usual` at most on a quiet machine: at least 60 s, and more on a slow machine.
#[must_use]
pub fn limit(usual: Duration) -> Duration {
    usual.max(LEAST).mul_f64(slowness())
}

/// Calls `look` until it returns a value, and returns that.
///
/// # Panics
/// After [`limit`] of no time in particular, with `goal`.
#[track_caller]
pub fn wait_until<T>(goal: impl Display, look: impl FnMut() -> Option<T>) -> T {
    wait_until_in(LEAST, goal, look)
}

/// As [`wait_until`], for what may take `usual` on a quiet machine.
///
/// # Panics
/// After [`limit`] of `usual`, with `goal`.
#[track_caller]
pub fn wait_until_in<T>(usual: Duration, goal: impl Display, look: impl FnMut() -> Option<T>) -> T {
    wait_for(usual, look).unwrap_or_else(|| panic!("not within {:?}: {goal}", limit(usual)))
}

/// As [`wait_until_in`], but returns `None` after the limit: for a destructor, which must not panic, and for a caller that says more about what is missing.
pub fn wait_for<T>(usual: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let (began, limit) = (Instant::now(), limit(usual));
    loop {
        let found = look();
        if found.is_some() || began.elapsed() > limit {
            return found;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Calls `look` until it returns a value, and returns that. Runs by tokio's clock.
///
/// # Errors
/// The first error of `look`, at once. After [`limit`] of `usual`, the error that `late` makes of a sentence with `goal`.
#[cfg(feature = "async")]
pub async fn eventually_in<T, E>(
    usual: Duration,
    pause: Duration,
    goal: impl Display,
    late: impl FnOnce(String) -> E,
    mut look: impl AsyncFnMut() -> Result<Option<T>, E>,
) -> Result<T, E> {
    let (began, limit) = (tokio::time::Instant::now(), limit(usual));
    loop {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        if began.elapsed() > limit {
            return Err(late(format!("not within {limit:?}: {goal}")));
        }
        tokio::time::sleep(pause).await;
    }
}

/// Calls `look` until it returns a value, and returns that. Runs by tokio's clock.
///
/// # Panics
/// After [`limit`] of no time in particular, with `goal`.
#[cfg(feature = "async")]
pub async fn eventually<T>(goal: impl Display, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let found = eventually_in(LEAST, PAUSE, goal, std::convert::identity, async || Ok(look().await)).await;
    found.unwrap_or_else(|late| panic!("{late}"))
}

/// Awaits `future`, and returns its output.
///
/// # Panics
/// When it has not ended after [`limit`] of no time in particular, with `goal`.
#[cfg(feature = "async")]
pub async fn in_time<T>(goal: impl Display, future: impl Future<Output = T>) -> T {
    let limit = limit(LEAST);
    let ended = tokio::time::timeout(limit, future).await;
    ended.unwrap_or_else(|_| panic!("not within {limit:?}: {goal}"))
}

/// Checks that `least` has passed since `began`, for what is promised to come no sooner. A slow machine makes that only truer, so it is no bound that can
/// fail for want of processors: take `began` before what may come too soon is started.
///
/// # Panics
/// When less time has passed, with `what`.
#[track_caller]
pub fn assert_no_sooner(began: Instant, least: Duration, what: impl Display) {
    let passed = began.elapsed();
    assert!(passed >= least, "{what} came after {passed:?}, and not after {least:?} or more");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowness_is_a_number_between_one_and_ten() {
        for (value, expected) in [
            (None, 1.0),
            (Some("1.4"), 1.4),
            (Some("0.2"), 1.0),
            (Some("400"), MOST),
            (Some("NaN"), 1.0),
            (Some("inf"), 1.0),
            (Some("slow"), 1.0),
            (Some(""), 1.0),
        ] {
            assert!((parse_slowness(value) - expected).abs() < f64::EPSILON, "{value:?}");
        }
    }

    #[test]
    fn a_wait_looks_until_its_goal_is_there() {
        let mut looks = 0;
        let found = wait_until("the third look", || {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!(found, 3);
    }

    #[test]
    fn what_comes_too_soon_is_named() {
        assert_no_sooner(Instant::now(), Duration::ZERO, "the tide");
        let early = std::panic::catch_unwind(|| assert_no_sooner(Instant::now(), Duration::from_secs(3600), "the tide")).unwrap_err();
        assert!(early.downcast_ref::<String>().is_some_and(|told| told.starts_with("the tide came after")));
    }

    #[cfg(feature = "async")]
    #[tokio::test(start_paused = true)]
    async fn a_goal_that_never_comes_is_named_after_the_limit_and_an_error_ends_the_wait_at_once() {
        let began = tokio::time::Instant::now();
        let late = eventually_in(Duration::from_secs(90), PAUSE, "rain", |late| late, async || Ok(None::<()>)).await.unwrap_err();
        assert!(late.ends_with("rain") && began.elapsed() >= Duration::from_secs(90), "{late}");
        let failed = eventually_in(LEAST, PAUSE, "rain", |late| late, async || Err::<Option<()>, _>("no sky".to_owned())).await;
        assert_eq!(failed.unwrap_err(), "no sky");
    }

    #[cfg(feature = "async")]
    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "the tide")]
    async fn what_does_not_end_is_named() {
        in_time("the tide", std::future::pending::<()>()).await;
    }
}
