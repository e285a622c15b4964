//! Corrections of pipeline files: it fixes findings of `validate` with a certain correction, and leaves everything else
//! unchanged to the byte.

use std::collections::BTreeMap;

use anabranch_graph::plan::CompileOptions;
use anabranch_plugin::diagnostic::{FileId, Files, Severity};
use anabranch_plugin::registry::Registry;
use anabranch_process::files::PipelineFiles;

use anabranch_service::pipelines::Pipelines;

/// Maximum number of rounds: each correction may reveal further ones.
const ROUNDS: usize = 16;
/// Maximum depth of errors that are hidden behind other errors.
const BEHIND: usize = 2;

/// Pipelines, and the corrections that were made in their files.
pub struct Fixed {
    /// The pipelines after the corrections.
    pub pipelines: Pipelines,
    /// The files that changed.
    pub changed: Vec<CorrectedFile>,
}

/// A file with corrections.
pub struct CorrectedFile {
    /// Its name, as it was given.
    pub name: String,
    /// The text before.
    pub before: String,
    /// The text after.
    pub after: String,
    /// Number of corrections.
    pub fixes: usize,
}

/// Applies every correction that does not increase the number of errors. Writes nothing.
pub fn fix(found: Pipelines, registry: &Registry, options: &CompileOptions) -> Fixed {
    let original = found.files.clone();
    let unreadable = found.unreadable.clone();
    let compile = |files| Pipelines::of(PipelineFiles { files, unreadable: unreadable.clone() }, registry, options);
    let (pipelines, fixes) = Fixing { compile: &compile }.settled(found, BEHIND);
    let changed = fixes.into_iter().filter_map(|(file, fixes)| {
        let (before, after) = (original.get(file)?, pipelines.files.get(file)?);
        let (name, before, after) = (before.name.to_string(), before.text.to_string(), after.text.to_string());
        Some(CorrectedFile { name, before, after, fixes })
    });
    Fixed { changed: changed.collect(), pipelines }
}

/// Number of corrections by file.
type Count = BTreeMap<FileId, usize>;

struct Fixing<'a> {
    compile: &'a dyn Fn(Files) -> Pipelines,
}

impl Fixing<'_> {
    /// Returns the pipelines after all possible corrections.
    fn settled(&self, mut pipelines: Pipelines, behind: usize) -> (Pipelines, Count) {
        let mut fixes = Count::new();
        for _ in 0..ROUNDS {
            let mut done = true;
            for (file, wanted) in edits(&pipelines) {
                // If one edit fails, for example because an anchor is used in several places, it is skipped and the
                // others are applied.
                let (mut good, mut made) = (Vec::new(), self.tried(&pipelines, file, &wanted, behind));
                if made.is_none() {
                    for edit in wanted {
                        good.push(edit);
                        match self.tried(&pipelines, file, &good, behind) {
                            Some(next) => made = Some(next),
                            None => drop(good.pop()),
                        }
                    }
                }
                if let Some((next, count)) = made {
                    done = false;
                    pipelines = next;
                    count.into_iter().for_each(|(file, count)| *fixes.entry(file).or_default() += count);
                }
            }
            if done {
                break;
            }
        }
        (pipelines, fixes)
    }

    /// Returns the pipelines after these edits, unless there are more errors than before.
    fn tried(&self, pipelines: &Pipelines, file: FileId, edits: &[Edit], behind: usize) -> Option<(Pipelines, Count)> {
        let source = pipelines.files.get(file)?;
        let next = (self.compile)(pipelines.files.with_text(file, edited(&source.text, edits)));
        let mut fixes = Count::from([(file, edits.len())]);
        let is_better = |next: &Pipelines| errors(next) <= errors(pipelines) && declared(next) >= declared(pipelines);
        if is_better(&next) {
            return Some((next, fixes));
        }
        // A correction may reveal errors behind it, which may be corrected as well.
        let (next, more) = self.settled(next, behind.checked_sub(1)?);
        more.into_iter().for_each(|(file, count)| *fixes.entry(file).or_default() += count);
        is_better(&next).then_some((next, fixes))
    }
}

fn errors(pipelines: &Pipelines) -> usize {
    pipelines.count(Severity::Error)
}

/// Returns the number of pipelines and of whole files that could be read: an edit that breaks the text hides the errors
/// behind it.
fn declared(pipelines: &Pipelines) -> (usize, usize) {
    let whole = pipelines.files.iter().count() - pipelines.broken.len();
    (pipelines.good.len() + pipelines.invalid.len(), whole)
}

/// Returns a text as written at a place of a file: escaped if the place is in a quoted YAML scalar that begins on the
/// same line.
fn as_written(text: &str, at: usize, becomes: &str) -> String {
    let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let (mut quote, mut escaped, mut before) = (None, false, ' ');
    for c in text[line..at].chars() {
        match quote {
            Some('"') if escaped => escaped = false,
            Some('"') if c == '\\' => escaped = true,
            Some(open) if c == open => quote = None,
            Some(_) => {}
            // Within a plain scalar a quote is an ordinary character.
            None if matches!(c, '"' | '\'') && !before.is_alphanumeric() => quote = Some(c),
            None => {}
        }
        before = c;
    }
    match quote {
        Some('"') => becomes.replace('\\', "\\\\").replace('"', "\\\""),
        Some(_) => becomes.replace('\'', "''"),
        None => becomes.to_owned(),
    }
}

/// A replacement in a file.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Edit {
    start: usize,
    end: usize,
    becomes: String,
}

/// Returns the possible corrections by file, in order and without overlaps.
fn edits(pipelines: &Pipelines) -> BTreeMap<FileId, Vec<Edit>> {
    let mut edits: BTreeMap<FileId, Vec<Edit>> = BTreeMap::new();
    for fix in pipelines.findings.iter().filter_map(|finding| finding.fix.as_ref()) {
        let file = pipelines.files.get(fix.span.file).filter(|file| file.not_utf8.is_none());
        let Some(range) = file.and_then(|file| fix.range(&file.text)) else { continue };
        let Some(file) = file else { continue };
        let becomes = as_written(&file.text, range.start, &fix.becomes);
        let edit = Edit { start: range.start, end: range.end, becomes };
        edits.entry(fix.span.file).or_default().push(edit);
    }
    for edits in edits.values_mut() {
        edits.sort();
        // Several findings may suggest the same correction of an anchor.
        edits.dedup();
        let mut free = 0;
        edits.retain(|edit| {
            let fits = edit.start >= free;
            free = if fits { edit.end } else { free };
            fits
        });
    }
    edits
}

fn edited(text: &str, edits: &[Edit]) -> String {
    let mut out = String::with_capacity(text.len() + 64);
    let mut at = 0;
    for edit in edits {
        out.push_str(&text[at..edit.start]);
        out.push_str(&edit.becomes);
        at = edit.end;
    }
    out.push_str(&text[at..]);
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SOUND: &str = r#"# Orders, and what becomes of them.
version: "2.2"
pipelines:
  - id: orders # stays
    status: running
    dead-letter-queue: { plugin: log, window-size: 5, window-nack-threshold: 2 }
    connectors:
      - id: in
        type: source
        plugin: file
        settings: { path: orders.txt }   # two spaces
      - id: out
        type: "destination"
        plugin: 'builtin:file'
        settings:
            path: out.ndjson
    processors:
      - id: decode
        plugin: json.decode
        settings:
          field: .Payload.After
      - id: tag
        plugin: field.set
        condition: '{{ and (eq .Operation.String "create") (lt .Payload.After.price 10) }}'
        workers: 2
        settings: { field: .Metadata.cheap, value: "yes" }
"#;

    fn found(text: &str) -> Pipelines {
        let mut files = Files::new();
        files.add("p.yaml", text);
        compiled(files)
    }

    fn compiled(files: Files) -> Pipelines {
        let found = PipelineFiles { files, unreadable: Vec::new() };
        Pipelines::of(found, &registry(), &CompileOptions::default())
    }

    fn registry() -> Registry {
        let mut registry = Registry::new();
        anabranch_ops::register(&mut registry);
        registry
    }

    fn fixed(text: &str) -> (String, Vec<String>) {
        let fixed = fix(found(text), &registry(), &CompileOptions::default());
        let after = fixed.pipelines.files.get(FileId(0)).unwrap().text.to_string();
        (after, fixed.pipelines.findings.iter().map(|finding| finding.message.clone()).collect())
    }

    #[track_caller]
    fn mends(sound: &str, broken: &[(&str, &str)]) {
        let broken = broken.iter().fold(sound.to_owned(), |text, (right, wrong)| {
            assert!(text.contains(right), "{right}");
            text.replacen(right, wrong, 1)
        });
        assert!(!found(&broken).findings.is_empty(), "nothing is wrong with:\n{broken}");
        let (after, left) = fixed(&broken);
        assert_eq!(after, sound, "left: {left:?}");
    }

    #[test]
    fn what_is_sound_stays() {
        assert_eq!(fixed(SOUND), (SOUND.to_owned(), vec![]));
    }

    #[test]
    fn slips_are_mended_and_the_rest_stays() {
        for (right, wrong) in [
            ("        plugin: json.decode", "        type: json.decode"),
            ("        condition:", "        condtion:"),
            ("plugin: json.decode", "plugin: json.decod"),
            ("'builtin:file'", "'builtin:fiel'"),
            ("status: running", "status: Running"),
            ("type: \"destination\"", "type: \"destinatoin\""),
            ("type: source", "type: sorce"),
            ("field: .Payload.After\n", "field: Payload.After\n"),
            ("field: .Payload.After\n", "field: .Paylod.After\n"),
            ("field: .Payload.After\n", "feild: .Payload.After\n"),
            ("workers: 2", "workers: \"2\""),
            ("settings: { path: orders", "setings: { path: orders"),
            ("window-nack-threshold", "window-nack-treshold"),
        ] {
            mends(SOUND, &[(right, wrong)]);
        }
    }

    #[test]
    fn a_correction_keeps_the_quotes_around_it() {
        let condition = |written: &str| {
            SOUND.replacen(r#"'{{ and (eq .Operation.String "create") (lt .Payload.After.price 10) }}'"#, written, 1)
        };
        for (wrong, right) in [
            (r#""{{ eq .Payload.After.name 'tea' }}""#, r#""{{ eq .Payload.After.name \"tea\" }}""#),
            (
                r#""{{ eq .Payload.After.first-name \"a\" }}""#,
                r#""{{ eq (index .Payload.After \"first-name\") \"a\" }}""#,
            ),
        ] {
            let (after, left) = fixed(&condition(wrong));
            let sound = after == condition(right) || after == condition(wrong);
            assert!(sound, "{after}\nleft: {left:?}");
            assert!(!left.iter().any(|message| message.contains("quote")), "{left:?}");
        }
        for (wrong, _) in [(r#""{{ eq .Key \"1\" }}""#, ""), (r#""{{ eq .Payload.After.name 'tea' }}""#, "")] {
            let (after, _) = fixed(&condition(wrong));
            let found = found(&after);
            assert!(found.broken.is_empty() && found.good.len() + found.invalid.len() == 1, "{after}");
        }
    }

    #[test]
    fn what_is_assigned_in_a_script_stays() {
        let script = r#"{ script: "function process(r) { r.Metadata.v = 'opencdc.y'; return r }" }"#;
        let text = SOUND.replacen("plugin: field.set", "plugin: custom.javascript", 1);
        let text =
            text.replacen("settings: { field: .Metadata.cheap, value: \"yes\" }", &format!("settings: {script}"), 1);
        assert!(fixed(&text).0.contains("= 'opencdc.y'"));
    }

    #[test]
    fn what_is_found_behind_a_slip_is_mended_too() {
        let broken =
            [("plugin: json.decode", "type: json.decod"), ("field: .Payload.After\n", "feild: Payload.After\n")];
        mends(SOUND, &broken);
    }

    #[test]
    fn a_version_is_written_where_the_document_begins() {
        let text = SOUND.replacen("version: \"2.2\"\n", "", 1);
        assert_eq!(fixed(&text).0, SOUND);
        let windows = text.replace('\n', "\r\n");
        assert_eq!(fixed(&windows).0, SOUND.replace('\n', "\r\n"));
        let two = format!("---\n{text}---\n{}", text.replace("id: orders", "id: again"));
        let sound = format!("---\n{SOUND}---\n{}", SOUND.replace("id: orders", "id: again"));
        assert_eq!(fixed(&two).0, sound);
        let flow = "{ pipelines: [] }\n";
        assert_eq!(fixed(flow).0, flow);
    }

    #[test]
    fn metadata_get_their_own_names() {
        let own = SOUND.replace(".Metadata.cheap", ".Metadata[\"recfmt.cheap\"]");
        let own = own.replace("field: .Metadata[\"recfmt.cheap\"]", "field: '.Metadata[\"recfmt.cheap\"]'");
        mends(&own, &[("recfmt.cheap", "opencdc.cheap")]);
    }

    #[test]
    fn a_default_of_a_variable_is_text_of_the_file() {
        let sound = SOUND.replace("plugin: json.decode", "plugin: ${NOT_SET_ANYWHERE:-json.decode}");
        mends(&sound, &[(":-json.decode", ":-json.decod")]);
    }

    #[test]
    fn a_correction_that_is_wrong_elsewhere_is_not_made() {
        // The anchor is both a connector, which has a `type`, and a processor.
        let text = SOUND.replace("- id: in\n        type: source", "- &shared\n        id: in\n        type: source")
            + "      - <<: *shared\n        id: more\n";
        let (after, _) = fixed(&text);
        assert_eq!(after, text);
    }

    fn slips() -> impl Strategy<Value = Vec<(usize, u8)>> {
        prop::collection::vec((0..SOUND.len(), 0..4u8), 1..6)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

        /// For any mistake: a correction causes no error, a second correction changes nothing, and comments stay.
        #[test]
        fn corrections_make_nothing_worse(slips in slips()) {
            let mut text: Vec<char> = SOUND.chars().collect();
            for (at, kind) in slips {
                let at = at.min(text.len() - 2);
                match kind {
                    0 => drop(text.remove(at)),
                    1 => text.insert(at, text[at]),
                    2 => text.swap(at, at + 1),
                    _ => text[at] = 'x',
                }
            }
            let text: String = text.into_iter().collect();
            let before = errors(&found(&text));
            let (after, _) = fixed(&text);
            prop_assert!(errors(&found(&after)) <= before, "{text}\nbecame\n{after}");
            prop_assert_eq!(&fixed(&after).0, &after);
            let comments = |text: &str| text.lines().filter_map(|line| Some(line.split_once('#')?.1.to_owned())).collect::<Vec<_>>();
            prop_assert_eq!(comments(&text), comments(&after));
        }
    }
}
