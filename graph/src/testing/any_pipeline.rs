//! Random pipelines for property tests, in the notation of `notation.rs`. Tests of other crates include this file, since
//! it needs a library that only tests have.

use proptest::prelude::*;

const CONDITIONS: [&str; 6] = [
    "",
    "",
    " if {{ eq (index .Metadata \"a\") \"1\" }}",
    " if {{ eq (index .Metadata \"split.index\") \"1\" }}",
    " if {{ true }}",
    " if {{ false }}",
];

/// What becomes of records for no destination; there is always a `d0`.
const UNMATCHED: [&str; 5] = ["", "unmatched drop\n", "unmatched dead-letter\n", "unmatched fail\n", "unmatched d0\n"];

/// Generates a processor.
fn processor() -> impl Strategy<Value = String> {
    let step = prop_oneof![
        4 => ("[ab]", "[12]").prop_map(|(key, value)| format!("set key={key} value={value}")),
        2 => ("[ab]", "[12]").prop_map(|(key, value)| format!("script key={key} value={value}")),
        1 => Just("picky key=a value=11".to_owned()),
        1 => Just("split".to_owned()),
        1 => Just("clone".to_owned()),
        1 => Just("filter".to_owned()),
    ];
    let workers = prop_oneof![3 => Just(1), 1 => Just(2)];
    (step, workers, 0..CONDITIONS.len())
        .prop_map(|(step, workers, condition)| format!("{step} workers={workers}{}", CONDITIONS[condition]))
}

/// Generates the text of a pipeline. The sources are `s0`, `s1`, …; the destinations are `d0`, `d1`, ….
pub(crate) fn any_pipeline() -> impl Strategy<Value = String> {
    let connectors = |most| prop::collection::vec(prop::collection::vec(processor(), 0..3), 1..=most);
    let routes = (0..3usize, prop::collection::vec(0..CONDITIONS.len(), 3), 0..UNMATCHED.len());
    (connectors(2), prop::collection::vec(processor(), 0..8), connectors(3), routes).prop_map(
        |(sources, shared, destinations, (routed, conditions, unmatched))| {
            let mut text = String::new();
            if routed == 0 {
                text.push_str(UNMATCHED[unmatched]);
            }
            for (role, plugin, connectors) in [("source", "gen", sources), ("destination", "out", destinations)] {
                for (i, processors) in connectors.iter().enumerate() {
                    let is_routed = routed == 0 && role == "destination";
                    let condition = if is_routed { CONDITIONS[conditions[i]] } else { "" };
                    text.push_str(&format!("{role} {}{i} {plugin}{condition}\n", &role[..1]));
                    processors.iter().enumerate().for_each(|(i, p)| text.push_str(&format!("  p{i} {p}\n")));
                }
            }
            shared.iter().enumerate().for_each(|(i, p)| text.push_str(&format!("p{i} {p}\n")));
            text
        },
    )
}
