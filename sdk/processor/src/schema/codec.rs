//! Decoding before the processor, and encoding after it.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::avro::Avro;
use super::infer::infer;
use crate::error::Error;
use crate::metadata::{
    KEY_SCHEMA_SUBJECT, KEY_SCHEMA_VERSION, Metadata, PAYLOAD_SCHEMA_SUBJECT, PAYLOAD_SCHEMA_VERSION,
};
use crate::parameters::{Declarations, Settings};
use crate::record::{Data, Record};
use crate::value::Map;

const SWITCHES: [(&str, &str); 4] = [
    ("sdk.schema.decode.key.enabled", "Whether the key is decoded, where the metadata name its schema."),
    ("sdk.schema.decode.payload.enabled", "Whether the payload is decoded, where the metadata name its schema."),
    ("sdk.schema.encode.key.enabled", "Whether the key is encoded again, where the metadata name its schema."),
    ("sdk.schema.encode.payload.enabled", "Whether the payload is encoded again, where the metadata name its schema."),
];

/// Schemas are looked up once; few are in use at a time, but a processor may live for years.
const MOST_CACHED: usize = 256;

/// Where the metadata name the schema of the key, and of the payload.
const KEYS: [(&str, &str); 2] =
    [(KEY_SCHEMA_SUBJECT, KEY_SCHEMA_VERSION), (PAYLOAD_SCHEMA_SUBJECT, PAYLOAD_SCHEMA_VERSION)];

/// Decodes and encodes records, as far as it is switched on.
#[derive(Debug)]
pub(crate) struct Codec {
    /// For the key and for the payload.
    decode: [bool; 2],
    encode: [bool; 2],
    /// By subject and version.
    schemas: BTreeMap<(String, i32), Rc<Avro>>,
    /// Versions of inferred schemas, by subject and text.
    inferred: BTreeMap<(String, String), i32>,
    warned: [bool; 2],
}

impl Default for Codec {
    fn default() -> Self {
        Codec {
            decode: [true; 2],
            encode: [true; 2],
            schemas: BTreeMap::new(),
            inferred: BTreeMap::new(),
            warned: [false; 2],
        }
    }
}

/// The schema that the metadata name.
#[derive(Clone, Debug, PartialEq)]
struct Named {
    subject: String,
    version: i32,
}

/// The schemas that a record named for its key and payload before it was processed.
#[derive(Debug, Default)]
pub(crate) struct Attached([Option<Named>; 2]);

impl Codec {
    pub(crate) fn declare(declarations: &mut Declarations) {
        for (name, description) in SWITCHES {
            declarations.add_switch(name, description);
        }
    }

    /// Takes the switches out of the settings. `None`: problems were noted there.
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

    /// The schemas that a record names; what is wrong with them is said where they are used.
    pub(crate) fn attached(&self, record: &Record) -> Attached {
        Attached(std::array::from_fn(|i| {
            if self.encode[i] { named(&record.metadata, KEYS[i]).ok().flatten() } else { None }
        }))
    }

    pub(crate) fn decode(&mut self, record: &mut Record) -> Result<(), Error> {
        for (i, keys) in KEYS.into_iter().enumerate() {
            if !self.decode[i] {
                continue;
            }
            let Some(schema) = named(&record.metadata, keys)? else {
                let half = record.metadata.contains_key(keys.0) || record.metadata.contains_key(keys.1);
                if half && !std::mem::replace(&mut self.warned[i], true) {
                    log::warn!("records have only one of {} and {}, and are left as they are", keys.0, keys.1);
                }
                continue;
            };
            for data in data(record, i).into_iter().flatten() {
                if let Data::Raw(bytes) = data {
                    let decoded = self.schema(&schema)?.decode(bytes);
                    *data = Data::Structured(decoded.map_err(|error| schema.blame("decode", &error))?);
                }
            }
        }
        Ok(())
    }

    pub(crate) fn encode(&mut self, record: &mut Record, attached: &Attached) -> Result<(), Error> {
        for (i, keys) in KEYS.into_iter().enumerate() {
            if !self.encode[i] || data(record, i).into_iter().flatten().all(|data| data.as_structured().is_none()) {
                continue;
            }
            let Some(mut schema) = named(&record.metadata, keys)? else { continue };
            let mut encoded = self.encoded(&schema, data(record, i))?;
            if encoded.is_none() && attached.0[i].as_ref() == Some(&schema) {
                // The processor changed the shape of the data.
                // The side after the change decides.
                let shape = data(record, i).into_iter().flatten().rev().find_map(|data| data.as_structured());
                let text = shape.map(infer).transpose()?.unwrap_or_default();
                schema.version = self.create(&schema.subject, text)?;
                record.metadata.insert(keys.1.to_owned(), schema.version.to_string());
                encoded = self.encoded(&schema, data(record, i))?;
            }
            let encoded = encoded.ok_or_else(|| schema.blame("encode", &"they do not fit the schema"))?;
            for (data, encoded) in data(record, i).into_iter().zip(encoded) {
                if let (Some(data), Some(bytes)) = (data, encoded) {
                    *data = Data::Raw(bytes);
                }
            }
        }
        Ok(())
    }

    /// Both sides in binary, as far as they are structured; `None`: one of them does not fit the schema.
    fn encoded(&mut self, schema: &Named, data: [Option<&mut Data>; 2]) -> Result<Option<[Option<Vec<u8>>; 2]>, Error> {
        let avro = self.schema(schema)?;
        let encode = |map: &Map| {
            let mut bytes = Vec::new();
            avro.encode(map, &mut bytes).then_some(bytes)
        };
        let mut encoded = [None, None];
        for (data, encoded) in data.into_iter().zip(&mut encoded) {
            if let Some(Data::Structured(map)) = data {
                match encode(map) {
                    Some(bytes) => *encoded = Some(bytes),
                    None => return Ok(None),
                }
            }
        }
        Ok(Some(encoded))
    }

    fn schema(&mut self, named: &Named) -> Result<Rc<Avro>, Error> {
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

    /// The version of an inferred schema.
    fn create(&mut self, subject: &str, text: String) -> Result<i32, Error> {
        let key = (subject.to_owned(), text);
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

fn named(metadata: &Metadata, keys: (&str, &str)) -> Result<Option<Named>, Error> {
    let (Some(subject), Some(version)) = (metadata.get(keys.0), metadata.get(keys.1)) else { return Ok(None) };
    let number = version.parse().map_err(|_| Error::new(format!("{}: {version:?} is no number", keys.1)))?;
    Ok(Some(Named { subject: subject.clone(), version: number }))
}

/// What has the schema of the key, or what has that of the payload.
fn data(record: &mut Record, i: usize) -> [Option<&mut Data>; 2] {
    match i {
        0 => [None, Some(&mut record.key)],
        _ => [Some(&mut record.payload.before), Some(&mut record.payload.after)],
    }
}

#[cfg(test)]
mod tests;
