//! Conditions: for which rows a processor is applied.

use crate::batch::Mask;
use crate::fault::Fault;
use crate::operator::Access;
use crate::record::Record;
use crate::template::{MissingKey, Template, TemplateError};

/// Selects rows of a strip.
pub trait Condition: Send {
    /// Sets the bit of every row it holds for; rows it fails on go to `failed`, in ascending order, unset.
    fn select(&mut self, records: &[Record], out: &mut Mask, failed: &mut Vec<(usize, Fault)>);
}

/// A condition as the plan holds it.
#[derive(Clone, Debug)]
pub struct CompiledCondition {
    template: Template,
}

impl CompiledCondition {
    /// Compiles; the text must not be blank.
    ///
    /// # Errors
    /// Why the template does not compile.
    pub fn compile(text: &str) -> Result<Self, TemplateError> {
        Ok(CompiledCondition { template: Template::parse(text, MissingKey::NoValue)? })
    }
    /// Its text.
    pub fn source(&self) -> &str {
        self.template.source()
    }
    /// The verdict, where it is the same for every record.
    pub fn constant(&self) -> Option<bool> {
        None
    }
    /// Whether it runs without building text.
    pub fn is_native(&self) -> bool {
        false
    }
    /// What it reads.
    pub fn reads(&self) -> Access {
        self.template.reads()
    }
    /// One for a stage of its own.
    pub fn instantiate(&self) -> Box<dyn Condition> {
        struct Never;
        impl Condition for Never {
            fn select(&mut self, _: &[Record], _: &mut Mask, _: &mut Vec<(usize, Fault)>) {}
        }
        Box::new(Never)
    }
    /// The verdict on one record.
    ///
    /// # Errors
    /// `condition_failed`, `condition_not_boolean`.
    pub fn evaluate(&self, _record: &Record) -> Result<bool, Fault> {
        Ok(false)
    }
}
