//! The reference that is generated from the code: pages about plugins, settings, commands and errors, and all of it in
//! one file for assistants. `anabranch docs write` writes it, and a test compares it with the checked-in files.

pub mod delivery;
pub mod errors;
pub mod llms;
pub mod plugins;
pub mod settings;
pub mod templates;

/// The first line of generated files.
const GENERATED: &str = "<!-- Written by `anabranch docs write`. -->\n\n";

/// A file of the reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Path, relative to the root of the repository.
    pub path: String,
    /// Content.
    pub text: String,
}

/// Formats text as a table cell.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}
