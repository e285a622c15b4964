//! Schema cache of one worker: schemas that it has used, ready to encode and decode.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anabranch_plugin::schema::{Schema, SchemaError, SchemaId, SchemaRegistry, SchemaVersion};
use anabranch_record::avro::infer;
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::metadata::Metadata;
use anabranch_record::text::Str;
use anabranch_record::value::Object;

use crate::codec::{Codec, CodecError};
use crate::codes;
use crate::part::SchemaPart;
use crate::shape::FlatShape;

use self::request::{RegistryRequest, RegistryResult};

pub(crate) use self::request::RegistryClient;

mod request;

/// Maximum number of cached schemas of each kind, so that data whose shapes keep changing does not fill the memory.
const MOST_SCHEMAS: usize = 1024;

/// Known relation between a shape of data and a version, named as in metadata.
struct KnownFit {
    subject: Str,
    version: Str,
    shape: Arc<FlatShape>,
    fit: Fit,
}

/// Result of the comparison of data with a version of a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// The version is the schema inferred from the data.
    Fits,
    /// The data never fits; the schema inferred from it is this version.
    Replaced(Str),
    /// It depends on the values, because the schema was not inferred.
    Depends,
}

/// Time after which the highest version of a subject is requested again.
const NEWEST: Duration = Duration::from_secs(60);

/// Time after a failed request in which no other one is sent from the same thread.
const AWAY: Duration = Duration::from_secs(1);

/// Maximum number of cached shapes.
const MOST_SHAPES: usize = 16;

/// A version of a subject, ready to use.
#[derive(Debug)]
pub struct CompiledSchema {
    /// The schema in the registry.
    pub schema: Arc<Schema>,
    /// Its compiled codec.
    pub codec: Arc<Codec>,
}

/// The schema of an id, ready to use.
#[derive(Debug)]
pub(crate) struct CompiledDefinition {
    pub(crate) text: Str,
    pub(crate) codec: Arc<Codec>,
}

/// Cache of schemas by id, version and text. A cached schema costs a look-up without a lock. Any other one costs a
/// request to the registry: the thread waits for it or, within [`SchemaCache::run`], the task.
pub struct SchemaCache {
    client: RegistryClient,
    /// Requests of the current attempt; `None` = this thread sends requests itself.
    attempt: Option<Attempt>,
    versions: HashMap<Str, HashMap<SchemaVersion, Arc<CompiledSchema>>>,
    /// The last requested version, which is usually requested again.
    latest: Option<(Str, SchemaVersion, Arc<CompiledSchema>)>,
    texts: HashMap<Str, HashMap<Str, Arc<CompiledSchema>>>,
    ids: HashMap<SchemaId, Arc<CompiledDefinition>>,
    /// The last fault of a registry that did not answer, outside of an attempt.
    away: Option<(Instant, Fault)>,
    /// The highest versions of subjects, with the times of the answers.
    newest: HashMap<Str, (Instant, Arc<CompiledSchema>)>,
    /// Latest first.
    shapes: Vec<KnownFit>,
    /// For the key and the payload.
    cached_names: [Option<CachedName>; 2],
    /// Last shared metadata from which the schema was removed, before and after, for the key and the payload.
    without_schema: [Option<(Metadata, Metadata)>; 2],
}

/// Result for the last data of a part whose metadata is shared with other records, such as those of one read.
struct CachedName {
    metadata: Metadata,
    shape: Arc<FlatShape>,
    /// The metadata with the version that fits.
    after: Metadata,
}

impl SchemaCache {
    /// Creates an empty cache.
    pub fn new(registry: Arc<dyn SchemaRegistry>) -> SchemaCache {
        let (versions, texts, ids) = (HashMap::new(), HashMap::new(), HashMap::new());
        let (cached_names, without_schema) = ([None, None], [None, None]);
        let client = RegistryClient::new(registry);
        SchemaCache {
            client,
            attempt: None,
            versions,
            latest: None,
            texts,
            ids,
            away: None,
            newest: HashMap::new(),
            shapes: Vec::new(),
            cached_names,
            without_schema,
        }
    }

    /// Runs `work`, which may need missing schemas, and repeats it after each one is fetched. The result of an
    /// incomplete run is ignored, and its changes must have no effect. `work` should return early if
    /// [`SchemaCache::misses_schema`] is true.
    pub(crate) async fn run<T>(&mut self, mut work: impl FnMut(&mut SchemaCache) -> T) -> T {
        let mut answers = RegistryAnswers::default();
        loop {
            match self.attempt(&mut answers, &mut work) {
                Ok(done) => return done,
                Err(request) => answers.fetch(request, &self.client).await,
            }
        }
    }

    /// Like [`SchemaCache::run`], for a shared cache. It is locked only during the work, and not while waiting for an
    /// answer.
    pub(crate) async fn run_shared<T>(
        cache: &Mutex<SchemaCache>,
        client: &RegistryClient,
        mut work: impl FnMut(&mut SchemaCache) -> T,
    ) -> T {
        let mut answers = RegistryAnswers::default();
        loop {
            let attempt = cache.lock().unwrap_or_else(PoisonError::into_inner).attempt(&mut answers, &mut work);
            match attempt {
                Ok(done) => return done,
                Err(request) => answers.fetch(request, client).await,
            }
        }
    }

    /// Returns `true` if the current attempt misses a schema, so that its result is not used.
    pub(crate) fn misses_schema(&self) -> bool {
        self.attempt.as_ref().is_some_and(|attempt| attempt.missing.is_some())
    }

    fn attempt<T>(
        &mut self,
        answers: &mut RegistryAnswers,
        work: &mut impl FnMut(&mut SchemaCache) -> T,
    ) -> Result<T, RegistryRequest> {
        // This also replaces the state that a panic left behind.
        self.attempt = Some(Attempt { answers: std::mem::take(answers), missing: None });
        let done = work(self);
        let Some(attempt) = self.attempt.take() else { return Ok(done) };
        *answers = attempt.answers;
        attempt.missing.map_or(Ok(done), Err)
    }

    fn fetch(&mut self, request: RegistryRequest) -> RegistryResult {
        match &mut self.attempt {
            None => self.wait(request),
            Some(attempt) => attempt.answers.to(&request).unwrap_or_else(|| {
                attempt.missing.get_or_insert(request);
                Err(Fault::transient(
                    codes::SCHEMA_REGISTRY_UNAVAILABLE,
                    "a request to the schema registry is in progress",
                ))
            }),
        }
    }

    /// Sends a request from this thread. If the registry has just failed to answer, returns the same fault: the other
    /// rows of a batch must not wait for as long as the first one.
    fn wait(&mut self, request: RegistryRequest) -> RegistryResult {
        if let Some((time, fault)) = &self.away
            && time.elapsed() < AWAY
        {
            return Err(fault.clone());
        }
        let answer = request.wait(&self.client);
        let fault = answer.as_ref().err().filter(|fault| fault.class() != FaultClass::Record);
        self.away = fault.map(|fault| (Instant::now(), fault.clone()));
        answer
    }

    /// Returns a version of a subject.
    ///
    /// # Errors
    /// Fails if the version does not exist or the registry is unavailable.
    pub fn version(&mut self, subject: &Str, version: SchemaVersion) -> Result<Arc<CompiledSchema>, Fault> {
        if let Some((of, latest, known)) = &self.latest
            && *latest == version
            && of == subject
        {
            return Ok(known.clone());
        }
        if let Some(known) = self.versions.get(subject).and_then(|versions| versions.get(&version)) {
            self.latest = Some((subject.clone(), version, known.clone()));
            return Ok(known.clone());
        }
        let schema = self.fetch(RegistryRequest::Version(subject.clone(), version))?.schema()?;
        let known = self.known(schema)?;
        insert(&mut self.versions, subject, version, &known);
        Ok(known)
    }

    /// Returns the version of a subject with this text; registers it if it does not exist.
    ///
    /// # Errors
    /// Fails if the registry rejects the schema or is unavailable.
    pub fn register(&mut self, subject: &Str, text: &str) -> Result<Arc<CompiledSchema>, Fault> {
        if let Some(known) = self.texts.get(subject).and_then(|texts| texts.get(text)) {
            return Ok(known.clone());
        }
        let text = Str::from(text);
        let schema = self.fetch(RegistryRequest::Text(subject.clone(), text.clone()))?.schema()?;
        let known = self.known(schema)?;
        insert(&mut self.texts, subject, text, &known);
        insert(&mut self.versions, subject, known.schema.version, &known);
        Ok(known)
    }

    /// Returns the highest version of a subject. It may be up to a minute old.
    ///
    /// # Errors
    /// Fails if the subject does not exist or the registry is unavailable.
    pub(crate) fn newest(&mut self, subject: &Str) -> Result<Arc<CompiledSchema>, Fault> {
        if let Some((time, known)) = self.newest.get(subject)
            && time.elapsed() < NEWEST
        {
            return Ok(known.clone());
        }
        let schema = self.fetch(RegistryRequest::Newest(subject.clone()))?.schema()?;
        let known = self.known(schema)?;
        if self.newest.len() >= MOST_SCHEMAS {
            self.newest.clear();
        }
        self.newest.insert(subject.clone(), (Instant::now(), known.clone()));
        Ok(known)
    }

    /// Returns the schema with an id.
    ///
    /// # Errors
    /// Fails if the id does not exist or the registry is unavailable.
    pub fn id(&mut self, id: SchemaId) -> Result<Arc<Codec>, Fault> {
        self.definition(id).map(|definition| definition.codec.clone())
    }

    /// Returns the schema with an id, and its text.
    ///
    /// # Errors
    /// The errors of [`SchemaCache::id`].
    pub(crate) fn definition(&mut self, id: SchemaId) -> Result<Arc<CompiledDefinition>, Fault> {
        if let Some(known) = self.ids.get(&id) {
            return Ok(known.clone());
        }
        let definition = self.fetch(RegistryRequest::Id(id))?.definition()?;
        self.compiled(id, &definition.text)
    }

    /// Returns the known relation between these fields and this version.
    #[inline]
    fn known_fit(&self, subject: &Str, version: &Str, fields: &Object) -> Option<&KnownFit> {
        let is_it = |it: &&KnownFit| it.version == *version && it.subject == *subject && it.shape.is_of(fields);
        self.shapes.iter().find(is_it)
    }

    /// Updates the metadata to the version that fits these fields; returns `false` if it is not known. Metadata that
    /// records share stays shared.
    pub(crate) fn name_schema(&mut self, part: SchemaPart, metadata: &mut Metadata, fields: &Object) -> bool {
        if let Some(cached) = &self.cached_names[part as usize]
            && cached.metadata.shares(metadata)
            && cached.shape.is_of(fields)
        {
            metadata.clone_from(&cached.after);
            return true;
        }
        let (subject, version) = part.names();
        let (Some(subject), Some(named)) = (metadata.get(&subject), metadata.get(&version)) else { return false };
        let Some(known) = self.known_fit(subject, named, fields) else { return false };
        let before = metadata.is_shared().then(|| (metadata.clone(), known.shape.clone()));
        match &known.fit {
            Fit::Fits => {}
            Fit::Replaced(fitting) => {
                metadata.insert(version, fitting.clone());
            }
            Fit::Depends => return false,
        }
        if let Some((before, shape)) = before {
            self.cached_names[part as usize] = Some(CachedName { metadata: before, shape, after: metadata.clone() });
        }
        true
    }

    /// Removes the schema of a part from the metadata. Metadata that records share stays shared.
    pub(crate) fn remove_schema(&mut self, part: SchemaPart, metadata: &mut Metadata) {
        if let Some((before, after)) = &self.without_schema[part as usize]
            && before.shares(metadata)
        {
            metadata.clone_from(after);
            return;
        }
        let (subject, version) = part.names();
        if metadata.get(&subject).is_none() && metadata.get(&version).is_none() {
            return;
        }
        let before = metadata.is_shared().then(|| metadata.clone());
        metadata.remove(&subject);
        metadata.remove(&version);
        if let Some(before) = before {
            self.without_schema[part as usize] = Some((before, metadata.clone()));
        }
    }

    /// Returns the version that is known to be the schema inferred from these fields.
    pub(crate) fn inferred(&self, subject: &Str, fields: &Object) -> Option<Str> {
        let is_it = |it: &&KnownFit| it.fit == Fit::Fits && it.subject == *subject && it.shape.is_of(fields);
        self.shapes.iter().find(is_it).map(|it| it.version.clone())
    }

    /// Records whether a version is the schema inferred from fields of this shape.
    pub(crate) fn compare(&mut self, subject: &Str, version: &Str, known: &CompiledSchema, fields: &Object) {
        if self.known_fit(subject, version, fields).is_some() {
            return;
        }
        let mut text = String::new();
        let same = infer(fields, &mut text).is_ok() && *text == *known.schema.text;
        self.record_fit(subject, version, fields, if same { Fit::Fits } else { Fit::Depends });
    }

    /// Records the relation between a version and fields of this shape.
    pub(crate) fn record_fit(&mut self, subject: &Str, version: &Str, fields: &Object, fit: Fit) {
        let Some(shape) = FlatShape::of(fields).map(Arc::new) else { return };
        self.shapes.truncate(MOST_SHAPES - 1);
        self.shapes.insert(0, KnownFit { subject: subject.clone(), version: version.clone(), shape, fit });
    }

    fn known(&mut self, schema: Arc<Schema>) -> Result<Arc<CompiledSchema>, Fault> {
        let codec = self.compiled(schema.id, &schema.text)?.codec.clone();
        Ok(Arc::new(CompiledSchema { schema, codec }))
    }

    fn compiled(&mut self, id: SchemaId, text: &Str) -> Result<Arc<CompiledDefinition>, Fault> {
        if let Some(known) = self.ids.get(&id) {
            return Ok(known.clone());
        }
        let invalid = |error: CodecError| SchemaError::Invalid(format!("id {id}: {error}").into());
        let codec = Arc::new(Codec::parse(text).map_err(invalid)?);
        let compiled = Arc::new(CompiledDefinition { text: text.clone(), codec });
        if self.ids.len() >= MOST_SCHEMAS {
            self.ids.clear();
        }
        self.ids.insert(id, compiled.clone());
        Ok(compiled)
    }
}

fn insert<K: Eq + std::hash::Hash>(
    all: &mut HashMap<Str, HashMap<K, Arc<CompiledSchema>>>,
    subject: &Str,
    key: K,
    known: &Arc<CompiledSchema>,
) {
    if all.len() >= MOST_SCHEMAS && !all.contains_key(subject) {
        all.clear();
    }
    let of_subject = all.entry(subject.clone()).or_default();
    if of_subject.len() >= MOST_SCHEMAS {
        of_subject.clear();
    }
    of_subject.insert(key, known.clone());
}

/// An attempt to complete work with the known answers.
#[derive(Default)]
struct Attempt {
    answers: RegistryAnswers,
    /// The first request without an answer.
    missing: Option<RegistryRequest>,
}

/// Answers of the schema registry since the current batch began.
#[derive(Default)]
struct RegistryAnswers(Vec<(RegistryRequest, RegistryResult)>);

impl RegistryAnswers {
    /// Returns the answer to a request. If the registry is unavailable or rejected the credentials, that is the answer
    /// to all questions.
    fn to(&self, request: &RegistryRequest) -> Option<RegistryResult> {
        let is_final =
            |answer: &RegistryResult| answer.as_ref().is_err_and(|fault| fault.class() != FaultClass::Record);
        let of = |(sent, answer): &&(RegistryRequest, RegistryResult)| sent == request || is_final(answer);
        self.0.iter().find(of).map(|(_, answer)| answer.clone())
    }

    async fn fetch(&mut self, request: RegistryRequest, client: &RegistryClient) {
        let answer = request.clone().answer(client).await;
        self.0.push((request, answer));
    }
}

#[cfg(test)]
mod tests;
