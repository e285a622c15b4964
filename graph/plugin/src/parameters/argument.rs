//! Values with their origin.

use std::fmt;
use std::ops::Deref;

use anabranch_record::code::Code;
use anabranch_record::reference::{Reference, Target};
use anabranch_record::text::Str;
use anabranch_template::{MissingKey, Template};

use super::{Field, ParameterKind, ParameterType, Settings};
use crate::arguments::{Typed, invalid_template, pointer, secrets_of};
use crate::codes;
use crate::diagnostic::{Diagnostic, Diagnostics, Span};
use crate::written::{Content, Written};

/// The value of a parameter with its name and its place in the pipeline file, for findings about it.
///
/// `Argument<Option<T>>` has a place even if the setting is absent: that of the settings.
#[derive(Clone)]
pub struct Argument<T> {
    value: T,
    name: Str,
    written: Written,
    is_given: bool,
    is_secret: bool,
}

impl<T> Argument<T> {
    /// Returns the value.
    pub fn into_value(self) -> T {
        self.value
    }

    /// Returns the full name of the parameter: `headers.Accept` for one of `headers.*`.
    pub fn name(&self) -> &Str {
        &self.name
    }

    /// Returns the text, with variables replaced; blank if the setting is absent.
    pub fn text(&self) -> &Str {
        self.written.value()
    }

    /// Returns the file that the value names, if it was read together with the pipeline file.
    pub fn content(&self) -> Option<&Content> {
        self.written.content()
    }

    /// Returns `true` if the file contains the setting, even if its value is blank.
    pub fn is_given(&self) -> bool {
        self.is_given
    }

    /// Returns `true` if the value does not depend on variables, so that it is the same wherever the pipeline runs.
    pub fn is_constant(&self) -> bool {
        self.written.is_verbatim()
    }

    /// Returns the place of the value; for a default or an absent setting the place of the settings.
    pub fn span(&self) -> Span {
        self.written.span()
    }

    /// Returns the place of `len` bytes at `offset` of the text; see [`Written::place`].
    pub fn place(&self, offset: usize, len: usize) -> Span {
        self.written.place(offset, len)
    }

    /// Returns the texts of the value that must be masked; see [`Arguments::secrets`](crate::arguments::Arguments).
    pub fn secrets(&self) -> impl Iterator<Item = Str> {
        secrets_of(&self.written, self.is_secret).into_iter()
    }

    /// Returns a finding about the value, with its place.
    pub fn finding(&self, code: Code, message: impl Into<String>) -> Diagnostic {
        Diagnostic::error(code, message).with_span(self.span()).with_path(pointer(&self.name))
    }

    /// Returns the finding that the value is invalid. The message begins with the name of the parameter and a colon.
    pub fn invalid(&self, what: impl fmt::Display) -> Diagnostic {
        self.finding(codes::SETTINGS_INVALID, format!("{}: {what}", self.name))
    }

    /// Compiles the text as a template, for a parameter that is one only if another setting says so.
    ///
    /// # Errors
    /// The compile error, with its place and without the values of variables.
    pub fn compile_template(&self, missing: MissingKey) -> Result<Template, Diagnostics> {
        Template::parse(self.text(), missing)
            .map_err(|error| invalid_template(&self.name, &self.written, error).with_path(pointer(&self.name)).into())
    }
}

impl Argument<Reference> {
    /// Returns a reference to a single part of a record: not `.Payload`, which has two sides.
    ///
    /// # Errors
    /// The reference is `.Payload`.
    pub fn one_side(&self) -> Result<Reference, Diagnostics> {
        match self.value.target() {
            Target::Payload => Err(self
                .invalid(".Payload has two sides, Before and After")
                .with_hint("did you mean .Payload.After?")
                .into()),
            _ => Ok(self.value.clone()),
        }
    }
}

impl<T> Deref for Argument<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// Shows the text in the file, never the value of a variable.
impl<T> fmt::Debug for Argument<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: &dyn fmt::Debug = if self.is_secret { &"***" } else { &self.written };
        f.debug_tuple("Argument").field(&self.name).field(shown).finish()
    }
}

impl<T: ParameterType> ParameterType for Argument<T> {
    const KIND: ParameterKind = T::KIND;
    const OPTIONAL: bool = T::OPTIONAL;

    fn choices() -> Option<Vec<&'static str>> {
        T::choices()
    }

    fn convert(value: &Typed, text: &Str) -> Result<Self, String> {
        let written = Written::new(text.clone(), text.clone(), Span::default());
        let value = T::convert(value, text)?;
        Ok(Argument { value, name: Str::default(), written, is_given: false, is_secret: false })
    }

    fn declared(name: &str) -> String {
        T::declared(name)
    }

    fn read(name: &str, field: &Field, settings: &mut Settings<'_>) -> Option<Self> {
        let value = T::read(name, field, settings)?;
        let (written, is_secret) = settings.arguments.origin(name, field.default);
        let is_given = settings.arguments.is_given(name);
        Some(Argument { value, name: name.into(), written, is_given, is_secret })
    }
}
