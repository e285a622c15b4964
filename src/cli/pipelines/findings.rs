//! Findings in pipeline files, in formats that code hosts read.

use anabranch_plugin::diagnostic::{Diagnostics, Files};
use clap::ValueEnum;
use serde_json::{Value, json};

use crate::cli::report;

/// Format of the findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum FindingsFormat {
    /// Readable text
    Text,
    /// Workflow commands of GitHub Actions: annotations of a pull request
    Github,
    /// SARIF 2.1.0, for code scanning
    Sarif,
}

/// Formats each finding as a workflow command
/// (<https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands>).
pub(super) fn github(findings: &Diagnostics, files: &Files) -> String {
    let data = |text: &str| text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
    let property = |text: &str| data(text).replace(':', "%3A").replace(',', "%2C");
    let mut text = String::new();
    for finding in report::findings(findings, files) {
        let of = |name: &str| finding[name].as_str().unwrap_or_default();
        let level = if of("severity") == "error" { "error" } else { "warning" };
        let mut place = String::new();
        if let Some(file) = finding["file"].as_str() {
            place = format!("file={},line={},col={},", property(file), finding["line"], finding["column"]);
        }
        text.push_str(&format!("::{level} {place}title={}::{}\n", property(of("code")), data(&message(&finding))));
    }
    text
}

/// Builds a log of one run (OASIS, Static Analysis Results Interchange Format 2.1.0, §§ 3.13, 3.14, 3.27).
pub(super) fn sarif(findings: &Diagnostics, files: &Files) -> Value {
    let findings = report::findings(findings, files);
    let mut codes: Vec<&str> = findings.iter().filter_map(|finding| finding["code"].as_str()).collect();
    codes.sort_unstable();
    codes.dedup();
    let rules: Vec<Value> = codes.iter().map(|code| json!({ "id": code })).collect();
    let result = |finding: &Value| {
        let mut result = json!({
            "ruleId": finding["code"],
            "level": if finding["severity"] == "error" { "error" } else { "warning" },
            "message": { "text": message(finding) },
        });
        if let Some(file) = finding["file"].as_str() {
            result["locations"] = json!([{ "physicalLocation": {
                "artifactLocation": { "uri": uri(file) },
                "region": { "startLine": finding["line"], "startColumn": finding["column"] },
            } }]);
        }
        result
    };
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "anabranch", "version": env!("CARGO_PKG_VERSION"), "rules": rules,
            } },
            "columnKind": "unicodeCodePoints",
            "results": findings.iter().map(result).collect::<Vec<_>>(),
        }],
    })
}

fn message(finding: &Value) -> String {
    let text = finding["message"].as_str().unwrap_or_default();
    match finding["suggestion"].as_str() {
        Some(suggestion) => format!("{text}: {suggestion}"),
        None => text.to_owned(),
    }
}

/// Encodes a path as a relative reference.
fn uri(path: &str) -> String {
    const KEPT: &percent_encoding::AsciiSet =
        &percent_encoding::NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'-').remove(b'_').remove(b'~');
    percent_encoding::utf8_percent_encode(path.strip_prefix("./").unwrap_or(path), KEPT).to_string()
}
