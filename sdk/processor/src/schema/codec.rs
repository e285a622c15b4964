//! Decoding before the processor, and encoding after it.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use anabranch_record::avro::infer;
use anabranch_record::metadata::Metadata;
use anabranch_record::metadata::key::{
    KEY_SCHEMA_SUBJECT, KEY_SCHEMA_VERSION, PAYLOAD_SCHEMA_SUBJECT, PAYLOAD_SCHEMA_VERSION,
};
use anabranch_record::specification::{Parameter, ParameterKind};
use anabranch_record::text::Str;
use anabranch_record::value::Object;
use anabranch_record::{Change, Data, Record};
use bytes::{Bytes, BytesMut};

use super::avro::Avro;
use crate::error::Error;
use crate::parameters::{Declarations, Settings};

const SWITCHES: [(&str, &str); 4] = [
    ("sdk.schema.decode.key.enabled", "Decodes the key if the metadata names its schema."),
    ("sdk.schema.decode.payload.enabled", "Decodes the payload if the metadata names its schema."),
    ("sdk.schema.encode.key.enabled", "Encodes the key again if the metadata names its schema."),
    ("sdk.schema.encode.payload.enabled", "Encodes the payload again if the metadata names its schema."),
];

/// Maximum number of cached schemas. Few are in use at a time, but a processor may run for years.
const MOST_CACHED: usize = 256;

/// Maximum capacity in bytes of the buffer for encoding that is kept: data that is rarely large would keep it for the rest
/// of the processor's life.
const LARGEST: usize = 64 << 10;

/// Metadata keys of the schema of the key, and of the payload.
const KEYS: [[Str; 2]; 2] =
    [[KEY_SCHEMA_SUBJECT, KEY_SCHEMA_VERSION], [PAYLOAD_SCHEMA_SUBJECT, PAYLOAD_SCHEMA_VERSION]];

/// Decodes and encodes records, as enabled in the settings.
#[derive(Debug)]
pub(crate) struct Codec {
    /// For the key and for the payload.
    decode: [bool; 2],
    encode: [bool; 2],
    /// Schemas by subject and version.
    schemas: BTreeMap<(Str, i32), Rc<Avro>>,
    /// Last named schemas for the key and the payload, before and after the processor: usually the next record names
    /// the same.
    recent: [[Option<Recent>; 2]; 2],
    /// Versions of inferred schemas, by subject and text.
    inferred: BTreeMap<(Str, String), i32>,
    warned: [bool; 2],
    /// Encoded maps, whose memory is reused for decoding.
    maps: Vec<Arc<Object>>,
    /// The data that is being encoded.
    encoding: Vec<u8>,
    /// Memory of encoded data, which is reused when all records of a batch are freed.
    encoded: BytesMut,
}

impl Default for Codec {
    fn default() -> Self {
        Codec {
            decode: [true; 2],
            encode: [true; 2],
            schemas: BTreeMap::new(),
            recent: Default::default(),
            inferred: BTreeMap::new(),
            warned: [false; 2],
            maps: Vec::new(),
            encoding: Vec::new(),
            encoded: BytesMut::new(),
        }
    }
}

/// A schema named in metadata.
#[derive(Debug, PartialEq, Eq)]
struct Named {
    subject: Str,
    /// Version as written in the metadata.
    written: Str,
    version: i32,
}

/// A schema, and its parsed form after first use.
#[derive(Debug)]
struct Recent {
    named: Rc<Named>,
    avro: Option<Rc<Avro>>,
}

/// Side of the processor on which a schema is used.
#[derive(Clone, Copy, Debug)]
enum Side {
    Before,
    After,
}

/// Schema names in the metadata: subject and version for the key, then for the payload.
type Texts<'m> = [[Option<&'m Str>; 2]; 2];

/// Schemas that a record named for its key and payload before it was processed.
#[derive(Debug, Default)]
pub(crate) struct Attached([Option<Rc<Named>>; 2]);

impl Codec {
    pub(crate) fn declare(declarations: &mut Declarations) {
        for (name, description) in SWITCHES {
            let switch = Parameter::new(name, ParameterKind::Bool, description);
            declarations.add::<bool>("", switch.default_value("true"));
        }
    }

    /// Removes the switches from the settings. Returns `None` if problems were recorded there.
    pub(crate) fn configure(settings: &mut Settings) -> Option<Self> {
        let [decode_key, decode_payload, encode_key, encode_payload] =
            SWITCHES.map(|(name, _)| settings.take_switch(name));
        Some(Codec {
            decode: [decode_key?, decode_payload?],
            encode: [encode_key?, encode_payload?],
            ..Codec::default()
        })
    }

    pub(crate) fn is_off(&self) -> bool {
        self.decode == [false; 2] && self.encode == [false; 2]
    }

    /// Decodes the data whose schema is in the metadata; returns the named schemas.
    pub(crate) fn decode(&mut self, record: &mut Record) -> Result<Attached, Error> {
        let mut attached = Attached::default();
        let Record { metadata, key, payload, .. } = record;
        let texts = texts(metadata);
        for (i, data) in sides(key, payload).into_iter().enumerate() {
            let named = self.named(Side::Before, i, texts[i]);
            if self.decode[i] {
                match named.as_ref().map_err(Error::clone)? {
                    Some(named) => {
                        for data in data.into_iter().flatten() {
                            if let Data::Raw(bytes) = data {
                                let spare = self.maps.pop().unwrap_or_default();
                                let decoded = self.schema(Side::Before, i, named)?.decode(bytes, spare);
                                let decoded = decoded.map_err(|error| named.blame("decode", &error))?;
                                *data = Data::Structured(decoded);
                            }
                        }
                    }
                    None if texts[i] != [None, None] && !std::mem::replace(&mut self.warned[i], true) => {
                        let [subject, version] = &KEYS[i];
                        log::warn!("records have only one of {subject} and {version}, and are not changed");
                    }
                    None => {}
                }
            }
            // An invalid name is reported where it is used.
            attached.0[i] = named.ok().flatten().filter(|_| self.encode[i]);
        }
        Ok(attached)
    }

    /// Frees unused maps after a batch is decoded.
    pub(crate) fn decoded_all(&mut self) {
        self.maps.clear();
    }

    /// Encodes structured data that has a schema.
    pub(crate) fn encode(&mut self, record: &mut Record, attached: &Attached) -> Result<(), Error> {
        let Record { metadata, key, payload, .. } = record;
        let named = {
            let texts = texts(metadata);
            [0, 1].map(|i| if self.encode[i] { self.named(Side::After, i, texts[i]) } else { Ok(None) })
        };
        for ((i, mut data), named) in sides(key, payload).into_iter().enumerate().zip(named) {
            if data.iter().flatten().all(|data| data.fields().is_none()) {
                continue;
            }
            let Some(mut named) = named? else { continue };
            let mut encoded = self.encoded(i, &named, &data)?;
            if encoded.is_none() && attached.0[i].as_ref() == Some(&named) {
                // The processor changed the shape of the data. The side after the change decides.
                let shape = data.iter().flatten().rev().find_map(|data| data.fields());
                let mut text = String::new();
                if let Some(fields) = shape {
                    infer(fields, &mut text)?;
                }
                let version = self.create(&named.subject, text)?;
                let written = Str::from(version.to_string());
                named = Rc::new(Named { subject: named.subject.clone(), written: written.clone(), version });
                metadata.insert(KEYS[i][1].clone(), written);
                encoded = self.encoded(i, &named, &data)?;
            }
            let encoded = encoded.ok_or_else(|| named.blame("encode", &"it does not fit the schema"))?;
            for (data, encoded) in data.iter_mut().zip(encoded) {
                if let (Some(data), Some(bytes)) = (data, encoded)
                    && let Data::Structured(map) = std::mem::replace(*data, Data::Raw(bytes))
                {
                    self.maps.push(map);
                }
            }
        }
        Ok(())
    }

    /// Encodes both sides if they are structured; returns `None` if one does not fit the schema.
    fn encoded(
        &mut self,
        i: usize,
        named: &Rc<Named>,
        data: &[Option<&mut Data>; 2],
    ) -> Result<Option<[Option<Bytes>; 2]>, Error> {
        let avro = self.schema(Side::After, i, named)?;
        let mut encode = |map: &Object| {
            if self.encoding.capacity() > LARGEST {
                self.encoding = Vec::new();
            }
            self.encoding.clear();
            avro.encode(map, &mut self.encoding).then(|| {
                self.encoded.extend_from_slice(&self.encoding);
                self.encoded.split().freeze()
            })
        };
        let mut encoded = [None, None];
        for (data, encoded) in data.iter().zip(&mut encoded) {
            if let Some(Data::Structured(map)) = data {
                match encode(map) {
                    Some(bytes) => *encoded = Some(bytes),
                    None => return Ok(None),
                }
            }
        }
        Ok(Some(encoded))
    }

    /// Returns the schema of a subject and version, if both are present.
    fn named(&mut self, side: Side, i: usize, texts: [Option<&Str>; 2]) -> Result<Option<Rc<Named>>, Error> {
        let [Some(subject), Some(written)] = texts else { return Ok(None) };
        let recent = &mut self.recent[side as usize][i];
        if let Some(Recent { named, .. }) = recent
            && named.subject == *subject
            && named.written == *written
        {
            return Ok(Some(named.clone()));
        }
        let version =
            written.parse().map_err(|_| Error::new(format!("{}: {written:?} is not a number", KEYS[i][1])))?;
        let named = Rc::new(Named { subject: subject.clone(), written: written.clone(), version });
        *recent = Some(Recent { named: named.clone(), avro: None });
        Ok(Some(named))
    }

    fn schema(&mut self, side: Side, i: usize, named: &Rc<Named>) -> Result<Rc<Avro>, Error> {
        let recent = self.recent[side as usize][i].take().filter(|recent| recent.named == *named);
        let avro = match recent {
            Some(Recent { avro: Some(avro), .. }) => avro,
            _ => self.parsed(named)?,
        };
        self.recent[side as usize][i] = Some(Recent { named: named.clone(), avro: Some(avro.clone()) });
        Ok(avro)
    }

    fn parsed(&mut self, named: &Named) -> Result<Rc<Avro>, Error> {
        let key = (named.subject.clone(), named.version);
        if let Some(avro) = self.schemas.get(&key) {
            return Ok(avro.clone());
        }
        let schema = super::get(&named.subject, named.version).map_err(|error| error.context(named.place()))?;
        let avro = Rc::new(Avro::parse(&schema.text).map_err(|error| Error::from(error).context(named.place()))?);
        if self.schemas.len() >= MOST_CACHED {
            self.schemas.clear();
        }
        self.schemas.insert(key, avro.clone());
        Ok(avro)
    }

    /// Returns the version of an inferred schema.
    fn create(&mut self, subject: &Str, text: String) -> Result<i32, Error> {
        let key = (subject.clone(), text);
        if let Some(version) = self.inferred.get(&key) {
            return Ok(*version);
        }
        let version =
            super::create(subject, &key.1).map_err(|error| error.context(format!("schema {subject:?}")))?.version;
        if self.inferred.len() >= MOST_CACHED {
            self.inferred.clear();
        }
        self.inferred.insert(key, version);
        Ok(version)
    }
}

impl Named {
    fn place(&self) -> String {
        format!("schema {:?} version {}", self.subject, self.version)
    }

    fn blame(&self, what: &str, problem: &dyn std::fmt::Display) -> Error {
        Error::new(format!("cannot {what} the data: {problem}")).context(self.place())
    }
}

/// Reads the schema names in one pass over the metadata: separate look-ups would compare long keys with equal prefixes.
fn texts(metadata: &Metadata) -> Texts<'_> {
    let mut texts = Texts::default();
    for (key, value) in metadata.iter() {
        for (keys, texts) in KEYS.iter().zip(&mut texts) {
            for (name, text) in keys.iter().zip(texts) {
                if key == name {
                    *text = Some(value);
                }
            }
        }
    }
    texts
}

/// Returns the data with the schema of the key, and that with the schema of the payload.
fn sides<'r>(key: &'r mut Data, payload: &'r mut Change) -> [[Option<&'r mut Data>; 2]; 2] {
    [[None, Some(key)], [Some(&mut payload.before), Some(&mut payload.after)]]
}

#[cfg(test)]
mod tests;
