//! Decodes and encodes keys and payloads of records with the schemas in their metadata.

use anabranch_plugin::schema::SchemaVersion;
use anabranch_record::avro::infer;
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use anabranch_record::value::Object;
use anabranch_record::{Data, Record};
use bytes::Bytes;

use crate::cache::{Fit, SchemaCache};
use crate::codes;
use crate::part::SchemaPart;

/// Returns `true` if the metadata names a schema of this part.
pub(crate) fn has_schema(part: SchemaPart, record: &Record) -> bool {
    record.metadata.get(&part.names().0).is_some()
}

/// Returns `true` if the part has raw data whose schema is in the metadata.
#[inline]
pub(crate) fn is_encoded(part: SchemaPart, record: &Record) -> bool {
    part.any(record, |data| matches!(data, Data::Raw(_))) && has_schema(part, record)
}

/// Returns the subject and version in the metadata; `None` if one of them is missing.
fn named(part: SchemaPart, record: &Record) -> Result<Option<(Str, SchemaVersion)>, Fault> {
    let (subject, version) = part.names();
    let (Some(subject), Some(text)) = (record.metadata.get(&subject), record.metadata.get(&version)) else {
        return Ok(None);
    };
    Ok(Some((subject.clone(), parsed(text, part)?)))
}

/// Parses the version in the metadata.
fn parsed(text: &Str, part: SchemaPart) -> Result<SchemaVersion, Fault> {
    text.parse().map_err(|error| {
        let (_, version) = part.names();
        Fault::record(codes::SCHEMA_VERSION_INVALID, format!("the metadata {version} is {text:?}: {error}"))
    })
}

/// Decodes raw data whose schema is in the metadata; returns whether there was any. On an error, the record is
/// unchanged.
///
/// # Errors
/// Fails if the schema is not available, or does not match the data.
pub fn decode(cache: &mut SchemaCache, part: SchemaPart, record: &mut Record) -> Result<bool, Fault> {
    if !part.any(record, |data| matches!(data, Data::Raw(_))) {
        return Ok(false);
    }
    let Some((subject, version)) = named(part, record)? else { return Ok(false) };
    let known = cache.version(&subject, version)?;
    let mut decoded = [None, None];
    for (side, decoded) in part.sides().iter().zip(&mut decoded) {
        if let Data::Raw(bytes) = side.of(record) {
            let fields = known.codec.decode_fields(bytes).map_err(|error| {
                let what = format!("cannot decode {} by schema {subject:?}, version {version}: {error}", side.as_str());
                Fault::record(codes::AVRO_INVALID, what)
            })?;
            *decoded = Some(fields);
        }
    }
    for (side, fields) in part.sides().iter().zip(decoded) {
        if let Some(fields) = fields {
            *side.of_mut(record) = Data::from(fields);
        }
    }
    Ok(true)
}

/// Decodes the raw data that matches the schema in the metadata.
///
/// # Errors
/// Fails if the schema is not available.
pub(crate) fn decode_matching(cache: &mut SchemaCache, part: SchemaPart, record: &mut Record) -> Result<(), Fault> {
    let Some((subject, version)) = named(part, record)? else { return Ok(()) };
    let known = cache.version(&subject, version)?;
    for side in part.sides() {
        if let Data::Raw(bytes) = side.of(record)
            && let Ok(fields) = known.codec.decode_fields(bytes)
        {
            *side.of_mut(record) = Data::from(fields);
        }
    }
    Ok(())
}

/// Encodes structured data whose schema is in the metadata, for receivers of bytes. If the data does not fit the named
/// version, registers a new version of the subject. On an error, the record is unchanged.
///
/// # Errors
/// Fails if the schema is not available, or cannot be inferred from the data.
pub fn encode(cache: &mut SchemaCache, part: SchemaPart, record: &mut Record) -> Result<bool, Fault> {
    if !refresh(cache, part, record)? {
        return Ok(false);
    }
    let Some((subject, version)) = named(part, record)? else { return Ok(false) };
    let known = cache.version(&subject, version)?;
    let mut encoded = [None, None];
    for (side, encoded) in part.sides().iter().zip(&mut encoded) {
        if let Some(fields) = side.of(record).fields() {
            let mut bytes = Vec::with_capacity(16 * fields.len());
            known.codec.encode_fields(fields, &mut bytes).map_err(|error| {
                let what = format!("cannot encode {} by schema {subject:?}, version {version}: {error}", side.as_str());
                Fault::record(codes::AVRO_MISFIT, what)
            })?;
            *encoded = Some(bytes);
        }
    }
    for (side, bytes) in part.sides().iter().zip(encoded) {
        if let Some(bytes) = bytes {
            *side.of_mut(record) = Data::Raw(Bytes::from(bytes));
        }
    }
    Ok(true)
}

/// Updates the metadata of structured data to a version that fits it. If the named version does not fit, infers a
/// schema and registers it under the same subject. If the other side is raw data, to which the version applies, changes
/// nothing. Returns whether there is structured data with a schema.
///
/// # Errors
/// Fails if the named schema is not available, or a schema cannot be inferred from the data.
pub fn refresh(cache: &mut SchemaCache, part: SchemaPart, record: &mut Record) -> Result<bool, Fault> {
    if !part.any(record, |data| matches!(data, Data::Structured(_))) {
        return Ok(false);
    }
    let mut metadata = std::mem::take(&mut record.metadata);
    let known = only_fields(part, record).is_some_and(|fields| cache.name_schema(part, &mut metadata, fields));
    record.metadata = metadata;
    if known {
        return Ok(true);
    }
    // The schema is that of the raw data on the other side.
    if part.any(record, |data| matches!(data, Data::Raw(_))) {
        return Ok(has_schema(part, record));
    }
    let (subject_key, version_key) = part.names();
    let (Some(subject), Some(text)) = (record.metadata.get(&subject_key), record.metadata.get(&version_key)) else {
        return Ok(false);
    };
    let (subject, text) = (subject.clone(), text.clone());
    let only = only_fields(part, record);
    let known = cache.version(&subject, parsed(&text, part)?)?;
    let mut scratch = Vec::new();
    let fits = |data: &Data| data.fields().is_none_or(|fields| known.codec.encode_fields(fields, &mut scratch).is_ok());
    if part.sides().iter().map(|side| side.of(record)).all(fits) {
        if let Some(fields) = only {
            cache.compare(&subject, &text, &known, fields);
        }
        return Ok(true);
    }
    let found = only.and_then(|fields| cache.inferred(&subject, fields));
    let version = match found {
        Some(version) => version,
        None => {
            let fields = part.sides().iter().find_map(|side| side.of(record).fields());
            let mut schema = String::new();
            if let Some(fields) = fields {
                infer(fields, &mut schema).map_err(|error| Fault::record(codes::AVRO_NO_SCHEMA, error))?;
            }
            let known = cache.register(&subject, &schema)?;
            let version = Str::from(known.schema.version.to_string());
            if let Some(fields) = only {
                cache.compare(&subject, &version, &known, fields);
            }
            version
        }
    };
    if let Some(fields) = only.filter(|fields| known.codec.misfits_names_of(fields)) {
        cache.record_fit(&subject, &text, fields, Fit::Replaced(version.clone()));
    }
    record.metadata.insert(version_key, version);
    Ok(true)
}

/// Returns the fields of a part if one side is structured and the other is absent.
fn only_fields(part: SchemaPart, record: &Record) -> Option<&Object> {
    let mut sides = part.sides().iter().map(|side| side.of(record)).filter(|data| !matches!(data, Data::Absent));
    sides.next().filter(|_| sides.next().is_none()).and_then(Data::fields)
}
