//! The reference that is made of the code: pages of plugins, settings, commands and errors, and all of it for
//! assistants. `anabranch docs write` writes it, and a test compares what is checked in.

pub mod delivery;
pub mod errors;
pub mod llms;
pub mod plugins;
pub mod settings;
pub mod templates;

/// The first line of what is made.
const GENERATED: &str = "<!-- Written by `anabranch docs write`. -->\n\n";

/// A file of the reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Where it belongs, from the root of the repository.
    pub path: String,
    /// What it says.
    pub text: String,
}

/// Text as a cell of a table.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}
