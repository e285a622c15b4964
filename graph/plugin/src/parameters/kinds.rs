//! Types of parameters.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anabranch_record::Operation;
use anabranch_record::reference::Reference;
use anabranch_record::text::Str;
use anabranch_template::Template;

use super::{Field, ParameterKind, ParameterType, Settings};
use crate::arguments::Typed;
use crate::host::LogLevel;
use crate::letter::WhenFull;

/// An enum whose variants are texts in settings.
pub trait Choice: Copy + 'static {
    /// The texts, in display order, with their variants.
    const CHOICES: &'static [(&'static str, Self)];
}

/// The levels of the service log.
impl Choice for LogLevel {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("trace", LogLevel::Trace),
        ("debug", LogLevel::Debug),
        ("info", LogLevel::Info),
        ("warn", LogLevel::Warn),
        ("error", LogLevel::Error),
    ];
}

/// The actions of a full dead-letter queue.
impl Choice for WhenFull {
    const CHOICES: &'static [(&'static str, Self)] = &[("stop", WhenFull::Stop), ("drop-oldest", WhenFull::DropOldest)];
}

/// The operations of records.
impl Choice for Operation {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("create", Operation::Create),
        ("update", Operation::Update),
        ("delete", Operation::Delete),
        ("snapshot", Operation::Snapshot),
    ];
}

fn chosen<T: Choice>(text: &str) -> Result<T, String> {
    let found = T::CHOICES.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
    found.ok_or_else(|| format!("is not one of {}", choices::<T>().join(", ")))
}

fn choices<T: Choice>() -> Vec<&'static str> {
    T::CHOICES.iter().map(|(name, _)| *name).collect()
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// Returns the number as a length in memory; one that exceeds the address space is the largest length.
    pub fn to_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// An item of a list.
pub trait Item: Sized {
    /// The texts that the items have; `None` = any.
    fn choices() -> Option<Vec<&'static str>> {
        None
    }

    /// Returns the item of a text without surrounding white space.
    ///
    /// # Errors
    /// Reason why the value is missing, as a phrase.
    fn item(text: &Str) -> Result<Self, String>;
}

impl Item for Str {
    fn item(text: &Str) -> Result<Self, String> {
        Ok(text.clone())
    }
}

impl<T: Choice> Item for T {
    fn choices() -> Option<Vec<&'static str>> {
        Some(choices::<T>())
    }

    fn item(text: &Str) -> Result<Self, String> {
        chosen(text)
    }
}

impl<T: Choice> ParameterType for T {
    const KIND: ParameterKind = ParameterKind::Text;

    fn choices() -> Option<Vec<&'static str>> {
        Some(choices::<T>())
    }

    fn convert(_: &Typed, text: &Str) -> Result<Self, String> {
        chosen(text)
    }
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident: $type:ty = |$value:ident, $text:ident| $pattern:pat => $result:expr;)*) => {$(
        $(#[$doc])*
        impl ParameterType for $type {
            const KIND: ParameterKind = ParameterKind::$kind;

            fn convert($value: &Typed, $text: &Str) -> Result<Self, String> {
                match $value {
                    $pattern => Ok($result),
                    _ => Err(unlike(ParameterKind::$kind)),
                }
            }
        }
    )*};
}

kinds! {
    Text: Str = |_value, text| Typed::Text => text.clone();
    Text: String = |_value, text| Typed::Text => text.as_str().to_owned();
    File: PathBuf = |_value, text| Typed::Text => PathBuf::from(text.as_str());
    Float: f64 = |value, _text| Typed::Float(number) => *number;
    Bool: bool = |value, _text| Typed::Bool(flag) => *flag;
    Duration: Duration = |value, _text| Typed::Duration(time) => *time;
    Bytes: ByteSize = |value, _text| Typed::Bytes(size) => ByteSize(*size);
    Reference: Reference = |value, _text| Typed::Reference(reference) => reference.clone();
    Template: Template = |value, _text| Typed::Template(template) => template.clone();
}

/// The arguments were checked against a specification in which the parameter has another kind.
#[cold]
fn unlike(kind: ParameterKind) -> String {
    format!("is not of the kind {kind:?}")
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl ParameterType for $type {
            const KIND: ParameterKind = ParameterKind::Int;

            fn convert(value: &Typed, _: &Str) -> Result<Self, String> {
                let Typed::Int(number) = value else { return Err(unlike(ParameterKind::Int)) };
                <$type>::try_from(*number).map_err(|_| match *number < 0 {
                    true => format!("must be at least {}", <$type>::MIN),
                    false => format!("must be at most {}", <$type>::MAX),
                })
            }
        }
    )*};
}

integers!(i64, u32, u64, usize);

/// An optional value. With a default, it is `None` only if the specification lacks the parameter.
impl<T: ParameterType> ParameterType for Option<T> {
    const KIND: ParameterKind = T::KIND;
    const OPTIONAL: bool = true;

    fn choices() -> Option<Vec<&'static str>> {
        T::choices()
    }

    fn convert(value: &Typed, text: &Str) -> Result<Self, String> {
        T::convert(value, text).map(Some)
    }

    fn read(name: &str, field: &Field, settings: &mut Settings<'_>) -> Option<Self> {
        if settings.arguments.of_kind(name, T::KIND).is_some() {
            T::read(name, field, settings).map(Some)
        } else {
            Some(None)
        }
    }
}

/// Items separated by commas.
impl<T: Item> ParameterType for Vec<T> {
    const KIND: ParameterKind = ParameterKind::List;
    const OPTIONAL: bool = true;

    fn choices() -> Option<Vec<&'static str>> {
        T::choices()
    }

    fn convert(value: &Typed, _: &Str) -> Result<Self, String> {
        let Typed::List(items) = value else { return Err(unlike(ParameterKind::List)) };
        items.iter().map(T::item).collect()
    }

    fn read(name: &str, field: &Field, settings: &mut Settings<'_>) -> Option<Self> {
        if settings.arguments.of_kind(name, Self::KIND).is_some() {
            settings.one(name, field)
        } else {
            Some(Vec::new())
        }
    }
}

/// All settings whose names begin with the name of the parameter and a dot, by the rest of their names.
impl<T: ParameterType> ParameterType for BTreeMap<Str, T> {
    const KIND: ParameterKind = T::KIND;
    const OPTIONAL: bool = true;

    fn choices() -> Option<Vec<&'static str>> {
        T::choices()
    }

    fn convert(_: &Typed, _: &Str) -> Result<Self, String> {
        Err("needs a name behind a dot".to_owned())
    }

    fn declared(name: &str) -> String {
        [name, ".*"].concat()
    }

    fn read(name: &str, field: &Field, settings: &mut Settings<'_>) -> Option<Self> {
        let prefix = [name, "."].concat();
        let below = settings.arguments.names().filter(|name| name.len() > prefix.len() && name.starts_with(&prefix));
        let below: Vec<Str> = below.cloned().collect();
        // Read all before returning a failure, so that all problems are reported at once.
        let read: Vec<_> = below.iter().map(|name| (&name[prefix.len()..], T::read(name, field, settings))).collect();
        read.into_iter().map(|(key, value)| Some((Str::from(key), value?))).collect()
    }
}
