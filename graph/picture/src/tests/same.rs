//! Drawings depend on the configuration alone.

use anabranch_graph::plan::{CompileOptions, compile};
use anabranch_graph::testing::notation::pipeline;
use anabranch_graph::testing::scripted::registry;
use proptest::prelude::*;

use crate::{Format, Pass, TextStyle, explain};

#[path = "../../../src/testing/any_pipeline.rs"]
mod any_pipeline;

proptest! {
    #[test]
    fn the_same_configuration_gives_the_same_plan(text in any_pipeline::any_pipeline()) {
        let options = CompileOptions { split: true, ..CompileOptions::default() };
        let [first, second] = [(); 2].map(|()| compile(&pipeline(&text), &registry(), &options).unwrap());
        for pass in [Pass::Lowered, Pass::Rewritten, Pass::Fused] {
            for format in [Format::Text, Format::Dot, Format::Mermaid, Format::Json] {
                let style = TextStyle { unicode: true, color: true };
                prop_assert_eq!(explain(&first, pass, format, style), explain(&second, pass, format, style));
            }
        }
    }
}
