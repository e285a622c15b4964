//! The settings of a plugin as written in a file.

use anabranch_record::text::Str;

use crate::diagnostic::{Span, Spanned};
use crate::written::Written;

/// One `name: value` pair of `settings`.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Name with the place of the key.
    pub name: Spanned<Str>,
    /// Value with the place of the value.
    pub value: Written,
}

/// The settings of a plugin, in the order of the file, each name once.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Settings {
    /// The pairs.
    pub entries: Vec<Setting>,
    /// The span of the map, or of the plugin's name if there is no map. Findings about missing settings point to it.
    pub span: Span,
}

impl Settings {
    /// Returns the setting with the given name.
    pub fn get(&self, name: &str) -> Option<&Setting> {
        self.entries.iter().find(|s| s.name.value == *name)
    }

    /// Creates settings without a file, for defaults and tests.
    pub fn from_pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let entries = pairs
            .into_iter()
            .map(|(name, value)| Setting {
                name: Spanned::new(name.into(), Span::default()),
                value: Written::new(value, value, Span::default()),
            })
            .collect();
        Settings { entries, span: Span::default() }
    }
}
