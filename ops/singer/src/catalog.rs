//! Catalogues of taps: the streams that a tap offers, and the choice among them.

use std::collections::BTreeMap;

use anabranch_plugin::parameters::Choice;
use anabranch_plugin::source::OfferedStream;
use anabranch_record::near::did_you_mean;
use anabranch_record::text::{Str, matches_stars};
use serde_json::{Map, Value, json};

/// Maximum number of names that an error lists.
const NAMED: usize = 20;

/// How a tap reads a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplicationMethod {
    FullTable,
    Incremental,
    LogBased,
}

impl Choice for ReplicationMethod {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("FULL_TABLE", ReplicationMethod::FullTable),
        ("INCREMENTAL", ReplicationMethod::Incremental),
        ("LOG_BASED", ReplicationMethod::LogBased),
    ];
}

impl ReplicationMethod {
    /// Returns the name in catalogues.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            ReplicationMethod::FullTable => "FULL_TABLE",
            ReplicationMethod::Incremental => "INCREMENTAL",
            ReplicationMethod::LogBased => "LOG_BASED",
        }
    }
}

/// Where the catalogue comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoredCatalog {
    /// The tap discovers it.
    Discovered,
    /// JSON text.
    Text(Str),
    /// The path of a file.
    File(Str),
}

impl StoredCatalog {
    /// Reads the setting: a text that begins with `{` is JSON.
    ///
    /// # Errors
    /// The text is JSON and not a catalogue, as a phrase.
    pub(crate) fn new(given: &Str) -> Result<StoredCatalog, String> {
        match given.trim_start().starts_with('{') {
            true => {
                TapCatalog::parse(given.as_bytes()).map_err(|error| error.to_string())?;
                Ok(StoredCatalog::Text(given.clone()))
            }
            false => Ok(StoredCatalog::File(given.clone())),
        }
    }
}

/// The streams that the settings choose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamSelection {
    /// Patterns of names and ids; `None` = the settings do not choose.
    pub(crate) streams: Option<Vec<Str>>,
    /// Replication methods by name or id.
    pub(crate) methods: BTreeMap<Str, ReplicationMethod>,
    /// Replication keys by name or id.
    pub(crate) keys: BTreeMap<Str, Str>,
}

impl StreamSelection {
    /// Returns `true` if the settings change nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.streams.is_none() && self.methods.is_empty() && self.keys.is_empty()
    }
}

/// Reason why a catalogue cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CatalogError {
    #[error("it is not a JSON object with a list `streams` (line {0}, column {1})")]
    Invalid(usize, usize),
    #[error("it has a stream without `tap_stream_id` and `stream`")]
    Nameless,
    #[error("{setting}: the tap has no stream {name:?}{near}")]
    NoStream { setting: &'static str, name: Str, near: String },
    #[error("the stream {stream:?} can be read only with the method {forced}, not {wanted}")]
    Forced { stream: Str, forced: String, wanted: &'static str },
    #[error("the stream {stream:?} cannot be read incrementally by {key:?}; possible: {possible}")]
    ReplicationKey { stream: Str, key: Str, possible: String },
    #[error("the stream {0:?} is read incrementally and needs a replication key: set replicationKey.{0}")]
    NoReplicationKey(Str),
}

/// A catalogue.
#[derive(Clone, Debug)]
pub(crate) struct TapCatalog(Value);

impl TapCatalog {
    /// Parses a catalogue.
    pub(crate) fn parse(text: &[u8]) -> Result<TapCatalog, CatalogError> {
        let value: Value =
            serde_json::from_slice(text).map_err(|error| CatalogError::Invalid(error.line(), error.column()))?;
        let streams = value["streams"].as_array().ok_or(CatalogError::Invalid(1, 1))?;
        match streams.iter().all(|stream| stream.is_object() && !id_of(stream).is_empty()) {
            true => Ok(TapCatalog(value)),
            false => Err(CatalogError::Nameless),
        }
    }

    /// Returns the JSON text.
    pub(crate) fn text(&self) -> String {
        self.0.to_string()
    }

    fn streams(&self) -> impl Iterator<Item = &Value> {
        self.0["streams"].as_array().into_iter().flatten()
    }

    /// Selects the chosen streams with all their properties, deselects the others, and sets replication methods and keys.
    /// Without a choice of streams, `all` decides whether all streams are selected, or those that the catalogue selects.
    ///
    /// # Errors
    /// The settings name a stream, a method or a key that the tap does not have.
    pub(crate) fn choose(&mut self, selection: &StreamSelection, all: bool) -> Result<(), CatalogError> {
        let every = [Str::from_static("*")];
        let patterns = match &selection.streams {
            Some(patterns) => Some(patterns.as_slice()),
            None => all.then_some(&every[..]),
        };
        for name in selection.streams.iter().flatten() {
            self.check("streams", name)?;
        }
        for name in selection.methods.keys() {
            self.check("replicationMethod", name)?;
        }
        for name in selection.keys.keys() {
            self.check("replicationKey", name)?;
        }
        for stream in self.0["streams"].as_array_mut().into_iter().flatten() {
            if let Some(patterns) = patterns {
                let is_chosen = patterns.iter().any(|pattern| is_named(stream, pattern));
                select(stream, is_chosen);
            }
            replicate(stream, selection)?;
        }
        Ok(())
    }

    fn check(&self, setting: &'static str, pattern: &Str) -> Result<(), CatalogError> {
        if self.streams().any(|stream| is_named(stream, pattern)) || *pattern == *"*" {
            return Ok(());
        }
        let names: Vec<&str> = self.streams().flat_map(|stream| [id_of(stream), name_of(stream)]).collect();
        let near = match did_you_mean(pattern, names.iter().copied()) {
            Some(near) => format!("; did you mean {near}?"),
            None => {
                let mut ids: Vec<&str> = self.streams().map(id_of).collect();
                let more = ids.len().saturating_sub(NAMED);
                ids.truncate(NAMED);
                match (ids.is_empty(), more) {
                    (true, _) => "; it has no streams".to_owned(),
                    (false, 0) => format!("; it has: {}", ids.join(", ")),
                    (false, more) => format!("; it has: {} and {more} more", ids.join(", ")),
                }
            }
        };
        Err(CatalogError::NoStream { setting, name: pattern.clone(), near })
    }

    /// Returns the streams, for people.
    pub(crate) fn offered(&self) -> Vec<OfferedStream> {
        let offered = |stream: &Value| {
            let metadata = root(stream);
            let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(Str::from);
            let either = |name: &str, in_metadata: &str| text(&stream[name]).or_else(|| text(&metadata[in_metadata]));
            let key = match &stream["key_properties"] {
                Value::Array(_) => names(&stream["key_properties"]),
                _ => ["table-key-properties", "view-key-properties"].map(|name| names(&metadata[name])).concat(),
            };
            let properties = stream["schema"]["properties"].as_object();
            OfferedStream {
                id: id_of(stream).into(),
                name: name_of(stream).into(),
                key,
                replication_method: either("replication_method", "replication-method")
                    .or_else(|| text(&metadata["forced-replication-method"])),
                replication_key: either("replication_key", "replication-key"),
                replication_keys: names(&metadata["valid-replication-keys"]),
                properties: properties
                    .map_or_else(Vec::new, |all| all.keys().map(|name| name.as_str().into()).collect()),
                is_selected: metadata["selected"].as_bool().unwrap_or(false),
            }
        };
        self.streams().map(offered).collect()
    }
}

fn names(list: &Value) -> Vec<Str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(Str::from).collect()
}

fn id_of(stream: &Value) -> &str {
    stream["tap_stream_id"].as_str().or_else(|| stream["stream"].as_str()).unwrap_or_default()
}

fn name_of(stream: &Value) -> &str {
    stream["stream"].as_str().unwrap_or_else(|| id_of(stream))
}

fn is_named(stream: &Value, pattern: &str) -> bool {
    matches_stars(pattern, id_of(stream)) || matches_stars(pattern, name_of(stream))
}

/// Returns the metadata of a stream itself.
fn root(stream: &Value) -> &Value {
    let entries = stream["metadata"].as_array().into_iter().flatten();
    let found = entries.into_iter().find(|entry| entry["breadcrumb"].as_array().is_some_and(Vec::is_empty));
    found.map_or(&Value::Null, |entry| &entry["metadata"])
}

/// Sets an entry of the metadata of a part of a stream, which `value` makes from the entry. Adds what the catalogue lacks.
fn set_metadata(stream: &mut Value, breadcrumb: &[&str], name: &str, value: impl FnOnce(&Map<String, Value>) -> Value) {
    let all = &mut stream["metadata"];
    if !all.is_array() {
        *all = json!([]);
    }
    let Some(entries) = all.as_array_mut() else { return };
    let is_of = |entry: &Value| entry["breadcrumb"].as_array().is_some_and(|parts| parts.iter().eq(breadcrumb.iter()));
    let at = entries.iter().position(is_of).unwrap_or_else(|| {
        entries.push(json!({"breadcrumb": breadcrumb}));
        entries.len() - 1
    });
    let metadata = &mut entries[at]["metadata"];
    if !metadata.is_object() {
        *metadata = json!({});
    }
    if let Some(metadata) = metadata.as_object_mut() {
        let value = value(metadata);
        metadata.insert(name.to_owned(), value);
    }
}

fn select(stream: &mut Value, is_chosen: bool) {
    set_metadata(stream, &[], "selected", |_| is_chosen.into());
    // Old taps read it here.
    if let Some(schema) = stream.get_mut("schema").and_then(Value::as_object_mut) {
        schema.insert("selected".to_owned(), is_chosen.into());
    }
    if !is_chosen {
        return;
    }
    let properties = stream["schema"]["properties"].as_object();
    let properties: Vec<String> = properties.into_iter().flat_map(|all| all.keys().cloned()).collect();
    for property in properties {
        set_metadata(stream, &["properties", &property], "selected", |metadata| {
            let is_possible = metadata.get("inclusion").and_then(Value::as_str) != Some("unsupported");
            // A catalogue of the user may exclude properties.
            metadata.get("selected").cloned().unwrap_or(is_possible.into())
        });
    }
}

fn replicate(stream: &mut Value, selection: &StreamSelection) -> Result<(), CatalogError> {
    let (id, name) = (Str::from(id_of(stream)), Str::from(name_of(stream)));
    let method = selection.methods.get(&id).or_else(|| selection.methods.get(&name));
    let key = selection.keys.get(&id).or_else(|| selection.keys.get(&name));
    let found = root(stream);
    if let (Some(method), Some(forced)) = (method, found["forced-replication-method"].as_str())
        && !forced.is_empty()
        && forced != method.as_str()
    {
        let forced = forced.to_owned();
        return Err(CatalogError::Forced { stream: id, forced, wanted: method.as_str() });
    }
    if let Some(key) = key {
        let possible = names(&found["valid-replication-keys"]);
        let exists = stream["schema"]["properties"].get(key.as_str()).is_some();
        if (!possible.is_empty() && !possible.contains(key)) || (possible.is_empty() && !exists) {
            let possible = match possible.is_empty() {
                true => "its properties".to_owned(),
                false => possible.join(", "),
            };
            return Err(CatalogError::ReplicationKey { stream: id, key: key.clone(), possible });
        }
    }
    let is_text = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
    let has_key = key.is_some() || is_text(&found["replication-key"]) || is_text(&stream["replication_key"]);
    if method == Some(&ReplicationMethod::Incremental) && !has_key {
        return Err(CatalogError::NoReplicationKey(id));
    }
    let values = [
        method.map(|method| ("replication-method", "replication_method", method.as_str())),
        key.map(|key| ("replication-key", "replication_key", key.as_str())),
    ];
    for (in_metadata, in_stream, value) in values.into_iter().flatten() {
        set_metadata(stream, &[], in_metadata, |_| value.into());
        stream[in_stream] = value.into();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog() -> TapCatalog {
        let text = r#"{"streams": [
            {"tap_stream_id": "shop-orders", "stream": "orders", "key_properties": ["id"],
             "schema": {"type": "object", "properties": {"id": {"type": "integer"}, "at": {"type": "string"}, "blob": {}}},
             "metadata": [
                {"breadcrumb": [], "metadata": {"valid-replication-keys": ["at", "id"], "selected-by-default": false}},
                {"breadcrumb": ["properties", "blob"], "metadata": {"inclusion": "unsupported"}},
                {"breadcrumb": ["properties", "at"], "metadata": {"inclusion": "available"}}]},
            {"tap_stream_id": "shop-log", "stream": "log", "schema": {"properties": {"x": {}}},
             "metadata": [{"breadcrumb": [], "metadata": {"forced-replication-method": "FULL_TABLE",
                "table-key-properties": ["x"], "selected": true}}]}]}"#;
        TapCatalog::parse(text.as_bytes()).unwrap()
    }

    fn selected(catalog: &TapCatalog) -> Vec<String> {
        catalog.offered().iter().filter(|stream| stream.is_selected).map(|stream| stream.id.to_string()).collect()
    }

    fn chosen(streams: &[&str]) -> StreamSelection {
        StreamSelection {
            streams: Some(streams.iter().map(|name| Str::from(*name)).collect()),
            ..StreamSelection::default()
        }
    }

    #[test]
    fn a_tap_without_streams_is_named_so() {
        let mut empty = TapCatalog::parse(br#"{"streams": []}"#).unwrap();
        let error = empty.choose(&chosen(&["orders"]), true).unwrap_err();
        assert_eq!(error.to_string(), "streams: the tap has no stream \"orders\"; it has no streams");
    }

    #[test]
    fn chosen_streams_are_selected_with_their_properties() {
        let mut by_name = catalog();
        by_name.choose(&chosen(&["orders"]), true).unwrap();
        assert_eq!(selected(&by_name), ["shop-orders"]);
        let entries = by_name.0["streams"][0]["metadata"].as_array().unwrap();
        let of = |name: &str| {
            let entry = entries.iter().find(|entry| entry["breadcrumb"] == json!(["properties", name])).unwrap();
            entry["metadata"]["selected"].as_bool().unwrap()
        };
        assert_eq!([of("id"), of("at"), of("blob")], [true, true, false]);
        assert_eq!(by_name.0["streams"][1]["schema"]["selected"], false);
        let mut by_pattern = catalog();
        by_pattern.choose(&chosen(&["shop-*"]), true).unwrap();
        assert_eq!(selected(&by_pattern), ["shop-orders", "shop-log"]);
        let (mut all, mut as_given) = (catalog(), catalog());
        all.choose(&StreamSelection::default(), true).unwrap();
        assert_eq!(selected(&all), ["shop-orders", "shop-log"]);
        as_given.choose(&StreamSelection::default(), false).unwrap();
        assert_eq!(selected(&as_given), ["shop-log"]);
    }

    #[test]
    fn methods_and_keys_are_set_in_both_places() {
        let mut catalog = catalog();
        let selection = StreamSelection {
            methods: [("orders".into(), ReplicationMethod::Incremental)].into(),
            keys: [("shop-orders".into(), "at".into())].into(),
            ..StreamSelection::default()
        };
        catalog.choose(&selection, true).unwrap();
        let stream = &catalog.0["streams"][0];
        assert_eq!((&stream["replication_method"], &stream["replication_key"]), (&json!("INCREMENTAL"), &json!("at")));
        assert_eq!(root(stream)["replication-method"], "INCREMENTAL");
        assert_eq!(root(stream)["replication-key"], "at");
        let offered = &catalog.offered()[0];
        assert_eq!(
            (offered.replication_method.as_deref(), offered.key.as_slice()),
            (Some("INCREMENTAL"), &["id".into()][..])
        );
    }

    #[test]
    fn what_the_catalogue_does_not_allow_is_refused() {
        let refused = |selection: StreamSelection| catalog().choose(&selection, true).unwrap_err().to_string();
        assert_eq!(refused(chosen(&["ordrs"])), "streams: the tap has no stream \"ordrs\"; did you mean orders?");
        assert_eq!(refused(chosen(&["zzz"])), "streams: the tap has no stream \"zzz\"; it has: shop-orders, shop-log");
        let method = |name: &str, method| StreamSelection {
            methods: [(name.into(), method)].into(),
            ..StreamSelection::default()
        };
        assert_eq!(
            refused(method("log", ReplicationMethod::LogBased)),
            "the stream \"shop-log\" can be read only with the method FULL_TABLE, not LOG_BASED"
        );
        assert_eq!(
            refused(method("orders", ReplicationMethod::Incremental)),
            "the stream \"shop-orders\" is read incrementally and needs a replication key: set replicationKey.shop-orders"
        );
        let key = StreamSelection { keys: [("orders".into(), "blob".into())].into(), ..StreamSelection::default() };
        assert_eq!(
            refused(key),
            "the stream \"shop-orders\" cannot be read incrementally by \"blob\"; possible: at, id"
        );
    }

    #[test]
    fn other_texts_are_not_catalogues() {
        for other in ["{", "[]", "{}", r#"{"streams": {}}"#, r#"{"streams": [{}]}"#, r#"{"streams": [7]}"#] {
            assert!(TapCatalog::parse(other.as_bytes()).is_err(), "{other}");
        }
        let mut odd = TapCatalog::parse(br#"{"streams": [{"stream": "a", "metadata": 7, "schema": []}]}"#).unwrap();
        odd.choose(&chosen(&["a"]), true).unwrap();
        assert_eq!(selected(&odd), ["a"]);
    }
}
