//! Stable codes of errors and findings, with their meaning and remedy.
//!
//! A code is declared once, in the crate where it arises, with [`codes!`](crate::codes!). Faults, findings and answers
//! of the API carry the [`Code`]; users see its name. The page on errors lists every declared code.

use std::fmt;

/// A stable code, in one word. It can be compared and matched with the constants that [`codes!`](crate::codes!) makes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code(&'static Declaration);

/// The declaration of a code: its name, meaning and remedy.
#[derive(PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Declaration {
    name: &'static str,
    meaning: &'static str,
    remedy: &'static str,
}

impl Declaration {
    /// Declares a code. `name` is in snake case; codes of commands, findings and the API have their area and a dot in
    /// front (`pipeline.not_found`).
    pub const fn new(name: &'static str, meaning: &'static str, remedy: &'static str) -> Self {
        Declaration { name, meaning: meaning.trim_ascii(), remedy }
    }
}

impl Code {
    /// Returns the code of a declaration. Use [`codes!`](crate::codes!), which also lists it.
    pub const fn of(declaration: &'static Declaration) -> Self {
        Code(declaration)
    }

    /// Returns the name, which is stable and which programs can compare.
    pub const fn name(self) -> &'static str {
        self.0.name
    }

    /// Returns the meaning, in one sentence or more.
    pub const fn meaning(self) -> &'static str {
        self.0.meaning
    }

    /// Returns what the user can do about it.
    pub const fn remedy(self) -> &'static str {
        self.0.remedy
    }

    /// Returns `true` if the code belongs to commands, findings or the API, and `false` if it says why a record failed
    /// or a run ended.
    pub fn is_of_commands(self) -> bool {
        self.name().contains('.')
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Declares codes as constants, and the slice `ALL` of them. The doc comment is the meaning.
///
/// ```
/// mod codes {
///     anabranch_record::codes! {
///         /// The bucket does not exist.
///         BUCKET_MISSING: "bucket_missing", "Create the bucket, or correct its name.";
///     }
/// }
///
/// assert_eq!(codes::BUCKET_MISSING.name(), "bucket_missing");
/// assert_eq!(codes::BUCKET_MISSING.meaning(), "The bucket does not exist.");
/// assert_eq!(codes::ALL, [codes::BUCKET_MISSING]);
/// ```
#[macro_export]
macro_rules! codes {
    ($($(#[doc = $meaning:literal])+ $constant:ident: $name:literal, $remedy:literal;)*) => {
        $(
            $(#[doc = $meaning])+
            pub const $constant: $crate::code::Code =
                $crate::code::Code::of(&$crate::code::Declaration::new($name, concat!($($meaning),+), $remedy));
        )*

        /// All codes that are declared here.
        pub const ALL: &[$crate::code::Code] = &[$($constant),*];
    };
}
