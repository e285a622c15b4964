//! Methods of the parts of a record, and of values that functions return.

use anabranch_record::metadata::key;
use anabranch_record::text::Str;

use super::functions::{CallError, Context, Function, Param, methods};
use super::val::{Map, Val};

/// Returns the method of `receiver` with the given name; the receiver is its first argument.
pub(super) fn find(receiver: &Val, name: &str) -> Option<&'static Function> {
    let table = match receiver {
        Val::Operation(_) => OPERATION,
        Val::Position(_) => POSITION,
        Val::Raw(_) | Val::Map(Map::Structured(_)) => DATA,
        Val::Record(_) => RECORD,
        Val::Map(Map::Metadata(_)) => METADATA,
        Val::Time(_) => methods::TIME,
        Val::Duration(_) => methods::DURATION,
        Val::Version(_) => methods::VERSION,
        _ => return None,
    };
    table.iter().find(|method| method.name == name)
}

/// Returns `true` if a name below the metadata is a method and not an entry.
pub(super) fn is_of_metadata(name: &str) -> bool {
    METADATA.iter().any(|method| method.name == name)
}

/// Returns `true` if a name below a key or payload side is a method and not a field.
pub(super) fn is_of_data(name: &str) -> bool {
    DATA.iter().any(|method| method.name == name)
}

const SELF: &[Param] = &[Param::Reflect];

pub(super) static OPERATION: &[Function] = &[Function::new("String", SELF, text)];
pub(super) static POSITION: &[Function] = &[Function::new("String", SELF, text)];
pub(super) static DATA: &[Function] = &[Function::new("Bytes", SELF, encoded)];
pub(super) static RECORD: &[Function] = &[Function::new("Bytes", SELF, encoded)];

fn text(_: &mut Context, args: &[Val]) -> Result<Val, CallError> {
    let [receiver] = args else { return Err(CallError::arguments()) };
    super::format::to_text(receiver).map(Val::Text)
}

/// Returns raw data unchanged, anything else as JSON.
fn encoded(context: &mut Context, args: &[Val]) -> Result<Val, CallError> {
    match args {
        [Val::Raw(bytes)] => Ok(Val::Bytes(bytes.clone())),
        [_] => {
            let encode = super::functions::find("mustToJson").ok_or_else(CallError::arguments)?;
            match (encode.call)(context, args)? {
                Val::Text(json) => Ok(Val::Bytes(bytes::Bytes::copy_from_slice(json.as_bytes()))),
                _ => Err(CallError::arguments()),
            }
        }
        _ => Err(CallError::arguments()),
    }
}

/// Defines getters of metadata entries; a missing entry is an error.
macro_rules! getters {
(@ entry) => { "text" };
(@ integer) => { "int" };
(@ time) => { "time" };
($($name:literal => $key:ident as $kind:ident;)*) => {
    static METADATA: &[Function] = &[$(Function::new($name, SELF, |_, args| $kind(args, &key::$key))),*];
    /// Name, entry and type of each.
    pub(super) static METADATA_KEYS: &[(&str, &Str, &str)] = &[$(($name, &key::$key, getters!(@ $kind))),*];
} }

getters! {
    "GetOpenCDCVersion" => VERSION as entry;
    "GetVersion" => VERSION as entry;
    "GetCreatedAt" => CREATED_AT as time;
    "GetReadAt" => READ_AT as time;
    "GetCollection" => COLLECTION as entry;
    "GetKeySchemaSubject" => KEY_SCHEMA_SUBJECT as entry;
    "GetKeySchemaVersion" => KEY_SCHEMA_VERSION as integer;
    "GetPayloadSchemaSubject" => PAYLOAD_SCHEMA_SUBJECT as entry;
    "GetPayloadSchemaVersion" => PAYLOAD_SCHEMA_VERSION as integer;
    "GetFileName" => FILE_PATH as entry;
    "GetSourceConnectorID" => SOURCE_CONNECTOR_ID as entry;
    "GetSourcePluginName" => SOURCE_PLUGIN_NAME as entry;
    "GetSourcePluginVersion" => SOURCE_PLUGIN_VERSION as entry;
    "GetDLQNackError" => DLQ_NACK_ERROR as entry;
    "GetDLQNackNodeID" => DLQ_NACK_NODE_ID as entry;
    "GetConduitSourceConnectorID" => SOURCE_CONNECTOR_ID as entry;
    "GetConduitSourcePluginName" => SOURCE_PLUGIN_NAME as entry;
    "GetConduitSourcePluginVersion" => SOURCE_PLUGIN_VERSION as entry;
    "GetConduitDLQNackError" => DLQ_NACK_ERROR as entry;
    "GetConduitDLQNackNodeID" => DLQ_NACK_NODE_ID as entry;
}

fn get<'v>(args: &'v [Val], key: &Str) -> Result<&'v Str, CallError> {
    match args {
        [Val::Map(Map::Metadata(metadata))] => {
            metadata.get(key).ok_or_else(|| format!("the record has no metadata {key:?}").into())
        }
        _ => Err(CallError::arguments()),
    }
}

fn entry(args: &[Val], key: &Str) -> Result<Val, CallError> {
    get(args, key).map(|text| Val::text(text.clone()))
}

fn number(args: &[Val], key: &Str) -> Result<i64, CallError> {
    let text = get(args, key)?;
    text.parse().map_err(|_| format!("the metadata {key:?} is not an integer, but {:?}", &**text).into())
}

fn integer(args: &[Val], key: &Str) -> Result<Val, CallError> {
    number(args, key).map(Val::Int)
}

/// Reads an entry that contains nanoseconds since the epoch.
fn time(args: &[Val], key: &Str) -> Result<Val, CallError> {
    let at = chrono::DateTime::from_timestamp_nanos(number(args, key)?);
    Ok(Val::Time(std::rc::Rc::new(super::val::Time::utc(at))))
}
