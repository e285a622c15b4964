//! What one worker knows of the registry: schemas it has used, ready to encode and decode.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use anabranch_plugin::schema::{Schema, SchemaError, SchemaId, SchemaRegistry, SchemaVersion};
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::metadata::Metadata;
use anabranch_record::text::Str;
use anabranch_record::value::Object;

use crate::codec::{Codec, CodecError};
use crate::infer::infer;
use crate::record::Part;
use crate::shape::Shape;

use self::question::{Answered, Question};

pub(crate) use self::question::RegistryClient;

mod question;

/// Most schemas kept of each kind: data whose shape never repeats must not fill the memory.
const KEPT: usize = 1024;

/// What is known of data of a shape beside a version, named as metadata name it.
struct Settled {
    subject: Str,
    version: Str,
    shape: Arc<Shape>,
    outcome: Outcome,
}

/// Whether data of a shape fit a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is the schema that is inferred of them.
    Fit,
    /// They do not, whatever their values; the schema that is inferred of them is this version.
    Become(Str),
    /// That depends on their values: somebody wrote the schema.
    Depends,
}

/// Shapes that are remembered.
const SHAPES: usize = 16;

/// A version of a subject, ready to use.
#[derive(Debug)]
pub struct Known {
    /// What the registry says.
    pub schema: Arc<Schema>,
    /// Ready to encode and decode.
    pub codec: Arc<Codec>,
}

/// Schemas by the ways in which one asks for them. What is known costs a look-up and no lock; what is not, a question
/// to the registry: the thread waits for the answer, or, within [`Desk::attend`], the task does.
pub struct Desk {
    client: RegistryClient,
    /// Questions of the current attempt; `None` = this thread asks the registry itself.
    attempt: Option<Attempt>,
    versions: HashMap<Str, HashMap<SchemaVersion, Arc<Known>>>,
    /// The one of them that was asked for last: mostly it is asked for again.
    latest: Option<(Str, SchemaVersion, Arc<Known>)>,
    texts: HashMap<Str, HashMap<Str, Arc<Known>>>,
    codecs: HashMap<SchemaId, Arc<Codec>>,
    /// The latest first.
    shapes: Vec<Settled>,
    /// Of the key and of the payload.
    repeats: [Option<Repeat>; 2],
    /// The last shared metadata out of which the schema of the key and of the payload was taken, and what they became.
    unnamed: [Option<(Metadata, Metadata)>; 2],
}

/// What became of the last data of a part whose metadata were shared with other records, as those of one read are.
struct Repeat {
    metadata: Metadata,
    shape: Arc<Shape>,
    /// With the version that fits.
    after: Metadata,
}

impl Desk {
    /// One that knows nothing.
    pub fn new(registry: Arc<dyn SchemaRegistry>) -> Desk {
        let (versions, texts, codecs) = (HashMap::new(), HashMap::new(), HashMap::new());
        let (repeats, unnamed) = ([None, None], [None, None]);
        let client = RegistryClient::new(registry);
        Desk { client, attempt: None, versions, latest: None, texts, codecs, shapes: Vec::new(), repeats, unnamed }
    }

    /// Does `work`, for which schemas may be missing: as often as there is another one that has to be asked for. What it
    /// gave and what it changed until then must not matter; no more must be done when [`Desk::is_stuck`].
    pub(crate) async fn attend<T>(&mut self, mut work: impl FnMut(&mut Desk) -> T) -> T {
        let mut answers = Answers::default();
        loop {
            match self.attempt(&mut answers, &mut work) {
                Ok(done) => return done,
                Err(question) => answers.ask(question, &self.client).await,
            }
        }
    }

    /// The same for a desk that several share: it is locked only while something is done, and not while it is waited
    /// for an answer.
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

    /// Whether something is missing for the attempt that is made: nothing that it does matters any more.
    pub(crate) fn is_stuck(&self) -> bool {
        self.attempt.as_ref().is_some_and(|attempt| attempt.missing.is_some())
    }

    fn attempt<T>(&mut self, answers: &mut Answers, work: &mut impl FnMut(&mut Desk) -> T) -> Result<T, Question> {
        // What a work that panicked left behind is overwritten.
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
                Err(Fault::transient("schema_registry_unavailable", "the schema registry is being asked"))
            }),
        }
    }

    /// A version of a subject.
    ///
    /// # Errors
    /// The registry has none or does not answer.
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

    /// The version of a subject that has this text; it is registered where there is none.
    ///
    /// # Errors
    /// The registry refuses it or does not answer.
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

    /// The schema with an id.
    ///
    /// # Errors
    /// The registry has none or does not answer.
    pub fn id(&mut self, id: SchemaId) -> Result<Arc<Codec>, Fault> {
        if let Some(codec) = self.codecs.get(&id) {
            return Ok(codec.clone());
        }
        let definition = self.ask(Question::Id(id))?.definition()?;
        self.codec(id, &definition.text)
    }

    /// What is known of these fields and this version.
    #[inline]
    fn settled(&self, subject: &Str, version: &Str, fields: &Object) -> Option<&Settled> {
        let is_it = |it: &&Settled| it.version == *version && it.subject == *subject && it.shape.is_of(fields);
        self.shapes.iter().find(is_it)
    }

    /// Makes metadata name the version that fits these fields; `false` where that is not known. `part` has the names of
    /// subject and version. Metadata that records share stay shared.
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

    /// Takes the schema of a part out of metadata. Metadata that records share stay shared.
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

    /// The version known to be the schema that is inferred of these fields.
    pub(crate) fn inferred(&self, subject: &Str, fields: &Object) -> Option<Str> {
        let is_it = |it: &&Settled| it.outcome == Outcome::Fit && it.subject == *subject && it.shape.is_of(fields);
        self.shapes.iter().find(is_it).map(|it| it.version.clone())
    }

    /// Notes whether a version is the schema that is inferred of fields of this shape.
    pub(crate) fn compare(&mut self, subject: &Str, version: &Str, known: &Known, fields: &Object) {
        if self.settled(subject, version, fields).is_some() {
            return;
        }
        let mut text = String::new();
        let same = infer(fields, &mut text).is_ok() && *text == *known.schema.text;
        self.settle(subject, version, fields, if same { Outcome::Fit } else { Outcome::Depends });
    }

    /// Notes what there is to know of a version and fields of this shape.
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

/// Something that is done with what is known, and as far as that goes.
#[derive(Default)]
struct Attempt {
    answers: Answers,
    /// The first question without an answer.
    missing: Option<Question>,
}

/// Answers of the schema registry since the current batch began.
#[derive(Default)]
struct Answers(Vec<(Question, Answered)>);

impl Answers {
    /// A registry that is away, or refuses us, is not asked once for each schema.
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
