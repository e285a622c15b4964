//! Credentials in plain text.

use anabranch_plugin::secret::{self, defaults, expressions, is_address, is_key_file};
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
    // Defaults may contain the address and its password.
    let mut plain = String::with_capacity(text.len());
    let mut from = 0;
    for variable in expressions(text) {
        plain.push_str(&text[from..variable.start]);
        from = variable.end;
        let inner = &text[variable];
        plain.push_str(defaults(inner).next().map_or(inner, |at| &inner[at]));
    }
    plain.push_str(&text[from..]);
    match is_address(&plain) {
        true => *secret::without_passwords(&plain) != *plain,
        false => !secret::literal_credentials(text).is_empty(),
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
    let is_blank = matches!(value, "" | "{}" | "null" | "true" | "false");
    !is_blank && !is_key_file(value) && (!is_address(value) || has_password())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_literal_part_of_a_secret_is_a_credential() {
        for (text, holds) in [
            ("${A}, literal-secret", true),
            ("pre-${A}", true),
            ("${A:-literal}", true),
            ("Bearer ${A}", false),
            ("user:${A}", false),
            ("postgresql://${USER}:${A}@${HOST}/db", false),
            ("{\"password\": \"${A}\", \"host\": \"h\"}", false),
            ("{\"password\": \"literal\", \"host\": \"${A}\"}", true),
            ("{}", false),
            ("true", false),
            ("literal", true),
        ] {
            let written = Written::new(text, text, Default::default());
            assert_eq!(stands_in(&written, true), holds, "{text}");
        }
    }
}
