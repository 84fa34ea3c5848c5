//! How many of very many cases a test tries: a share of them at each landing, all of them in the runs that take the time for it.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

/// The environment variable that makes every test try all its cases. `cargo xtask test --all` sets it.
pub const THOROUGH: &str = "YOI_THOROUGH";

/// The environment variable with the number that decides which cases are tried: the days since 1970 where it is not set. A test that fails prints it.
pub const DAY: &str = "YOI_TEST_DAY";

const SECONDS_OF_A_DAY: u64 = 24 * 60 * 60;

/// Returns whether every test is to try all its cases.
#[must_use]
pub fn thorough() -> bool {
    std::env::var_os(THOROUGH).is_some_and(|value| !value.is_empty() && value != "0")
}

/// One in so many of a test's cases, or all of them.
///
/// # Guarantees
/// - Within one day the same cases are tried, so a failure comes back.
/// - Of each `n` cases that follow each other, one is tried, and which one differs from group to group as if by chance. So a share is no period of the test's own loops.
/// - On `n` days that follow each other every case is tried once.
#[derive(Clone, Debug)]
pub struct Share {
    one_in: u64,
    day: u64,
    seen: u64,
    tried: u64,
}

impl Share {
    /// Tries every case.
    #[must_use]
    pub fn all() -> Self {
        Self { one_in: 1, day: 0, seen: 0, tried: 0 }
    }

    /// Tries one case in `n` today, and all where the run is [`thorough`].
    ///
    /// # Panics
    /// When the variable with the day is no number.
    #[must_use]
    pub fn one_in(n: u64) -> Self {
        if thorough() { Self::all() } else { Self { one_in: n.max(1), day: today(), ..Self::all() } }
    }

    /// Returns whether every case is tried.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.one_in == 1
    }

    /// Counts one more case, and returns whether it is tried.
    pub fn takes_next(&mut self) -> bool {
        let (group, place) = (self.seen / self.one_in, self.seen % self.one_in);
        let taken = (mixed(group) % self.one_in + self.day % self.one_in) % self.one_in == place;
        self.seen += 1;
        self.tried += u64::from(taken);
        taken
    }

    /// Returns how many cases there were.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Returns how many of them were tried.
    #[must_use]
    pub fn tried(&self) -> u64 {
        self.tried
    }
}

/// How many cases of how many were tried, and how to try the same ones again.
impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { one_in, day, seen, tried } = self;
        match one_in {
            1 => write!(f, "{tried} of {seen} cases"),
            _ => write!(f, "{tried} of {seen} cases, those of {DAY}={day}; all with {THOROUGH}=1"),
        }
    }
}

fn today() -> u64 {
    match std::env::var(DAY) {
        Ok(day) => day.parse().unwrap_or_else(|_| panic!("{DAY} is a number, not {day:?}")),
        Err(_) => SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / SECONDS_OF_A_DAY),
    }
}

/// A number that looks random and is the same each time (splitmix64).
fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(one_in: u64, day: u64, cases: u64) -> Vec<u64> {
        let mut share = Share { one_in, day, ..Share::all() };
        let tried: Vec<u64> = (0..cases).filter(|_| share.takes_next()).collect();
        assert_eq!((share.seen(), share.tried()), (cases, tried.len() as u64));
        tried
    }

    #[test]
    fn on_as_many_days_as_a_share_has_cases_every_case_is_tried_once() {
        for (one_in, cases) in [(1, 5), (5, 10_000), (8, 1_003), (10, 7)] {
            let mut all: Vec<u64> = (0..one_in).flat_map(|day| tried(one_in, 20_000 + day, cases)).collect();
            all.sort_unstable();
            assert_eq!(all, (0..cases).collect::<Vec<_>>(), "one in {one_in} of {cases}");
        }
    }

    #[test]
    fn a_day_tries_the_same_cases_each_time_and_one_of_each_group() {
        let once = tried(8, 20_000, 8_000);
        assert_eq!(once, tried(8, 20_000, 8_000));
        assert!(once.iter().enumerate().all(|(group, case)| case / 8 == group as u64), "one of each eight");
        let places: Vec<usize> = (0..8).map(|place| once.iter().filter(|case| *case % 8 == place).count()).collect();
        assert!(places.iter().all(|count| (90..160).contains(count)), "no place is preferred: {places:?}");
    }
}
