//! What is known of data: a set of possibilities for each part, never too small.

use std::collections::BTreeMap;
use std::ops::BitOr;
use std::sync::Arc;

use anabranch_record::text::Str;
use anabranch_record::value::Value;

use super::texts::Texts;
use crate::diagnostic::Span;

/// Where a shape came to be. It is no part of what the shape is: all are equal.
#[derive(Clone, Copy, Debug, Default)]
pub struct Since(pub(super) Option<Span>);

impl Since {
    /// Since the node at this place.
    pub fn at(span: Span) -> Since {
        Since(Some(span))
    }

    /// The node's place in the file, once the compiler has been there.
    pub fn span(self) -> Option<Span> {
        self.0
    }
}

impl PartialEq for Since {
    fn eq(&self, _: &Since) -> bool {
        true
    }
}

impl Eq for Since {}

/// Kinds of values, as a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds(u16);

impl Kinds {
    /// None.
    pub const NONE: Kinds = Kinds(0);
    /// Null.
    pub const NULL: Kinds = Kinds(1);
    /// True and false.
    pub const BOOL: Kinds = Kinds(1 << 1);
    /// Integers.
    pub const INT: Kinds = Kinds(1 << 2);
    /// Floating-point numbers.
    pub const FLOAT: Kinds = Kinds(1 << 3);
    /// Texts.
    pub const TEXT: Kinds = Kinds(1 << 4);
    /// Bytes.
    pub const BYTES: Kinds = Kinds(1 << 5);
    /// Points in time.
    pub const TIME: Kinds = Kinds(1 << 6);
    /// Lists.
    pub const LIST: Kinds = Kinds(1 << 7);
    /// Maps.
    pub const MAP: Kinds = Kinds(1 << 8);
    /// All.
    pub const ANY: Kinds = Kinds((1 << 9) - 1);
    /// What JSON has: no bytes and no points in time.
    pub(super) const JSON: Kinds = Kinds(Kinds::ANY.0 & !Kinds::BYTES.0 & !Kinds::TIME.0);

    const NAMES: [(Kinds, &'static str); 9] = [
        (Kinds::NULL, "null"),
        (Kinds::BOOL, "bool"),
        (Kinds::INT, "int"),
        (Kinds::FLOAT, "float"),
        (Kinds::TEXT, "text"),
        (Kinds::BYTES, "bytes"),
        (Kinds::TIME, "time"),
        (Kinds::LIST, "list"),
        (Kinds::MAP, "map"),
    ];

    /// The kind of a value.
    pub fn of(value: &Value) -> Kinds {
        match value {
            Value::Null => Kinds::NULL,
            Value::Bool(_) => Kinds::BOOL,
            Value::Int(_) | Value::UInt(_) => Kinds::INT,
            Value::Float(_) => Kinds::FLOAT,
            Value::Text(_) => Kinds::TEXT,
            Value::Bytes(_) => Kinds::BYTES,
            Value::Time(_) => Kinds::TIME,
            Value::List(_) => Kinds::LIST,
            Value::Map(_) => Kinds::MAP,
        }
    }

    /// Whether both have a kind.
    pub const fn overlaps(self, other: Kinds) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether there is no kind that `other` lacks.
    pub const fn within(self, other: Kinds) -> bool {
        self.0 & !other.0 == 0
    }

    /// Those that `other` has not.
    #[must_use]
    pub const fn without(self, other: Kinds) -> Kinds {
        Kinds(self.0 & !other.0)
    }

    /// Names of the kinds.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().filter(move |(kind, _)| kind.within(self)).map(|(_, name)| name)
    }

    /// Each kind by itself.
    pub fn each(self) -> impl Iterator<Item = Kinds> {
        Self::NAMES.into_iter().map(|(kind, _)| kind).filter(move |kind| kind.within(self))
    }
}

impl BitOr for Kinds {
    type Output = Kinds;
    fn bitor(self, other: Kinds) -> Kinds {
        Kinds(self.0 | other.0)
    }
}

/// What bytes or a text hold, where a step makes all of them alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Avro data, behind the number of their schema: the first byte is 0.
    Avro,
    /// Base64.
    Base64,
    /// The name of an object in a bucket.
    Name,
    /// No point in time, in none of the forms that field.convert reads.
    Timeless,
}

impl Content {
    /// What it is called in messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Content::Avro => "Avro data",
            Content::Base64 => "base64 text",
            Content::Name => "the name of an object",
            Content::Timeless => "a text that is no time",
        }
    }
}

/// Known properties of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Type {
    /// What it may be.
    pub kinds: Kinds,
    /// What it holds where it is bytes or a text, if that is known.
    pub content: Option<Content>,
    /// Its fields, where it is a map.
    pub fields: Fields,
    /// What it is, where it is a text.
    pub texts: Texts,
    /// Where it came to be.
    pub since: Since,
}

impl Type {
    /// Nothing is known.
    pub fn any() -> Type {
        Type::of(Kinds::ANY)
    }

    /// A value of JSON.
    pub fn json() -> Type {
        Type { fields: Fields::json(), ..Type::of(Kinds::JSON) }
    }

    /// One of these kinds; a map with any fields.
    pub fn of(kinds: Kinds) -> Type {
        Type { kinds, content: None, fields: Fields::any(), texts: Texts::Any, since: Since::default() }
    }

    /// A text that is one of these.
    pub fn one_of(texts: Texts) -> Type {
        Type { texts, ..Type::of(Kinds::TEXT) }
    }

    /// A map with these fields.
    pub fn map(fields: Fields) -> Type {
        Type { fields, ..Type::of(Kinds::MAP) }
    }

    /// The type of a value.
    pub fn of_value(value: &Value) -> Type {
        match value {
            Value::Map(object) => {
                let field = |(name, value): (&Str, &Value)| (name.clone(), Field::present(Type::of_value(value)));
                Type::map(Fields::closed(object.iter().map(field)))
            }
            other => Type::of(Kinds::of(other)),
        }
    }

    /// What holds of both.
    #[must_use]
    pub fn join(&self, other: &Type) -> Type {
        let fields = match (self.kinds.overlaps(Kinds::MAP), other.kinds.overlaps(Kinds::MAP)) {
            (true, true) => self.fields.join(&other.fields),
            (false, true) => other.fields.clone(),
            (_, false) => self.fields.clone(),
        };
        let texts = match (self.kinds.overlaps(Kinds::TEXT), other.kinds.overlaps(Kinds::TEXT)) {
            (true, true) => self.texts.join(&other.texts),
            (false, true) => other.texts.clone(),
            (_, false) => self.texts.clone(),
        };
        let encoded = Kinds::TEXT | Kinds::BYTES;
        let content = match (self.kinds.overlaps(encoded), other.kinds.overlaps(encoded)) {
            (true, true) => self.content.filter(|content| other.content == Some(*content)),
            (true, false) => self.content,
            (false, _) => other.content,
        };
        Type { kinds: self.kinds | other.kinds, content, fields, texts, since: self.since.join(other.since) }
    }

    /// Where it came to be, if it is always of these kinds: for a step that makes no other kinds of it.
    #[must_use]
    pub fn since_if(&self, kinds: Kinds) -> Since {
        if self.kinds.within(kinds) { self.since } else { Since::default() }
    }

    /// Whether it is known what its texts are, or those of its fields may be.
    pub(super) fn may_have_texts(&self) -> bool {
        self.texts != Texts::Any || !self.fields.named.is_empty()
    }

    pub(super) fn stamp(&mut self, span: Span) {
        self.since.0.get_or_insert(span);
        self.fields.stamp(span);
    }
}

impl Since {
    fn join(self, other: Since) -> Since {
        Since(self.0.or(other.0))
    }
}

/// A field of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// What it is.
    pub ty: Type,
    /// Whether it may be missing.
    pub optional: bool,
}

impl Field {
    /// One that is always there.
    pub fn present(ty: Type) -> Field {
        Field { ty, optional: false }
    }

    /// One that may be missing.
    pub fn optional(ty: Type) -> Field {
        Field { ty, optional: true }
    }
}

/// Most names that a shape remembers. Beyond it the shape is widened to anything, so that a plan of thousands of
/// steps that each set another field is inferred in time linear in its steps.
pub(super) const MOST_NAMED: usize = 256;

/// What is known of the fields of a map. Cloning is O(1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fields {
    named: Arc<BTreeMap<Str, Field>>,
    open: bool,
    /// Whether those that have no name here hold values of JSON.
    json: bool,
}

impl Fields {
    /// Nothing is known.
    pub fn any() -> Fields {
        Fields { named: Arc::default(), open: true, json: false }
    }

    /// Those of an object of JSON.
    pub fn json() -> Fields {
        Fields { json: true, ..Fields::any() }
    }

    /// These and no others.
    pub fn closed(fields: impl IntoIterator<Item = (Str, Field)>) -> Fields {
        Fields { named: Arc::new(fields.into_iter().collect()), open: false, json: false }
    }

    /// Whether there may be others than the named ones.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Whether nothing is known.
    pub fn is_any(&self) -> bool {
        self.open && self.named.is_empty()
    }

    /// How many names are known.
    pub(super) fn len(&self) -> usize {
        self.named.len()
    }

    /// The named fields that there may be.
    pub fn iter(&self) -> impl Iterator<Item = (&Str, &Field)> {
        self.named.iter().filter(|(_, field)| field.ty.kinds != Kinds::NONE)
    }

    /// Where the field of that name was removed, if it was and others may be there.
    pub(super) fn removed(&self, name: &str) -> Option<Since> {
        self.named.get(name).filter(|field| field.ty.kinds == Kinds::NONE).map(|field| field.ty.since)
    }

    /// The field of that name; `None` where there is certainly none.
    pub fn get(&self, name: &str) -> Option<Field> {
        match self.named.get(name) {
            Some(field) => (field.ty.kinds != Kinds::NONE).then(|| field.clone()),
            None => self.open.then(|| Field::optional(if self.json { Type::json() } else { Type::any() })),
        }
    }

    /// From now on there is this field.
    pub fn insert(&mut self, name: Str, field: Field) {
        if self.named.len() >= MOST_NAMED {
            *self = Fields::any();
        }
        Arc::make_mut(&mut self.named).insert(name, field);
    }

    /// From now on there is no such field. Where others may be, it is remembered as one of no kind.
    pub fn remove(&mut self, name: &str) {
        if self.open {
            self.insert(name.into(), Field::optional(Type::of(Kinds::NONE)));
        } else if self.named.contains_key(name) {
            Arc::make_mut(&mut self.named).remove(name);
        }
    }

    /// What holds of both.
    #[must_use]
    pub fn join(&self, other: &Fields) -> Fields {
        let open = self.open || other.open;
        let json = open && (self.json || !self.open) && (other.json || !other.open);
        if Arc::ptr_eq(&self.named, &other.named) {
            return Fields { named: self.named.clone(), open, json };
        }
        // Names that are known of one only become some of those that have none.
        let plain = Kinds::JSON.without(Kinds::MAP);
        let lost = |ours: &Fields, theirs: &Fields| {
            let mut lost = ours.named.iter().filter(|(name, _)| theirs.open && !theirs.named.contains_key(*name));
            lost.any(|(_, field)| !field.ty.kinds.within(plain))
        };
        let json = json && !lost(self, other) && !lost(other, self);
        let mut named = BTreeMap::new();
        for (name, ours) in self.named.iter() {
            match other.named.get(name) {
                Some(theirs) => {
                    let optional = ours.optional || theirs.optional;
                    named.insert(name.clone(), Field { ty: ours.ty.join(&theirs.ty), optional });
                }
                None if other.open => {}
                None => {
                    named.insert(name.clone(), Field::optional(ours.ty.clone()));
                }
            }
        }
        for (name, theirs) in other.named.iter().filter(|(name, _)| !self.open && !self.named.contains_key(*name)) {
            named.insert(name.clone(), Field::optional(theirs.ty.clone()));
        }
        Fields { named: Arc::new(named), open, json }
    }

    fn forget_contents(&mut self) {
        for field in Arc::make_mut(&mut self.named).values_mut() {
            field.ty.content = None;
            field.ty.fields.forget_contents();
        }
    }

    fn is_stamped(&self) -> bool {
        self.named.values().all(|field| field.ty.since.0.is_some() && field.ty.fields.is_stamped())
    }

    fn stamp(&mut self, span: Span) {
        if !self.is_stamped() {
            Arc::make_mut(&mut self.named).values_mut().for_each(|field| field.ty.stamp(span));
        }
    }
}

/// What data are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Bytes.
    Raw,
    /// Fields.
    Structured,
}

/// What is known of a key or of one side of a payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Whether it may be absent.
    pub absent: bool,
    /// Whether it may be raw.
    pub raw: bool,
    /// Its fields, where it may be structured.
    pub structured: Option<Fields>,
    /// What it is but for odd records, where it may be several: JSON that is decoded is an object, hardly ever a text.
    pub usually: Option<Form>,
    /// Whether, where it is raw, it is a word, a number or the like: neither JSON of an object nor of a text.
    pub plain: bool,
    /// The text that it is in every record, where it is raw, if that is known.
    pub fixed: Option<Str>,
    /// What it holds where it is raw, if that is known.
    pub content: Option<Content>,
    /// Where it came to be.
    pub since: Since,
}

impl Shape {
    /// Always absent.
    pub const ABSENT: Shape = Shape {
        absent: true,
        raw: false,
        structured: None,
        usually: None,
        plain: false,
        fixed: None,
        content: None,
        since: Since(None),
    };
    /// Always raw.
    pub const RAW: Shape = Shape { absent: false, raw: true, ..Shape::ABSENT };
    /// Always a word or a number, as bytes.
    pub const PLAIN: Shape = Shape { plain: true, ..Shape::RAW };

    /// Nothing is known.
    pub fn unknown() -> Shape {
        Shape { absent: true, structured: Some(Fields::any()), ..Shape::RAW }
    }

    /// What JSON text becomes: an object but for odd records.
    pub fn decoded() -> Shape {
        Shape { usually: Some(Form::Structured), ..Shape::unknown() }
    }

    /// The same of what was never structured: its fields hold values of JSON.
    pub fn decoded_json() -> Shape {
        Shape { structured: Some(Fields::json()), ..Shape::decoded() }
    }

    /// Always structured, with these fields.
    pub fn structured(fields: Fields) -> Shape {
        Shape { structured: Some(fields), raw: false, absent: false, ..Shape::RAW }
    }

    /// What it is where there is data, but for odd records.
    pub fn form(&self) -> Option<Form> {
        match (self.raw, self.structured.is_some()) {
            (true, false) => Some(Form::Raw),
            (false, true) => Some(Form::Structured),
            (true, true) => self.usually,
            (false, false) => None,
        }
    }

    /// The shape of the usual records, where others are possible.
    pub(super) fn of_usual(&self) -> Option<Shape> {
        let form = self.form()?;
        let several = self.absent || (self.raw && self.structured.is_some());
        several.then(|| Shape {
            absent: false,
            raw: form == Form::Raw,
            structured: self.structured.clone().filter(|_| form == Form::Structured),
            usually: None,
            ..self.clone()
        })
    }

    /// Whether nothing is known.
    pub fn is_unknown(&self) -> bool {
        self.absent && self.raw && self.structured.as_ref().is_some_and(Fields::is_any)
    }

    /// Whether it is always raw.
    pub fn is_raw(&self) -> bool {
        self.raw && !self.absent && self.structured.is_none()
    }

    /// Whether it is always absent.
    pub fn is_absent(&self) -> bool {
        self.absent && !self.raw && self.structured.is_none()
    }

    /// Whether it is always raw or absent: never has fields.
    pub fn has_no_fields(&self) -> bool {
        self.structured.is_none()
    }

    /// What holds of both.
    #[must_use]
    pub fn join(&self, other: &Shape) -> Shape {
        let structured = match (&self.structured, &other.structured) {
            (Some(a), Some(b)) => Some(a.join(b)),
            (a, b) => a.as_ref().or(b.as_ref()).cloned(),
        };
        let raw = self.raw || other.raw;
        let usually = match other.form() {
            // What is always absent says nothing of the data.
            None if other.is_absent() => self.form(),
            form if self.is_absent() => form,
            form => self.form().filter(|ours| form == Some(*ours)),
        };
        Shape {
            absent: self.absent || other.absent,
            raw,
            usually: usually.filter(|_| raw && structured.is_some()),
            structured,
            plain: raw && (self.plain || !self.raw) && (other.plain || !other.raw),
            fixed: self.fixed.clone().filter(|text| other.fixed.as_ref() == Some(text)),
            content: match (self.raw, other.raw) {
                (true, true) => self.content.filter(|content| other.content == Some(*content)),
                (true, false) => self.content,
                (false, _) => other.content,
            },
            since: self.since.join(other.since),
        }
    }

    /// What bytes and texts hold is not known.
    pub(super) fn forget_contents(&mut self) {
        (self.content, self.plain, self.fixed) = (None, false, None);
        if let Some(fields) = &mut self.structured {
            fields.forget_contents();
        }
    }

    pub(super) fn stamp(&mut self, span: Span) {
        self.since.0.get_or_insert(span);
        if let Some(fields) = &mut self.structured {
            fields.stamp(span);
        }
    }
}
