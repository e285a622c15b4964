//! Reads the fields of a map: typed, with variables replaced, and with every error reported at its place.

use std::fmt;
use std::ops::Range;

use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics, FileId, Severity, Span, Spanned};
use anabranch_plugin::secret::{literals, names_a_credential};
use anabranch_plugin::written::{TextMapping, Written};
use serde_saphyr::granit_parser::ScalarStyle;

use super::interpolate::{Dialect, Interpolated, Resolver};
use super::quote::quoted;
use super::yaml::{Entry, Map, Node, Scalar, Value};
use crate::codes;

/// Proof that an error has been reported.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reported;

/// Result of reading a field that may be absent or invalid.
pub(super) type Field<T> = Result<Option<T>, Reported>;

/// A JSON pointer that is formatted only when needed.
#[derive(Clone, Copy)]
pub(super) struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: PathSegment<'a>,
}

#[derive(Clone, Copy)]
enum PathSegment<'a> {
    Root,
    Name(&'a str),
    Index(usize),
}

impl<'a> Path<'a> {
    /// Returns the path of the pipeline itself.
    pub(super) const fn root() -> Self {
        Path { parent: None, step: PathSegment::Root }
    }

    /// Returns the path of a field.
    pub(super) fn name(&'a self, name: &'a str) -> Path<'a> {
        Path { parent: Some(self), step: PathSegment::Name(name) }
    }

    /// Returns the path of a list item.
    pub(super) fn index(&'a self, index: usize) -> Path<'a> {
        Path { parent: Some(self), step: PathSegment::Index(index) }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.step {
            PathSegment::Root => Ok(()),
            PathSegment::Name(name) => write!(f, "/{}", name.replace('~', "~0").replace('/', "~1")),
            PathSegment::Index(index) => write!(f, "/{index}"),
        }
    }
}

/// State of reading files: the current file, the variables and the findings.
pub(super) struct FieldReader<'a> {
    pub(super) file: FileId,
    /// Name of the file.
    pub(super) name: &'a str,
    pub(super) source: &'a str,
    pub(super) resolver: Resolver<'a>,
    pub(super) findings: Diagnostics,
    errors: usize,
}

impl<'a> FieldReader<'a> {
    pub(super) fn new(file: FileId, name: &'a str, source: &'a str, resolver: Resolver<'a>) -> Self {
        FieldReader { file, name, source, resolver, findings: Diagnostics::new(), errors: 0 }
    }

    /// Switches to another file.
    pub(super) fn turn_to(&mut self, file: FileId, name: &'a str, source: &'a str) {
        (self.file, self.name, self.source) = (file, name, source);
    }

    /// Returns the number of errors, including errors that the YAML parser reported.
    pub(super) fn errors(&self) -> usize {
        self.errors
    }

    /// Adds a finding.
    pub(super) fn report(&mut self, finding: Diagnostic) -> Reported {
        self.errors += usize::from(finding.severity == Severity::Error);
        self.findings.push(finding);
        Reported
    }

    /// Counts an error that the YAML parser reported.
    fn met_reported(&mut self) -> Reported {
        self.errors += 1;
        Reported
    }

    /// Opens a map to read its fields.
    pub(super) fn object<'n>(
        &mut self,
        node: &'n Node,
        span: Span,
        what: &str,
        path: Path<'_>,
    ) -> Result<Object<'n>, Reported> {
        let map = match &node.value {
            Value::Map(map) => map,
            Value::Broken => return Err(self.met_reported()),
            other => return Err(self.wrong_type(other, span, what, "a map of fields", path)),
        };
        if map.like_template {
            return Err(self.wrong_type(&node.value, span, what, "a map of fields", path));
        }
        if map.flawed {
            self.met_reported();
        }
        Ok(Object { map, span: node.span, taken: vec![false; map.entries.len()] })
    }

    /// Reports a value of the wrong type.
    pub(super) fn wrong_type(
        &mut self,
        value: &Value,
        span: Span,
        what: &str,
        wanted: &str,
        path: Path<'_>,
    ) -> Reported {
        let (found, hint) = match value {
            Value::Null => ("nothing", None),
            Value::Scalar(_) => ("a single value", None),
            Value::List(_) => ("a list", None),
            Value::Map(map) if map.like_template => {
                ("a map", Some("a text that starts with `{{` must be quoted: '{{ ... }}'"))
            }
            Value::Map(_) => ("a map", None),
            Value::Broken => return self.met_reported(),
        };
        let mut finding = Diagnostic::error(codes::CONFIG_TYPE, format!("{what} must be {wanted}, not {found}"))
            .with_span(span)
            .with_path(path.to_string());
        finding.hint = hint.map(str::to_owned);
        let written = self.source.get(span.start as usize..span.end as usize).unwrap_or_default();
        self.report(match value {
            Value::Map(map) if map.like_template && written.starts_with("{{") && !written.contains(['\'', '\n']) => {
                finding.with_fix(span, written, format!("'{written}'"))
            }
            _ => finding,
        })
    }

    /// Returns the text of a scalar with its variables replaced.
    pub(super) fn interpolate(
        &mut self,
        scalar: &Scalar,
        span: Span,
        dialect: Dialect,
        path: Path<'_>,
    ) -> Result<Interpolated, Reported> {
        let source = self.source.get(span.start as usize..span.end as usize).unwrap_or_default();
        let quote = match scalar.style {
            ScalarStyle::SingleQuoted => Some('\''),
            ScalarStyle::DoubleQuoted => Some('"'),
            _ => None,
        };
        let layout = TextMapping::of_scalar(source, span.start, &scalar.text, quote);
        let read = self.resolver.interpolate(&scalar.text, span, layout, dialect);
        let (read, findings) = match read {
            Ok(mut read) => {
                let warnings = std::mem::take(&mut read.warnings);
                (Ok(read), warnings)
            }
            Err(findings) => (Err(Reported), findings),
        };
        for mut finding in findings {
            let path = path.to_string();
            // The plugin is not known here, and so not whether the setting is secret.
            let name = path.rsplit('/').next().unwrap_or_default();
            if names_a_credential(name) || name.starts_with("auth.") {
                let place = |at: Range<usize>| {
                    let [start, end] = [at.start, at.end].map(|at| span.start + at as u32);
                    Span { start, end, ..span }
                };
                finding.credentials = literals(source).map(place).collect();
            }
            self.report(finding.with_path(path));
        }
        read
    }

    /// Reads a text; `None` if the field has no value.
    pub(super) fn text(&mut self, entry: &Entry, path: Path<'_>) -> Field<Written> {
        match &entry.value.value {
            Value::Null => Ok(None),
            Value::Scalar(scalar) => {
                self.interpolate(scalar, entry.value.span, Dialect::Value, path).map(|read| Some(read.text))
            }
            other => Err(self.wrong_type(other, entry.value_span(), &quoted(&entry.key), "a text", path)),
        }
    }

    /// Reads a text that must be present and not blank.
    pub(super) fn required(
        &mut self,
        object: &mut Object<'_>,
        name: &str,
        of: &dyn fmt::Display,
        path: Path<'_>,
    ) -> Result<Written, Reported> {
        let path = path.name(name);
        let entry = object.take(name);
        let text = match entry {
            Some(entry) => self.text(entry, path)?,
            None => None,
        };
        match text.filter(|text| !text.value().trim().is_empty()) {
            Some(text) => Ok(text),
            None => {
                let finding = Diagnostic::error(codes::CONFIG_FIELD_REQUIRED, format!("{of}: {name:?} is required"))
                    .with_span(entry.map_or(object.head(), Entry::value_span))
                    .with_path(path.to_string());
                let of = of.to_string();
                let hint = match (name, of.split(' ').next()) {
                    ("id", _) => {
                        let example = of.replace(' ', "-");
                        format!(
                            "write `id: {example}`, or another name that does not change: the state is stored under it"
                        )
                    }
                    ("type", Some("connector")) => "write `type: source` or `type: destination`".to_owned(),
                    (_, Some("connector")) => {
                        "write, for example, `plugin: file`; `anabranch connectors list` shows all plugins".to_owned()
                    }
                    (_, Some("processor")) => {
                        format!(
                            "write, for example, `{name}: field.set`; `anabranch processors list` shows all plugins"
                        )
                    }
                    _ => {
                        "write, for example, `plugin: store`; `anabranch connectors list` shows all plugins".to_owned()
                    }
                };
                Err(self.report(finding.with_hint(hint)))
            }
        }
    }

    /// Reads an integer from 0 to `max`.
    pub(super) fn number(&mut self, entry: &Entry, max: u64, path: Path<'_>) -> Field<Spanned<u64>> {
        let scalar = match &entry.value.value {
            Value::Null => return Ok(None),
            Value::Scalar(scalar) => scalar,
            other => {
                return Err(self.wrong_type(other, entry.value_span(), &quoted(&entry.key), "a whole number", path));
            }
        };
        let span = entry.value.span;
        let Interpolated { text, whole, .. } = self.interpolate(scalar, span, Dialect::Value, path)?;
        let plain = scalar.style == ScalarStyle::Plain && !scalar.text.contains("${");
        let number = core_integer(text.value());
        let invalid = |message: String| {
            Diagnostic::error(codes::CONFIG_FIELD_INVALID, message).with_span(span).with_path(path.to_string())
        };
        let (key, shown) = (&entry.key, quoted(text.written()));
        let finding = match number {
            Some(number) if plain || whole => match u64::try_from(number) {
                Ok(number) if number <= max => return Ok(Some(Spanned::new(number, span))),
                Ok(_) => invalid(format!("{key:?} is {shown}, but must be at most {max}")),
                Err(_) if number < 0 => invalid(format!("{key:?} is {shown}, but must not be negative")),
                Err(_) => invalid(format!("{key:?} is {shown}, but must be at most {max}")),
            },
            Some(_) if text.is_substituted() => invalid(format!("{key:?} is {shown}, but must be a whole number"))
                .with_hint("write a number, or a single `${NAME}` for the whole number"),
            Some(number) => {
                let finding = invalid(format!("{key:?} is the text {shown}, but must be a whole number"))
                    .with_hint("remove the quotes");
                let written = self.source.get(span.start as usize..span.end as usize);
                let fits = u64::try_from(number).is_ok_and(|number| number <= max);
                match written.filter(|written| fits && written.starts_with(['"', '\''])) {
                    Some(written) => finding.with_fix(span, written, number.to_string()),
                    None => finding,
                }
            }
            None => invalid(format!("{key:?} is {shown}, but must be a whole number")),
        };
        Err(self.report(finding))
    }

    /// Checks that a value is a boolean.
    pub(super) fn check_boolean(&mut self, name: &str, text: &Written, path: Path<'_>) -> Result<(), Reported> {
        match &**text.value() {
            "true" | "True" | "TRUE" | "false" | "False" | "FALSE" => Ok(()),
            other => {
                let mut finding = Diagnostic::error(
                    codes::CONFIG_FIELD_INVALID,
                    format!("{name:?} is {}, but must be true or false", quoted(text.written())),
                )
                .with_span(text.span())
                .with_path(path.to_string());
                finding.hint = match other.to_ascii_lowercase().as_str() {
                    "yes" | "on" | "y" => Some("in YAML 1.2 this is a text: write true".to_owned()),
                    "no" | "off" | "n" => Some("in YAML 1.2 this is a text: write false".to_owned()),
                    _ => None,
                };
                Err(self.report(finding))
            }
        }
    }

    /// Rejects texts longer than `max` bytes.
    pub(super) fn check_len(
        &mut self,
        of: &dyn fmt::Display,
        name: &str,
        text: &Written,
        max: usize,
        path: Path<'_>,
    ) -> Result<(), Reported> {
        let len = text.value().len();
        if len <= max {
            return Ok(());
        }
        let path = path.name(name);
        let finding = Diagnostic::error(
            codes::CONFIG_FIELD_TOO_LONG,
            format!("{of}: {name:?} has {len} bytes, at most {max} are allowed"),
        )
        .with_span(text.span())
        .with_path(path.to_string());
        Err(self.report(finding))
    }
}

/// A map that tracks which of its fields were read.
pub(super) struct Object<'n> {
    map: &'n Map,
    span: Span,
    taken: Vec<bool>,
}

impl<'n> Object<'n> {
    fn position(&self, name: &str) -> Option<usize> {
        self.map.entries.iter().position(|entry| entry.key == *name)
    }

    /// Returns a field without marking it as read.
    pub(super) fn get(&self, name: &str) -> Option<&'n Entry> {
        self.position(name).map(|at| &self.map.entries[at])
    }

    /// Returns a field and marks it as read.
    pub(super) fn take(&mut self, name: &str) -> Option<&'n Entry> {
        let at = self.position(name)?;
        self.taken[at] = true;
        Some(&self.map.entries[at])
    }

    /// Returns all fields whose name starts with `prefix`, and marks them as read.
    pub(super) fn take_prefixed(&mut self, prefix: &str) -> Vec<&'n Entry> {
        let entries = self.map.entries.iter().zip(&mut self.taken).filter(|(entry, _)| entry.key.starts_with(prefix));
        entries
            .map(|(entry, taken)| {
                *taken = true;
                entry
            })
            .collect()
    }

    /// Returns the fields that were not read.
    pub(super) fn untaken(&self) -> impl Iterator<Item = &'n Entry> {
        self.map.entries.iter().zip(&self.taken).filter(|(_, taken)| !**taken).map(|(entry, _)| entry)
    }

    /// Returns all fields.
    pub(super) fn entries(&self) -> &'n [Entry] {
        &self.map.entries
    }

    /// Returns the place of the whole map.
    pub(super) fn span(&self) -> Span {
        self.span
    }

    /// Returns the place at which a missing field is reported: the name of the first field.
    pub(super) fn head(&self) -> Span {
        let first = self.map.entries.first().map(|entry| entry.key_span);
        first.unwrap_or(self.span)
    }
}

/// Parses an integer of the YAML 1.2 core schema.
fn core_integer(text: &str) -> Option<i128> {
    let digits = |text: &str, radix: u32| {
        let valid = !text.is_empty() && text.chars().all(|c| c.is_digit(radix));
        valid.then(|| i128::from_str_radix(text, radix).unwrap_or(i128::MAX))
    };
    if let Some(text) = text.strip_prefix("0o") {
        return digits(text, 8);
    }
    if let Some(text) = text.strip_prefix("0x") {
        return digits(text, 16);
    }
    match text.strip_prefix('-') {
        Some(text) => digits(text, 10).map(|number| -number),
        None => digits(text.strip_prefix('+').unwrap_or(text), 10),
    }
}
