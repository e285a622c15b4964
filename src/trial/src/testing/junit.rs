//! Test results as JUnit XML, for build servers.

use std::fmt::Write as _;

use anabranch_plugin::diagnostic::{Files, RenderStyle};

use super::{Suite, TestResults, Verdict, placed};

const HEAD: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n";
const END: &str = "</testsuites>\n";

/// Builds the document, with a test suite per file.
pub fn report(suite: &Suite, outcome: &TestResults) -> String {
    let mut xml = String::from(HEAD);
    for (number, file) in suite.tests.iter().enumerate() {
        let name = suite.files.get(file.file).map_or("", |file| file.name.as_str());
        let tests: Vec<_> = outcome.tests.iter().filter(|test| test.file == number).collect();
        let failures = tests.iter().filter(|test| matches!(test.verdict, Verdict::Failed(_))).count();
        let errors = tests.iter().filter(|test| matches!(test.verdict, Verdict::Invalid(..))).count();
        let seconds: f64 = tests.iter().map(|test| test.elapsed.as_secs_f64()).sum();
        let _ = writeln!(
            xml,
            "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{failures}\" errors=\"{errors}\" time=\"{seconds:.3}\">",
            escaped(name),
            tests.len()
        );
        for test in tests {
            let line = suite.files.locate(test.span).map_or(0, |place| place.line);
            let _ = write!(
                xml,
                "    <testcase name=\"{}\" classname=\"{}\" file=\"{}\" line=\"{line}\" time=\"{:.3}\"",
                escaped(&test.name),
                escaped(name),
                escaped(name),
                test.elapsed.as_secs_f64()
            );
            let (kind, message, text) = match &test.verdict {
                Verdict::Passed => {
                    xml.push_str("/>\n");
                    continue;
                }
                Verdict::Failed(failures) => {
                    let mut text = String::new();
                    for failure in failures {
                        let _ = writeln!(text, "{} ({})", failure.what, placed(&suite.files, failure.span));
                        failure.said.iter().for_each(|said| text.extend(["  ", said.as_str(), "\n"]));
                    }
                    let first = failures.first().and_then(|failure| failure.said.first());
                    ("failure", first.cloned().unwrap_or_default(), text)
                }
                Verdict::Invalid(findings, files) => {
                    let files: &Files = files.as_ref().unwrap_or(&suite.files);
                    let first = findings.iter().next().map(|finding| finding.message.clone());
                    ("error", first.unwrap_or_default(), findings.render(files, RenderStyle::default()))
                }
            };
            let _ = writeln!(
                xml,
                ">\n      <{kind} message=\"{}\">{}</{kind}>\n    </testcase>",
                escaped(&message),
                escaped(&text)
            );
        }
        xml.push_str("  </testsuite>\n");
    }
    xml.push_str(END);
    xml
}

/// Returns `true` if a text is such a document.
pub fn is_report(text: &str) -> bool {
    text.starts_with(HEAD) && text.ends_with(END)
}

/// Escapes a text for XML; characters that XML does not allow are replaced.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}
