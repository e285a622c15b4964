//! Checks of paths that do not name a file: patterns, addresses and directories. A plugin would use them as the name of
//! a file.

use std::fs;
use std::path::Path;

use anabranch_graph::plan::Compiled;
use anabranch_graph::plan::check::place_of;
use anabranch_graph::plan::graph::{Node, NodeKind};
use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics};

use crate::codes;

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
    // An existing file is intended, whatever its name is.
    if let Ok(found) = fs::metadata(path) {
        if matches!(node.kind, NodeKind::DeadLetter(_)) && is_same(path, "/dev/null") {
            let message = format!("path: {path} keeps nothing: the pipeline discards dead letters and continues");
            let hint = "write `plugin: store` to keep them, or give another path";
            return Some(Diagnostic::warning(codes::PLAN_NO_LETTER_KEPT, message).with_hint(hint));
        }
        if is_read && found.is_file() && found.len() == 0 && is_of_kernel(path) {
            let message =
                format!("path: the size of {path} is 0, whatever it contains: the source reads no record of it");
            let hint = "write its content to a file, and read that one";
            return Some(Diagnostic::warning(codes::SETTINGS_NOT_A_PATH, message).with_hint(hint));
        }
        // Another check reports an output that is a directory.
        return (is_read && found.is_dir() && !path.ends_with('/')).then(|| {
            let message = format!("path: {path} is a directory");
            let hint = format!(
                "write {path}/ for the files in it, {path}/** for those in its subdirectories too, or name a file"
            );
            Diagnostic::error(codes::SETTINGS_INVALID, message).with_hint(hint)
        });
    }
    if let Some((scheme, rest)) = path.split_once("://").filter(|(scheme, _)| is_scheme(scheme)) {
        let message = format!("path: {scheme}:// is read as part of the path, not as an address");
        let finding = Diagnostic::warning(codes::SETTINGS_NOT_A_PATH, message);
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
    (is_pattern && !is_read).then(|| {
        let message = "path: `*` is read literally: a destination writes one file";
        Diagnostic::warning(codes::SETTINGS_NOT_A_PATH, message).with_hint("write the name of the file")
    })
}

/// Returns `true` if two paths lead to the same file.
fn is_same(path: &str, other: &str) -> bool {
    let real = |path: &str| fs::canonicalize(path).ok();
    real(path).is_some_and(|path| real(other) == Some(path))
}

/// Returns `true` for a file whose content the kernel makes when it is read.
fn is_of_kernel(path: &str) -> bool {
    fs::canonicalize(path).is_ok_and(|path| path.starts_with("/proc") || path.starts_with("/sys"))
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(|c| c.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use crate::pipelines::of_text;

    fn codes(read: &str, written: &str) -> Vec<String> {
        of(&pipeline(read, written))
    }

    fn with_letters(path: &str) -> Vec<String> {
        let queue =
            format!("    dead-letter-queue: {{ plugin: file, window-size: 0, settings: {{ path: '{path}' }} }}\n");
        of(&(pipeline("in.txt", "/dev/null") + &queue))
    }

    fn pipeline(read: &str, written: &str) -> String {
        format!(
            "version: 2.2\npipelines:\n  - id: p\n    connectors:\n      - {{ id: in, type: source, plugin: file, \
             settings: {{ path: '{read}' }} }}\n      - {{ id: out, type: destination, plugin: file, settings: {{ path: \
             '{written}' }} }}\n"
        )
    }

    fn of(text: &str) -> Vec<String> {
        let pipelines = of_text(text);
        let told = pipelines.findings.iter().filter(|finding| finding.code.name() != "plan.no_directory");
        told.map(|finding| format!("{}: {}", finding.code, finding.message)).collect()
    }

    #[test]
    fn a_file_of_the_kernel_is_told() {
        let told = codes("/proc/self/status", "/dev/null");
        let [text] = &told[..] else { panic!("{told:?}") };
        assert!(text.starts_with("settings.not_a_path: path: the size of /proc/self/status is 0"), "{text}");
        let empty = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(codes(empty.path().to_str().unwrap(), "/dev/null"), Vec::<String>::new());
    }

    #[test]
    fn dead_letters_that_are_thrown_away_are_told() {
        let told = with_letters("/dev/null");
        let [text] = &told[..] else { panic!("{told:?}") };
        assert!(text.starts_with("plan.no_letter_kept: path: /dev/null keeps nothing"), "{text}");
        assert_eq!(with_letters("/dev/stderr"), Vec::<String>::new());
    }

    #[test]
    fn a_path_that_names_no_file_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        for pattern in ["*.ndjson", "app-*.log"] {
            let told = codes(&path("in"), &path(pattern));
            assert_eq!(told, ["settings.not_a_path: path: `*` is read literally: a destination writes one file"]);
            std::fs::write(path(pattern), "x").unwrap();
            assert_eq!(codes(&path("in"), &path(pattern)), Vec::<String>::new(), "a file of this name");
            assert_eq!(codes(&path(pattern), &path("out")), Vec::<String>::new(), "a pattern of a source");
        }
        for address in ["file:///tmp/x", "https://example.com/x", "s3://lake/x"] {
            let scheme = address.split(':').next().unwrap();
            let message =
                format!("settings.not_a_path: path: {scheme}:// is read as part of the path, not as an address");
            assert_eq!(codes(address, &path("out")), std::slice::from_ref(&message));
            assert_eq!(codes(&path("in"), address), [message]);
        }
        let here = directory.path().display().to_string();
        assert_eq!(codes(&here, &path("out")), [format!("settings.invalid: path: {here} is a directory")]);
        assert_eq!(codes(&format!("{here}/"), "/dev/null"), Vec::<String>::new());
        assert_eq!(codes(&path("in"), &path("out")), Vec::<String>::new());
        assert_eq!(codes("/dev/stdin", "/dev/stdout"), Vec::<String>::new());
    }
}
