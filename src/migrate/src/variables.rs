//! Names of the variables that replace credentials and values of other providers.

use std::collections::BTreeMap;

use serde::Serialize;

/// A variable that the pipelines need.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NeededVariable {
    /// Name of the environment variable.
    pub name: String,
    /// The value to set, in words.
    pub meaning: String,
}

/// The variables of a migration. Equal origins share a variable.
#[derive(Debug, Default)]
pub(crate) struct Variables {
    /// Name and meaning by origin.
    by_origin: BTreeMap<String, NeededVariable>,
}

impl Variables {
    /// Returns the name of the variable for a value of this origin. `wanted` suggests the name.
    pub(crate) fn name(&mut self, origin: &str, wanted: &str, meaning: impl Into<String>) -> String {
        if let Some(known) = self.by_origin.get(origin) {
            return known.name.clone();
        }
        let wanted = name_from(wanted);
        let is_taken = |name: &str| self.by_origin.values().any(|known| known.name == name);
        let mut name = wanted.clone();
        let mut number = 2;
        while is_taken(&name) {
            name = format!("{wanted}_{number}");
            number += 1;
        }
        self.by_origin.insert(origin.to_owned(), NeededVariable { name: name.clone(), meaning: meaning.into() });
        name
    }

    /// Returns all variables, by name.
    pub(crate) fn into_needed(self) -> Vec<NeededVariable> {
        let mut needed: Vec<NeededVariable> = self.by_origin.into_values().collect();
        needed.sort_by(|a, b| a.name.cmp(&b.name));
        needed
    }
}

/// Returns a name of a variable that resembles a text: upper-case letters, digits and underscores.
pub(crate) fn name_from(text: &str) -> String {
    let mut name = String::new();
    for c in text.chars().take(120) {
        match c {
            c if c.is_ascii_alphanumeric() => name.push(c.to_ascii_uppercase()),
            _ if name.is_empty() || name.ends_with('_') => {}
            _ => name.push('_'),
        }
    }
    let name = name.trim_end_matches('_');
    match name.bytes().next() {
        None => "VALUE".to_owned(),
        Some(b'0'..=b'9') => format!("VALUE_{name}"),
        Some(_) => name.to_owned(),
    }
}

/// Returns `true` if an environment variable of a pipeline file can have this name.
pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_origins_share_a_variable_and_others_do_not() {
        let mut variables = Variables::default();
        assert_eq!(variables.name("a", "db.password", "the password"), "DB_PASSWORD");
        assert_eq!(variables.name("b", "db-password", "another one"), "DB_PASSWORD_2");
        assert_eq!(variables.name("a", "anything", "the password"), "DB_PASSWORD");
        assert_eq!(variables.into_needed().len(), 2);
    }

    #[test]
    fn every_text_gives_a_name() {
        for (text, name) in [("", "VALUE"), ("--", "VALUE"), ("1a", "VALUE_1A"), ("a--b.", "A_B"), ("é", "VALUE")] {
            assert_eq!(name_from(text), name);
            assert!(is_name(name));
        }
    }
}
