//! Any valid pipeline compiles or is refused; compiling it twice gives the same plan.

use anabranch_config::load;
use anabranch_graph::plan::{CompileOptions, compile};
use anabranch_picture::{Format, Pass, TextStyle};
use anabranch_plugin::diagnostic::Files;
use anabranch_plugin::registry::Registry;

use super::{OneVariable, text};

pub(crate) fn check(input: &[u8]) {
    let text = text(input);
    let mut files = Files::new();
    files.add("fuzz.yaml", text);
    let mut registry = Registry::new();
    anabranch_ops::register(&mut registry);
    let options = CompileOptions { split: true, ..CompileOptions::default() };
    for pipeline in load(&files, &OneVariable).pipelines {
        let texts = || {
            compile(&pipeline, &registry, &options).map(|compiled| {
                [Pass::Lowered, Pass::Rewritten, Pass::Fused].map(|pass| {
                    [Format::Text, Format::Dot, Format::Mermaid, Format::Json]
                        .map(|format| anabranch_picture::explain(&compiled, pass, format, TextStyle::default()))
                })
            })
        };
        assert_eq!(texts().ok(), texts().ok());
    }
}
