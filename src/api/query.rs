//! What follows the question mark.

use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequestParts, Query as Pairs};
use axum::http::request::Parts;
use regex::{Regex, RegexBuilder};

use super::error::ApiError;

/// Names and texts, in the order in which they are given. Clients write them in many ways (`True`, `-1` for no limit):
/// what is not understood counts as not given.
pub(super) struct Query(Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for Query {
    type Rejection = QueryRejection;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, QueryRejection> {
        Pairs::from_request_parts(parts, state).await.map(|Pairs(pairs)| Query(pairs))
    }
}

impl Query {
    /// The first of this name; empty where there is none.
    pub(super) fn text(&self, name: &str) -> &str {
        self.0.iter().find(|(given, _)| given == name).map_or("", |(_, text)| text)
    }

    /// All of this name.
    pub(super) fn all<'q>(&'q self, name: &'q str) -> impl Iterator<Item = &'q str> {
        self.0.iter().filter(move |(given, _)| given == name).map(|(_, text)| text.as_str())
    }

    /// Whether it is given as true.
    pub(super) fn is_set(&self, name: &str) -> bool {
        self.text(name).eq_ignore_ascii_case("true")
    }

    /// The part of a list between `offset` and `limit`.
    pub(super) fn part<T>(&self, all: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
        let number = |name| self.text(name).parse().ok();
        all.skip(number("offset").unwrap_or(0)).take(number("limit").unwrap_or(usize::MAX))
    }

    /// A regular expression that must match the whole of a text; `None` where there is none.
    pub(super) fn pattern(&self, name: &str) -> Result<Option<Regex>, ApiError> {
        let text = self.text(name);
        if text.is_empty() {
            return Ok(None);
        }
        let compiled = RegexBuilder::new(&format!("^(?:{text})$")).size_limit(1 << 20).build();
        compiled.map(Some).map_err(|_| ApiError::malformed(format!("{name}: {text:?} is not a regular expression")))
    }
}
