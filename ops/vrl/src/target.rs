//! A record as the target of a program.

use vrl::compiler::{SecretTarget, Target};
use vrl::path::OwnedTargetPath;
use vrl::value::Value;

use crate::fields::Fields;
use crate::weight::weight;
use crate::whole::Whole;
use crate::writes::WrittenPath;

/// The reason why a program ended early, or its result cannot be used.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Refusal {
    /// It sets a field of raw or absent data.
    NotStructured(OwnedTargetPath),
    /// It sets a value of this many bytes.
    TooLarge(usize),
    /// It changes a path that the compiler did not announce.
    Unannounced(OwnedTargetPath),
}

/// The parts of a record that a program can access.
#[derive(Debug)]
pub(crate) enum Content<'p> {
    /// `.` and `%`, with what the program reads of them.
    Whole(Whole),
    /// The fields that the program names.
    Fields(Fields<'p>),
}

/// A record as a program sees it, with the changes that it made.
#[derive(Debug)]
pub(crate) struct RecordTarget<'p> {
    content: Content<'p>,
    paths: &'p [WrittenPath],
    /// For each of the paths, whether it was changed.
    changed: Vec<bool>,
    /// Number of the path that the program probably changes next.
    next: usize,
    most: usize,
    refusal: Option<Refusal>,
}

impl<'p> RecordTarget<'p> {
    /// Creates a target in which a program can change `paths`, to values of at most this many bytes. `changed` is memory
    /// for reuse.
    pub(crate) fn new(content: Content<'p>, paths: &'p [WrittenPath], most: usize, mut changed: Vec<bool>) -> Self {
        changed.clear();
        changed.resize(paths.len(), false);
        RecordTarget { content, paths, changed, next: 0, most, refusal: None }
    }

    /// Returns the reason why the record fails, if it does.
    pub(crate) fn refusal(&self) -> Option<&Refusal> {
        self.refusal.as_ref()
    }

    /// Returns the numbers of the changed paths with the values of their places; `None` for one that was removed. A place in
    /// another that changed is left out.
    pub(crate) fn changes(&self) -> impl Iterator<Item = (usize, Option<&Value>)> {
        let is_whole = |path: &WrittenPath| !path.covered_by.iter().any(|other| self.changed[*other]);
        let changed = self.paths.iter().zip(&self.changed).enumerate();
        changed.filter(move |(_, (path, changed))| **changed && is_whole(path)).map(|(at, (path, _))| {
            let value = match &self.content {
                Content::Fields(fields) => fields.written(at, &path.place),
                Content::Whole(whole) => whole.root(path.place.prefix).get(&path.place.path),
            };
            (at, value)
        })
    }

    /// Returns the content, and the memory of the changes for reuse.
    pub(crate) fn into_parts(self) -> (Content<'p>, Vec<bool>) {
        (self.content, self.changed)
    }

    fn refuse(&mut self, refusal: Refusal) -> Result<(), String> {
        self.refusal.get_or_insert(refusal);
        Err("the record cannot be changed like this".to_owned())
    }

    /// Notes the change of a path.
    fn note(&mut self, path: &OwnedTargetPath) -> Result<(), String> {
        // Paths are in the order of the program.
        let is_next = self.paths.get(self.next).is_some_and(|known| known.path == *path);
        let found = if is_next { Some(self.next) } else { self.paths.iter().position(|known| known.path == *path) };
        match found {
            Some(at) => {
                self.changed[at] = true;
                self.next = at + 1;
                Ok(())
            }
            None => self.refuse(Refusal::Unannounced(path.clone())),
        }
    }
}

impl Target for RecordTarget<'_> {
    fn target_insert(&mut self, path: &OwnedTargetPath, value: Value) -> Result<(), String> {
        let bytes = weight(&value);
        if bytes > self.most {
            return self.refuse(Refusal::TooLarge(bytes));
        }
        let is_misplaced = match &self.content {
            Content::Fields(fields) => fields.is_misplaced(path),
            Content::Whole(whole) => whole.is_misplaced(path),
        };
        if is_misplaced {
            return self.refuse(Refusal::NotStructured(path.clone()));
        }
        self.note(path)?;
        match &mut self.content {
            Content::Fields(fields) => fields.insert(path, value),
            Content::Whole(whole) => drop(whole.root_mut(path.prefix).insert(&path.path, value)),
        }
        Ok(())
    }

    fn target_get(&self, path: &OwnedTargetPath) -> Result<Option<&Value>, String> {
        Ok(match &self.content {
            Content::Fields(fields) => fields.get(path),
            Content::Whole(whole) => whole.root(path.prefix).get(&path.path),
        })
    }

    fn target_get_mut(&mut self, path: &OwnedTargetPath) -> Result<Option<&mut Value>, String> {
        self.note(path)?;
        Ok(match &mut self.content {
            Content::Fields(fields) => fields.get_mut(path),
            Content::Whole(whole) => whole.root_mut(path.prefix).get_mut(&path.path),
        })
    }

    fn target_remove(&mut self, path: &OwnedTargetPath, compact: bool) -> Result<Option<Value>, String> {
        self.note(path)?;
        Ok(match &mut self.content {
            Content::Fields(fields) => fields.remove(path, compact),
            Content::Whole(whole) => whole.root_mut(path.prefix).remove(&path.path, compact),
        })
    }
}

/// Secrets are a part of events in Vector, and not of records.
impl SecretTarget for RecordTarget<'_> {
    fn get_secret(&self, _: &str) -> Option<&str> {
        None
    }

    fn insert_secret(&mut self, _: &str, _: &str) {}

    fn remove_secret(&mut self, _: &str) {}
}
