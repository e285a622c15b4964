//! The schema registry of a trial: it contains the registered schemas, and discards what the trial registers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anabranch_plugin::schema::{
    Cached, Definition, Schema, SchemaError, SchemaId, SchemaKind, SchemaRegistry, SchemaVersion,
};
use anabranch_record::text::Str;
use anabranch_settings::{Database, Settings};
use anabranch_store::Store;
use async_trait::async_trait;

use tokio::sync::OnceCell;

use anabranch_service::{ServiceError, schemas};

/// The first id that a trial assigns if the ids of an external registry are not all known. Registries count from one.
const FIRST_ID: u32 = 1_000_000_001;
/// Maximum number of versions of a subject, from the latest, that are compared with a schema before it counts as new.
const MOST_COMPARED: usize = 100;

/// Creates the registry of a trial. Opens nothing: an external registry is queried, and the schemas of the store are
/// copied, when a record needs one. Copying takes O(schemas of the store).
///
/// # Errors
/// The settings of an external registry are not valid.
pub fn registry(settings: &Settings) -> Result<Arc<dyn SchemaRegistry>, ServiceError> {
    Ok(Arc::new(Cached::new(match schemas::elsewhere(&settings.schemas)? {
        Some(external) => Overlay::over(external),
        None => Overlay { store: Some(settings.database.clone()), ..Overlay::default() },
    })))
}

/// The schemas of an external registry or of the store, and those of the trial.
#[derive(Default)]
struct Overlay {
    external: Option<Arc<dyn SchemaRegistry>>,
    store: Option<Database>,
    /// Reason why the schemas of the store could not be copied; set at the first use.
    unknown: OnceCell<Option<Str>>,
    local: Mutex<LocalSchemas>,
}

/// The schemas that the store had or the trial added.
#[derive(Default)]
struct LocalSchemas {
    definitions: BTreeMap<SchemaId, Arc<Definition>>,
    subjects: BTreeMap<Str, BTreeMap<SchemaVersion, Arc<Schema>>>,
}

impl LocalSchemas {
    fn add(&mut self, schema: Arc<Schema>) {
        let Schema { id, kind, text, .. } = &*schema;
        self.definitions.insert(*id, Arc::new(Definition { id: *id, kind: *kind, text: text.clone() }));
        self.subjects.entry(schema.subject.clone()).or_default().insert(schema.version, schema);
    }

    fn versions(&self, subject: &Str) -> impl Iterator<Item = &Arc<Schema>> {
        self.subjects.get(subject).into_iter().flat_map(BTreeMap::values)
    }
}

/// Opens a store, copies its schemas, and releases it.
async fn copied(database: Database) -> Result<LocalSchemas, String> {
    if matches!(&database, Database::Embedded(path) if !path.exists()) || matches!(database, Database::InMemory) {
        return Ok(LocalSchemas::default());
    }
    let opened = tokio::task::spawn_blocking(move || Store::open(&database)).await;
    let store = opened.map_err(|_| "the store could not be opened".to_owned())?.map_err(|error| error.to_string())?;
    let local = schemas_of(&store).await.map_err(|error| error.to_string());
    store.release().await;
    local
}

async fn schemas_of(store: &Store) -> Result<LocalSchemas, SchemaError> {
    let mut local = LocalSchemas::default();
    for (subject, _) in store.subjects().await? {
        for entry in store.entries(&subject).await? {
            // Data with a soft-deleted schema can still be read.
            if entry.deleted {
                local.definitions.insert(entry.id, store.by_id(entry.id).await?);
            } else {
                local.add(store.get(&subject, entry.version).await?);
            }
        }
    }
    Ok(local)
}

impl Overlay {
    fn over(external: Arc<dyn SchemaRegistry>) -> Self {
        Overlay { external: Some(external), ..Overlay::default() }
    }

    fn local(&self) -> MutexGuard<'_, LocalSchemas> {
        self.local.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies the schemas of the store at the first call. Returns the reason if that failed.
    async fn load(&self) -> Option<&Str> {
        let load = async || {
            let copied = copied(self.store.clone()?).await;
            copied.map(|known| *self.local() = known).err().map(Str::from)
        };
        self.unknown.get_or_init(load).await.as_ref()
    }

    /// Returns the error for a missing schema, or the reason why schemas are unknown.
    async fn missing(&self, error: SchemaError) -> SchemaError {
        match self.load().await {
            Some(why) => SchemaError::Unusable(format!("{error}; the schemas of the store are unknown: {why}").into()),
            None => error,
        }
    }

    /// Returns the versions in the external registry; empty if it does not have the subject.
    async fn versions_elsewhere(&self, subject: &Str) -> Result<Vec<SchemaVersion>, SchemaError> {
        match &self.external {
            None => Ok(Vec::new()),
            Some(external) => match external.versions(subject).await {
                Err(SchemaError::SubjectNotFound(_)) => Ok(Vec::new()),
                other => other,
            },
        }
    }
}

fn full() -> SchemaError {
    SchemaError::Unusable("all ids and versions are in use".into())
}

#[async_trait]
impl SchemaRegistry for Overlay {
    async fn create(&self, subject: &Str, kind: SchemaKind, text: &Str) -> Result<Arc<Schema>, SchemaError> {
        let _ = self.load().await;
        let there = self.versions_elsewhere(subject).await?;
        if let Some(external) = &self.external {
            for version in there.iter().rev().take(MOST_COMPARED) {
                let schema = external.get(subject, *version).await?;
                if schema.kind == kind && schema.text == *text {
                    return Ok(schema);
                }
            }
        }
        let mut local = self.local();
        if let Some(known) = local.versions(subject).find(|schema| schema.kind == kind && schema.text == *text) {
            return Ok(known.clone());
        }
        let latest = local.versions(subject).map(|schema| schema.version).chain(there).max();
        let version = latest.map_or(Some(SchemaVersion::FIRST), SchemaVersion::next).ok_or_else(full)?;
        let known = local.definitions.values().find(|known| known.kind == kind && known.text == *text);
        let first = if self.external.is_some() { SchemaId::new(FIRST_ID) } else { Some(SchemaId::FIRST) };
        let next = || local.definitions.keys().next_back().map_or(first, |last| last.next());
        let id = known.map(|known| known.id).or_else(next).ok_or_else(full)?;
        let schema = Arc::new(Schema { subject: subject.clone(), version, id, kind, text: text.clone() });
        local.add(schema.clone());
        Ok(schema)
    }

    async fn get(&self, subject: &Str, version: SchemaVersion) -> Result<Arc<Schema>, SchemaError> {
        let _ = self.load().await;
        let missing = {
            let local = self.local();
            match local.subjects.get(subject) {
                Some(versions) => match versions.get(&version) {
                    Some(known) => return Ok(known.clone()),
                    None => SchemaError::VersionNotFound { subject: subject.clone(), version },
                },
                None => SchemaError::SubjectNotFound(subject.clone()),
            }
        };
        match &self.external {
            Some(external) => external.get(subject, version).await,
            None => Err(self.missing(missing).await),
        }
    }

    async fn by_id(&self, id: SchemaId) -> Result<Arc<Definition>, SchemaError> {
        let _ = self.load().await;
        if let Some(known) = self.local().definitions.get(&id).cloned() {
            return Ok(known);
        }
        match &self.external {
            Some(external) => external.by_id(id).await,
            None => Err(self.missing(SchemaError::SchemaNotFound(format!("id {id}").into())).await),
        }
    }

    async fn versions(&self, subject: &Str) -> Result<Vec<SchemaVersion>, SchemaError> {
        let _ = self.load().await;
        let mut versions = self.versions_elsewhere(subject).await?;
        versions.extend(self.local().versions(subject).map(|schema| schema.version));
        if versions.is_empty() {
            return Err(self.missing(SchemaError::SubjectNotFound(subject.clone())).await);
        }
        Ok(versions)
    }
}

#[cfg(test)]
mod tests {
    use anabranch_plugin::schema::MemoryRegistry;

    use super::*;

    async fn made(registry: &dyn SchemaRegistry, subject: &str, text: &str) -> (u32, u32) {
        let schema = registry.create(&subject.into(), SchemaKind::Avro, &text.into()).await.unwrap();
        (schema.version.get(), schema.id.get())
    }

    #[tokio::test]
    async fn what_is_elsewhere_is_known_and_stays_as_it_is() {
        let external = Arc::new(MemoryRegistry::new());
        assert_eq!(made(&*external, "a", "1").await, (1, 1));
        assert_eq!(made(&*external, "a", "2").await, (2, 2));
        let trial = Overlay::over(external.clone());
        assert_eq!(made(&trial, "a", "1").await, (1, 1));
        assert_eq!(made(&trial, "a", "3").await, (3, FIRST_ID));
        assert_eq!(made(&trial, "b", "3").await, (1, FIRST_ID));
        assert_eq!(made(&trial, "b", "4").await, (2, FIRST_ID + 1));
        assert_eq!(made(&trial, "a", "3").await, (3, FIRST_ID));
        let numbers = |versions: Vec<SchemaVersion>| versions.iter().map(|version| version.get()).collect::<Vec<_>>();
        assert_eq!(numbers(trial.versions(&"a".into()).await.unwrap()), [1, 2, 3]);
        assert_eq!(numbers(external.versions(&"a".into()).await.unwrap()), [1, 2]);
        for (subject, version, text) in [("a", 2, "2"), ("a", 3, "3"), ("b", 1, "3")] {
            let found = trial.get(&subject.into(), SchemaVersion::new(version).unwrap()).await.unwrap();
            assert_eq!(*found.text, *text);
            assert_eq!(*trial.by_id(found.id).await.unwrap().text, *text);
        }
        let missing = trial.get(&"c".into(), SchemaVersion::FIRST).await.unwrap_err();
        assert!(matches!(missing, SchemaError::SubjectNotFound(_)), "{missing}");
        let missing = trial.versions(&"c".into()).await.unwrap_err();
        assert!(matches!(missing, SchemaError::SubjectNotFound(_)), "{missing}");
    }

    #[tokio::test]
    async fn a_trial_without_a_registry_counts_from_one() {
        let trial = Overlay::default();
        assert_eq!(made(&trial, "a", "1").await, (1, 1));
        assert_eq!(made(&trial, "a", "2").await, (2, 2));
        let missing = trial.get(&"a".into(), SchemaVersion::new(3).unwrap()).await.unwrap_err();
        assert!(matches!(missing, SchemaError::VersionNotFound { .. }), "{missing}");
        assert!(matches!(trial.by_id(SchemaId::new(3).unwrap()).await, Err(SchemaError::SchemaNotFound(_))));
    }
}
