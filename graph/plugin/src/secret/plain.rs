//! Literal parts of secret settings in a file: the text that is not a variable.

use std::borrow::Cow;
use std::ops::Range;

use super::{defaults, expressions, passwords, without, without_defaults, without_passwords};

/// Names of authentication schemes, which are not credentials.
const SCHEMES: [&str; 6] = ["bearer", "basic", "token", "digest", "apikey", "splunk"];

/// Returns the text of a secret setting in the file, for display: variables, separators and names of authentication schemes.
/// Of an address, only the passwords are hidden. The path of a file with a key is shown.
pub fn without_literals(written: &str) -> Cow<'_, str> {
    if expressions(written).next().is_none() {
        return "***".into();
    }
    if is_address(written) {
        return without_passwords(&without_defaults(written)).into_owned().into();
    }
    match is_key_file(written) {
        true => without_defaults(written),
        false => without(written, literals(written)),
    }
}

/// Returns the places of the credentials in the text of a secret setting that contains variables, as far as they are known: a
/// name before a variable (`user:${PASSWORD}`) is not one, and neither is a template.
pub fn literal_credentials(written: &str) -> Vec<Range<usize>> {
    if written.contains("{{") || is_key_file(written) {
        return defaults(written).collect();
    }
    if written.trim_start().starts_with('{') {
        return passwords(written).collect();
    }
    let is_name = |part: &Range<usize>| {
        written[part.clone()].ends_with([':', '=']) && written[part.end..].trim_start_matches('"').starts_with("${")
    };
    literals(written).filter(|part| !is_name(part)).collect()
}

/// Returns the places of the text between variables and of the defaults of variables, without separators and the names of
/// authentication schemes. O(length).
pub fn literals(written: &str) -> impl Iterator<Item = Range<usize>> {
    let mut found = Vec::new();
    let mut from = 0;
    for variable in expressions(written) {
        found.extend(part(written, from..variable.start));
        let default = defaults(&written[variable.clone()]).next();
        found.extend(default.map(|at| variable.start + at.start..variable.start + at.end));
        from = variable.end;
    }
    found.extend(part(written, from..written.len()));
    found.into_iter()
}

/// Returns the place of a text without the separators around it; `None` if nothing or the name of a scheme is left.
fn part(written: &str, range: Range<usize>) -> Option<Range<usize>> {
    let is_separator = |c: char| c.is_whitespace() || matches!(c, ',' | ';' | '"' | '\'');
    let text = written[range.clone()].trim_end_matches(is_separator);
    let trimmed = text.trim_start_matches(is_separator);
    let end = range.start + text.len();
    let is_scheme = SCHEMES.iter().any(|scheme| trimmed.eq_ignore_ascii_case(scheme));
    (!trimmed.is_empty() && !is_scheme).then(|| end - trimmed.len()..end)
}

/// Returns `true` for the path of a file with a key. Settings that take a key as text or as a file are secret.
pub fn is_key_file(value: &str) -> bool {
    const EXTENSIONS: [&str; 6] = ["pem", "key", "p8", "crt", "cert", "der"];
    let extension = value.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
    !value.contains(char::is_whitespace) && extension.is_some_and(|extension| EXTENSIONS.contains(&&*extension))
}

/// Returns `true` if a value is the address of a server, with or without variables.
pub fn is_address(value: &str) -> bool {
    let value = value.trim();
    let host = value.split('/').next().and_then(|authority| authority.rsplit_once(':'));
    let has_port = host.is_some_and(|(host, port)| {
        let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '[' | ']' | ':');
        let is_name = (host == "localhost" || host.contains(['.', ']'])) && host.chars().all(is_host);
        let is_variable = host.starts_with("${") && host.find('}') == Some(host.len() - 1);
        let is_port = port.parse::<u16>().is_ok() || (port.starts_with("${") && port.ends_with('}'));
        (is_name && is_port) || (is_variable && port.parse::<u16>().is_ok())
    });
    value.contains("://") || value.contains("host=") || has_port
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_variables_are_shown_of_a_secret() {
        for (written, shown, credentials) in [
            ("${TOKEN}, hunter2", "${TOKEN}, ***", &["hunter2"][..]),
            ("pre-${TOKEN}", "***${TOKEN}", &["pre-"]),
            ("Bearer ${TOKEN}", "Bearer ${TOKEN}", &[]),
            ("Bearer ${TOKEN:-hunter2}", "Bearer ${TOKEN:-***}", &["hunter2"]),
            ("user:${PASSWORD}", "***${PASSWORD}", &[]),
            ("theme=dark; session=\"${S}\"", "***\"${S}\"", &[]),
            ("${A}${B}", "${A}${B}", &[]),
            (r#"{"host": "${HOST}", "password": "hunter2"}"#, r#"*** "${HOST}", "***"#, &["hunter2"]),
            ("${DIR}/client.key", "${DIR}/client.key", &[]),
            ("postgresql://${USER}:${PASSWORD}@host/db", "postgresql://${USER}:${PASSWORD}@host/db", &[]),
            ("${HOST}:5432/db", "${HOST}:5432/db", &[]),
            ("hunter2", "***", &["hunter2"]),
            ("{{ eq \"a\" \"${TOKEN}\" }}", "***\" \"${TOKEN}\" ***", &[]),
        ] {
            assert_eq!(without_literals(written), shown);
            let found = literal_credentials(written);
            let found: Vec<&str> = found.into_iter().map(|at| &written[at]).collect();
            match is_address(written) {
                true => assert_eq!(*without_passwords(written), *written),
                false => assert_eq!(found, credentials, "{written}"),
            }
        }
    }

    #[test]
    fn the_path_of_a_key_is_no_credential() {
        for path in ["/etc/kafka/client.key", "./client.PEM", "client.p8"] {
            assert!(is_key_file(path), "{path}");
        }
        for secret in
            ["-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----", "/wEPDwUKLTI2.x", "key", ".key and"]
        {
            assert!(!is_key_file(secret), "{secret}");
        }
    }
}
