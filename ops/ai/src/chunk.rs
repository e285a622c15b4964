//! `ai.chunk`: splits a text into chunks.

mod cut;
mod pack;

use std::sync::Arc;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{Fields, Flow, Kinds, Shape, Type};
use anabranch_plugin::host::Host;
use anabranch_plugin::operator::{
    BuiltOperator, ConfiguredOperator, Decision, Fan, Operator, OperatorKind, Pieces, Rows, Signature,
};
use anabranch_plugin::parameters::{Argument, Choice, Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::access::Access;
use anabranch_record::fault::Fault;
use anabranch_record::reference::{Reference, Side, Target};
use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Record};
use sha2::{Digest, Sha256};

use crate::codes;
use crate::question::output;
use crate::text::text_at;
use cut::Cut;
use pack::pack;

const ID: Str = Str::from_static("ai.chunk.id");
const SOURCE_KEY: Str = Str::from_static("ai.chunk.source_key");
const INDEX: Str = Str::from_static("ai.chunk.index");
const COUNT: Str = Str::from_static("ai.chunk.count");

/// Returns the `ai.chunk` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    let specification = Specification::builtin("ai.chunk", "Splits a text into chunks.")
        .describe(
            "Splits the text in `inputField` into chunks of at most `chunkSize`. The last `overlap` of a chunk \
             are repeated at the start of the next one. White space around a chunk is removed and does not count; \
             a text without content has no chunks.\n\n\
             | `strategy` | splits | unit of sizes |\n\
             | --- | --- | --- |\n\
             | `recursive` | at paragraphs, lines, sentences or words: the largest that fits | characters |\n\
             | `markdown` | at headings, then at blocks, never inside a code block that fits | characters |\n\
             | `sentences` | between sentences, as defined by Unicode | sentences |\n\
             | `tokens` | between words; models count about four tokens for three words | words |\n\
             | `characters` | between any two characters as readers see them | characters |\n\n\
             With `emit: records`, each chunk is a record, with its text in `outputField` in place of the whole \
             text. Its metadata contains `ai.chunk.id`, `ai.chunk.index`, `ai.chunk.count` and \
             `ai.chunk.source_key`. With `emit: list`, there is one record, with a list of `{id, index, text}` in \
             `outputField`.\n\n\
             `emit: records`, the default, needs `--preview.pipeline-arch-v2`; `emit: list` does not.\n\n\
             The id is a UUID derived from a hash of the source key, the index and the text. Indexing the same \
             document again gives the same ids, so that an upsert replaces its chunks.",
        )
        .with_all(shared::processor());
    anabranch_plugin::kind::operator(specification, configure)
}

#[derive(Parameters)]
struct Settings {
    /// How the text is cut.
    #[parameter(default = "recursive")]
    strategy: Cut,
    /// Maximum size of a chunk, in the unit of the strategy.
    #[parameter(default = 1000, aliases = ["size"], greater_than = 0)]
    chunk_size: usize,
    /// Maximum size of a chunk's end that is repeated in the next one.
    #[parameter(default = 0, greater_than = -1)]
    overlap: Argument<usize>,
    /// The text.
    #[parameter(default = ".Payload.After", within = [".Key", ".Payload"])]
    input_field: Reference,
    /// Field for the text of a chunk, or for the list of chunks.
    #[parameter(default = ".Payload.After.text", within = [".Key", ".Payload"])]
    output_field: Argument<Reference>,
    /// Field that identifies the document.
    #[parameter(default = ".Key")]
    source_key: Reference,
    /// Output: a record per chunk, or a list.
    #[parameter(default = "records")]
    emit: Emit,
}

#[derive(Clone, Copy, PartialEq)]
enum Emit {
    Records,
    List,
}

impl Choice for Emit {
    const CHOICES: &'static [(&'static str, Self)] = &[("records", Emit::Records), ("list", Emit::List)];
}

impl Choice for Cut {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("recursive", Cut::Recursive),
        ("markdown", Cut::Markdown),
        ("sentences", Cut::Sentences),
        ("tokens", Cut::Words),
        ("characters", Cut::Characters),
    ];
}

fn configure(settings: Settings) -> Result<Arc<dyn ConfiguredOperator>, Diagnostics> {
    let chunk = Chunk {
        input: settings.input_field,
        output: output(&settings.output_field)?,
        source_key: settings.source_key,
        cut: settings.strategy,
        size: settings.chunk_size,
        overlap: *settings.overlap,
        records: settings.emit == Emit::Records,
    };
    if chunk.overlap >= chunk.size {
        let what = format!("{} must be less than chunkSize ({})", chunk.overlap, chunk.size);
        return Err(settings.overlap.invalid(what).into());
    }
    if !chunk.records && !matches!(chunk.output.target(), Target::Field(..)) {
        let finding = settings.output_field.invalid(format_args!("{} cannot be a list", chunk.output));
        return Err(finding.with_hint("name a field, for example .Payload.After.chunks").into());
    }
    Ok(Arc::new(chunk))
}

#[derive(Clone)]
struct Chunk {
    input: Reference,
    output: Reference,
    source_key: Reference,
    cut: Cut,
    size: usize,
    overlap: usize,
    /// True for a record per chunk, false for a list.
    records: bool,
}

impl ConfiguredOperator for Chunk {
    fn signature(&self) -> Signature {
        let paths = |reference: &Reference| match reference.access() {
            Access::These(paths) => paths,
            Access::Everything => Vec::new(),
        };
        let mut writes = paths(&self.output);
        if self.records {
            writes.extend(paths(&self.input));
            writes.extend([ID, SOURCE_KEY, INDEX, COUNT].map(|key| vec![Str::from_static("Metadata"), key]));
        }
        if let Some(side) = self.replaced() {
            writes.extend(Reference::parse(side.as_str()).ok().iter().flat_map(paths));
        }
        Signature {
            fan: if self.records { Fan::Many } else { Fan::One },
            reads: Access::These(paths(&self.input).into_iter().chain(paths(&self.source_key)).collect()),
            writes: Access::These(writes),
            needs_arch_v2: self.records,
            ..Signature::inline()
        }
    }

    fn flow(&self, flow: &mut Flow) {
        flow.may_fail();
        flow.get("inputField", &self.input);
        flow.get("sourceKey", &self.source_key);
        if let Some(side) = self.replaced() {
            flow.set_side(side, Shape::structured(Fields::closed([])));
        } else if self.records && self.input != self.output {
            flow.delete("inputField", &self.input);
        }
        let kinds = if self.records { Kinds::TEXT } else { Kinds::LIST };
        flow.set("outputField", &self.output, Type::of(kinds));
        if self.records {
            [ID, SOURCE_KEY, INDEX, COUNT].into_iter().for_each(|key| flow.record.metadata.insert(key));
        }
    }

    fn build(&self, _worker: usize, _host: &Host) -> Result<BuiltOperator, Fault> {
        Ok(BuiltOperator::Inline(Box::new(self.clone())))
    }
}

impl Operator for Chunk {
    fn process(&mut self, rows: &mut Rows<'_>) {
        rows.for_each(|record| {
            // A failed row must stay unchanged.
            let mut rest = record.clone();
            let key = text_at(record, &self.source_key).map_err(|fault| self.without_key(&fault))?;
            let text = text_at(record, &self.input)?;
            let chunks = pack(&text, self.cut.atoms(&text, self.size), self.size, self.overlap);
            self.take_out(&mut rest)?;
            if !self.records {
                let item = |(index, range): (usize, &std::ops::Range<usize>)| {
                    let text = &text[range.clone()];
                    let index = index as u64;
                    Value::from(Object::from_entries(vec![
                        (Str::from_static("id"), id(&key, index, text).into()),
                        (Str::from_static("index"), index.into()),
                        (Str::from_static("text"), text.into()),
                    ]))
                };
                let list: Vec<Value> = chunks.iter().enumerate().map(item).collect();
                self.output.set(&mut rest, list)?;
                *record = rest;
                return Ok(Decision::Keep);
            }
            let (source_key, count) = (Str::from(&*key), Str::from(chunks.len().to_string()));
            if chunks.is_empty() {
                return Ok(Decision::Split(Vec::new()));
            }
            // If the field can be set once, it can be set for every chunk.
            self.output.set(&mut rest, "")?;
            if chunks.len() <= Pieces::FEW {
                let piece = |(index, range): (usize, &std::ops::Range<usize>)| {
                    piece(&self.output, &rest, [&source_key, &count], index, &text[range.clone()])
                };
                return Ok(Decision::Split(chunks.iter().enumerate().map(piece).collect()));
            }
            let (output, text) = (self.output.clone(), text.into_owned());
            Ok(Decision::Pieces(Pieces::new(chunks.len(), move |index| {
                piece(&output, &rest, [&source_key, &count], index, &text[chunks[index].clone()])
            })))
        });
    }
}

/// Returns the record of a chunk: `rest` with the chunk's text in the output field.
fn piece(output: &Reference, rest: &Record, [key, count]: [&Str; 2], index: usize, text: &str) -> Record {
    let mut piece = rest.clone();
    let set = output.set(&mut piece, text);
    debug_assert!(set.is_ok(), "{set:?}");
    piece.metadata.insert(ID, id(key, index as u64, text));
    piece.metadata.insert(SOURCE_KEY, key.clone());
    piece.metadata.insert(INDEX, index.to_string());
    piece.metadata.insert(COUNT, count.clone());
    piece
}

impl Chunk {
    /// Returns the payload side or key that held the text, if the output is a field of it.
    fn replaced(&self) -> Option<Side> {
        match (self.input.target(), self.output.target()) {
            (Target::Data(side), Target::Field(other, _)) if side == other => Some(*side),
            _ => None,
        }
    }

    /// Removes the text, to make room for the chunks.
    fn take_out(&self, record: &mut Record) -> Result<(), Fault> {
        if let Some(side) = self.replaced() {
            *side.of_mut(record) = Data::from(Object::new());
        } else if self.records && self.input != self.output {
            self.input.delete(record)?;
        }
        self.output.has_parent(record).map(drop)
    }

    fn without_key(&self, fault: &Fault) -> Fault {
        let what = format!(
            "the id of a chunk is derived from the key of its document: {}; set sourceKey to the field that \
             identifies the document",
            fault.message()
        );
        Fault::record(codes::FIELD_MISSING, what)
    }
}

/// Returns a UUID (version 8) from a hash of all properties of a chunk. The same chunk always has the same id.
fn id(key: &str, index: u64, text: &str) -> String {
    let mut hash = Sha256::new();
    hash.update((key.len() as u64).to_le_bytes());
    hash.update(key);
    hash.update(index.to_le_bytes());
    hash.update(text);
    let hash = hash.finalize();
    let mut bytes = [0u8; 16];
    bytes.copy_from_slice(&hash[..16]);
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let n = u128::from_be_bytes(bytes);
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        n >> 96,
        n >> 80 & 0xffff,
        n >> 64 & 0xffff,
        n >> 48 & 0xffff,
        n & 0xffff_ffff_ffff
    )
}

#[cfg(test)]
mod tests;
