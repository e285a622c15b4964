//! Credentials in plain text.

use anabranch_plugin::secret::{self, defaults, expressions};
use anabranch_plugin::written::Written;
use anabranch_record::access::Access;
use anabranch_template::{MissingKey, Template};

/// Returns `true` if a setting holds a credential in plain text, directly or as the default of a variable. It does not
/// matter whether the variable is set: the default is in the file and in the store.
pub(super) fn stands_in(written: &Written, is_secret: bool) -> bool {
    let text = written.written();
    if !is_secret {
        return *secret::without_passwords(text) != **text;
    }
    if expressions(text).next().is_none() {
        return !written.is_substituted() && holds_credential(text) && !is_of_record(text);
    }
    let mut plain = String::with_capacity(text.len());
    let mut from = 0;
    for default in expressions(text) {
        plain.push_str(&text[from..default.start]);
        from = default.end;
        let inner = &text[default];
        match defaults(inner).next() {
            Some(at) => plain.push_str(&inner[at]),
            None => plain.push_str(inner),
        }
    }
    plain.push_str(&text[from..]);
    match is_address(&plain) {
        true => *secret::without_passwords(&plain) != *plain,
        false => defaults(text).next().is_some(),
    }
}

/// Returns `true` if the text is a template that reads from the record.
fn is_of_record(text: &str) -> bool {
    text.contains("{{")
        && Template::parse(text, MissingKey::NoValue).is_ok_and(|template| template.reads() != Access::NOTHING)
}

/// Returns `true` if the value of a secret setting is a credential. An address counts only if it contains a password.
fn holds_credential(value: &str) -> bool {
    let value = value.trim();
    let has_password = || *secret::without_passwords(value) != *value || value.contains("password=");
    !value.is_empty() && !is_key_file(value) && (!is_address(value) || has_password())
}

/// Returns `true` for the path of a file with a key. Settings that take a key as text or as a file are secret.
fn is_key_file(value: &str) -> bool {
    const EXTENSIONS: [&str; 6] = ["pem", "key", "p8", "crt", "cert", "der"];
    let extension = value.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
    !value.contains(char::is_whitespace) && extension.is_some_and(|extension| EXTENSIONS.contains(&&*extension))
}

fn is_address(value: &str) -> bool {
    let value = value.trim();
    let host = value.split('/').next().and_then(|authority| authority.rsplit_once(':'));
    let has_port = host.is_some_and(|(host, port)| {
        let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '[' | ']' | ':');
        let is_name = host == "localhost" || host.contains(['.', ']']);
        is_name && host.chars().all(is_host) && port.parse::<u16>().is_ok()
    });
    value.contains("://") || value.contains("host=") || has_port
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_key_is_no_credential() {
        for path in ["/etc/kafka/client.key", "./client.PEM", "client.p8"] {
            assert!(!holds_credential(path), "{path}");
        }
        for secret in
            ["-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----", "/wEPDwUKLTI2.x", "key", ".key and"]
        {
            assert!(holds_credential(secret), "{secret}");
        }
    }
}
