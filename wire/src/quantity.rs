//! Numbers in words for people.

/// Returns a number of bytes with three figures and a binary unit.
#[must_use]
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let unit = (count.max(1).ilog2() / 10).min(5);
    let whole = count >> (10 * unit);
    if unit == 0 || whole >= 100 {
        return format!("{whole} {}", UNITS[unit as usize]);
    }
    let tenths = ((count >> (10 * (unit - 1))) & 1023) * 10 / 1024;
    format!("{whole}.{tenths} {}", UNITS[unit as usize])
}

/// Returns a number with three figures and a decimal unit: `12.3k`.
#[must_use]
pub fn count(count: u64) -> String {
    const UNITS: [&str; 4] = ["k", "M", "G", "T"];
    let (mut value, mut rest, mut unit) = (count, 0, "");
    for next in UNITS {
        if value < 1000 {
            break;
        }
        (value, rest, unit) = (value / 1000, value % 1000 / 100, next);
    }
    if unit.is_empty() || value >= 100 { format!("{value}{unit}") } else { format!("{value}.{rest}{unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_a_unit_and_few_figures() {
        let shown = [0, 1023, 1024, 1536, 10 << 20, 999 << 20, 3 << 40].map(bytes);
        assert_eq!([0, 999, 1000, 12_345, 999_999, 1_000_000].map(count), ["0", "999", "1.0k", "12.3k", "999k", "1.0M"]);
        assert_eq!(shown, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "10.0 MiB", "999 MiB", "3.0 TiB"]);
    }
}
