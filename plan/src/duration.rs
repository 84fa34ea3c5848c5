//! The durations in specs: `30s`, `10m`, `2h`; and what is left of one.

use std::time::Duration;

/// The text that is no duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to read {0:?} as a duration: digits followed by s, m or h are expected")]
pub struct ParseDurationError(pub String);

/// Reads what the CRD's pattern `^[0-9]{1,8}(s|m|h)$` lets through.
///
/// # Errors
/// Any other text.
pub fn parse(text: &str) -> Result<Duration, ParseDurationError> {
    let refuse = || ParseDurationError(text.to_owned());
    let unit = text.chars().last().ok_or_else(refuse)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        _ => return Err(refuse()),
    };
    let digits = &text[..text.len() - 1];
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(refuse());
    }
    let count: u64 = digits.parse().map_err(|_| refuse())?;
    Ok(Duration::from_secs(count * seconds))
}

/// What is left of `period` since `start`; `None` when it is over.
pub(crate) fn time_left(start: jiff::Timestamp, period: Duration, now: jiff::Timestamp) -> Option<Duration> {
    let due = start.saturating_add(period).unwrap_or(now);
    Duration::try_from(due.duration_since(now)).ok().filter(|left| !left.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_three_units_and_refuses_the_rest() {
        assert_eq!(parse("0s").unwrap(), Duration::ZERO);
        assert_eq!(parse("90s").unwrap(), Duration::from_secs(90));
        assert_eq!(parse("10m").unwrap(), Duration::from_secs(600));
        assert_eq!(parse("99999999h").unwrap(), Duration::from_secs(99_999_999 * 3600));
        for wrong in ["", "s", "1", "1d", "-1s", "1.5h", "123456789s", "é", "1ms"] {
            assert!(parse(wrong).is_err(), "{wrong:?} was taken");
        }
    }
}
