//! Query parameters.

use anabranch_process::runtime::EXPRESSIONS;
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequestParts, Query as Pairs};
use axum::http::request::Parts;
use regex::RegexBuilder;

use crate::error::ApiError;

/// An invalid parameter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {given:?} is not {allowed}")]
pub(super) struct InvalidParameter {
    name: &'static str,
    given: String,
    allowed: &'static str,
}

impl From<InvalidParameter> for ApiError {
    fn from(invalid: InvalidParameter) -> Self {
        ApiError::malformed(invalid.to_string())
    }
}

/// Names and values in the order of the query. An empty value counts as absent.
pub(super) struct Query(Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for Query {
    type Rejection = QueryRejection;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, QueryRejection> {
        Pairs::from_request_parts(parts, state).await.map(|Pairs(pairs)| Query(pairs))
    }
}

impl Query {
    /// Returns the first value with this name; empty if there is none.
    pub(super) fn text(&self, name: &str) -> &str {
        self.0.iter().find(|(given, _)| given == name).map_or("", |(_, text)| text)
    }

    /// Returns all values with this name.
    pub(super) fn all<'q>(&'q self, name: &'q str) -> impl Iterator<Item = &'q str> {
        self.0.iter().filter(move |(given, _)| given == name).map(|(_, text)| text.as_str())
    }

    /// Parses a parameter; returns `None` if it is absent.
    fn read<T>(
        &self,
        name: &'static str,
        allowed: &'static str,
        understand: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, InvalidParameter> {
        match self.text(name) {
            "" => Ok(None),
            given => match understand(given) {
                Some(understood) => Ok(Some(understood)),
                None => Err(InvalidParameter { name, given: given.to_owned(), allowed }),
            },
        }
    }

    /// Returns a number from 0; `None` if it is absent.
    pub(super) fn number(&self, name: &'static str) -> Result<Option<u64>, InvalidParameter> {
        self.read(name, "a whole number from 0 to 18446744073709551615", |text| text.parse().ok())
    }

    /// Returns the value of a flag; `false` if it is absent.
    pub(super) fn flag(&self, name: &'static str) -> Result<bool, InvalidParameter> {
        let values = [("true", true), ("false", false)];
        let value =
            |text: &str| values.iter().find(|(word, _)| text.eq_ignore_ascii_case(word)).map(|(_, value)| *value);
        Ok(self.read(name, "true or false", value)?.unwrap_or(false))
    }

    /// Returns `true` if the value is true. In the protocol of the registry any other value is false.
    #[cfg(feature = "avro")]
    pub(super) fn is_set(&self, name: &str) -> bool {
        self.text(name).eq_ignore_ascii_case("true")
    }

    /// Returns the part of a list given by `offset` and `limit`. Clients of the registry send `-1` for no limit.
    #[cfg(feature = "avro")]
    pub(super) fn part<T>(&self, all: impl Iterator<Item = T>) -> Result<impl Iterator<Item = T>, InvalidParameter> {
        let most = self.read("limit", "a whole number (negative for no limit)", |text| text.parse::<i64>().ok())?;
        let most = most.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
        let left_out = self.number("offset")?.unwrap_or(0);
        Ok(all.skip(usize::try_from(left_out).unwrap_or(usize::MAX)).take(most))
    }

    /// Returns which texts fully match the regular expression of this name; all if it is absent. It runs on a thread
    /// for expressions of clients.
    pub(super) async fn matching(&self, name: &'static str, texts: Vec<String>) -> Result<Vec<bool>, InvalidParameter> {
        let given = self.text(name).to_owned();
        if given.is_empty() {
            return Ok(vec![true; texts.len()]);
        }
        let matched = EXPRESSIONS.run(move || {
            let pattern = RegexBuilder::new(&format!("^(?:{given})$")).size_limit(1 << 20).build().ok()?;
            Some(texts.iter().map(|text| pattern.is_match(text)).collect())
        });
        let matched = matched.await.flatten();
        Ok(self.read(name, "a regular expression", |_| matched)?.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(name: &str, text: &str) -> Query {
        Query(vec![(name.to_owned(), text.to_owned())])
    }

    #[test]
    fn what_is_given_is_understood_or_refused() {
        assert_eq!(query("n", "").number("n"), Ok(None));
        assert_eq!(query("m", "1").number("n"), Ok(None));
        assert_eq!(query("n", "18446744073709551615").number("n"), Ok(Some(u64::MAX)));
        for bad in ["abc", "-1", "1.5", " 1", "18446744073709551616"] {
            let refused = query("n", bad).number("n").unwrap_err().to_string();
            assert_eq!(refused, format!("n: {bad:?} is not a whole number from 0 to 18446744073709551615"));
        }
        for (text, expected) in [("", Some(false)), ("True", Some(true)), ("false", Some(false)), ("yes", None)] {
            assert_eq!(query("f", text).flag("f").ok(), expected, "{text}");
        }
    }

    #[tokio::test]
    async fn a_pattern_matches_the_whole_of_a_text() {
        let matching = async |pattern: &str| {
            let texts = ["ab", "abc"].map(str::to_owned).to_vec();
            query("p", pattern).matching("p", texts).await.map_err(|error| error.to_string())
        };
        assert_eq!(matching("a.").await, Ok(vec![true, false]));
        assert_eq!(matching("").await, Ok(vec![true, true]));
        for bad in ["(", r"(\w{100}){100}"] {
            assert_eq!(matching(bad).await, Err(format!("p: {bad:?} is not a regular expression")));
        }
    }

    #[test]
    #[cfg(feature = "avro")]
    fn a_part_is_between_offset_and_limit() {
        let part = |name: &str, text: &str| query(name, text).part(0..5).map(Iterator::collect::<Vec<_>>).ok();
        assert_eq!(part("limit", "2"), Some(vec![0, 1]));
        assert_eq!(part("limit", "-1"), Some(vec![0, 1, 2, 3, 4]));
        assert_eq!(part("offset", "3"), Some(vec![3, 4]));
        assert_eq!((part("limit", "x"), part("offset", "-1")), (None, None));
    }
}
