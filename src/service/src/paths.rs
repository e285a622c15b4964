//! Checks of paths that do not name a file: patterns, addresses and directories. A plugin would use them as the name of
//! a file.

use std::fs;
use std::path::Path;

use anabranch_graph::plan::Compiled;
use anabranch_graph::plan::check::place_of;
use anabranch_graph::plan::graph::{Node, NodeKind};
use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics};

/// The setting with the path of file connectors.
const PATH: &str = "path";

/// Checks the paths that a pipeline reads and writes. One look-up per file connector.
pub(crate) fn check(compiled: &Compiled) -> Diagnostics {
    let mut findings = Diagnostics::new();
    for node in compiled.lowered.node_weights() {
        let (path, is_read) = match &node.kind {
            NodeKind::Source(read) => (read.source.file(), true),
            NodeKind::Destination(write) => (write.destination.file(), false),
            NodeKind::DeadLetter(queue) => (queue.destination.file(), false),
            _ => continue,
        };
        if let Some(finding) = path.and_then(|path| judge(node, path, is_read)) {
            let finding = finding.with_span(place_of(node, PATH));
            findings.push(finding.with_path(format!("{}/settings/{PATH}", node.path)));
        }
    }
    findings
}

fn judge(node: &Node, path: &str, is_read: bool) -> Option<Diagnostic> {
    // An existing file is meant, whatever its name is.
    if let Ok(found) = fs::metadata(path) {
        // Another check reports an output that is a directory.
        return (is_read && found.is_dir()).then(|| {
            let message = format!("path: {path} is a directory, and a source reads one file");
            Diagnostic::error("settings.invalid", message).with_hint("name a file in it")
        });
    }
    if let Some((scheme, rest)) = path.split_once("://").filter(|(scheme, _)| is_scheme(scheme)) {
        let message = format!("path: {scheme}:// is taken as a part of the path, not as an address");
        let finding = Diagnostic::warning("settings.not_a_path", message);
        return Some(match scheme {
            "file" => {
                let finding = finding.with_hint(format!("write {rest}"));
                let given = node.settings.iter().find(|given| given.name == *PATH);
                let written = given.filter(|given| given.value.written().starts_with("file://"));
                match written {
                    Some(given) => finding.with_fix(given.span, "file://", ""),
                    None => finding,
                }
            }
            _ => finding.with_hint("write the path of a file on this machine, or use the plugin for such addresses"),
        });
    }
    let is_pattern = Path::new(path).file_name().is_some_and(|name| name.to_string_lossy().contains('*'));
    is_pattern.then(|| {
        let what = if is_read { "a source reads one file" } else { "a destination writes one file" };
        let message = format!("path: `*` is taken as it is written: {what}");
        let hint = if is_read { "name the file; several files need a source each" } else { "name the file" };
        Diagnostic::warning("settings.not_a_path", message).with_hint(hint)
    })
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(|c| c.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use anabranch_graph::plan::CompileOptions;
    use anabranch_plugin::diagnostic::Files;
    use anabranch_plugin::registry::Registry;
    use anabranch_process::files::Found;

    use crate::pipelines::Pipelines;

    fn codes(read: &str, written: &str) -> Vec<String> {
        let text = format!(
            "version: 2.2\npipelines:\n  - id: p\n    connectors:\n      - {{ id: in, type: source, plugin: file, \
             settings: {{ path: '{read}' }} }}\n      - {{ id: out, type: destination, plugin: file, settings: {{ path: \
             '{written}' }} }}\n"
        );
        let mut files = Files::new();
        files.add("p.yaml", text);
        let mut registry = Registry::new();
        anabranch_ops::register(&mut registry);
        let found = Found { files, unreadable: Vec::new() };
        let pipelines = Pipelines::of(found, &registry, &CompileOptions::default());
        let told = pipelines.findings.iter().filter(|finding| finding.code != "plan.no_directory");
        told.map(|finding| format!("{}: {}", finding.code, finding.message)).collect()
    }

    #[test]
    fn a_path_that_names_no_file_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        for pattern in ["*.ndjson", "app-*.log"] {
            let told = codes(&path(pattern), &path("out"));
            assert_eq!(told, ["settings.not_a_path: path: `*` is taken as it is written: a source reads one file"]);
            std::fs::write(path(pattern), "x").unwrap();
            assert_eq!(codes(&path(pattern), &path("out")), Vec::<String>::new(), "a file of this name");
        }
        for address in ["file:///tmp/x", "https://example.com/x", "s3://lake/x"] {
            let scheme = address.split(':').next().unwrap();
            let message =
                format!("settings.not_a_path: path: {scheme}:// is taken as a part of the path, not as an address");
            assert_eq!(codes(address, &path("out")), std::slice::from_ref(&message));
            assert_eq!(codes(&path("in"), address), [message]);
        }
        let here = directory.path().display().to_string();
        assert_eq!(
            codes(&here, &path("out")),
            [format!("settings.invalid: path: {here} is a directory, and a source reads one file")]
        );
        assert_eq!(codes(&path("in"), &path("out")), Vec::<String>::new());
        assert_eq!(codes("/dev/stdin", "/dev/stdout"), Vec::<String>::new());
    }
}
