//! YAML documents as trees whose nodes have a place in the file.
//!
//! A serde model would lose information that the checks need: the source text of scalars (`0123`, `1.50`, `on`), the
//! places of keys and of *valid* values, and everything after the first error. Therefore the tree is built from parser
//! events. Anchors are shared, merge keys are applied, and the work is limited for any input.

use std::collections::HashMap;
use std::rc::Rc;

use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics, FileId, Severity, Span};
use anabranch_record::text::Str;
use serde_saphyr::granit_parser::{Event, Options, Parser, ScalarStyle, Span as Range, StructureStyle, Tag};

use super::quote::quoted;
use super::syntax;
use crate::codes;

/// Maximum nesting of lists and maps, including aliases.
const MAX_DEPTH: usize = 64;

/// Maximum total number of bytes that the aliases of a file expand to. An ordinary file cannot reach it; a file with an
/// expansion attack is rejected early.
const MAX_ALIASED_BYTES: usize = 4 << 20;

/// Cost of a node in addition to its text, counted towards [`MAX_ALIASED_BYTES`].
const NODE_BYTES: usize = 16;

/// A node with its place in the file.
#[derive(Debug)]
pub struct Node {
    /// Place in the file.
    pub span: Span,
    /// Content of the node.
    pub value: Value,
    bytes: usize,
    depth: usize,
}

/// Content of a node.
#[derive(Debug)]
pub enum Value {
    /// Empty, `~` or `null`.
    Null,
    /// An untyped scalar.
    Scalar(Scalar),
    /// A list.
    List(Vec<Rc<Node>>),
    /// A map.
    Map(Map),
    /// A node with an error that is already reported.
    Broken,
}

/// A scalar, after unescaping and line folding.
#[derive(Debug)]
pub struct Scalar {
    /// The text.
    pub text: Str,
    pub(super) style: ScalarStyle,
}

impl Scalar {
    /// Returns `true` if the scalar is not quoted and not a block, so that it may be a number or a boolean.
    pub fn is_plain(&self) -> bool {
        self.style == ScalarStyle::Plain
    }
}

/// A map without duplicate keys.
#[derive(Debug, Default)]
pub struct Map {
    /// Entries in file order.
    pub entries: Vec<Entry>,
    /// True if an entry was rejected and reported.
    pub flawed: bool,
    /// True if the map looks like `{{ ... }}`, an unquoted template.
    pub like_template: bool,
}

/// A key with its value.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The key.
    pub key: Str,
    /// Place of the key.
    pub key_span: Span,
    /// The value.
    pub value: Rc<Node>,
}

impl Entry {
    /// Returns the place of the value, or that of the key if the value is empty.
    pub fn value_span(&self) -> Span {
        let span = self.value.span;
        if span.start == span.end { self.key_span } else { span }
    }
}

/// A document of a file.
pub struct Document {
    /// Content, if the document was parsed.
    pub root: Option<Rc<Node>>,
    /// True if the document has errors.
    pub flawed: bool,
}

/// Parses all documents of a file, without a schema. Linear in its size, with limits on nesting and aliases.
pub fn parse(file: FileId, text: &str, findings: &mut Diagnostics) -> Vec<Document> {
    let mut options = Options::default();
    options.set_emit_comments(false);
    options.emit_unresolved_aliases = true;
    options.block_nesting_limit = MAX_DEPTH;
    options.flow_nesting_limit = MAX_DEPTH;
    let mut parser = Parser::new_from_str_with_options(text, options);
    let mut builder = Builder { file, text, aliased_bytes: 0, anchors: HashMap::new(), open: Vec::new(), root: None };
    let mut documents = Vec::new();
    let mut reported = 0;
    while let Some(next) = parser.next_event() {
        let event = next.map_err(|error| syntax::finding(file, text, &error, MAX_DEPTH));
        let done = match event {
            Ok((Event::DocumentEnd, _)) => Some(builder.root.take()),
            Ok((event, range)) => match builder.add(event, range, findings) {
                Ok(()) => None,
                Err(finding) => {
                    findings.push(*finding);
                    Some(None)
                }
            },
            Err(finding) => {
                findings.push(finding);
                Some(None)
            }
        };
        let Some(root) = done else { continue };
        let failed = root.is_none();
        let flawed = findings.0[reported..].iter().any(|finding| finding.severity == Severity::Error);
        reported = findings.0.len();
        documents.push(Document { root, flawed });
        builder.anchors.clear();
        builder.open.clear();
        builder.root = None;
        if failed && !parser.proceed_next_document().unwrap_or(false) {
            break;
        }
    }
    documents
}

/// Builds a document from events, without recursion.
struct Builder<'t> {
    file: FileId,
    text: &'t str,
    aliased_bytes: usize,
    anchors: HashMap<usize, Rc<Node>>,
    open: Vec<Frame>,
    root: Option<Rc<Node>>,
}

struct Frame {
    start: Span,
    anchor: usize,
    content: Content,
}

enum Content {
    List(Vec<Rc<Node>>),
    Map(OpenMap),
}

#[derive(Default)]
struct OpenMap {
    map: Map,
    flow: bool,
    index: HashMap<Str, Span>,
    key: Option<Key>,
    /// True if a dash before a list item is missing. The following duplicate keys belong to that item.
    second_item: bool,
    merged: Vec<Rc<Node>>,
}

enum Key {
    Name(Str, Span),
    Merge,
    Refused,
}

impl Builder<'_> {
    fn span(&self, range: Range) -> Span {
        let limit = self.text.len();
        let start = range.start.byte_offset().unwrap_or(0).min(limit);
        let end = range.end.byte_offset().unwrap_or(0).clamp(start, limit);
        Span { file: self.file, start: start as u32, end: end as u32 }
    }

    fn add(&mut self, event: Event<'_>, range: Range, findings: &mut Diagnostics) -> Result<(), Box<Diagnostic>> {
        let span = self.span(range);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.check_tag(tag.as_deref(), &text, range, findings);
                let node = Rc::new(self.scalar(&text, style, tag.as_deref(), span));
                self.complete(node, anchor, findings)
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.check_tag(tag.as_deref(), "", range, findings);
                self.open(span, anchor, Content::List(Vec::new()))
            }
            Event::MappingStart(style, anchor, tag) => {
                self.check_tag(tag.as_deref(), "", range, findings);
                let flow = style == StructureStyle::Flow;
                self.open(span, anchor, Content::Map(OpenMap { flow, ..OpenMap::default() }))
            }
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(frame) => {
                    let anchor = frame.anchor;
                    let node = Rc::new(self.close(frame, span, findings));
                    self.complete(node, anchor, findings)
                }
                None => Ok(()),
            },
            Event::Alias(anchor) => {
                let Some(node) = self.anchors.get(&anchor).cloned() else {
                    return Err(Box::new(
                        Diagnostic::error(codes::CONFIG_PARSE_ERROR, "the alias is inside the value that it refers to")
                            .with_label(span, "this would repeat endlessly"),
                    ));
                };
                self.aliased_bytes = self.aliased_bytes.saturating_add(node.bytes);
                if self.aliased_bytes > MAX_ALIASED_BYTES {
                    return Err(Box::new(
                        Diagnostic::error(
                            codes::CONFIG_PARSE_ERROR,
                            format!("aliases expand to more than {} MiB", MAX_ALIASED_BYTES >> 20),
                        )
                        .with_label(span, "the limit is exceeded from here on"),
                    ));
                }
                self.complete(node, 0, findings)
            }
            Event::UnresolvedAlias(name) => {
                findings.push(
                    Diagnostic::error(
                        codes::CONFIG_UNKNOWN_ANCHOR,
                        format!("the alias refers to the anchor {}, which is not defined above it", quoted(&name)),
                    )
                    .with_span(span)
                    .with_hint(
                        "an anchor `&name` is valid only in its own document; quote a text that starts with `*`",
                    ),
                );
                let node = Node { span, value: Value::Broken, bytes: NODE_BYTES, depth: 0 };
                self.complete(Rc::new(node), 0, findings)
            }
            _ => Ok(()),
        }
    }

    fn open(&mut self, start: Span, anchor: usize, content: Content) -> Result<(), Box<Diagnostic>> {
        if self.open.len() >= MAX_DEPTH {
            return Err(Box::new(too_deep(start)));
        }
        self.open.push(Frame { start, anchor, content });
        Ok(())
    }

    fn scalar(&self, text: &str, style: ScalarStyle, tag: Option<&Tag>, span: Span) -> Node {
        let is_text = tag.is_some_and(|tag| tag.core_suffix() == Some("str"));
        let empty = span.start == span.end;
        let value = match text {
            "~" | "" | "null" | "Null" | "NULL" if style == ScalarStyle::Plain && !is_text => Value::Null,
            // The parser reports an empty plain scalar as `~`.
            "~" if empty => Value::Scalar(Scalar { text: Str::default(), style }),
            _ => Value::Scalar(Scalar { text: text.into(), style }),
        };
        Node { span: self.trimmed(span), value, bytes: NODE_BYTES + text.len(), depth: 0 }
    }

    /// Returns the span without the line breaks at the end of a block scalar.
    fn trimmed(&self, span: Span) -> Span {
        let text = self.text.get(span.start as usize..span.end as usize).unwrap_or_default();
        Span { end: span.start + text.trim_end().len() as u32, ..span }
    }

    fn close(&self, frame: Frame, end: Span, findings: &mut Diagnostics) -> Node {
        let start = frame.start;
        match frame.content {
            Content::List(items) => {
                // The parser ends a block list at the next token, after blank lines and comments.
                let flow = end.end > end.start;
                let last = items.iter().map(|item| item.span.end).filter(|end| *end > start.start).max();
                Node {
                    span: Span { end: if flow { end.end } else { last.unwrap_or(start.end) }, ..start },
                    bytes: items.iter().fold(NODE_BYTES, |sum, item| sum.saturating_add(item.bytes)),
                    depth: 1 + items.iter().map(|item| item.depth).max().unwrap_or(0),
                    value: Value::List(items),
                }
            }
            Content::Map(OpenMap { mut map, flow, mut index, merged, .. }) => {
                let own = map.entries.iter().flat_map(|entry| [entry.key_span.end, entry.value.span.end]);
                let last = own.filter(|end| *end > start.start).max();
                for node in &merged {
                    merge(node, &mut map, &mut index, findings);
                }
                let bytes = |sum: usize, entry: &Entry| sum.saturating_add(entry.key.len() + entry.value.bytes);
                Node {
                    span: Span { end: if flow { end.end } else { last.unwrap_or(start.end) }, ..start },
                    bytes: map.entries.iter().fold(NODE_BYTES, bytes),
                    depth: 1 + map.entries.iter().map(|entry| entry.value.depth).max().unwrap_or(0),
                    value: Value::Map(map),
                }
            }
        }
    }

    fn complete(&mut self, node: Rc<Node>, anchor: usize, findings: &mut Diagnostics) -> Result<(), Box<Diagnostic>> {
        if node.depth + self.open.len() > MAX_DEPTH {
            return Err(Box::new(too_deep(node.span)));
        }
        if anchor != 0 {
            self.anchors.insert(anchor, Rc::clone(&node));
        }
        match self.open.last_mut() {
            None => self.root = Some(node),
            Some(Frame { content: Content::List(items), .. }) => items.push(node),
            Some(Frame { content: Content::Map(open), .. }) => match open.key.take() {
                None => open.key = Some(open.read_key(&node, self.text, findings)),
                Some(Key::Name(key, key_span)) => open.map.entries.push(Entry { key, key_span, value: node }),
                Some(Key::Merge) => open.merged.push(node),
                Some(Key::Refused) => {}
            },
        }
        Ok(())
    }

    /// Warns about tags other than the standard YAML tags, which have no effect. `text` is the scalar after the tag.
    fn check_tag(&self, tag: Option<&Tag>, text: &str, range: Range, findings: &mut Diagnostics) {
        if let Some(tag) = tag.filter(|tag| tag.core_suffix().is_none()) {
            let span = range.tag_span().map_or_else(|| self.span(range), |range| self.span(range));
            let hint = variable(&tag.original(), text);
            findings.push(
                Diagnostic::warning(
                    codes::CONFIG_TAG_IGNORED,
                    format!("the tag {} has no effect here", quoted(&tag.original())),
                )
                .with_span(span)
                .with_hint(hint.unwrap_or_else(|| "quote a text that starts with `!`".to_owned())),
            );
        }
    }
}

/// Returns a hint on how to write a value that other programs fetch with a tag, such as `!env DATABASE_URL`. A text
/// that may be a secret value itself is not repeated.
fn variable(tag: &str, text: &str) -> Option<String> {
    let is_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    let name = if !text.is_empty() && text.chars().all(is_name) { text } else { "NAME" };
    Some(match tag.trim_start_matches('!').to_ascii_lowercase().as_str() {
        "env" | "envvar" | "env_var" | "environment" | "var" => {
            format!("write `${{{name}}}` for an environment variable")
        }
        "secret" | "vault" => {
            format!("write `${{{name}}}` for a secret, or `${{file:/path/of/the/secret}}` for the content of a file")
        }
        "file" | "include" | "readfile" => "write `${file:/path/of/the/file}` for the content of a file".to_owned(),
        _ => return None,
    })
}

impl OpenMap {
    fn read_key(&mut self, node: &Node, text: &str, findings: &mut Diagnostics) -> Key {
        let name = match &node.value {
            Value::Scalar(scalar) if &*scalar.text == "<<" && scalar.style == ScalarStyle::Plain => {
                return Key::Merge;
            }
            Value::Scalar(scalar) => scalar.text.clone(),
            Value::Null => Str::from_static("~"),
            Value::Broken => {
                self.map.flawed = true;
                return Key::Refused;
            }
            Value::Map(_) if self.flow && self.map.entries.is_empty() => {
                // Reported where the map is used, with its path.
                self.map.like_template = true;
                self.map.flawed = true;
                return Key::Refused;
            }
            Value::List(_) | Value::Map(_) => {
                self.map.flawed = true;
                findings
                    .push(Diagnostic::error(codes::CONFIG_TYPE, "a list or map cannot be a name").with_span(node.span));
                return Key::Refused;
            }
        };
        match self.index.get(&name) {
            None => {
                self.index.insert(name.clone(), node.span);
                Key::Name(name, node.span)
            }
            Some(_) if self.second_item => {
                self.map.flawed = true;
                Key::Refused
            }
            Some(first) => {
                self.map.flawed = true;
                let finding = Diagnostic::error(codes::CONFIG_KEY_DUPLICATE, format!("{} is set twice", quoted(&name)))
                    .with_label(node.span, "set again")
                    .with_related(*first, "first set here");
                self.second_item = name == "id" && !self.flow;
                findings.push(match self.second_item.then(|| with_dash(text, node.span)).flatten() {
                    Some((span, was, becomes)) => finding
                        .with_hint("another item of the list starts with a dash: `- id: …`")
                        .with_fix(span, was, becomes),
                    None => finding,
                });
                Key::Refused
            }
        }
    }
}

/// Returns the edit that replaces two spaces before a name by a dash: its place, the old text and the new text.
pub(super) fn with_dash(text: &str, name: Span) -> Option<(Span, String, String)> {
    let start = name.start.checked_sub(2)?;
    let span = Span { start, ..name };
    let was = text.get(span.start as usize..span.end as usize)?;
    let rest = was.strip_prefix("  ")?;
    Some((span, was.to_owned(), format!("- {rest}")))
}

/// Adds the missing entries of a merged map, or of a list of maps.
fn merge(node: &Node, map: &mut Map, index: &mut HashMap<Str, Span>, findings: &mut Diagnostics) {
    match &node.value {
        Value::Map(from) => {
            map.flawed |= from.flawed;
            for entry in &from.entries {
                if !index.contains_key(&entry.key) {
                    index.insert(entry.key.clone(), entry.key_span);
                    map.entries.push(entry.clone());
                }
            }
        }
        Value::List(nodes) if nodes.iter().all(|node| matches!(node.value, Value::Map(_))) => {
            for node in nodes {
                merge(node, map, index, findings);
            }
        }
        Value::Broken => map.flawed = true,
        Value::Null | Value::Scalar(_) | Value::List(_) => {
            map.flawed = true;
            findings.push(
                Diagnostic::error(codes::CONFIG_TYPE, "`<<` merges a map or a list of maps")
                    .with_span(node.span)
                    .with_hint("write `<<: *name`, where `&name` is before a map"),
            );
        }
    }
}

fn too_deep(span: Span) -> Diagnostic {
    Diagnostic::error(codes::CONFIG_PARSE_ERROR, format!("lists and maps are nested deeper than {MAX_DEPTH}"))
        .with_label(span, "too deep from here on")
}
