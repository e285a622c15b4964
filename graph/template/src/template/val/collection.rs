//! Lists and maps: shared ones of the record, and those that a template creates.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use anabranch_record::metadata::{Metadata, own_key};
use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};

use super::Val;
use crate::template::functions::CallError;

/// Go's element type of a list; affects only its type name and the meaning of `null`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Elements {
    /// `[]interface {}`.
    Any,
    /// `[]string`.
    Text,
    /// `[]int`.
    Int,
    /// `[][]interface {}`.
    List,
}

/// A list; immutable. Cloning and slicing are O(1).
#[derive(Clone, Debug)]
pub(crate) struct List {
    items: Items,
    start: usize,
    end: usize,
    elements: Elements,
}

#[derive(Clone, Debug)]
enum Items {
    /// A nil slice: empty, `null` in JSON.
    None,
    Record(Arc<Vec<Value>>),
    Own(Rc<OwnedElements>),
}

/// The elements of a list that a template created.
#[derive(Debug)]
struct OwnedElements(Vec<Val>);

impl Drop for OwnedElements {
    fn drop(&mut self) {
        release(std::mem::take(&mut self.0));
    }
}

impl List {
    /// Creates a list from a list of the record.
    pub(crate) fn record(values: Arc<Vec<Value>>) -> List {
        List { start: 0, end: values.len(), items: Items::Record(values), elements: Elements::Any }
    }

    /// Creates a list of type `[]interface {}`.
    pub(crate) fn new(items: Vec<Val>) -> List {
        List::of(Elements::Any, items)
    }

    /// Creates a list with the given type of elements.
    pub(crate) fn of(elements: Elements, items: Vec<Val>) -> List {
        List { start: 0, end: items.len(), items: Items::Own(Rc::new(OwnedElements(items))), elements }
    }

    /// Creates a list of type `[]string`.
    pub(crate) fn texts<T: Into<super::Text>>(texts: impl IntoIterator<Item = T>) -> List {
        List::of(Elements::Text, texts.into_iter().map(Val::text).collect())
    }

    /// Creates a nil slice: empty, and `null` in JSON.
    pub(crate) fn nil(elements: Elements) -> List {
        List { items: Items::None, start: 0, end: 0, elements }
    }

    /// Returns `true` for a nil slice.
    pub(crate) fn is_nil(&self) -> bool {
        matches!(self.items, Items::None)
    }

    /// Returns `true` if a template created the list, `false` for a list of the record.
    pub(crate) fn is_made(&self) -> bool {
        matches!(self.items, Items::Own(_))
    }

    /// Returns the number of elements.
    pub(crate) fn len(&self) -> usize {
        self.end - self.start
    }

    /// Returns the element at `index`.
    pub(crate) fn get(&self, index: usize) -> Option<Val> {
        let at = self.start.checked_add(index).filter(|at| *at < self.end)?;
        match &self.items {
            Items::None => None,
            Items::Record(values) => values.get(at).map(Val::from),
            Items::Own(items) => items.0.get(at).cloned(),
        }
    }

    /// Returns the elements in order.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = Val> + '_ {
        (0..self.len()).filter_map(|i| self.get(i))
    }

    /// Returns the elements `from..to`; `None` if out of bounds.
    pub(crate) fn slice(&self, from: usize, to: usize) -> Option<List> {
        (from <= to && to <= self.len()).then(|| List {
            items: self.items.clone(),
            start: self.start + from,
            end: self.start + to,
            elements: self.elements,
        })
    }

    /// Returns the type of its elements.
    pub(crate) fn elements(&self) -> Elements {
        self.elements
    }

    /// Returns Go's name of its type.
    pub(crate) fn type_name(&self) -> &'static str {
        match self.elements {
            Elements::Any => "[]interface {}",
            Elements::Text => "[]string",
            Elements::Int => "[]int",
            Elements::List => "[][]interface {}",
        }
    }
}

/// A map with text keys. Cloning is O(1). Only [`Map::Dict`] is mutable; a function that changes
/// another one works on [`Map::to_dict`], because a template must never change its record.
#[derive(Clone, Debug)]
pub(crate) enum Map {
    /// A nil map: empty, read-only, `null` in JSON.
    Nil,
    /// The fields of a key or payload side.
    Structured(Arc<Object>),
    /// A map inside a field.
    Object(Arc<Object>),
    /// The metadata: `map[string]string`.
    Metadata(Metadata),
    /// A `map[string]string` that a function created.
    Texts(Rc<BTreeMap<Str, Val>>),
    /// A `map[string]interface {}` that a template created.
    Dict(Dict),
}

impl Map {
    /// Returns the value of `key`.
    pub(crate) fn get(&self, key: &str) -> Option<Val> {
        match self {
            Map::Nil => None,
            Map::Structured(object) | Map::Object(object) => object.get(key).map(Val::from),
            // Files of other systems use their own names for metadata.
            Map::Metadata(metadata) => {
                let own = own_key(key);
                metadata.get(own.as_deref().unwrap_or(key)).map(|text| Val::text(text.clone()))
            }
            Map::Texts(map) => map.get(key).cloned(),
            Map::Dict(dict) => dict.get(key),
        }
    }

    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        match self {
            Map::Nil => 0,
            Map::Structured(object) | Map::Object(object) => object.len(),
            Map::Metadata(metadata) => metadata.len(),
            Map::Texts(map) => map.len(),
            Map::Dict(dict) => dict.len(),
        }
    }

    /// Returns the entries in key order, O(n).
    pub(crate) fn entries(&self) -> Vec<(Str, Val)> {
        match self {
            Map::Nil => Vec::new(),
            Map::Structured(object) | Map::Object(object) => {
                object.iter().map(|(k, v)| (k.clone(), Val::from(v))).collect()
            }
            Map::Metadata(metadata) => {
                let mut entries: Vec<_> = metadata.iter().map(|(k, v)| (k.clone(), Val::text(v.clone()))).collect();
                entries.sort_by(|a, b| a.0.cmp(&b.0));
                entries
            }
            Map::Texts(map) => map.iter().map(|(k, v)| (k.clone(), v.clone())).collect(),
            Map::Dict(dict) => dict.entries(),
        }
    }

    /// Returns `true` if the values are text: `map[string]string`. As in Go, a parameter of type
    /// `map[string]interface {}` does not accept such a map.
    pub(crate) fn is_text(&self) -> bool {
        matches!(self, Map::Metadata(_) | Map::Texts(_))
    }

    /// Returns `true` if the map is nil in Go: prints `map[]`, is `null` in JSON. Empty metadata is nil.
    pub(crate) fn is_nil(&self) -> bool {
        match self {
            Map::Nil => true,
            Map::Metadata(metadata) => metadata.is_empty(),
            _ => false,
        }
    }

    /// Returns the dictionary itself, shared, if it is one; otherwise a mutable copy, O(n).
    pub(crate) fn to_dict(&self) -> Dict {
        match self {
            Map::Dict(dict) => dict.clone(),
            other => Dict::from_entries(other.entries()),
        }
    }

    /// Returns Go's name of its type.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Map::Structured(_) => "StructuredData",
            Map::Metadata(_) | Map::Texts(_) => "map[string]string",
            Map::Nil | Map::Object(_) | Map::Dict(_) => "map[string]interface {}",
        }
    }
}

/// A mutable map of a template; clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dict(Rc<RefCell<Entries>>);

#[derive(Debug, Default)]
struct Entries(BTreeMap<Str, Val>);

impl Drop for Entries {
    fn drop(&mut self) {
        release(std::mem::take(&mut self.0).into_values());
    }
}

impl Dict {
    /// Creates a dictionary from entries in any order; the last of equal keys wins.
    pub(crate) fn from_entries(entries: impl IntoIterator<Item = (Str, Val)>) -> Dict {
        Dict(Rc::new(RefCell::new(Entries(entries.into_iter().collect()))))
    }

    /// Returns the value of `key`.
    pub(crate) fn get(&self, key: &str) -> Option<Val> {
        self.0.borrow().0.get(key).cloned()
    }

    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        self.0.borrow().0.len()
    }

    /// Returns the entries in key order, O(n).
    pub(crate) fn entries(&self) -> Vec<(Str, Val)> {
        self.0.borrow().0.iter().map(|(k, v)| (k.clone(), v.clone())).collect()
    }

    /// Sets an entry.
    ///
    /// # Errors
    /// The value contains this dictionary: a cyclic value could be neither printed nor freed.
    pub(crate) fn insert(&self, key: impl Into<Str>, value: Val) -> Result<(), CallError> {
        if value.is_own() {
            self.check_outside(&value)?;
        }
        let before = self.0.borrow_mut().0.insert(key.into(), value);
        drop(before);
        Ok(())
    }

    /// Removes an entry and returns its value.
    pub(crate) fn remove(&self, key: &str) -> Option<Val> {
        self.0.borrow_mut().0.remove(key)
    }

    /// Returns `true` if both are the same dictionary, not only equal.
    pub(crate) fn is_same(&self, other: &Dict) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }

    /// Rejects a `value` that is or contains this dictionary. Data of the record never does, so it is not searched.
    fn check_outside(&self, value: &Val) -> Result<(), CallError> {
        const MOST: usize = 100_000;
        let mut seen = 0;
        let mut rest = vec![value.clone()];
        while let Some(value) = rest.pop() {
            match value {
                Val::Map(Map::Dict(dict)) if self.is_same(&dict) => return Err("a dict cannot contain itself".into()),
                Val::Map(Map::Dict(dict)) => rest.extend(dict.0.borrow().0.values().filter(|v| v.is_own()).cloned()),
                Val::List(List { items: Items::Own(items), .. }) => {
                    rest.extend(items.0.iter().filter(|v| v.is_own()).cloned());
                }
                _ => {}
            }
            seen += 1;
            if seen > MOST || rest.len() > MOST {
                return Err("the value of a dict entry contains too many lists and dicts".into());
            }
        }
        Ok(())
    }
}

impl Val {
    /// Returns `true` if a template created the value and it may contain other such values.
    fn is_own(&self) -> bool {
        matches!(self, Val::Map(Map::Dict(_)) | Val::List(List { items: Items::Own(_), .. }))
    }
}

/// Frees values without recursion: a template can nest lists as deeply as its steps allow.
fn release(values: impl IntoIterator<Item = Val>) {
    let mut rest: Vec<Val> = values.into_iter().filter(Val::is_own).collect();
    while let Some(value) = rest.pop() {
        match value {
            Val::List(List { items: Items::Own(items), .. }) => {
                if let Some(mut own) = Rc::into_inner(items) {
                    rest.extend(std::mem::take(&mut own.0).into_iter().filter(Val::is_own));
                }
            }
            Val::Map(Map::Dict(Dict(entries))) => {
                if let Some(entries) = Rc::into_inner(entries) {
                    let entries = std::mem::take(&mut entries.into_inner().0);
                    rest.extend(entries.into_values().filter(Val::is_own));
                }
            }
            _ => {}
        }
    }
}
