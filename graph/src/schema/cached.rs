//! Answers that are known already.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;

use super::{Definition, Schema, SchemaError, SchemaId, SchemaKind, SchemaRegistry, SchemaVersion};
use crate::text::Str;

/// Most answers kept of each kind: data whose shape never repeats must not fill the memory.
const KEPT: usize = 10_000;

/// Asks the registry behind it once for each schema: what is said of a version, an id or a text stays true.
#[derive(Debug, Default)]
pub struct Cached<R> {
    registry: R,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    versions: HashMap<(Str, SchemaVersion), Arc<Schema>>,
    texts: HashMap<(Str, Str), Arc<Schema>>,
    ids: HashMap<SchemaId, Arc<Definition>>,
}

fn put<K: Eq + Hash, V>(map: &mut HashMap<K, V>, key: K, value: V) {
    if map.len() >= KEPT {
        map.clear();
    }
    map.insert(key, value);
}

impl<R> Cached<R> {
    /// Nothing of this registry is known yet.
    pub fn new(registry: R) -> Self {
        Cached { registry, known: Mutex::default() }
    }

    fn with<T>(&self, f: impl FnOnce(&mut Known) -> T) -> T {
        f(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl<R: SchemaRegistry> SchemaRegistry for Cached<R> {
    async fn create(&self, subject: &Str, kind: SchemaKind, text: &Str) -> Result<Arc<Schema>, SchemaError> {
        let key = (subject.clone(), text.clone());
        if let Some(known) = self.with(|known| known.texts.get(&key).cloned()) {
            return Ok(known);
        }
        let schema = self.registry.create(subject, kind, text).await?;
        self.with(|known| {
            put(&mut known.texts, key, schema.clone());
            put(&mut known.versions, (subject.clone(), schema.version), schema.clone());
        });
        Ok(schema)
    }

    async fn get(&self, subject: &Str, version: SchemaVersion) -> Result<Arc<Schema>, SchemaError> {
        let key = (subject.clone(), version);
        if let Some(known) = self.with(|known| known.versions.get(&key).cloned()) {
            return Ok(known);
        }
        let schema = self.registry.get(subject, version).await?;
        self.with(|known| put(&mut known.versions, key, schema.clone()));
        Ok(schema)
    }

    async fn by_id(&self, id: SchemaId) -> Result<Arc<Definition>, SchemaError> {
        if let Some(known) = self.with(|known| known.ids.get(&id).cloned()) {
            return Ok(known);
        }
        let definition = self.registry.by_id(id).await?;
        self.with(|known| put(&mut known.ids, id, definition.clone()));
        Ok(definition)
    }

    async fn versions(&self, subject: &Str) -> Result<Vec<SchemaVersion>, SchemaError> {
        self.registry.versions(subject).await
    }
}
