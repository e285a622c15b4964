//! Which settings contain a credential.
//!
//! Conduit does not mark credentials in a file, so the declaration of the plugin, the name of the setting and the form of
//! its value decide. For a setting that no plugin of this build declares, a needless variable is better than a credential
//! in a file.

use anabranch_plugin::secret::{defaults, expressions, names_a_credential, passwords};

/// What the plugin says about a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Declared {
    /// Its value is a credential.
    Secret,
    /// It is a setting of the plugin, and not a credential.
    Plain,
    /// The plugin or the setting is not known.
    Unknown,
}

/// Words in the names of settings whose values are, or often contain, credentials.
const WORDS: [&str; 24] = [
    "auth",
    "authentication",
    "authorization",
    "bearer",
    "connection",
    "cookie",
    "credential",
    "credentials",
    "dsn",
    "header",
    "headers",
    "jaas",
    "jwt",
    "login",
    "pass",
    "passwd",
    "password",
    "pwd",
    "sas",
    "secret",
    "token",
    "uri",
    "url",
    "webhook",
];

/// Beginnings of names of keys that are credentials, not keys of records.
const KEYS: [&str; 12] = [
    "access",
    "account",
    "api",
    "auth",
    "encryption",
    "master",
    "private",
    "secret",
    "service",
    "shared",
    "signing",
    "storage",
];

/// Words before a credential in a header.
const SCHEMES: [&str; 8] = ["apikey", "basic", "bearer", "bot", "digest", "key", "negotiate", "token"];

/// Returns `true` if the text of a setting in the file contains a credential. A variable does not count; its default does.
pub(super) fn holds_a_credential(declared: Declared, name: &str, written: &str) -> bool {
    let literal = literals(written);
    if literal.trim().is_empty() {
        return false;
    }
    let has_variable = expressions(written).next().is_some();
    let is_secret = match declared {
        Declared::Secret => true,
        Declared::Plain => false,
        Declared::Unknown => suggests_a_credential(name),
    };
    if is_secret && !has_variable {
        return true;
    }
    let lower = name.to_ascii_lowercase();
    let may_have_pairs = declared != Declared::Plain
        || ["header", "body", "connection", "options", "properties"].iter().any(|part| lower.contains(part));
    in_address(written)
        || (may_have_pairs && has_pair(written))
        || (declared == Declared::Unknown && is_login_at_address(written))
        || (is_secret && is_part_of_a_secret(&literal))
}

/// Returns the text without its variables. Defaults stay.
fn literals(written: &str) -> String {
    let mut text = String::with_capacity(written.len());
    let mut from = 0;
    for range in expressions(written) {
        text.push_str(&written[from..range.start]);
        defaults(&written[range.clone()]).for_each(|default| text.push_str(&written[range.clone()][default]));
        from = range.end;
    }
    text.push_str(&written[from..]);
    text
}

/// Returns `true` if the literal text around the variables of a credential is a part of it, and not a URL, the name of an
/// authentication scheme, or the names in a list of pairs.
fn is_part_of_a_secret(literal: &str) -> bool {
    let literal = literal.trim();
    !literal.is_empty()
        && !literal.contains("://")
        && !literal.contains(['=', ':'])
        && !SCHEMES.iter().any(|scheme| literal.eq_ignore_ascii_case(scheme))
}

/// Returns `true` if the name of a setting of an unknown plugin suggests a credential, or a value that often has one.
fn suggests_a_credential(name: &str) -> bool {
    let words = words(name);
    let is_key = |pair: &[String]| pair[1].starts_with("key") && KEYS.contains(&pair[0].as_str());
    names_a_credential(name)
        || words.iter().any(|word| WORDS.contains(&word.as_str()))
        || words.windows(2).any(is_key)
        || KEYS.iter().any(|start| words.iter().any(|word| word.strip_prefix(start) == Some("key")))
}

/// Returns the words of a name in lower case: `auth`, `private` and `key` for `auth.privateKey`.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for c in name.chars() {
        if !c.is_alphanumeric() || (c.is_uppercase() && before.is_lowercase()) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
        before = c;
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Returns `true` if a URL has a password, a credential in its query, or a user without a password where HTTP has a token.
fn in_address(written: &str) -> bool {
    let has_user = |scheme: &str| {
        written.match_indices(scheme).any(|(at, _)| {
            let rest = &written[at + scheme.len()..];
            let authority = &rest[..rest.find(['/', '?', '#', '"', '\'', ' ', '\n']).unwrap_or(rest.len())];
            authority.rsplit_once('@').is_some_and(|(user, _)| !literals(user).trim_matches([':', ' ']).is_empty())
        })
    };
    // The user of a URL whose password is a variable is not a credential.
    passwords(written).next().is_some()
        || passwords(&literals(written)).next().is_some()
        || ["http://", "https://"].iter().any(|scheme| has_user(scheme) && !written.contains(":${"))
}

/// Returns `true` for `user:password@host`, and for `user:password@tcp(host)` as drivers of MySQL write it.
fn is_login_at_address(written: &str) -> bool {
    let Some((login, host)) = written.split_once('@') else { return false };
    let password = login.split_once(':').map_or("", |(_, password)| password);
    !login.contains(char::is_whitespace)
        && !login.contains("://")
        && !literals(password).is_empty()
        && host.starts_with(|c: char| c.is_alphanumeric() || c == '(' || c == '[')
}

/// Returns `true` if the text has a pair whose name suggests a credential and whose value is literal:
/// `Authorization: Bearer x`, `Password=x`, `"token": "x"`.
fn has_pair(written: &str) -> bool {
    written.match_indices([':', '=']).any(|(at, _)| {
        let before = written[..at].trim_end_matches(['"', '\'', ' ', '\\']);
        let start =
            before.rfind(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '_')).map_or(0, |at| at + 1);
        let name = &before[start..];
        let is_credential = name.len() < 40
            && (names_a_credential(name) || ["pass", "pwd"].contains(&name.to_ascii_lowercase().as_str()));
        let value = written[at + 1..].trim_start_matches(['"', '\'', ' ', '\\']);
        let value = &value[..value.find([',', ';', '\n', '"', '\'', '&']).unwrap_or(value.len())];
        let literal = literals(value);
        let literal = literal.trim();
        let is_literal = !literal.is_empty()
            && !literal.starts_with("{{")
            && !literal.split_whitespace().all(|word| SCHEMES.iter().any(|scheme| word.eq_ignore_ascii_case(scheme)));
        is_credential && is_literal
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_credentials_are_found_in_settings_of_unknown_plugins() {
        for (name, written) in [
            ("url", "http://host/a"),
            ("db.dsn", "x"),
            ("connectionString", "x"),
            ("headers.X-Any", "x"),
            ("apiKey", "x"),
            ("apikey", "x"),
            ("privateKeyPem", "x"),
            ("any", "postgres://u:p@h"),
            ("any", "postgres://u:p@${HOST}"),
            ("any", "u:p@tcp(h)/d"),
            ("any", "http://h/?api_key=p"),
            ("any", "https://token@h/"),
            ("any", "Server=h;Pwd=p"),
            ("any", "{\"token\": \"p\"}"),
            ("any", "Authorization: Bearer p"),
            ("any", "${A:-postgres://u:p@h}"),
            ("password", "${A:-p}"),
            ("password", "p${A}"),
        ] {
            assert!(holds_a_credential(Declared::Unknown, name, written), "{name}: {written}");
        }
        for (name, written) in [
            ("table", "orders"),
            ("keyField", "id"),
            ("partitionKey", "id"),
            ("batch.size", "5"),
            ("url", "${URL}"),
            ("url", "postgres://${U}:${P}@h/d"),
            ("url", "http://u:${P}@h/d"),
            ("headers.Authorization", "Bearer ${T}"),
            ("headers", "Authorization: Bearer ${T}"),
            ("dsn", "host=h password=${P}"),
            ("password", " "),
        ] {
            assert!(!holds_a_credential(Declared::Unknown, name, written), "{name}: {written}");
        }
    }

    #[test]
    fn a_declared_setting_is_a_credential_only_with_one_in_it() {
        for (declared, written, expected) in [
            (Declared::Secret, "x", true),
            (Declared::Secret, "${X}", false),
            (Declared::Secret, "postgres://u:p@${H}/d", true),
            (Declared::Plain, "http://h/?token={{ .Key }}", false),
            (Declared::Plain, "http://u:p@h/", true),
            (Declared::Plain, "token = record.x", false),
        ] {
            assert_eq!(holds_a_credential(declared, "script", written), expected, "{written}");
        }
        assert!(holds_a_credential(Declared::Plain, "request.body", "{\"token\": \"p\"}"));
        assert!(!holds_a_credential(Declared::Plain, "request.body", "{\"token\": \"{{ .Key }}\"}"));
    }
}
