//! Pipelines by hand, each with what the compiler must find in it: nothing less, nothing more.

use anabranch_plugin::diagnostic::{Diagnostic, Label, Severity};

use super::ends::{compiled, registry, yaml};

const CASES: &str = include_str!("wrong.txt");

/// Where a text stands for the n-th time.
fn occurrence(text: &str, sought: &str) -> (usize, usize) {
    let (sought, n) = sought.rsplit_once('#').map_or((sought, 1), |(sought, n)| (sought, n.parse().unwrap()));
    let (at, _) = text.match_indices(sought).nth(n - 1).unwrap_or_else(|| panic!("no {n} × {sought:?} in\n{text}"));
    (at, at + sought.len())
}

/// `error flow.no_field at `.Payload.After.x` since `generator``, as the file of cases has it.
fn expected(line: &str, text: &str) -> (String, (usize, usize), Option<(usize, usize)>) {
    let mut parts = line.split('`');
    let head = parts.next().unwrap().trim().trim_end_matches(" at").to_owned();
    let place = occurrence(text, parts.next().unwrap());
    let since = parts.nth(1).map(|sought| occurrence(text, sought));
    (head, place, since)
}

fn found(finding: &Diagnostic) -> (String, (usize, usize), Option<(usize, usize)>) {
    let severity = if finding.severity == Severity::Error { "error" } else { "warning" };
    let place = |label: &Label| (label.span.start as usize, label.span.end as usize);
    let at = finding.label.as_ref().map(place).unwrap();
    (format!("{severity} {}", finding.code), at, finding.related.first().map(place))
}

#[test]
fn every_mistake_is_found_at_its_place() {
    let registry = registry();
    let mut failures = Vec::new();
    let mut cases = 0;
    for case in CASES.split("\n== ").skip(1) {
        cases += 1;
        let mut lines = case.lines();
        let name = lines.next().unwrap();
        let (mut sources, mut processors, mut destination) = (vec!["created"], Vec::new(), "plugin: drop");
        let mut wanted = Vec::new();
        for line in lines.filter(|line| !line.trim().is_empty()) {
            match line.split_once(' ').unwrap() {
                ("from", plugin) if plugin.starts_with("plugin:") => sources = vec![plugin],
                ("from", names) => sources = names.split(' ').collect(),
                ("-", processor) => processors.push(processor.to_owned()),
                ("to", to) => destination = to,
                (">", finding) => wanted.push(finding),
                (other, _) => panic!("{name}: {other:?}"),
            }
        }
        let text = yaml(&sources, &processors, destination);
        let wanted: Vec<_> = wanted.into_iter().map(|line| expected(line, &text)).collect();
        let (files, _, findings) = compiled(&text, &registry);
        let got: Vec<_> = findings.iter().map(found).collect();
        if got != wanted {
            let rendered = findings.render(&files, Default::default());
            failures.push(format!("== {name}\nwanted {wanted:?}\ngot    {got:?}\n{rendered}\n{text}"));
        }
        let pointed = findings.iter().all(|finding| finding.path.is_some());
        if !pointed {
            failures.push(format!("== {name}: a finding has no path"));
        }
    }
    assert!(failures.is_empty(), "{} of {cases}:\n{}", failures.len(), failures.join("\n"));
    assert!(cases >= 60, "{cases} cases");
}
