//! Typed reading of one JSON member, with an error that names it.
//!
//! Members are kept as raw text until they are asked for, so a huge array in a field nobody reads costs nothing.
//! Invariant: `null` is the same as absent, and a value of the wrong type or range is an error that says what was
//! expected and what kind of value came, never the value itself unless it is a short number.

use std::ops::RangeInclusive;

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::ApiError;

/// One member of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Field<'a> {
    name: &'static str,
    raw: Option<&'a RawValue>,
}

impl<'a> Field<'a> {
    pub(crate) fn new(name: &'static str, raw: Option<&'a RawValue>) -> Self {
        Self {
            name,
            raw: raw.filter(|raw| raw.get() != "null"),
        }
    }

    /// The member's JSON text, `None` if it is absent or null.
    pub(crate) fn text(&self) -> Option<&'a str> {
        self.raw.map(RawValue::get)
    }

    /// First byte of the member's JSON text.
    pub(crate) fn first(&self) -> Option<u8> {
        self.text().and_then(|text| text.bytes().next())
    }

    /// An error about this member.
    pub(crate) fn error(&self, message: impl std::fmt::Display) -> ApiError {
        ApiError::invalid(self.name, format!("{} {message}", self.name))
    }

    /// An error that says what was expected here. What came is named unless it is of the expected kind itself: then
    /// something inside it is wrong.
    pub(crate) fn expected(&self, what: impl std::fmt::Display) -> ApiError {
        let what = what.to_string();
        let came = self.text().map_or_else(|| "absent".to_owned(), describe);
        if came.starts_with('a') && what.contains(&came) {
            self.error(format_args!("must be {what}; this one cannot be read as that"))
        } else {
            self.error(format_args!("must be {what}, not {came}"))
        }
    }

    /// An error unless the member is absent, null or one of `neutral`: it asks for something not offered.
    pub(crate) fn unsupported(&self, neutral: &[&str], why: &str) -> Result<(), ApiError> {
        match self.text() {
            Some(text) if !neutral.contains(&text) => Err(self.error(why)),
            _ => Ok(()),
        }
    }

    /// Parses the member as `T`; `what` completes "must be".
    pub(crate) fn parse<T: DeserializeOwned>(&self, what: &str) -> Result<Option<T>, ApiError> {
        self.text()
            .map(|text| serde_json::from_str(text).map_err(|_| self.expected(what)))
            .transpose()
    }

    /// A number within `range`.
    pub(crate) fn number(&self, range: RangeInclusive<f32>) -> Result<Option<f32>, ApiError> {
        let what = format!("a number from {} to {}", range.start(), range.end());
        match self.parse::<f32>(&what)? {
            Some(value) if !range.contains(&value) => Err(self.expected(what)),
            value => Ok(value),
        }
    }

    /// An integer within `range`.
    pub(crate) fn integer(&self, range: RangeInclusive<i64>) -> Result<Option<i64>, ApiError> {
        let what = match (*range.start(), *range.end()) {
            (i64::MIN, i64::MAX) => "a 64-bit integer".to_owned(),
            (low, high) => format!("an integer from {low} to {high}"),
        };
        match self.parse::<i64>(&what)? {
            Some(value) if !range.contains(&value) => Err(self.expected(what)),
            value => Ok(value),
        }
    }

    /// An integer within `low..=u32::MAX`.
    pub(crate) fn count(&self, low: u32) -> Result<Option<u32>, ApiError> {
        let value = self.integer(i64::from(low)..=i64::from(u32::MAX))?;
        Ok(value.and_then(|value| u32::try_from(value).ok()))
    }

    /// `true` or `false`; absent is `false`.
    pub(crate) fn flag(&self) -> Result<bool, ApiError> {
        Ok(self.parse::<bool>("true or false")?.unwrap_or(false))
    }

    /// A string.
    pub(crate) fn string(&self) -> Result<Option<String>, ApiError> {
        self.parse("a string")
    }
}

/// A value's kind; numbers are shown if they are short.
fn describe(text: &str) -> String {
    match text.bytes().next() {
        Some(b'"') => "a string".to_owned(),
        Some(b'{') => "an object".to_owned(),
        Some(b'[') => "an array".to_owned(),
        Some(b't' | b'f' | b'n') => text.to_owned(),
        _ if text.len() <= 24 => text.to_owned(),
        _ => "such a long number".to_owned(),
    }
}

/// Checks that `body` is a JSON object and reads its members into `T`.
pub(crate) fn object<'a, T: serde::Deserialize<'a>>(body: &'a [u8]) -> Result<T, ApiError> {
    let text = std::str::from_utf8(body).map_err(|_| ApiError::malformed("the body is not UTF-8"))?;
    match text.trim_ascii_start().bytes().next() {
        Some(b'{') => serde_json::from_str(text)
            .map_err(|error| ApiError::malformed(format!("the body is not valid JSON: {error}"))),
        Some(_) => Err(ApiError::malformed("the body must be a JSON object")),
        None => Err(ApiError::malformed("the body is empty; send a JSON object")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message<T: std::fmt::Debug>(json: &str, read: impl Fn(Field<'_>) -> Result<T, ApiError>) -> String {
        let raw: Box<RawValue> = serde_json::from_str(json).unwrap();
        read(Field::new("x", Some(&raw)))
            .unwrap_err()
            .message()
            .to_owned()
    }

    #[test]
    fn an_error_says_what_was_expected_and_what_came() {
        let number = |field: Field<'_>| field.number(0.0..=2.0);
        assert_eq!(
            message("\"hot\"", number),
            "x must be a number from 0 to 2, not a string"
        );
        assert_eq!(message("2.5", number), "x must be a number from 0 to 2, not 2.5");
        assert_eq!(
            message("1e999", number),
            "x must be a number from 0 to 2, not 1e999"
        );
        let count = |field: Field<'_>| field.count(1);
        assert_eq!(
            message("0", count),
            "x must be an integer from 1 to 4294967295, not 0"
        );
        assert_eq!(
            message("1.5", count),
            "x must be an integer from 1 to 4294967295, not 1.5"
        );
        assert_eq!(
            message("4294967296", count),
            "x must be an integer from 1 to 4294967295, not 4294967296"
        );
        assert_eq!(
            message("[]", |field| field.flag()),
            "x must be true or false, not an array"
        );
        assert_eq!(
            message("{\"b\": 1}", |field| field.parse::<[u8; 2]>("an object with a")),
            "x must be an object with a; this one cannot be read as that"
        );
    }

    #[test]
    fn a_value_of_the_right_kind_is_not_said_to_be_of_another() {
        let text = |field: Field<'_>| field.string();
        assert_eq!(
            message(r#""\ud800""#, text),
            "x must be a string; this one cannot be read as that"
        );
        let ids = |field: Field<'_>| field.parse::<Vec<u32>>("an array of token ids");
        assert_eq!(
            message("[-1]", ids),
            "x must be an array of token ids; this one cannot be read as that"
        );
    }

    #[test]
    fn a_huge_value_is_not_echoed() {
        let long = format!("\"{}\"", "a".repeat(1 << 20));
        assert!(message(&long, |field| field.number(0.0..=1.0)).len() < 100);
        assert!(message(&"9".repeat(1000), |field| field.count(0)).len() < 100);
    }

    #[test]
    fn null_is_absent() {
        let raw: Box<RawValue> = serde_json::from_str("null").unwrap();
        assert_eq!(Field::new("x", Some(&raw)).count(1).unwrap(), None);
    }
}
