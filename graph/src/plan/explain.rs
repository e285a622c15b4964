//! A plan for people and programs.

use super::Compiled;

/// The pass whose result is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Pass {
    /// What the configuration says.
    Lowered,
    /// After all rewrites.
    Rewritten,
    /// The stages that run.
    #[default]
    Fused,
}

/// How a plan is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Format {
    /// For reading in a terminal.
    #[default]
    Text,
    /// For Graphviz.
    Dot,
    /// For Mermaid, as Markdown renderers show it.
    Mermaid,
    /// For programs.
    Json,
}

/// What a terminal can show. Matters for [`Format::Text`] only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct TextStyle {
    /// Box-drawing characters instead of ASCII.
    pub unicode: bool,
    /// ANSI colours.
    pub color: bool,
}

impl Compiled {
    /// The plan after a pass. Deterministic; shows no credential.
    pub fn explain(&self, pass: Pass, format: Format, style: TextStyle) -> String {
        let _ = (pass, format, style);
        String::new()
    }
}
