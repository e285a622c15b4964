//! The reference that is made of the code: pages of plugins, settings, commands and errors, and all of it for
//! assistants. `anabranch docs write` writes it, and a test compares what is checked in.

use std::fmt::Write as _;

use anabranch_graph::registry::Registry;

pub mod delivery;
pub mod errors;
pub mod llms;
pub mod plugins;
pub mod settings;

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

/// The table of contents of the book: pages that people write, and those that are made.
pub fn summary(registry: &Registry) -> Page {
    let mut text = String::from(
        "# Summary\n\n\
         - [The first hour](tutorial.md)\n\
         - [Operations](operations.md)\n\
         - [What is promised](guarantees.md)\n\
         - [HTTP](http.md)\n\
         - [Assistants](mcp.md)\n\
         - [Schemas](schemas.md)\n\
         - [Connectors that are programs](connectors.md)\n\
         - [Processors in WebAssembly](processors-webassembly.md)\n\
         - [What a record costs](performance.md)\n\n\
         # Reference\n\n\
         - [Delivery, for each pair](delivery.md)\n\
         - [Settings](settings.md)\n\
         - [Errors](errors.md)\n\
         - [Plugins](plugins/README.md)\n",
    );
    for name in plugins::all(registry).keys() {
        let _ = writeln!(text, "  - [{name}](plugins/{name}.md)");
    }
    Page { path: "docs/SUMMARY.md".to_owned(), text }
}

/// Text as a cell of a table.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}
