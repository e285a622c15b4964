//! URLs of JDBC.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::setting_text::SettingText;

/// Characters of a user name that a URL does not need to encode.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The parts of a URL of PostgreSQL's JDBC driver.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct JdbcUrl {
    /// `host:port`; may be several, with commas between them.
    pub(crate) address: String,
    pub(crate) database: String,
    /// Options after the question mark, decoded.
    pub(crate) options: Vec<(String, String)>,
}

/// Returns the name of the database system of a URL: `postgresql`, `mysql`.
pub(crate) fn system(url: &str) -> &str {
    let rest = url.strip_prefix("jdbc:").unwrap_or(url);
    rest.split(':').next().unwrap_or_default()
}

/// Reads a URL of PostgreSQL's JDBC driver; `None` if it is another URL.
pub(crate) fn parse(url: &str) -> Option<JdbcUrl> {
    let rest = url.strip_prefix("jdbc:postgresql:")?;
    let (place, options) = rest.split_once('?').unwrap_or((rest, ""));
    let (address, database) = match place.strip_prefix("//") {
        Some(place) => place.split_once('/').unwrap_or((place, "")),
        // Without an address, the server is on the same machine.
        None => ("localhost", place),
    };
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    // Some drivers accept a login before the address. The last sign ends it: a password may have others.
    let (login, address) = address.rsplit_once('@').unwrap_or(("", address));
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    let login = [("user", user), ("password", password)].into_iter().filter(|(_, value)| !value.is_empty());
    let login = login.map(|(name, value)| (name.to_owned(), decoded(value)));
    let options = options
        .split('&')
        .filter(|option| !option.is_empty())
        .map(|option| option.split_once('=').unwrap_or((option, "")))
        .map(|(name, value)| (decoded(name), decoded(value)));
    let options = login.chain(options).collect();
    let address = if address.is_empty() { "localhost" } else { address };
    Some(JdbcUrl { address: address.to_owned(), database: decoded(database), options })
}

/// Encodes a part of a URL. Variables stay variables: their values must be encoded.
pub(crate) fn encoded(text: &SettingText) -> SettingText {
    match text.is_variable() {
        true => text.clone(),
        false => SettingText::literal(&utf8_percent_encode(text.as_str(), ENCODED).to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_jdbc_are_read() {
        let url = parse("jdbc:postgresql://db:5432/shop?user=a%40b&ssl=true").unwrap();
        assert_eq!((url.address.as_str(), url.database.as_str()), ("db:5432", "shop"));
        assert_eq!(url.options, [("user".to_owned(), "a@b".to_owned()), ("ssl".to_owned(), "true".to_owned())]);
        let login = parse("jdbc:postgresql://u%40x:p@q@db/shop?password=r").unwrap();
        assert_eq!(login.address, "db");
        let options = [("user", "u@x"), ("password", "p@q"), ("password", "r")];
        assert_eq!(login.options, options.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let short = parse("jdbc:postgresql:shop").unwrap();
        assert_eq!((short.address.as_str(), short.database.as_str()), ("localhost", "shop"));
        assert_eq!(parse("jdbc:mysql://db/shop"), None);
        assert_eq!(system("jdbc:oracle:thin:@db"), "oracle");
        assert_eq!(encoded(&"a@b:c".into()).as_str(), "a%40b%3Ac");
    }
}
