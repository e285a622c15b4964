//! Shapes of records as types of programs, and back.

use anabranch_plugin::flow::{Field, Fields, Kinds, RecordShape, Shape, Type};
use anabranch_record::text::Str;
use vrl::value::Kind;
use vrl::value::kind::Collection;

use crate::program::{PayloadForm, kind_of_rest};

/// Maximum depth to which types of fields are known. Deeper fields are unknown.
const MOST_DEPTH: usize = 16;

/// Returns the forms that the data can have.
pub(crate) fn forms(shape: &Shape) -> Vec<PayloadForm> {
    let forms = PayloadForm::ALL.into_iter().filter(|form| match form {
        PayloadForm::Structured => shape.structured.is_some(),
        PayloadForm::Raw => shape.raw,
        PayloadForm::Absent => shape.absent,
    });
    forms.collect()
}

/// Returns the type of data of this form.
pub(crate) fn of_form(shape: &Shape, form: PayloadForm) -> Kind {
    match (form, &shape.structured) {
        (PayloadForm::Structured, Some(fields)) => Kind::object(of_fields(fields, 0)),
        (PayloadForm::Structured, None) => Kind::never(),
        (PayloadForm::Raw, _) => Kind::bytes(),
        (PayloadForm::Absent, _) => Kind::null(),
    }
}

/// Returns the type of `%`.
pub(crate) fn of_rest(record: &RecordShape) -> Kind {
    kind_of_rest(|side| {
        let shape = record.side(side);
        let kinds = forms(shape).into_iter().map(|form| of_form(shape, form));
        kinds.reduce(|one, other| one.union(other)).unwrap_or_else(Kind::null)
    })
}

fn of_fields(fields: &Fields, depth: usize) -> Collection<vrl::value::kind::Field> {
    let known = fields.iter().map(|(name, field)| {
        let kind = of_type(&field.ty, depth + 1);
        (name.as_str().into(), if field.optional { kind.or_undefined() } else { kind })
    });
    let unknown = if fields.is_open() { Kind::any() } else { Kind::undefined() };
    Collection::from_parts(known.collect(), unknown)
}

fn of_type(ty: &Type, depth: usize) -> Kind {
    let mut kind = Kind::never();
    for one in ty.kinds.each() {
        kind = match one {
            Kinds::NULL => kind.or_null(),
            Kinds::BOOL => kind.or_boolean(),
            Kinds::INT => kind.or_integer(),
            Kinds::FLOAT => kind.or_float(),
            Kinds::TEXT | Kinds::BYTES => kind.or_bytes(),
            Kinds::TIME => kind.or_timestamp(),
            Kinds::LIST => kind.or_array(Collection::any()),
            _ if depth >= MOST_DEPTH => kind.or_object(Collection::any()),
            _ => kind.or_object(of_fields(&ty.fields, depth)),
        };
    }
    kind
}

/// Returns the type of a value in a record that the program leaves; without kinds if there is none.
pub(crate) fn type_of(kind: &Kind) -> Type {
    type_at(kind, 0)
}

fn type_at(kind: &Kind, depth: usize) -> Type {
    let each = [
        (kind.contains_null(), Kinds::NULL),
        (kind.contains_boolean(), Kinds::BOOL),
        (kind.contains_integer(), Kinds::INT),
        (kind.contains_float(), Kinds::FLOAT),
        // A string that is not valid UTF-8 becomes bytes.
        (kind.contains_bytes(), Kinds::TEXT | Kinds::BYTES),
        (kind.contains_regex(), Kinds::TEXT),
        (kind.contains_timestamp(), Kinds::TIME),
        (kind.contains_array(), Kinds::LIST),
        (kind.contains_object(), Kinds::MAP),
    ];
    let kinds = each.into_iter().filter(|(has, _)| *has).fold(Kinds::NONE, |kinds, (_, kind)| kinds | kind);
    let fields = match kind.as_object() {
        Some(fields) if depth < MOST_DEPTH => fields_of(fields, depth + 1),
        _ => Fields::any(),
    };
    Type { fields, ..Type::of(kinds) }
}

fn fields_of(collection: &Collection<vrl::value::kind::Field>, depth: usize) -> Fields {
    let unknown = collection.unknown_kind().without_undefined();
    let is_open = !unknown.is_never();
    let field = |(name, kind): (&vrl::value::kind::Field, &Kind)| {
        let ty = type_at(&kind.without_undefined(), depth);
        let field = if kind.contains_undefined() { Field::optional(ty) } else { Field::present(ty) };
        (field.ty.kinds != Kinds::NONE).then(|| (Str::from(name.as_str()), field))
    };
    let known = collection.known().iter().filter_map(field);
    match is_open {
        false => Fields::closed(known),
        true => {
            let mut fields = Fields::any();
            known.for_each(|(name, field)| fields.insert(name, field));
            fields
        }
    }
}

/// Returns the shape of data that the program replaces as a whole; `None` if it can never be data.
pub(crate) fn shape_of(kind: &Kind) -> Option<Shape> {
    let ty = type_of(kind);
    let data = Kinds::TEXT | Kinds::BYTES | Kinds::MAP | Kinds::NULL;
    // What a program removes is absent.
    let is_removed = kind.contains_undefined();
    if !ty.kinds.overlaps(data) && !is_removed {
        return None;
    }
    Some(Shape {
        absent: ty.kinds.overlaps(Kinds::NULL) || is_removed,
        raw: ty.kinds.overlaps(Kinds::TEXT | Kinds::BYTES),
        structured: ty.kinds.overlaps(Kinds::MAP).then(|| ty.fields.clone()),
        ..Shape::ABSENT
    })
}
