//! Durations on the command line: `500ms`, `30s`, `2m`.

use std::time::Duration;

/// Reads a duration above zero; a bare number is seconds.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number
        .parse()
        .map_err(|_| "not a time; write it like 500ms, 30s or 2m".to_owned())?;
    let millis = match unit {
        "ms" => Some(number),
        "s" | "" => number.checked_mul(1_000),
        "m" => number.checked_mul(60_000),
        _ => return Err(format!("no unit is named {unit:?}; use ms, s or m")),
    };
    millis
        .map(Duration::from_millis)
        .filter(|length| !length.is_zero())
        .ok_or_else(|| "a time must be over 0 and fit into 64 bits of milliseconds".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_ms_s_and_m() {
        assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(parse("30"), Ok(Duration::from_secs(30)));
        assert_eq!(parse("2m"), Ok(Duration::from_secs(120)));
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in [
            "",
            "s",
            "-1s",
            "1h",
            "0s",
            "1.5s",
            "18446744073709551615m",
            "99999999999999999999s",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }
}
