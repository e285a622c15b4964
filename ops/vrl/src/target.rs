//! A record as the target of a program.

use vrl::compiler::{SecretTarget, Target};
use vrl::path::{OwnedSegment, OwnedTargetPath, PathPrefix};
use vrl::value::Value;

use crate::fields::Fields;
use crate::spot::{Spot, TargetPart};
use crate::weight::weight;

/// A path that a program sets or removes.
#[derive(Clone, Debug)]
pub(crate) struct WrittenPath {
    /// The path in the program.
    pub(crate) path: OwnedTargetPath,
    /// The place in the record that changes: up to an index, and the whole field if empty parents are removed too.
    pub(crate) spot: Spot,
    /// The path of that place.
    pub(crate) place: OwnedTargetPath,
    /// The numbers of the paths whose places contain this one, or are the same and come earlier: if one of them changes, this
    /// change is a part of it.
    pub(crate) covered_by: Vec<usize>,
}

impl WrittenPath {
    /// Notes which places contain each other. O(paths²), once per program.
    pub(crate) fn cover(paths: &mut [WrittenPath]) {
        for at in 0..paths.len() {
            let path = &paths[at];
            let covers = |(other_at, other): (usize, &WrittenPath)| {
                let contains = other.spot.contains(&path.spot) && (other.spot != path.spot || other_at < at);
                (other_at != at && contains).then_some(other_at)
            };
            paths[at].covered_by = paths.iter().enumerate().filter_map(covers).collect();
        }
    }

    /// Returns `true` if the path is a part of a field, and not all of it.
    pub(crate) fn changes_part_of(&self, field: &Spot) -> bool {
        field.contains(&self.spot) && self.path.path.segments.len() > field.path().path.segments.len()
    }
}

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

/// `.` and `%` of a record.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) event: Value,
    pub(crate) rest: Value,
}

impl Whole {
    fn root(&self, prefix: PathPrefix) -> &Value {
        match prefix {
            PathPrefix::Event => &self.event,
            PathPrefix::Metadata => &self.rest,
        }
    }

    fn root_mut(&mut self, prefix: PathPrefix) -> &mut Value {
        match prefix {
            PathPrefix::Event => &mut self.event,
            PathPrefix::Metadata => &mut self.rest,
        }
    }

    /// Returns `true` if the path is a field of data that has no fields.
    fn is_misplaced(&self, path: &OwnedTargetPath) -> bool {
        // The key and the payload before the change are fields of `%`.
        let data = match (path.prefix, &path.path.segments[..]) {
            (PathPrefix::Event, [OwnedSegment::Field(_), ..]) => Some(&self.event),
            (PathPrefix::Metadata, [part @ OwnedSegment::Field(_), OwnedSegment::Field(_), ..]) => {
                match Spot::of(path).map(|spot| spot.part) {
                    Ok(TargetPart::Data(_)) => self.rest.get(std::slice::from_ref(part)),
                    _ => return false,
                }
            }
            _ => return false,
        };
        !data.is_some_and(Value::is_object)
    }
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
