//! Schema cache of one worker: schemas that it has used, ready to encode and decode.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use anabranch_plugin::schema::{Schema, SchemaError, SchemaId, SchemaRegistry, SchemaVersion};
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::metadata::Metadata;
use anabranch_record::text::Str;
use anabranch_record::value::Object;

use crate::codec::{Codec, CodecError};
use crate::codes;
use crate::infer::infer;
use crate::record::Part;
use crate::shape::Shape;

use self::question::{Answered, Question};

pub(crate) use self::question::RegistryClient;

mod question;

/// Maximum number of cached schemas of each kind, so that data with ever new shapes does not fill the memory.
const KEPT: usize = 1024;

/// Known relation between a shape of data and a version, named as in metadata.
struct Settled {
    subject: Str,
    version: Str,
    shape: Arc<Shape>,
    outcome: Outcome,
}

/// Whether data of a shape fits a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The version is the schema inferred from the data.
    Fit,
    /// The data never fits; the schema inferred from it is this version.
    Become(Str),
    /// It depends on the values, because the schema was not inferred.
    Depends,
}

/// Maximum number of remembered shapes.
const SHAPES: usize = 16;

/// A version of a subject, ready to use.
#[derive(Debug)]
pub struct Known {
    /// The schema in the registry.
    pub schema: Arc<Schema>,
    /// Its compiled codec.
    pub codec: Arc<Codec>,
}

/// Cache of schemas by id, version and text. A cached schema costs a look-up without a lock. Any other one costs a
/// request to the registry: the thread waits for it or, within [`Desk::attend`], the task.
pub struct Desk {
    client: RegistryClient,
    /// Requests of the current attempt; `None` = this thread sends requests itself.
    attempt: Option<Attempt>,
    versions: HashMap<Str, HashMap<SchemaVersion, Arc<Known>>>,
    /// The last requested version, which is usually requested again.
    latest: Option<(Str, SchemaVersion, Arc<Known>)>,
    texts: HashMap<Str, HashMap<Str, Arc<Known>>>,
    codecs: HashMap<SchemaId, Arc<Codec>>,
    /// Latest first.
    shapes: Vec<Settled>,
    /// For the key and the payload.
    repeats: [Option<Repeat>; 2],
    /// Last shared metadata from which the schema was removed, before and after, for the key and the payload.
    unnamed: [Option<(Metadata, Metadata)>; 2],
}

/// Result for the last data of a part whose metadata is shared with other records, such as those of one read.
struct Repeat {
    metadata: Metadata,
    shape: Arc<Shape>,
    /// The metadata with the version that fits.
    after: Metadata,
}

impl Desk {
    /// Creates an empty cache.
    pub fn new(registry: Arc<dyn SchemaRegistry>) -> Desk {
        let (versions, texts, codecs) = (HashMap::new(), HashMap::new(), HashMap::new());
        let (repeats, unnamed) = ([None, None], [None, None]);
        let client = RegistryClient::new(registry);
        Desk { client, attempt: None, versions, latest: None, texts, codecs, shapes: Vec::new(), repeats, unnamed }
    }

    /// Runs `work`, which may need missing schemas, and repeats it after each one is fetched. The result of an incomplete
    /// run is ignored, and its changes must have no effect. `work` should return early if [`Desk::is_stuck`] is true.
    pub(crate) async fn attend<T>(&mut self, mut work: impl FnMut(&mut Desk) -> T) -> T {
        let mut answers = Answers::default();
        loop {
            match self.attempt(&mut answers, &mut work) {
                Ok(done) => return done,
                Err(question) => answers.ask(question, &self.client).await,
            }
        }
    }

    /// Like [`Desk::attend`], for a shared desk. It is locked only during the work, and not while waiting for an
    /// answer.
    pub(crate) async fn attend_shared<T>(
        desk: &Mutex<Desk>,
        client: &RegistryClient,
        mut work: impl FnMut(&mut Desk) -> T,
    ) -> T {
        let mut answers = Answers::default();
        loop {
            let attempt = desk.lock().unwrap_or_else(PoisonError::into_inner).attempt(&mut answers, &mut work);
            match attempt {
                Ok(done) => return done,
                Err(question) => answers.ask(question, client).await,
            }
        }
    }

    /// Returns `true` if the current attempt misses a schema, so that its result is not used.
    pub(crate) fn is_stuck(&self) -> bool {
        self.attempt.as_ref().is_some_and(|attempt| attempt.missing.is_some())
    }

    fn attempt<T>(&mut self, answers: &mut Answers, work: &mut impl FnMut(&mut Desk) -> T) -> Result<T, Question> {
        // This also replaces the state that a panic left behind.
        self.attempt = Some(Attempt { answers: std::mem::take(answers), missing: None });
        let done = work(self);
        let Some(attempt) = self.attempt.take() else { return Ok(done) };
        *answers = attempt.answers;
        attempt.missing.map_or(Ok(done), Err)
    }

    fn ask(&mut self, question: Question) -> Answered {
        match &mut self.attempt {
            None => question.wait(&self.client),
            Some(attempt) => attempt.answers.to(&question).unwrap_or_else(|| {
                attempt.missing.get_or_insert(question);
                Err(Fault::transient(
                    codes::SCHEMA_REGISTRY_UNAVAILABLE,
                    "a request to the schema registry is in progress",
                ))
            }),
        }
    }

    /// Returns a version of a subject.
    ///
    /// # Errors
    /// Fails if the version does not exist or the registry is unavailable.
    pub fn version(&mut self, subject: &Str, version: SchemaVersion) -> Result<Arc<Known>, Fault> {
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
        let schema = self.ask(Question::Version(subject.clone(), version))?.schema()?;
        let known = self.known(schema)?;
        remember(&mut self.versions, subject, version, &known);
        Ok(known)
    }

    /// Returns the version of a subject with this text; registers it if it does not exist.
    ///
    /// # Errors
    /// Fails if the registry rejects the schema or is unavailable.
    pub fn register(&mut self, subject: &Str, text: &str) -> Result<Arc<Known>, Fault> {
        if let Some(known) = self.texts.get(subject).and_then(|texts| texts.get(text)) {
            return Ok(known.clone());
        }
        let text = Str::from(text);
        let schema = self.ask(Question::Text(subject.clone(), text.clone()))?.schema()?;
        let known = self.known(schema)?;
        remember(&mut self.texts, subject, text, &known);
        remember(&mut self.versions, subject, known.schema.version, &known);
        Ok(known)
    }

    /// Returns the schema with an id.
    ///
    /// # Errors
    /// Fails if the id does not exist or the registry is unavailable.
    pub fn id(&mut self, id: SchemaId) -> Result<Arc<Codec>, Fault> {
        if let Some(codec) = self.codecs.get(&id) {
            return Ok(codec.clone());
        }
        let definition = self.ask(Question::Id(id))?.definition()?;
        self.codec(id, &definition.text)
    }

    /// Returns the known relation between these fields and this version.
    #[inline]
    fn settled(&self, subject: &Str, version: &Str, fields: &Object) -> Option<&Settled> {
        let is_it = |it: &&Settled| it.version == *version && it.subject == *subject && it.shape.is_of(fields);
        self.shapes.iter().find(is_it)
    }

    /// Updates the metadata to the version that fits these fields; returns `false` if it is not known. Metadata that
    /// records share stays shared.
    pub(crate) fn name(&mut self, part: Part, metadata: &mut Metadata, fields: &Object) -> bool {
        if let Some(repeat) = &self.repeats[part as usize]
            && repeat.metadata.shares(metadata)
            && repeat.shape.is_of(fields)
        {
            metadata.clone_from(&repeat.after);
            return true;
        }
        let (subject, version) = part.names();
        let (Some(subject), Some(named)) = (metadata.get(&subject), metadata.get(&version)) else { return false };
        let Some(settled) = self.settled(subject, named, fields) else { return false };
        let before = metadata.is_shared().then(|| (metadata.clone(), settled.shape.clone()));
        match &settled.outcome {
            Outcome::Fit => {}
            Outcome::Become(fitting) => {
                metadata.insert(version, fitting.clone());
            }
            Outcome::Depends => return false,
        }
        if let Some((before, shape)) = before {
            self.repeats[part as usize] = Some(Repeat { metadata: before, shape, after: metadata.clone() });
        }
        true
    }

    /// Removes the schema of a part from the metadata. Metadata that records share stays shared.
    pub(crate) fn unname(&mut self, part: Part, metadata: &mut Metadata) {
        if let Some((before, after)) = &self.unnamed[part as usize]
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
            self.unnamed[part as usize] = Some((before, metadata.clone()));
        }
    }

    /// Returns the version that is known to be the schema inferred from these fields.
    pub(crate) fn inferred(&self, subject: &Str, fields: &Object) -> Option<Str> {
        let is_it = |it: &&Settled| it.outcome == Outcome::Fit && it.subject == *subject && it.shape.is_of(fields);
        self.shapes.iter().find(is_it).map(|it| it.version.clone())
    }

    /// Records whether a version is the schema inferred from fields of this shape.
    pub(crate) fn compare(&mut self, subject: &Str, version: &Str, known: &Known, fields: &Object) {
        if self.settled(subject, version, fields).is_some() {
            return;
        }
        let mut text = String::new();
        let same = infer(fields, &mut text).is_ok() && *text == *known.schema.text;
        self.settle(subject, version, fields, if same { Outcome::Fit } else { Outcome::Depends });
    }

    /// Records the relation between a version and fields of this shape.
    pub(crate) fn settle(&mut self, subject: &Str, version: &Str, fields: &Object, outcome: Outcome) {
        let Some(shape) = Shape::of(fields).map(Arc::new) else { return };
        self.shapes.truncate(SHAPES - 1);
        self.shapes.insert(0, Settled { subject: subject.clone(), version: version.clone(), shape, outcome });
    }

    fn known(&mut self, schema: Arc<Schema>) -> Result<Arc<Known>, Fault> {
        let codec = self.codec(schema.id, &schema.text)?;
        Ok(Arc::new(Known { schema, codec }))
    }

    fn codec(&mut self, id: SchemaId, text: &str) -> Result<Arc<Codec>, Fault> {
        if let Some(codec) = self.codecs.get(&id) {
            return Ok(codec.clone());
        }
        let invalid = |error: CodecError| SchemaError::Invalid(format!("id {id}: {error}").into());
        let codec = Arc::new(Codec::parse(text).map_err(invalid)?);
        if self.codecs.len() >= KEPT {
            self.codecs.clear();
        }
        self.codecs.insert(id, codec.clone());
        Ok(codec)
    }
}

fn remember<K: Eq + std::hash::Hash>(
    all: &mut HashMap<Str, HashMap<K, Arc<Known>>>,
    subject: &Str,
    key: K,
    known: &Arc<Known>,
) {
    if all.len() >= KEPT && !all.contains_key(subject) {
        all.clear();
    }
    let of_subject = all.entry(subject.clone()).or_default();
    if of_subject.len() >= KEPT {
        of_subject.clear();
    }
    of_subject.insert(key, known.clone());
}

/// An attempt to complete work with the known answers.
#[derive(Default)]
struct Attempt {
    answers: Answers,
    /// The first request without an answer.
    missing: Option<Question>,
}

/// Answers of the schema registry since the current batch began.
#[derive(Default)]
struct Answers(Vec<(Question, Answered)>);

impl Answers {
    /// Returns the answer to a question. If the registry is unavailable or rejected the credentials, that is the answer
    /// to all questions.
    fn to(&self, question: &Question) -> Option<Answered> {
        let is_final = |answer: &Answered| answer.as_ref().is_err_and(|fault| fault.class() != FaultClass::Record);
        let of = |(asked, answer): &&(Question, Answered)| asked == question || is_final(answer);
        self.0.iter().find(of).map(|(_, answer)| answer.clone())
    }

    async fn ask(&mut self, question: Question, client: &RegistryClient) {
        let answer = question.clone().answer(client).await;
        self.0.push((question, answer));
    }
}

#[cfg(test)]
mod tests;
