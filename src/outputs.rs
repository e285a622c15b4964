//! The files of pipelines, looked up on this machine: directories that are missing, and outputs that are inputs by
//! another name.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anabranch_graph::diagnostic::{Diagnostic, Diagnostics};
use anabranch_graph::plan::Compiled;
use anabranch_graph::plan::check::feeds_back;
use anabranch_graph::plan::graph::{Node, NodeKind};

/// What is wrong with the files that a pipeline reads and writes. A few look-ups per file connector.
pub fn check(compiled: &Compiled) -> Diagnostics {
    let mut findings = Diagnostics::new();
    let nodes = || compiled.lowered.node_weights();
    let read: Vec<(&Node, &str, Metadata)> = nodes()
        .filter_map(|node| match &node.kind {
            NodeKind::Source(read) => {
                let path = read.source.file()?;
                Some((node, path, fs::metadata(path).ok().filter(Metadata::is_file)?))
            }
            _ => None,
        })
        .collect();
    for node in nodes() {
        let written = match &node.kind {
            NodeKind::Destination(write) => write.destination.file(),
            NodeKind::DeadLetter(queue) => queue.destination.file(),
            _ => None,
        };
        let Some(written) = written else { continue };
        if let Ok(found) = fs::metadata(written) {
            // Links are other names of the same file.
            let same = |file: &Metadata| (file.dev(), file.ino()) == (found.dev(), found.ino());
            findings
                .0
                .extend(read.iter().filter(|(_, _, file)| same(file)).map(|(source, ..)| feeds_back(node, source)));
        } else if let Some(missing) = missing_directory(Path::new(written)) {
            let place = node.settings.iter().find(|given| given.name == "path").map_or(node.span, |given| given.span);
            let shown = missing.display();
            findings.push(
                Diagnostic::warning("plan.no_directory", format!("there is no directory {shown} to write the file in"))
                    .with_span(place)
                    .with_path(format!("{}/settings/path", node.path))
                    .with_hint(format!("make it before the pipeline starts: mkdir -p {shown}")),
            );
        }
    }
    findings
}

/// The directory of a file, if it is not there.
fn missing_directory(path: &Path) -> Option<&Path> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty())?;
    (!directory.is_dir()).then_some(directory)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use anabranch_graph::diagnostic::Files;
    use anabranch_graph::plan::CompileOptions;
    use anabranch_graph::registry::Registry;

    use crate::files::Found;
    use crate::pipelines::Pipelines;

    fn codes(read: &str, written: &str, letters: &str) -> Vec<(&'static str, bool)> {
        let text = format!(
            "version: 2.2\npipelines:\n  - id: p\n    connectors:\n      - {{ id: in, type: source, plugin: file, \
             settings: {{ path: '{read}' }} }}\n      - {{ id: out, type: destination, plugin: file, settings: {{ path: \
             '{written}' }} }}\n    dead-letter-queue: {{ plugin: file, settings: {{ path: '{letters}' }} }}\n"
        );
        let mut files = Files::new();
        files.add("p.yaml", text);
        let mut registry = Registry::new();
        anabranch_ops::register(&mut registry);
        let found = Found { files, unreadable: Vec::new() };
        let pipelines = Pipelines::of(found, &registry, &CompileOptions::default());
        pipelines.findings.iter().map(|finding| (finding.code, pipelines.has_errors())).collect()
    }

    #[test]
    fn an_output_that_is_an_input_is_refused_by_whatever_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        std::fs::write(path("in.txt"), "one\n").unwrap();
        symlink(path("in.txt"), path("link")).unwrap();
        std::fs::hard_link(path("in.txt"), path("second")).unwrap();
        let here = format!("{}/./in.txt", directory.path().display());
        for name in [path("in.txt"), here, path("link"), path("second")] {
            assert_eq!(codes(&path("in.txt"), &name, &path("letters")), [("plan.feedback", true)], "{name}");
            assert_eq!(codes(&path("in.txt"), &path("out"), &name), [("plan.feedback", true)], "{name}");
        }
        assert_eq!(codes(&path("in.txt"), &path("out"), &path("letters")), []);
        // Nothing need be there yet.
        assert_eq!(codes(&path("later"), &path("later"), &path("letters")), [("plan.feedback", true)]);
    }

    #[test]
    fn a_directory_that_is_missing_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        assert_eq!(codes(&path("in"), &path("none/out"), &path("letters")), [("plan.no_directory", false)]);
        assert_eq!(codes(&path("in"), &path("out"), &path("none/letters")), [("plan.no_directory", false)]);
        assert_eq!(codes("in", "out", "letters"), []);
        assert_eq!(codes("in", "/dev/null", "/dev/stdout"), []);
    }
}
