//! Paths that accept requests.

use anabranch_record::text::Str;

/// A path of the settings: `/hooks`, or `/hooks/*` for everything below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AcceptedPath {
    path: Str,
    with_below: bool,
}

impl AcceptedPath {
    /// Parses a setting.
    ///
    /// # Errors
    /// The reason why it is not a path, as a phrase.
    pub(super) fn parse(text: &str) -> Result<AcceptedPath, &'static str> {
        let text = text.trim();
        let (path, with_below) = match text.strip_suffix('*') {
            Some(path) if path.ends_with('/') => (path, true),
            Some(_) => return Err("a * stands only after the last /"),
            None => (text, false),
        };
        match () {
            () if !path.starts_with('/') => Err("a path begins with /"),
            () if path.contains(['?', '#', '*']) || path.contains(char::is_whitespace) => {
                Err("a path has no query, no * before its end and no white space")
            }
            () => Ok(AcceptedPath { path: path.into(), with_below }),
        }
    }

    /// Returns `true` if requests with this path are accepted. Paths are compared as they are written, without decoding.
    pub(super) fn accepts(&self, path: &str) -> bool {
        if self.with_below { path.starts_with(self.path.as_str()) } else { path == self.path.as_str() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_accepts_everything_below() {
        let one = AcceptedPath::parse(" /a ").unwrap();
        assert!(one.accepts("/a") && !one.accepts("/a/") && !one.accepts("/ab") && !one.accepts("/A"));
        let below = AcceptedPath::parse("/a/*").unwrap();
        assert!(below.accepts("/a/b/c") && below.accepts("/a/") && !below.accepts("/a") && !below.accepts("/ab"));
        assert!(AcceptedPath::parse("/*").unwrap().accepts("/x"));
        for wrong in ["", "a", "*", "/a*", "/*/a", "/a?b", "/a b"] {
            assert!(AcceptedPath::parse(wrong).is_err(), "{wrong}");
        }
    }
}
