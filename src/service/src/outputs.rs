//! Checks of the files that pipelines use on this machine: missing directories, outputs that are inputs under another
//! name, outputs that are files of the service, and pipelines that feed each other in a cycle.

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anabranch_graph::plan::Compiled;
use anabranch_graph::plan::check::{SharedRecords, feeds, feeds_back, place_of, shared};
use anabranch_graph::plan::graph::{Node, NodeKind, PlanGraph};
use anabranch_ops::file::STORE_MAGIC;
use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics, Span};
use anabranch_plugin::registry::{Registry, Reserved};
use anabranch_process::files::output::STANDARD_OUTPUT;
use anabranch_process::files::{is_pipeline_file, parent_directory};

use crate::codes;
use crate::paths;
use crate::pipeline::Pipeline;

/// Identity of a file regardless of its name: device and inode if it exists, otherwise its name in its canonical
/// directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum FileIdentity {
    Numbered(u64, u64),
    Named(PathBuf),
}

#[cfg(test)]
thread_local! {
    static LOOK_UPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl FileIdentity {
    /// Returns the identity of a regular or missing file; `None` for devices and pipes.
    fn of(path: &Path) -> Option<FileIdentity> {
        #[cfg(test)]
        LOOK_UPS.set(LOOK_UPS.get() + 1);
        match fs::metadata(path) {
            Ok(found) => found.is_file().then(|| FileIdentity::Numbered(found.dev(), found.ino())),
            Err(_) => {
                let directory = fs::canonicalize(parent_directory(path)).ok()?;
                Some(FileIdentity::Named(directory.join(path.file_name()?)))
            }
        }
    }
}

/// Returns the file that a node writes.
pub(crate) fn written(node: &Node) -> Option<&str> {
    match &node.kind {
        NodeKind::Destination(write) => write.destination.file(),
        NodeKind::DeadLetter(queue) => queue.destination.file(),
        _ => None,
    }
}

/// Returns the file that a node reads.
pub(crate) fn read(node: &Node) -> Option<&str> {
    match &node.kind {
        NodeKind::Source(read) => read.source.file(),
        _ => None,
    }
}

/// Returns the place of the file name of a node.
pub(crate) fn place(node: &Node) -> Span {
    node.settings.iter().find(|given| given.name == "path").map_or(node.span, |given| given.span)
}

fn about(finding: Diagnostic, node: &Node) -> Diagnostic {
    finding.with_span(place(node)).with_path(format!("{}/settings/path", node.path))
}

/// The files that declare pipelines, and their scripts: pipelines must not write them.
pub struct OwnFiles(HashMap<FileIdentity, &'static str>);

impl OwnFiles {
    /// Creates the set from paths with their descriptions. One look-up per file.
    pub fn of<'p>(paths: impl Iterator<Item = (&'p Path, &'static str)>) -> Self {
        let files = paths.filter(|(path, _)| path.is_file());
        OwnFiles(files.filter_map(|(path, what)| Some((FileIdentity::of(path)?, what))).collect())
    }
}

/// Checks the files that a pipeline reads and writes. A few look-ups per file connector.
pub fn check(compiled: &Compiled, registry: &Registry, own: &OwnFiles) -> Diagnostics {
    let mut findings = paths::check(compiled);
    let nodes = || compiled.lowered.node_weights();
    let read: Vec<(&Node, Metadata)> =
        nodes().filter_map(|node| Some((node, fs::metadata(read(node)?).ok().filter(Metadata::is_file)?))).collect();
    for node in nodes() {
        findings.0.extend(read_twice(node, nodes()));
        let Some(written) = written(node) else { continue };
        if let Some(what) = reserved(written, registry.reserved(), own) {
            let message = format!("{:?} writes to {written}, which is {what}", node.id);
            findings.push(
                about(Diagnostic::error(codes::PLAN_OUTPUT_RESERVED, message), node).with_hint("set another path"),
            );
            continue;
        }
        findings.0.extend(letters_beside_records(node, written, nodes()));
        if written.ends_with('/') && fs::metadata(written).is_err() {
            let finding =
                Diagnostic::error(codes::SETTINGS_INVALID, format!("path: {written} is the path of a directory"));
            findings.push(about(finding, node).with_hint("give the path of a file in it"));
            continue;
        }
        findings.0.extend(written_twice(&compiled.lowered, node, written));
        if let Ok(found) = fs::metadata(written) {
            if found.is_dir() {
                let finding = Diagnostic::error(codes::SETTINGS_INVALID, format!("path: {written} is a directory"));
                findings.push(about(finding, node).with_hint("give the path of a file in it"));
                continue;
            }
            // Links are other names of the same file.
            let same = |file: &Metadata| (file.dev(), file.ino()) == (found.dev(), found.ino());
            findings.0.extend(read.iter().filter(|(_, file)| same(file)).map(|(source, _)| feeds_back(node, source)));
        } else if let Some(missing) = missing_directory(Path::new(written)) {
            let shown = missing.display();
            let message = format!("the directory {shown} of the file does not exist");
            let finding = Diagnostic::warning(codes::PLAN_NO_DIRECTORY, message);
            // Another check reports that `~` is not expanded to a directory.
            if !missing.starts_with("~") {
                let hint = format!("create it before the pipeline starts: mkdir -p {shown}");
                findings.push(about(finding, node).with_hint(hint));
            }
        }
    }
    findings
}

/// Returns the description of a file that pipelines must not write; `None` if they may.
fn reserved(written: &str, reserved: &[Reserved], own: &OwnFiles) -> Option<&'static str> {
    let path = Path::new(written);
    let identity = FileIdentity::of(path)?;
    for Reserved { path: kept, what } in reserved {
        let is_it = match kept.is_dir() {
            true => {
                let parent = parent_directory(path);
                let beside = |metadata: Metadata| (metadata.dev(), metadata.ino());
                let inside = fs::metadata(parent).ok().map(beside) == fs::metadata(kept).ok().map(beside);
                inside && is_pipeline_file(path)
            }
            false => FileIdentity::of(kept).is_some_and(|kept| kept == identity),
        };
        if is_it {
            return Some(what);
        }
    }
    if let Some(what) = own.0.get(&identity) {
        return Some(what);
    }
    let mut first = [0; STORE_MAGIC.len()];
    let is_store = anabranch_ops_tls::open_regular(path).and_then(|mut file| file.read_exact(&mut first)).is_ok()
        && first == STORE_MAGIC;
    is_store.then_some("a state store")
}

/// Reports dead letters that go to the file of a destination, where they cannot be distinguished from its records.
fn letters_beside_records<'a>(
    queue: &Node,
    written: &str,
    mut nodes: impl Iterator<Item = &'a Node>,
) -> Option<Diagnostic> {
    let NodeKind::DeadLetter(_) = queue.kind else { return None };
    // A terminal may show both, also when it is redirected.
    if written.starts_with("/dev/") {
        return None;
    }
    let identity = FileIdentity::of(Path::new(written))?;
    let records = nodes.find(|node| match &node.kind {
        NodeKind::Destination(write) => {
            write.destination.file().and_then(|path| FileIdentity::of(Path::new(path))).is_some_and(|it| it == identity)
        }
        _ => false,
    })?;
    let message = format!(
        "the dead-letter queue writes to the file of {:?}: the file mixes dead letters with records",
        records.id
    );
    Some(
        about(Diagnostic::warning(codes::PLAN_LETTERS_AMONG_RECORDS, message), queue)
            .with_related(place(records), "records are written here")
            .with_hint("give the dead-letter queue another path, or `plugin: store`"),
    )
}

/// Reports a destination that writes the file of an earlier one: both receive every record that passes their filters.
fn written_twice(plan: &PlanGraph, node: &Node, written: &str) -> Option<Diagnostic> {
    let NodeKind::Destination(_) = node.kind else { return None };
    if written.starts_with("/dev/") {
        return None;
    }
    let identity = FileIdentity::of(Path::new(written))?;
    let first = first_of(
        &identity,
        node,
        plan.node_weights().filter(|it| matches!(it.kind, NodeKind::Destination(_))),
        self::written,
    )?;
    let twice = match shared(plan, &first.id, &node.id) {
        SharedRecords::Nothing => return None,
        SharedRecords::Some => "a record that reaches both is written twice",
        SharedRecords::All => "every record is written twice",
    };
    let message = format!("{:?} writes to the file of {:?}: {twice}", node.id, first.id);
    Some(
        about(Diagnostic::warning(codes::PLAN_OUTPUT_SHARED, message), node)
            .with_related(place(first), "written here too")
            .with_hint("set another path, or remove one of the two"),
    )
}

/// Reports a source that reads the file of an earlier one.
fn read_twice<'a>(node: &Node, nodes: impl Iterator<Item = &'a Node>) -> Option<Diagnostic> {
    let identity = FileIdentity::of(Path::new(read(node)?))?;
    let first = first_of(&identity, node, nodes, read)?;
    let message = format!("{:?} reads the file of {:?}: every record is read twice", node.id, first.id);
    Some(
        about(Diagnostic::warning(codes::PLAN_INPUT_SHARED, message), node)
            .with_related(place(first), "read here too")
            .with_hint("set another path, or remove one of the two"),
    )
}

/// Returns the first node before `node` with the same file.
fn first_of<'a>(
    identity: &FileIdentity,
    node: &Node,
    nodes: impl Iterator<Item = &'a Node>,
    file: impl Fn(&Node) -> Option<&str>,
) -> Option<&'a Node> {
    let is_same =
        |other: &&Node| file(other).and_then(|path| FileIdentity::of(Path::new(path))).as_ref() == Some(identity);
    nodes.take_while(|other| other.id != node.id).find(is_same)
}

/// Returns `true` if a pipeline writes records to the standard output of this process.
pub fn writes_standard_output(pipeline: &Pipeline) -> bool {
    pipeline.compiled.lowered.node_weights().filter_map(written).any(|path| STANDARD_OUTPUT.contains(&path))
}

/// Returns the finding of [`cycles`] for a pipeline, if it forms a cycle with others. Places in the text of the other
/// pipelines are removed.
pub fn cycle(pipeline: &Pipeline, others: &[Arc<Pipeline>]) -> Option<Diagnostic> {
    let all: Vec<&Pipeline> = std::iter::once(pipeline).chain(others.iter().map(Arc::as_ref)).collect();
    let (_, finding) = cycles(&all).into_iter().find(|(index, _)| *index == 0)?;
    Some(Diagnostic { related: Vec::new(), ..finding })
}

/// Checks pipelines that join others, in order. Returns for each the cycle that it forms with the others and those that
/// joined before it. A pipeline that forms a cycle does not join. One look-up per file connector if there is no cycle.
pub fn closing(others: &[Arc<Pipeline>], joining: &[Arc<Pipeline>]) -> Vec<Option<Diagnostic>> {
    let all: Vec<&Pipeline> = others.iter().chain(joining).map(Arc::as_ref).collect();
    if cycles(&all).iter().all(|(index, _)| *index < others.len()) {
        return vec![None; joining.len()];
    }
    let mut joined = others.to_vec();
    let join = |pipeline: &Arc<Pipeline>| {
        let closed = cycle(pipeline, &joined);
        if closed.is_none() {
            joined.push(pipeline.clone());
        }
        closed
    };
    joining.iter().map(join).collect()
}

/// Returns for each pipeline those that it feeds through nodes for which `is_writer` holds: index, node and source.
/// One look-up per file connector.
fn fed<'p>(pipelines: &[&'p Pipeline], is_writer: impl Fn(&Node) -> bool) -> Vec<Vec<(usize, &'p Node, &'p Node)>> {
    let identified = |path: &str| FileIdentity::of(Path::new(path));
    let mut readers: HashMap<FileIdentity, Vec<(usize, &Node)>> = HashMap::new();
    for (index, pipeline) in pipelines.iter().enumerate() {
        for node in pipeline.compiled.lowered.node_weights() {
            if let Some(file) = read(node).and_then(identified) {
                readers.entry(file).or_default().push((index, node));
            }
        }
    }
    // Sources of named resources other than files.
    let mut by_name: Vec<(usize, &Node)> = Vec::new();
    for (index, pipeline) in pipelines.iter().enumerate() {
        let nodes = pipeline.compiled.lowered.node_weights();
        let named = |node: &&Node| matches!(&node.kind, NodeKind::Source(read) if !read.source.reads().is_empty());
        by_name.extend(nodes.filter(named).map(|node| (index, node)));
    }
    let mut fed: Vec<Vec<(usize, &Node, &Node)>> = Vec::with_capacity(pipelines.len());
    for (from, pipeline) in pipelines.iter().enumerate() {
        let mut edges = Vec::new();
        let destinations = pipeline.compiled.lowered.node_weights();
        for node in destinations.filter(|node| is_writer(node)) {
            let sources = written(node).and_then(identified).and_then(|file| readers.get(&file));
            // A pipeline that feeds itself was refused by an earlier check.
            let others = sources.into_iter().flatten().filter(|(to, _)| *to != from);
            edges.extend(others.map(|(to, source)| (*to, node, *source)));
            edges.extend(
                by_name
                    .iter()
                    .filter(|(to, source)| *to != from && feeds_by_name(node, source))
                    .map(|(to, source)| (*to, node, *source)),
            );
        }
        fed.push(edges);
    }
    fed
}

/// Returns for each pipeline the indices of the others that write what it reads. Dead letters count unless they close a
/// cycle. One look-up per file connector.
pub fn feeders(pipelines: &[&Pipeline]) -> Vec<Vec<usize>> {
    let mut feeders: Vec<Vec<usize>> = vec![Vec::new(); pipelines.len()];
    let kinds: [fn(&Node) -> bool; 2] = [is_destination, |node| matches!(node.kind, NodeKind::DeadLetter(_))];
    for kind in kinds {
        for (from, edges) in fed(pipelines, kind).into_iter().enumerate() {
            for (to, ..) in edges {
                if !feeders[to].contains(&from) && !comes_before(&feeders, to, from) {
                    feeders[to].push(from);
                }
            }
        }
    }
    feeders
}

/// Returns `true` if `one` is `other` or feeds it, directly or through other pipelines.
fn comes_before(feeders: &[Vec<usize>], one: usize, other: usize) -> bool {
    let (mut seen, mut next) = (vec![false; feeders.len()], vec![other]);
    while let Some(at) = next.pop() {
        if at == one {
            return true;
        }
        if !std::mem::replace(&mut seen[at], true) {
            next.extend(&feeders[at]);
        }
    }
    false
}

fn is_destination(node: &Node) -> bool {
    matches!(node.kind, NodeKind::Destination(_))
}

/// Finds pipelines that feed each other in a cycle: every record would be read again endlessly. Returns one finding
/// for each pipeline of a cycle, with its index in `pipelines`.
pub fn cycles(pipelines: &[&Pipeline]) -> Vec<(usize, Diagnostic)> {
    let fed = fed(pipelines, is_destination);
    let mut findings = Vec::new();
    for start in (0..pipelines.len()).filter(|start| !fed[*start].is_empty()) {
        // The pipelines that a record of this one reaches, each with its predecessor and source.
        let mut came: HashMap<usize, (usize, &Node)> = HashMap::new();
        let mut next = vec![start];
        while let Some(from) = next.pop() {
            for (to, _, source) in &fed[from] {
                if !came.contains_key(to) {
                    came.insert(*to, (from, source));
                    next.push(*to);
                }
            }
        }
        let Some((_, source)) = came.get(&start) else { continue };
        let mut way = vec![start];
        while let Some((before, _)) = came.get(&way[way.len() - 1]) {
            way.push(*before);
            if *before == start {
                break;
            }
        }
        way.reverse();
        let Some((_, node, _)) = fed[start].iter().find(|(to, ..)| *to == way[1]) else { continue };
        let ids: Vec<&str> = way.iter().map(|at| pipelines[*at].config.id.value.as_str()).collect();
        let message =
            format!("pipelines feed each other ({}): every record would be read again, endlessly", ids.join(" → "));
        let (setting, of_source) = (setting_of(node), setting_of(source));
        let finding = Diagnostic::error(codes::PLAN_FEEDBACK, message)
            .with_label(place_of(node, setting), "written here")
            .with_related(place_of(source, of_source), "read again here")
            .with_path(format!("{}/settings/{setting}", node.path))
            .with_hint(format!("set another {setting} for one of the destinations"));
        findings.push((start, finding));
    }
    findings
}

/// Returns `true` if a destination writes what a source reads, judging by names.
fn feeds_by_name(destination: &Node, source: &Node) -> bool {
    match (&destination.kind, &source.kind) {
        (NodeKind::Destination(write), NodeKind::Source(read)) => feeds(&*write.destination, &*read.source).is_some(),
        _ => false,
    }
}

/// Returns the setting that names what a node reads or writes.
fn setting_of(node: &Node) -> &'static str {
    let extents = match &node.kind {
        NodeKind::Source(read) => read.source.reads(),
        NodeKind::Destination(write) => write.destination.writes(),
        _ => Vec::new(),
    };
    extents.first().map_or("path", |extent| extent.setting)
}

/// Returns the directory of a file, if it does not exist.
fn missing_directory(path: &Path) -> Option<&Path> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty())?;
    (!directory.is_dir()).then_some(directory)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use anabranch_graph::plan::CompileOptions;
    use anabranch_plugin::diagnostic::Files;
    use anabranch_plugin::registry::Registry;
    use anabranch_process::files::PipelineFiles;

    use super::{LOOK_UPS, closing};
    use crate::pipeline::Pipeline;
    use crate::pipelines::{Pipelines, of_files, of_text};

    fn codes(read: &str, written: &str, letters: &str) -> Vec<(&'static str, bool)> {
        let text = format!(
            "version: 2.2\npipelines:\n  - id: p\n    connectors:\n      - {{ id: in, type: source, plugin: file, \
             settings: {{ path: '{read}' }} }}\n      - {{ id: out, type: destination, plugin: file, settings: {{ path: \
             '{written}' }} }}\n    dead-letter-queue: {{ plugin: file, window-size: 0, settings: {{ path: '{letters}' }} }}\n"
        );
        let pipelines = of_text(&text);
        pipelines.findings.iter().map(|finding| (finding.code.name(), pipelines.has_errors())).collect()
    }

    /// Pipelines of files in a directory, each of which reads one file and writes another.
    fn chain(directory: &std::path::Path, ways: &[(String, String)]) -> Vec<std::sync::Arc<Pipeline>> {
        let mut files = Files::new();
        for (index, (read, written)) in ways.iter().enumerate() {
            let at = |name: &str| directory.join(name).display().to_string();
            let text = format!(
                "version: 2.2\npipelines:\n  - id: p{index}\n    connectors:\n      - {{ id: in, type: source, plugin: \
                 file, settings: {{ path: '{}' }} }}\n      - {{ id: out, type: destination, plugin: file, settings: {{ \
                 path: '{}' }} }}\n",
                at(read),
                at(written)
            );
            let path = at(&format!("p{index}.yaml"));
            std::fs::write(&path, &text).unwrap();
            files.add(path.as_str(), text);
        }
        let pipelines = of_files(files);
        pipelines.good.into_iter().map(std::sync::Arc::new).collect()
    }

    fn ways(ways: &[(&str, &str)]) -> Vec<(String, String)> {
        ways.iter().map(|(read, written)| ((*read).to_owned(), (*written).to_owned())).collect()
    }

    /// The cost per pipeline must not grow with the number of pipelines.
    #[test]
    fn a_pipeline_costs_as_many_look_ups_among_many_as_among_few() {
        let look_ups = |pipelines: usize| {
            let directory = tempfile::tempdir().unwrap();
            let ways: Vec<_> = (0..pipelines).map(|n| (format!("in{n}"), format!("out{n}"))).collect();
            LOOK_UPS.set(0);
            let pipelines = chain(directory.path(), &ways);
            let compiled = LOOK_UPS.get();
            assert!(closing(&[], &pipelines).iter().all(Option::is_none));
            (compiled, LOOK_UPS.get() - compiled)
        };
        let ((few, joined_few), (many, joined_many)) = (look_ups(10), look_ups(200));
        assert!(few > 0 && joined_few > 0);
        assert_eq!((many, joined_many), (few * 20, joined_few * 20));
    }

    #[test]
    fn a_pipeline_that_closes_a_cycle_with_those_before_it_does_not_join() {
        let directory = tempfile::tempdir().unwrap();
        let running = chain(directory.path(), &ways(&[("c", "a")]));
        let first = chain(directory.path(), &ways(&[("a", "b")]));
        let second = chain(directory.path(), &ways(&[("b", "c")]));
        let apart = chain(directory.path(), &ways(&[("x", "y")]));
        let joining = [first, second, apart].concat();
        let refused: Vec<bool> = closing(&running, &joining).iter().map(Option::is_some).collect();
        assert_eq!(refused, [false, true, false]);
        assert_eq!(closing(&[], &joining), [None, None, None]);
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
        // The files need not exist.
        assert_eq!(codes(&path("later"), &path("later"), &path("letters")), [("plan.feedback", true)]);
    }

    /// Returns the findings of several pipelines `(id, read, written, letters)`, with reserved `files`.
    fn findings(pipelines: &[(&str, &str, &str, &str)], reserve: &[(&str, &'static str)]) -> Vec<(String, bool)> {
        let items: String = pipelines
            .iter()
            .map(|(id, read, written, letters)| {
                format!(
                    "  - id: {id}\n    connectors:\n      - {{ id: in, type: source, plugin: file, settings: {{ path: \
                     '{read}' }} }}\n      - {{ id: out, type: destination, plugin: file, settings: {{ path: '{written}' \
                     }} }}\n    dead-letter-queue: {{ plugin: file, window-size: 0, settings: {{ path: '{letters}' }} }}\n"
                )
            })
            .collect();
        let mut files = Files::new();
        files.add("p.yaml", format!("version: 2.2\npipelines:\n{items}"));
        let mut registry = Registry::new();
        anabranch_ops::register(&mut registry);
        reserve.iter().for_each(|(path, what)| registry.reserve(*path, what));
        let found = PipelineFiles { files, unreadable: Vec::new() };
        let pipelines = Pipelines::of(found, &registry, &CompileOptions::default());
        assert_eq!(pipelines.findings.has_errors(), !pipelines.invalid.is_empty());
        let good = |finding: &anabranch_plugin::diagnostic::Diagnostic| {
            finding.label.as_ref().is_some_and(|label| {
                pipelines.good.iter().any(|p| (p.config.span.start..=p.config.span.end).contains(&label.span.start))
            })
        };
        pipelines.findings.iter().map(|f| (format!("{}: {}", f.code, f.message), good(f))).collect()
    }

    #[test]
    fn no_pipeline_writes_a_file_of_the_service() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        std::fs::create_dir(path("pipelines")).unwrap();
        std::fs::write(path("other.db"), [&anabranch_ops::file::STORE_MAGIC[..], &[0; 64]].concat()).unwrap();
        let (store, config, pipelines) = (path("a.db"), path("anabranch.yaml"), path("pipelines"));
        let reserve = [
            (store.as_str(), "the state store"),
            (config.as_str(), "the configuration"),
            (pipelines.as_str(), "a pipeline file"),
        ];
        for name in
            ["a.db", "./a.db", "other.db", "anabranch.yaml", "pipelines/new.yaml", "pipelines/../pipelines/x.YML"]
        {
            for (written, letters) in [(path(name), path("letters")), (path("out"), path(name))] {
                let found = findings(&[("p", &path("in"), &written, &letters)], &reserve);
                let [(text, runs)] = found.as_slice() else { panic!("{name}: {found:?}") };
                assert!(text.starts_with("plan.output_reserved: ") && !runs, "{name}: {text}");
            }
        }
        for name in ["b.db", "other.yaml", "pipelines/out.ndjson", "pipelines/p.test.yaml.txt"] {
            assert_eq!(findings(&[("p", &path("in"), &path(name), &path("letters"))], &reserve), [], "{name}");
        }
    }

    #[test]
    fn pipelines_that_feed_each_other_do_not_run() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        let (a, b, c, d) = (path("a"), path("b"), path("c"), path("d"));
        let letters = ["l1", "l2", "l3", "l4"].map(path);
        let chain = [("p", &*a, &*b, &*letters[0]), ("q", &*b, &*c, &*letters[1]), ("r", &*c, &*d, &*letters[2])];
        assert_eq!(findings(&chain, &[]), []);
        let both = [chain[0], ("q", &*b, &*a, &*letters[1]), ("other", &*b, &*d, &*letters[2])];
        for written in [false, true] {
            if written {
                std::fs::write(&a, "1\n").unwrap();
            }
            let found = findings(&both, &[]);
            assert_eq!(found.len(), 2, "{found:?}");
            assert!(found[0].0.contains("(p → q → p)") && found[1].0.contains("(q → p → q)"), "{found:?}");
            assert!(found.iter().all(|(_, runs)| !runs));
        }
        let three = [chain[0], chain[1], ("r", &*c, &*a, &*letters[2]), ("s", &*a, &*d, &*letters[3])];
        let found = findings(&three, &[]);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[2].0.contains("(r → p → q → r)"), "{found:?}");
    }

    #[test]
    fn dead_letters_among_records_are_told() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        let found =
            findings(&[("p", &path("in"), &path("out"), &format!("{}/./out", directory.path().display()))], &[]);
        let [(text, true)] = found.as_slice() else { panic!("{found:?}") };
        assert!(text.starts_with("plan.letters_among_records"), "{text}");
        // A terminal may show both, and pipelines may share a file: whole lines are appended.
        assert_eq!(findings(&[("p", &path("in"), "/dev/stdout", "/dev/stdout")], &[]), []);
        let shared = [("p", &*path("in"), &*path("out"), &*path("d")), ("q", &*path("in"), &*path("out"), &*path("d"))];
        assert_eq!(findings(&shared, &[]), []);
    }

    #[test]
    fn what_one_pipeline_writes_or_reads_twice_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        std::fs::write(path("in"), "one\n").unwrap();
        symlink(path("in"), path("link")).unwrap();
        let codes_with = |read: [&str; 2], written: [&str; 2], more: [&str; 2]| {
            let connector = |(id, kind, path, more): (&str, &str, &str, &str)| {
                format!("      - {{ id: {id}, type: {kind}, plugin: file, settings: {{ path: '{path}' }}{more} }}\n")
            };
            let all = [
                ("a", "source", read[0], ""),
                ("b", "source", read[1], ""),
                ("c", "destination", written[0], more[0]),
                ("d", "destination", written[1], more[1]),
            ];
            let connectors: String = all.map(connector).concat();
            let pipelines = of_text(&format!("version: 2.2\npipelines:\n  - id: p\n    connectors:\n{connectors}"));
            assert!(!pipelines.has_errors());
            pipelines
                .findings
                .iter()
                .map(|finding| format!("{}: {}", finding.code, finding.message))
                .collect::<Vec<_>>()
        };
        let codes = |read: [&str; 2], written: [&str; 2]| codes_with(read, written, ["", ""]);
        let (one, two) = (path("in"), path("other"));
        let (out, same) = (path("out"), format!("{}/./out", directory.path().display()));
        assert_eq!(codes([&one, &two], [&out, &path("more")]), Vec::<String>::new());
        let shared = "plan.output_shared: \"d\" writes to the file of \"c\": every record is written twice";
        assert_eq!(codes([&one, &two], [&out, &same]), [shared]);
        let some = "plan.output_shared: \"d\" writes to the file of \"c\": a record that reaches both is written twice";
        let filtered = |c: &str, d: &str| {
            let filter = |condition: &str| {
                format!(", processors: [{{ id: only, plugin: filter, condition: '{{{{ {condition} }}}}' }}]")
            };
            let mut found = codes_with([&one, &two], [&out, &same], [&filter(c), &filter(d)]);
            found.retain(|finding| finding.starts_with("plan.output_shared"));
            found
        };
        let kind = |kind: &str| format!(r#"ne (index .Metadata "kind") "{kind}""#);
        assert_eq!(filtered(&kind("order"), &kind("return")), Vec::<String>::new(), "no record is of two kinds");
        assert_eq!(filtered(&kind("order"), &kind("order")), [some]);
        assert_eq!(filtered(&kind("order"), r#"eq (index .Metadata "other") "x""#), [some]);
        let shared = "plan.input_shared: \"b\" reads the file of \"a\": every record is read twice";
        assert_eq!(codes([&one, &path("link")], [&out, &path("more")]), [shared]);
        assert_eq!(codes([&one, &two], ["/dev/stdout", "/dev/stdout"]), Vec::<String>::new());
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
