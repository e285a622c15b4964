//! Files of 64 KiB that are made to take long: reading, checking, compiling and explaining them, and printing what is
//! wrong with them, takes time that grows with their size and not with its square.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use anabranch_template::processor_time::taken_by_thread;
use std::fmt::Write as _;
use std::time::Duration;

/// Size of the files; the shorter ones are a quarter of it.
const SIZE: usize = 64 << 10;

/// The longest time for a file in a build without optimisation; an optimised build has a tenth of it.
const MOST: Duration = Duration::from_secs(2);

/// Below this a file is quick, whatever a shorter one takes.
const QUICK: Duration = Duration::from_millis(60);

/// How much longer four times the size may take: sixteen times would be its square.
const GROWTH: u32 = 10;

type Shape = (&'static str, fn(usize) -> String);

const HEAD: &str = "version: \"2.2\"\npipelines:\n";

/// A pipeline with these processors (YAML, indented by six).
fn processors(list: &str) -> String {
    format!(
        "{HEAD}  - id: p\n    connectors:\n      - {{id: a, type: source, plugin: generator}}\n      - {{id: b, type: \
         destination, plugin: log}}\n    processors:\n{list}"
    )
}

/// Parts, numbered, until there are so many bytes.
fn repeat(size: usize, part: impl Fn(usize) -> String) -> String {
    let mut all = String::new();
    for i in 0.. {
        if all.len() >= size {
            break;
        }
        all.push_str(&part(i));
    }
    all
}

fn with_condition(condition: &str) -> String {
    processors(&format!("      - {{id: x, plugin: filter, condition: '{condition}'}}\n"))
}

/// As many levels as the size allows, and half as many of each kind.
fn nested(size: usize, open: &str, inner: &str, close: &str) -> String {
    let levels = size / (open.len() + close.len());
    format!("{}{inner}{}", open.repeat(levels), close.repeat(levels))
}

const SHAPES: &[Shape] = &[
    ("aliases of aliases", |size| {
        let list = repeat(size, |i| match i {
            0 => "  - &a0 [x, x, x, x, x, x, x, x]\n".to_owned(),
            i => format!("  - &a{i} [{}]\n", format!("*a{}, ", i - 1).repeat(8).trim_end_matches(", ")),
        });
        format!("version: 2.2\nx:\n{list}pipelines: *a0\n")
    }),
    ("aliases of one long value", |size| {
        let long = "y".repeat(size / 2);
        format!("version: 2.2\nx: &a {long}\npipelines:\n{}", repeat(size / 2, |_| "  - *a\n".to_owned()))
    }),
    ("anchors", |size| format!("version: 2.2\nx:\n{}", repeat(size, |i| format!("  - &a{i} {i}\n")))),
    ("merged keys", |size| {
        let keys = repeat(size / 2, |i| format!("k{i}: {i}, "));
        format!("x: &a {{{keys}}}\n{}", repeat(size / 2, |i| format!("y{i}:\n  <<: *a\n")))
    }),
    ("lists in lists", |size| format!("pipelines: {}", nested(size, "[", "1", "]"))),
    ("maps in maps", |size| format!("pipelines: {}", nested(size, "{a: ", "1", "}"))),
    ("blocks in blocks", |size| {
        let mut text = String::from("pipelines:\n");
        for depth in 1.. {
            let _ = writeln!(text, "{}- ", " ".repeat(depth));
            if text.len() > size {
                break;
            }
        }
        text
    }),
    ("unknown fields", |size| repeat(size, |i| format!("field{i}: 1\n"))),
    ("unknown fields on one line", |size| format!("{{{}}}", repeat(size, |i| format!("f{i}: 1, ")))),
    ("the same field again", |size| repeat(size, |_| "version: 2.2\n".to_owned())),
    ("the same id again", |size| format!("{HEAD}{}", repeat(size, |_| "  - {id: p}\n".to_owned()))),
    ("pipelines", |size| {
        let one = |i| {
            format!(
                "  - id: p{i}\n    connectors: [{{id: a, type: source, plugin: generator}}, {{id: b, type: destination, plugin: log}}]\n"
            )
        };
        format!("{HEAD}{}", repeat(size, one))
    }),
    ("pipelines that are wrong", |size| {
        format!("{HEAD}{}", repeat(size, |i| format!("  - {{id: p{i}, status: odd, x: 1}}\n")))
    }),
    ("documents", |size| repeat(size, |i| format!("---\n{HEAD}  - {{id: p{i}}}\n"))),
    ("a long key", |size| format!("{HEAD}  - {{id: p, {}: 1}}\n", "k".repeat(size))),
    ("a long id", |size| format!("{HEAD}  - {{id: {}, status: x}}\n", "k".repeat(size))),
    ("a long plugin", |size| processors(&format!("      - {{id: x, plugin: {}}}\n", "field.sett".repeat(size / 10)))),
    ("plugins that nearly are", |size| {
        processors(&repeat(size, |i| format!("      - {{id: x{i}, plugin: feild.sett{i}}}\n")))
    }),
    ("settings that nearly are", |size| {
        let settings = repeat(size, |i| format!("          feild{i}: .Payload\n"));
        processors(&format!("      - id: x\n        plugin: field.set\n        settings:\n{settings}"))
    }),
    ("deep settings", |size| {
        let settings = nested(size.min(1500), "{a: ", "1", "}");
        let one = |i| format!("      - {{id: x{i}, plugin: field.set, settings: {settings}}}\n");
        processors(&repeat(size, one))
    }),
    ("processors", |size| {
        processors(&repeat(size, |i| {
            format!("      - {{id: x{i}, plugin: field.set, settings: {{field: .Metadata.k{i}, value: v}}}}\n")
        }))
    }),
    ("conditions", |size| {
        processors(&repeat(size, |i| {
            format!("      - {{id: x{i}, plugin: filter, condition: '{{{{ eq .Metadata.k{i} \"{i}\" }}}}'}}\n")
        }))
    }),
    ("the same condition", |size| {
        processors(&repeat(size, |i| {
            format!("      - {{id: x{i}, plugin: filter, condition: '{{{{ eq .Metadata.a \"1\" }}}}'}}\n")
        }))
    }),
    ("fields that are written and read", |size| {
        processors(&repeat(size, |i| {
            format!(
                "      - {{id: x{i}, plugin: field.set, condition: '{{{{ eq .Payload.After.f{} 1 }}}}', settings: {{field: .Payload.After.f{i}, value: 1}}}}\n",
                i / 2
            )
        }))
    }),
    ("pieces of pieces", |size| {
        processors(&repeat(size, |i| {
            format!("      - {{id: x{i}, plugin: split, settings: {{field: .Payload.After.f{i}}}}}\n")
        }))
    }),
    ("connectors and processors", |size| {
        let connectors = repeat(size / 2, |i| {
            let role = if i % 2 == 0 { "source, plugin: generator" } else { "destination, plugin: log" };
            format!("      - {{id: c{i}, type: {role}}}\n")
        });
        let processors = repeat(size / 2, |i| {
            format!("      - {{id: x{i}, plugin: filter, condition: '{{{{ eq .Metadata.k{i} \"1\" }}}}'}}\n")
        });
        format!("{HEAD}  - id: p\n    connectors:\n{connectors}    processors:\n{processors}")
    }),
    ("connectors with processors", |size| {
        let connectors = repeat(size, |i| {
            let role = if i % 2 == 0 { "source, plugin: generator" } else { "destination, plugin: log" };
            format!(
                "      - {{id: c{i}, type: {role}, processors: [{{id: x, plugin: field.set, settings: {{field: .Metadata.a, value: '{i}'}}}}]}}\n"
            )
        });
        format!("{HEAD}  - id: p\n    connectors:\n{connectors}")
    }),
    ("a long condition", |size| {
        with_condition(&format!("{{{{ or {} false }}}}", repeat(size, |i| format!("(eq .Metadata.k{i} \"1\") "))))
    }),
    ("a deep condition", |size| with_condition(&format!("{{{{ {} }}}}", nested(size, "(not ", "true", ")")))),
    ("a condition of many ifs", |size| with_condition(&nested(size, "{{ if .Metadata.a }}", "true", "{{ end }}"))),
    ("a condition of ifs one after the other", |size| {
        with_condition(&repeat(size, |_| "{{ if .Metadata.a }}t{{ end }}".to_owned()))
    }),
    ("a condition of else-ifs", |size| {
        with_condition(&format!(
            "{{{{ if .Metadata.a }}}}{}{{{{ end }}}}",
            repeat(size, |i| format!("{{{{ else if .Metadata.k{i} }}}}1"))
        ))
    }),
    ("a condition of variables", |size| with_condition(&repeat(size, |i| format!("{{{{ $v{i} := {i} }}}}")))),
    ("a condition of loops", |size| {
        with_condition(&nested(size.min(1600), "{{ range $i, $x := .Metadata }}", "x", "{{ end }}"))
    }),
    ("a condition that counts", |size| {
        let _ = size;
        with_condition("{{ range 1000000 }}{{ range 1000000 }}{{ end }}{{ end }}true")
    }),
    ("conditions that count", |size| {
        processors(&repeat(size, |i| {
            format!("      - {{id: x{i}, plugin: filter, condition: '{{{{ range 1000000000 }}}}{{{{ end }}}}true'}}\n")
        }))
    }),
    ("a condition that prints", |size| {
        let _ = size;
        with_condition("{{ printf \"%1000000d\" 1 | printf \"%s%s%s%s%s%s%s%s\" }}")
    }),
    ("a condition that is not one", |size| with_condition(&"{{ eq ".repeat(size / 6))),
    ("braces", |size| with_condition(&"{{".repeat(size / 2))),
    ("comments", |size| with_condition(&"{{/* x */}}".repeat(size / 11))),
    ("variables", |size| format!("{HEAD}  - {{id: p, description: \"{}\"}}\n", "${SET}".repeat(size / 6))),
    ("variables that are not set", |size| {
        format!("{HEAD}{}", repeat(size, |i| format!("  - {{id: p{i}, description: \"${{NOT_{i}}}\"}}\n")))
    }),
    ("variables that are not set on one line", |size| {
        format!("{HEAD}  - {{id: p, description: \"{}\"}}\n", repeat(size, |i| format!("${{NOT_{i}}}")))
    }),
    ("variables in variables", |size| {
        format!("{HEAD}  - {{id: p, description: \"{}\"}}\n", nested(size.min(4000), "${X:-", "x", "}"))
    }),
    ("a line of errors", |size| {
        format!("{{version: 2.2, pipelines: [{}]}}", repeat(size, |i| format!("{{id: p{i}, status: x}}, ")))
    }),
    ("wide characters", |size| {
        format!("{{version: 2.2, pipelines: [{}]}}", repeat(size, |i| format!("{{id: \"語{i}\", 語: 語}}, ")))
    }),
    ("quotes", |size| format!("{HEAD}  - {{id: p, description: \"{}\"}}\n", "\\\"".repeat(size / 2))),
    ("folded text", |size| {
        format!("{HEAD}  - id: p\n    description: >\n{}", repeat(size, |i| format!("      line {i}\n\n")))
    }),
    ("tabs", |size| format!("{HEAD}{}", "\t".repeat(size))),
    ("blanks", |size| format!("{HEAD}{}", " ".repeat(size))),
    ("empty lines", |size| format!("{HEAD}{}", "\n".repeat(size))),
    ("dashes", |size| "- ".repeat(size / 2)),
    ("colons", |size| "a: ".repeat(size / 3)),
    ("question marks", |size| "? ".repeat(size / 2)),
    ("tags", |size| format!("pipelines: {}1", "!t ".repeat(size / 3))),
];

fn time_of(target: &str, input: &str) -> Duration {
    let before = taken_by_thread();
    anabranch_fuzz::check(target, input.as_bytes());
    taken_by_thread() - before
}

#[test]
fn no_file_takes_long() {
    let most = if cfg!(debug_assertions) { MOST } else { MOST / 10 };
    let mut slow = Vec::new();
    for (name, shape) in SHAPES {
        let (long, short) = (shape(SIZE), shape(SIZE / 4));
        for target in ["config", "plan"] {
            let mut times = [time_of(target, &short), time_of(target, &long)];
            let takes_long = |times: &[Duration; 2]| {
                let grows = times[1] > QUICK && times[1] > times[0] * GROWTH;
                times[1] > most || grows
            };
            // Other programs slow down a single try. A slow input is slow in every try.
            for _ in 0..4 {
                if takes_long(&times) {
                    times = [time_of(target, &short), times[1].min(time_of(target, &long))];
                }
            }
            let said =
                format!("{target} {name}: {:?} for {} bytes, {:?} for {}", times[0], short.len(), times[1], long.len());
            println!("{said}");
            if takes_long(&times) {
                slow.push(said);
            }
        }
    }
    assert!(slow.is_empty(), "these take too long:\n{}", slow.join("\n"));
}
