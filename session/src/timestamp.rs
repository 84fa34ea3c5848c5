//! Wall clock time in the form that log entries carry.

use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;

/// The time in RFC 3339, UTC, cut to milliseconds: `2026-02-28T23:59:59.999Z`.
///
/// A time before 1970 is written as 1970-01-01, a time after the year 9999 as the last moment of that year.
#[must_use]
pub fn rfc3339_millis(at: SystemTime) -> String {
    let since_epoch = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let time = i64::try_from(since_epoch.as_millis()).ok().and_then(|millis| Timestamp::from_millisecond(millis).ok());
    format!("{:.3}", time.unwrap_or(Timestamp::MAX))
}

/// The time that a text of [`crate::Log`]'s entries says; `None` when it is none.
#[must_use]
pub fn parse_rfc3339(text: &str) -> Option<SystemTime> {
    text.parse::<Timestamp>().ok().map(SystemTime::from)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_700_000_000_123, "2023-11-14T22:13:20.123Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
            (1_735_689_599_000, "2024-12-31T23:59:59.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (253_402_300_799_999 - 2 * 86_400_000, "9999-12-29T23:59:59.999Z"),
        ] {
            assert_eq!(rfc3339_millis(UNIX_EPOCH + Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn milliseconds_are_always_three_digits_and_cut_not_rounded() {
        let at = |seconds, nanos| rfc3339_millis(UNIX_EPOCH + Duration::new(seconds, nanos));
        assert_eq!(at(1, 0), "1970-01-01T00:00:01.000Z");
        assert_eq!(at(1, 7_000_000), "1970-01-01T00:00:01.007Z");
        assert_eq!(at(1, 120_000_000), "1970-01-01T00:00:01.120Z");
        assert_eq!(at(1, 999_999_999), "1970-01-01T00:00:01.999Z");
    }

    /// POSIX time has no leap seconds: 2016-12-31T23:59:60Z has the number of the second after it.
    #[test]
    fn the_second_after_a_leap_second_is_the_first_of_the_year() {
        let at = |seconds| rfc3339_millis(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!([at(1_483_228_799), at(1_483_228_800)], ["2016-12-31T23:59:59.000Z", "2017-01-01T00:00:00.000Z"]);
    }

    #[test]
    fn a_clock_that_is_out_of_range_gives_the_nearest_time_in_it() {
        assert_eq!(rfc3339_millis(UNIX_EPOCH - Duration::from_secs(1)), "1970-01-01T00:00:00.000Z");
        let last = rfc3339_millis(UNIX_EPOCH + Duration::from_secs(u64::from(u32::MAX) * 1000));
        assert!(last.starts_with("9999-12-30T"), "{last}");
    }
}
