//! The quota of a workspace, as users write it.

/// Above what any disk holds, and far from the limits of a number of bytes.
const MAX_BYTES: u128 = 1 << 62;

/// A quantity in the units that people use for disks. A sign is let through, so that the rule can answer with a sentence.
pub const QUOTA_PATTERN: &str = r"^-?[0-9]+(\.[0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T)?$";
/// The CEL rule of a quota.
pub const QUOTA_RULE: &str = "quantity(self).compareTo(quantity('1Mi')) >= 0";
/// What the API server answers if [`QUOTA_RULE`] does not hold.
pub const QUOTA_MESSAGE: &str = "quota must be at least 1Mi: without one, leave it out";

/// The bytes of a quota, rounded up to whole ones, and at most 4 EiB, which no disk holds; None if it does not match [`QUOTA_PATTERN`] or is
/// below 1 MiB.
#[must_use]
pub fn quota_bytes(text: &str) -> Option<i64> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit: u128 = match &text[number.len()..] {
        "" => 1,
        "k" => 1000,
        "M" => 1000 * 1000,
        "G" => 1000 * 1000 * 1000,
        "T" => 1000 * 1000 * 1000 * 1000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').map_or((number, None), |(whole, fraction)| (whole, Some(fraction)));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|c| c.is_ascii_digit());
    if !is_number(whole) || fraction.is_some_and(|fraction| !is_number(fraction)) {
        return None;
    }
    // Nine decimals of a Ti are more than its bytes.
    let fraction: String = fraction.unwrap_or_default().chars().chain("000000000000000".chars()).take(15).collect();
    let parts = (fraction.parse::<u128>().ok()? * unit).div_ceil(1_000_000_000_000_000);
    // It has digits only, so what cannot be parsed is too large.
    let bytes = whole.parse().unwrap_or(u128::MAX).saturating_mul(unit).saturating_add(parts).min(MAX_BYTES);
    i64::try_from(bytes).ok().filter(|bytes| *bytes >= 1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_a_quantity_of_at_least_1_mib() {
        let table = [
            ("1Mi", Some(1 << 20)),
            ("1048576", Some(1 << 20)),
            ("1048575", None),
            ("1.5Gi", Some(3 << 29)),
            ("0.5Ti", Some(1 << 39)),
            ("2M", Some(2_000_000)),
            ("1M", None),
            ("10G", Some(10_000_000_000)),
            ("1.0000000001G", Some(1_000_000_001)),
            ("0", None),
            ("-1Gi", None),
            ("", None),
            ("Gi", None),
            ("1.Gi", None),
            ("1Gib", None),
            ("4194304Ti", Some(1 << 62)),
            ("5000000Ti", Some(1 << 62)),
            ("9999999999999999999999999999999999999999999Ti", Some(1 << 62)),
        ];
        for (text, bytes) in table {
            assert_eq!(quota_bytes(text), bytes, "{text}");
        }
    }
}
