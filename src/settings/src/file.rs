//! Reading `anabranch.yaml`: dotted keys, nested maps, or both.

use std::cell::RefCell;
use std::fmt;

use anabranch_config::{Variables, value_of};
use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics, FileId, Span};
use anabranch_record::near::did_you_mean;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

use crate::codes;
use crate::declaration::{KEYS, REPLACED, SettingKey, SettingType, find};

/// A setting in the file.
#[derive(Debug)]
pub(super) struct FileEntry {
    pub(super) key: &'static SettingKey,
    pub(super) text: String,
    /// The value before the replacement of variables, if it contains any.
    pub(super) written: Option<String>,
    /// Place of the value.
    pub(super) span: Span,
}

/// Reads the file, with variables as in pipeline files. Unknown keys are warnings; all other problems are errors.
pub(super) fn read(file: FileId, text: &str, variables: &dyn Variables) -> (Vec<FileEntry>, Diagnostics) {
    let mut reading = Reading { file, entries: Vec::new(), findings: Diagnostics::new(), text, variables };
    match serde_saphyr::from_str::<Option<Spanned<Node>>>(text) {
        Ok(None) => {}
        Ok(Some(root)) => reading.walk("", &root),
        Err(error) => {
            let span = error.location().map_or(Span { file, start: 0, end: 0 }, |at| reading.place(&at));
            reading.findings.push(match second_document(text) {
                Some(at) => {
                    let message = "the file contains two documents: `---` begins another one";
                    let span = Span { file, start: at as u32, end: at as u32 + 3 };
                    Diagnostic::error(codes::SERVICE_PARSE_ERROR, message)
                        .with_span(span)
                        .with_hint("remove the line, so that all settings are in one document")
                }
                None => {
                    let message = format!("not valid YAML: {}", plain(&error.without_snippet().to_string()));
                    Diagnostic::error(codes::SERVICE_PARSE_ERROR, message).with_span(span)
                }
            });
        }
    }
    (reading.entries, reading.findings)
}

/// Returns the offset of the line `---` that begins a second document.
fn second_document(text: &str) -> Option<usize> {
    let (mut at, mut begun) = (0, false);
    for line in text.split_inclusive('\n') {
        let content = line.trim();
        if line.strip_prefix("---").is_some_and(|rest| rest.trim().is_empty() || rest.starts_with([' ', '\t'])) {
            if begun {
                return Some(at);
            }
            begun = content.len() > 3;
        } else {
            begun |= !content.is_empty() && !content.starts_with(['#', '%']);
        }
        at += line.len();
    }
    None
}

/// Shortens a message of the YAML library: without the place, which is shown separately, and without advice for
/// programmers.
fn plain(message: &str) -> &str {
    let message = message.rsplit_once(" at line ").map_or(message, |(what, _)| what);
    let message = message.split(", set DuplicateKeyPolicy").next().unwrap_or(message);
    message.strip_suffix(" rejected by the configured policy").unwrap_or(message)
}

struct Reading<'a> {
    file: FileId,
    text: &'a str,
    variables: &'a dyn Variables,
    entries: Vec<FileEntry>,
    findings: Diagnostics,
}

impl Reading<'_> {
    fn span(&self, at: &serde_saphyr::Location) -> Span {
        let end_of_text = self.text.len() as u64;
        let start = at.span().byte_offset().unwrap_or(0).min(end_of_text);
        let end = (start + at.span().byte_len().unwrap_or(0)).min(end_of_text);
        Span { file: self.file, start: start as u32, end: end as u32 }
    }

    /// Returns the span of an error, which may only have a line and a column.
    fn place(&self, at: &serde_saphyr::Location) -> Span {
        let span = self.span(at);
        if (span.start, span.end) != (0, 0) {
            return span;
        }
        let lines = self.text.split_inclusive('\n');
        let before: usize = lines.take((at.line() as usize).saturating_sub(1)).map(str::len).sum();
        let line = self.text[before..].lines().next().unwrap_or_default();
        let column = (at.column() as usize).saturating_sub(1);
        let start = before + line.char_indices().nth(column).map_or(line.len(), |(at, _)| at);
        Span { file: self.file, start: start as u32, end: start as u32 }
    }

    fn walk(&mut self, prefix: &str, node: &Spanned<Node>) {
        let span = self.span(&node.referenced);
        let at_key = find(prefix);
        match (&node.value, at_key) {
            (Node::Map(pairs), None) => {
                for (name, value) in pairs {
                    let path = if prefix.is_empty() { name.value.clone() } else { format!("{prefix}.{}", name.value) };
                    let known = KEYS.iter().any(|k| {
                        k.name == path || k.name.strip_prefix(&path).is_some_and(|rest| rest.starts_with('.'))
                    });
                    if known && path != "config" {
                        self.walk(&path, value);
                    } else {
                        let span = self.span(&name.referenced);
                        self.unknown(&path, span);
                    }
                }
            }
            (Node::Scalar(text), Some(key)) => {
                // Text settings keep the text as written if YAML would convert it to a number or a boolean, such as
                // `no`.
                let is_text = matches!(key.kind, SettingType::Text | SettingType::Path);
                let is_converted = matches!(text.as_str(), "true" | "false") || text.parse::<i128>().is_ok();
                let written = self.text.get(span.start as usize..span.end as usize).map(str::trim);
                let is_plain = |written: &&str| written.starts_with(|c: char| c.is_alphanumeric() || "+-.".contains(c));
                let as_written = written.filter(is_plain).filter(|_| is_text && is_converted);
                self.take(key, as_written.unwrap_or(text).to_owned(), span);
            }
            (Node::Float(value), Some(key)) => {
                // As written, because a float does not hold every digit of an integer.
                let written = self.text[span.start as usize..span.end as usize].trim();
                // Text settings keep the text as written if YAML would convert it to a number, such as `.inf`.
                let is_text = matches!(key.kind, SettingType::Text | SettingType::Path);
                let text =
                    if is_text || written.parse() == Ok(*value) { written.to_owned() } else { value.to_string() };
                self.take(key, text, span);
            }
            (Node::List(items), Some(key)) if matches!(key.kind, SettingType::List) => {
                let texts: Option<Vec<&str>> = items.iter().map(|i| i.value.scalar()).collect();
                match texts {
                    Some(texts) => self.take(key, texts.join(","), span),
                    None => self.wrong_shape(prefix, span),
                }
            }
            (Node::Null, _) => {}
            (Node::Map(_) | Node::List(_), Some(_)) | (Node::Scalar(_) | Node::Float(_) | Node::List(_), None) => {
                self.wrong_shape(prefix, span);
            }
        }
    }

    fn take(&mut self, key: &'static SettingKey, text: String, span: Span) {
        match self.entries.iter().find(|e| e.key.name == key.name) {
            Some(first) => self.findings.push(
                Diagnostic::error(codes::SERVICE_DUPLICATE_KEY, format!("{} is set twice", key.name))
                    .with_span(span)
                    .with_related(first.span, "set here already"),
            ),
            None => match self.replaced(text, span) {
                Ok((text, written)) => self.entries.push(FileEntry { key, text, written, span }),
                Err(findings) => self.findings.extend(findings),
            },
        }
    }

    /// Returns a value with its variables replaced, and the original text if it contained variables.
    fn replaced(&self, text: String, span: Span) -> Result<(String, Option<String>), Diagnostics> {
        if !text.contains("${") {
            return Ok((text, None));
        }
        let recorded = Recorded { variables: self.variables, missing: RefCell::default() };
        if let Some(value) = value_of(&text.as_str().into(), &recorded) {
            return Ok((value.value().to_string(), value.is_substituted().then_some(text)));
        }
        let missing = recorded.missing.into_inner();
        if missing.is_empty() {
            let finding = Diagnostic::error(
                codes::CONFIG_VARIABLE_INVALID,
                format!("{text:?} contains an invalid variable reference"),
            )
            .with_span(span)
            .with_hint("write `${NAME}`, `${NAME:-default}` or `${file:PATH}`; or `$${` for a literal `${`");
            return Err(Diagnostics::from(finding));
        }
        let mut findings = Diagnostics::new();
        missing.into_iter().for_each(|finding| findings.push(finding.with_span(span)));
        Err(findings)
    }

    fn wrong_shape(&mut self, path: &str, span: Span) {
        let message = if path.is_empty() {
            "the file must contain settings of the form `name: value`".to_owned()
        } else {
            match find(path) {
                Some(key) => format!("{path} must be a single value ({})", key.kind.describe()),
                None => format!("{path} is a group of settings, not a setting"),
            }
        };
        self.findings.push(Diagnostic::error(codes::SERVICE_WRONG_TYPE, message).with_span(span));
    }

    fn unknown(&mut self, path: &str, span: Span) {
        let finding =
            Diagnostic::warning(codes::SERVICE_UNKNOWN_KEY, format!("there is no setting {path:?}; it is ignored"))
                .with_span(span);
        let hint = if path == "config.path" || path == "config" {
            Some("set the path of this file with --config.path or ANABRANCH_CONFIG_PATH".to_owned())
        } else if let Some((_, new)) = REPLACED.iter().find(|(old, _)| *old == path) {
            Some(format!("use {new}"))
        } else {
            did_you_mean(path, KEYS.iter().map(|k| k.name)).map(|near| format!("did you mean {near}?"))
        };
        self.findings.push(match hint {
            Some(hint) => finding.with_hint(hint),
            None => finding,
        });
    }
}

/// Variables, and findings about those without a value.
struct Recorded<'a> {
    variables: &'a dyn Variables,
    missing: RefCell<Vec<Diagnostic>>,
}

impl Variables for Recorded<'_> {
    fn variable(&self, name: &str) -> Option<String> {
        let value = self.variables.variable(name);
        if value.is_none() {
            let finding =
                Diagnostic::error(codes::CONFIG_VARIABLE_UNSET, format!("the environment variable {name} is not set"));
            let hint = format!("set it, or write `${{{name}:-default}}` for a default");
            self.missing.borrow_mut().push(finding.with_hint(hint));
        }
        value
    }

    fn file(&self, path: &str) -> Result<String, String> {
        self.variables.file(path).inspect_err(|why| {
            let finding = Diagnostic::error(codes::CONFIG_VARIABLE_FILE, format!("{path:?} cannot be read: {why}"));
            self.missing.borrow_mut().push(finding);
        })
    }
}

/// A YAML value with spans. Scalars are kept as text, because settings have types of their own.
#[derive(Debug)]
enum Node {
    Null,
    Scalar(String),
    Float(f64),
    List(Vec<Spanned<Node>>),
    Map(Vec<(Spanned<String>, Spanned<Node>)>),
}

impl Node {
    fn scalar(&self) -> Option<&str> {
        match self {
            Node::Scalar(text) => Some(text),
            Node::Null | Node::Float(_) | Node::List(_) | Node::Map(_) => None,
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyNode;
        impl<'de> Visitor<'de> for AnyNode {
            type Value = Node;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value, a list or a map")
            }
            fn visit_unit<E>(self) -> Result<Node, E> {
                Ok(Node::Null)
            }
            fn visit_none<E>(self) -> Result<Node, E> {
                Ok(Node::Null)
            }
            fn visit_some<D: Deserializer<'de>>(self, d: D) -> Result<Node, D::Error> {
                d.deserialize_any(AnyNode)
            }
            fn visit_bool<E>(self, v: bool) -> Result<Node, E> {
                Ok(Node::Scalar(v.to_string()))
            }
            fn visit_i64<E>(self, v: i64) -> Result<Node, E> {
                Ok(Node::Scalar(v.to_string()))
            }
            fn visit_u64<E>(self, v: u64) -> Result<Node, E> {
                Ok(Node::Scalar(v.to_string()))
            }
            fn visit_f64<E>(self, v: f64) -> Result<Node, E> {
                Ok(Node::Float(v))
            }
            fn visit_str<E>(self, v: &str) -> Result<Node, E> {
                Ok(Node::Scalar(v.to_owned()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    items.push(item);
                }
                Ok(Node::List(items))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Node::Map(pairs))
            }
        }
        deserializer.deserialize_any(AnyNode)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// No variables and no files.
    pub(crate) struct Nothing;

    impl Variables for Nothing {
        fn variable(&self, _: &str) -> Option<String> {
            None
        }
        fn file(&self, _: &str) -> Result<String, String> {
            Err("not there".to_owned())
        }
    }

    fn read(file: FileId, text: &str) -> (Vec<FileEntry>, Diagnostics) {
        super::read(file, text, &Nothing)
    }

    fn read_text(text: &str) -> (Vec<(&'static str, String)>, Vec<String>) {
        let (entries, findings) = read(FileId(0), text);
        (
            entries.into_iter().map(|e| (e.key.name, e.text)).collect(),
            findings
                .into_iter()
                .map(|d| {
                    let at =
                        d.label.map_or("", |l| text.get(l.span.start as usize..l.span.end as usize).unwrap_or("?"));
                    format!("{} [{at}] {}", d.message, d.hint.unwrap_or_default())
                })
                .collect(),
        )
    }

    #[test]
    fn what_is_no_yaml_is_said_plainly_and_where_it_stands() {
        let errors = |text: &str| {
            let findings = read(FileId(0), text).1;
            findings.into_iter().map(|d| (d.label.unwrap().span.start, d.message)).collect::<Vec<_>>()
        };
        let tab = "not valid YAML: tabs disallowed within this context (block indentation)".to_owned();
        assert_eq!(errors("db:\n\tpath: x\n"), [(5, tab)]);
        assert_eq!(
            errors("db.path: a\ndb.path: b\n"),
            [(11, "not valid YAML: duplicate mapping key: db.path".to_owned())]
        );
        assert_eq!(errors("ö: 1e400\n"), [(4, "not valid YAML: non-finite float `1e400`".to_owned())]);
        assert_eq!(errors("db: [\n"), [(4, "not valid YAML: unclosed bracket '['".to_owned())]);
    }

    #[test]
    fn a_second_document_is_told_where_it_begins() {
        for text in ["db.path: a\n---\ndb.path: b\n", "---\ndb.path: a\n--- # more\ndb.path: b\n"] {
            let findings = read(FileId(0), text).1;
            let [finding] = &findings.into_iter().collect::<Vec<_>>()[..] else { panic!("{text:?}") };
            assert_eq!(finding.message, "the file contains two documents: `---` begins another one");
            let at = finding.label.as_ref().unwrap().span.start as usize;
            assert_eq!((Some(at), &text[at..at + 3]), (text.rfind("---"), "---"), "{text:?}");
        }
        assert!(read(FileId(0), "# settings\n---\ndb.path: a\n").1.is_empty());
    }

    #[test]
    fn numbers_are_kept_as_written_and_lists_are_for_lists() {
        let (entries, _) = read_text("engine.replay-rows: 99999999999999999999\n");
        assert_eq!(entries, [("engine.replay-rows", "99999999999999999999".to_owned())]);
        let (entries, findings) = read_text("db.path: [1, 2]\n");
        assert_eq!(entries, []);
        assert!(findings[0].starts_with("db.path must be a single value"), "{findings:?}");
    }

    #[test]
    fn texts_are_kept_as_written() {
        for text in ["no", "yes", "0x10", "0o17", "1_000", "007", "+5", "true", "12"] {
            let (entries, findings) = read_text(&format!("db.path: {text} # kept\n"));
            assert_eq!((entries, findings), (vec![("db.path", text.to_owned())], vec![]));
        }
        assert_eq!(read_text("db.path: 'no'\n").0, [("db.path", "no".to_owned())]);
    }

    #[test]
    fn dotted_and_nested_keys_mean_the_same() {
        let (entries, findings) = read_text("db.path: /a\nlog:\n  level: debug\napi:\n  http.address: :1\n");
        assert_eq!(
            entries,
            [("db.path", "/a".to_owned()), ("log.level", "debug".to_owned()), ("api.http.address", ":1".to_owned())]
        );
        assert!(findings.is_empty(), "{findings:?}");
    }

    #[test]
    fn lists_are_joined_and_empty_files_are_empty() {
        let (entries, _) = read_text("processors.egress.allow: [a, b]\n");
        assert_eq!(entries, [("processors.egress.allow", "a,b".to_owned())]);
        assert_eq!(read_text("# only a comment\n"), (vec![], vec![]));
        assert_eq!(read_text(""), (vec![], vec![]));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        assert_eq!(
            read_text("db.pth: x\ndb.badger.path: y\nlog:\n  levle: info\n").1,
            [
                "there is no setting \"db.pth\"; it is ignored [db.pth] did you mean db.path?",
                "there is no setting \"db.badger.path\"; it is ignored [db.badger.path] use db.path",
                "there is no setting \"log.levle\"; it is ignored [levle] did you mean log.level?",
            ]
        );
        assert_eq!(read_text("log: 3\n").1, ["log is a group of settings, not a setting [3] "]);
        let (_, findings) = read_text("db.path: a\ndb:\n  path: b\n");
        assert_eq!(findings, ["db.path is set twice [b] "]);
        let (_, findings) = read_text("db: [unclosed\n");
        assert!(findings[0].starts_with("not valid YAML"), "{findings:?}");
    }
}
