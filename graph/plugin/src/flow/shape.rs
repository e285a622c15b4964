//! Shapes of data: for each part a conservative set of possibilities.

use std::collections::BTreeMap;
use std::ops::BitOr;
use std::sync::Arc;

use anabranch_record::text::Str;
use anabranch_record::value::Value;

use super::texts::Texts;
use crate::diagnostic::Span;

/// The place in a file that a shape originates from. It is not part of the shape's identity: all values are equal.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShapeOrigin(pub(super) Option<Span>);

impl ShapeOrigin {
    /// Creates it from the place of a node.
    pub fn at(span: Span) -> ShapeOrigin {
        ShapeOrigin(Some(span))
    }

    /// Returns the place of the node, if the compiler has set it.
    pub fn span(self) -> Option<Span> {
        self.0
    }
}

impl PartialEq for ShapeOrigin {
    fn eq(&self, _: &ShapeOrigin) -> bool {
        true
    }
}

impl Eq for ShapeOrigin {}

/// A set of kinds of values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds(u16);

impl Kinds {
    /// The empty set.
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
    /// All kinds.
    pub const ANY: Kinds = Kinds((1 << 9) - 1);
    /// The kinds of JSON values: all except bytes and points in time.
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

    /// Returns the kind of a value.
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

    /// Returns `true` if both sets share a kind.
    pub const fn overlaps(self, other: Kinds) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns `true` if `other` contains all kinds of this set.
    pub const fn within(self, other: Kinds) -> bool {
        self.0 & !other.0 == 0
    }

    /// Returns the kinds that `other` does not contain.
    #[must_use]
    pub const fn without(self, other: Kinds) -> Kinds {
        Kinds(self.0 & !other.0)
    }

    /// Returns the names of the kinds.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().filter(move |(kind, _)| kind.within(self)).map(|(_, name)| name)
    }

    /// Returns each kind as a set.
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

/// The content of bytes or texts, if a processor or source always produces the same sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Avro data, prefixed with the id of its schema: the first byte is 0.
    Avro,
    /// Base64.
    Base64,
    /// The name of an object in a bucket.
    Name,
    /// Text that is not a time in any of the forms that `field.convert` parses.
    Timeless,
}

impl Content {
    /// Returns the name for messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Content::Avro => "Avro data",
            Content::Base64 => "base64 text",
            Content::Name => "the name of an object",
            Content::Timeless => "a text that is not a time",
        }
    }
}

/// Known properties of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Type {
    /// The possible kinds.
    pub kinds: Kinds,
    /// The content of bytes or a text, if it is known.
    pub content: Option<Content>,
    /// The fields of a map.
    pub fields: Fields,
    /// The possible texts.
    pub texts: Texts,
    /// The place that the type originates from.
    pub since: ShapeOrigin,
}

impl Type {
    /// Creates an unknown type.
    pub fn any() -> Type {
        Type::of(Kinds::ANY)
    }

    /// Creates the type of any JSON value.
    pub fn json() -> Type {
        Type { fields: Fields::json(), ..Type::of(Kinds::JSON) }
    }

    /// Creates a type of the given kinds; maps have unknown fields.
    pub fn of(kinds: Kinds) -> Type {
        Type { kinds, content: None, fields: Fields::any(), texts: Texts::Any, since: ShapeOrigin::default() }
    }

    /// Creates the type of a text that is one of the given texts.
    pub fn one_of(texts: Texts) -> Type {
        Type { texts, ..Type::of(Kinds::TEXT) }
    }

    /// Creates the type of a map with the given fields.
    pub fn map(fields: Fields) -> Type {
        Type { fields, ..Type::of(Kinds::MAP) }
    }

    /// Returns the type of a value.
    pub fn of_value(value: &Value) -> Type {
        match value {
            Value::Map(object) => {
                let field = |(name, value): (&Str, &Value)| (name.clone(), Field::present(Type::of_value(value)));
                Type::map(Fields::closed(object.iter().map(field)))
            }
            other => Type::of(Kinds::of(other)),
        }
    }

    /// Returns the properties that apply to both.
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

    /// Returns the place that the type originates from, if it is always of the given kinds: for nodes whose results
    /// have only these kinds.
    #[must_use]
    pub fn since_if(&self, kinds: Kinds) -> ShapeOrigin {
        if self.kinds.within(kinds) { self.since } else { ShapeOrigin::default() }
    }

    /// Returns `true` if the possible texts of the value are known, or may be known for one of its fields.
    pub(super) fn may_have_texts(&self) -> bool {
        self.texts != Texts::Any || !self.fields.named.is_empty()
    }

    pub(super) fn stamp(&mut self, span: Span) {
        self.since.0.get_or_insert(span);
        self.fields.stamp(span);
    }
}

impl ShapeOrigin {
    fn join(self, other: ShapeOrigin) -> ShapeOrigin {
        ShapeOrigin(self.0.or(other.0))
    }
}

/// A field of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The type of the field.
    pub ty: Type,
    /// True if the field may be missing.
    pub optional: bool,
}

impl Field {
    /// Creates a field that is always present.
    pub fn present(ty: Type) -> Field {
        Field { ty, optional: false }
    }

    /// Creates a field that may be missing.
    pub fn optional(ty: Type) -> Field {
        Field { ty, optional: true }
    }
}

/// Maximum number of names in a shape. With more names, all fields become unknown, so that the flow of a plan with
/// thousands of nodes that each set another field takes time linear in the number of nodes.
pub(super) const MOST_NAMED: usize = 256;

/// The fields of a map. Cloning is O(1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fields {
    named: Arc<BTreeMap<Str, Field>>,
    open: bool,
    /// True if the values of unnamed fields are JSON values.
    json: bool,
}

impl Fields {
    /// Creates unknown fields.
    pub fn any() -> Fields {
        Fields { named: Arc::default(), open: true, json: false }
    }

    /// Creates the unknown fields of a JSON object.
    pub fn json() -> Fields {
        Fields { json: true, ..Fields::any() }
    }

    /// Creates exactly the given fields.
    pub fn closed(fields: impl IntoIterator<Item = (Str, Field)>) -> Fields {
        Fields { named: Arc::new(fields.into_iter().collect()), open: false, json: false }
    }

    /// Returns `true` if there may be other fields than the named ones.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Returns `true` if nothing is known about the fields.
    pub fn is_any(&self) -> bool {
        self.open && self.named.is_empty()
    }

    /// Returns the number of known names.
    pub(super) fn len(&self) -> usize {
        self.named.len()
    }

    /// Returns the named fields that may exist.
    pub fn iter(&self) -> impl Iterator<Item = (&Str, &Field)> {
        self.named.iter().filter(|(_, field)| field.ty.kinds != Kinds::NONE)
    }

    /// Returns the place where a field was removed, if it was removed and other fields may exist.
    pub(super) fn removed(&self, name: &str) -> Option<ShapeOrigin> {
        self.named.get(name).filter(|field| field.ty.kinds == Kinds::NONE).map(|field| field.ty.since)
    }

    /// Returns the field with the given name; `None` if it certainly does not exist.
    pub fn get(&self, name: &str) -> Option<Field> {
        match self.named.get(name) {
            Some(field) => (field.ty.kinds != Kinds::NONE).then(|| field.clone()),
            None => self.open.then(|| Field::optional(if self.json { Type::json() } else { Type::any() })),
        }
    }

    /// Declares that the field exists.
    pub fn insert(&mut self, name: Str, field: Field) {
        if self.named.len() >= MOST_NAMED {
            *self = Fields::any();
        }
        Arc::make_mut(&mut self.named).insert(name, field);
    }

    /// Declares that the field does not exist. If other fields may exist, it is recorded as a field without kinds.
    pub fn remove(&mut self, name: &str) {
        if self.open {
            self.insert(name.into(), Field::optional(Type::of(Kinds::NONE)));
        } else if self.named.contains_key(name) {
            Arc::make_mut(&mut self.named).remove(name);
        }
    }

    /// Returns the properties that apply to both.
    #[must_use]
    pub fn join(&self, other: &Fields) -> Fields {
        let open = self.open || other.open;
        let json = open && (self.json || !self.open) && (other.json || !other.open);
        if Arc::ptr_eq(&self.named, &other.named) {
            return Fields { named: self.named.clone(), open, json };
        }
        // Names that only one of them knows become unnamed fields.
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

/// The form of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Bytes.
    Raw,
    /// Fields.
    Structured,
}

/// The shape of a key or of one side of a payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// True if it may be absent.
    pub absent: bool,
    /// True if it may be raw.
    pub raw: bool,
    /// The fields, if it may be structured.
    pub structured: Option<Fields>,
    /// The form in typical records, if there are several possibilities: decoded JSON is an object, hardly ever a text.
    pub usually: Option<Form>,
    /// True if raw data is always a word, a number or similar: not a JSON object and not a JSON text.
    pub plain: bool,
    /// The text that raw data has in every record, if it is known.
    pub fixed: Option<Str>,
    /// The content of raw data, if it is known.
    pub content: Option<Content>,
    /// The place that the shape originates from.
    pub since: ShapeOrigin,
}

impl Shape {
    /// Data that is always absent.
    pub const ABSENT: Shape = Shape {
        absent: true,
        raw: false,
        structured: None,
        usually: None,
        plain: false,
        fixed: None,
        content: None,
        since: ShapeOrigin(None),
    };
    /// Data that is always raw.
    pub const RAW: Shape = Shape { absent: false, raw: true, ..Shape::ABSENT };
    /// Data that is always a word or a number, as bytes.
    pub const PLAIN: Shape = Shape { plain: true, ..Shape::RAW };

    /// Returns the shape of data that is set to a value of a type: texts and bytes become raw data, maps structured data.
    pub fn set_to(ty: Type) -> Shape {
        Shape {
            absent: ty.kinds.overlaps(Kinds::NULL),
            raw: ty.kinds.overlaps(Kinds::TEXT | Kinds::BYTES),
            structured: ty.kinds.overlaps(Kinds::MAP).then_some(ty.fields),
            content: ty.content,
            since: ty.since,
            ..Shape::ABSENT
        }
    }

    /// Creates an unknown shape.
    pub fn unknown() -> Shape {
        Shape { absent: true, structured: Some(Fields::any()), ..Shape::RAW }
    }

    /// Creates the shape of decoded JSON text: an object in typical records.
    pub fn decoded() -> Shape {
        Shape { usually: Some(Form::Structured), ..Shape::unknown() }
    }

    /// Creates the shape of decoded JSON text that was never structured before: its fields are JSON values.
    pub fn decoded_json() -> Shape {
        Shape { structured: Some(Fields::json()), ..Shape::decoded() }
    }

    /// Creates the shape of structured data with the given fields.
    pub fn structured(fields: Fields) -> Shape {
        Shape { structured: Some(fields), raw: false, absent: false, ..Shape::RAW }
    }

    /// Returns the form of the data in typical records.
    pub fn form(&self) -> Option<Form> {
        match (self.raw, self.structured.is_some()) {
            (true, false) => Some(Form::Raw),
            (false, true) => Some(Form::Structured),
            (true, true) => self.usually,
            (false, false) => None,
        }
    }

    /// Returns the shape of typical records, if others are possible.
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

    /// Returns `true` if nothing is known.
    pub fn is_unknown(&self) -> bool {
        self.absent && self.raw && self.structured.as_ref().is_some_and(Fields::is_any)
    }

    /// Returns `true` if the data is always raw.
    pub fn is_raw(&self) -> bool {
        self.raw && !self.absent && self.structured.is_none()
    }

    /// Returns `true` if the data is always absent.
    pub fn is_absent(&self) -> bool {
        self.absent && !self.raw && self.structured.is_none()
    }

    /// Returns `true` if the data is never structured.
    pub fn has_no_fields(&self) -> bool {
        self.structured.is_none()
    }

    /// Returns the properties that apply to both.
    #[must_use]
    pub fn join(&self, other: &Shape) -> Shape {
        let structured = match (&self.structured, &other.structured) {
            (Some(a), Some(b)) => Some(a.join(b)),
            (a, b) => a.as_ref().or(b.as_ref()).cloned(),
        };
        let raw = self.raw || other.raw;
        let usually = match other.form() {
            // Data that is always absent does not affect the typical form.
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

    /// Removes the known content of bytes and texts.
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
