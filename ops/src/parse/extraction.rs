//! The fields that a parser reads and writes.

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{Flow, Kinds, Type};
use anabranch_plugin::operator::Signature;
use anabranch_plugin::parameters::{Argument, Choice};
use anabranch_record::Record;
use anabranch_record::fault::Fault;
use anabranch_record::reference::Reference;
use anabranch_record::value::{Object, Value};

use super::text_of;
use crate::codes;

/// What becomes of a record whose text does not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnMismatch {
    /// It fails.
    Fail,
    /// It stays as it is.
    Keep,
}

impl Choice for OnMismatch {
    const CHOICES: &'static [(&'static str, Self)] = &[("fail", OnMismatch::Fail), ("keep", OnMismatch::Keep)];
}

/// The field with a text, and the field that receives the object that is made of it.
#[derive(Clone, Debug)]
pub(super) struct Extraction {
    field: Reference,
    target: Reference,
}

impl Extraction {
    /// Creates it from the settings; without a target, the object replaces the text.
    pub(super) fn new(
        field: &Argument<Reference>,
        target: Option<&Argument<Reference>>,
    ) -> Result<Extraction, Diagnostics> {
        let field = field.one_side()?;
        let target = match target {
            Some(target) => target.one_side()?,
            None => field.clone(),
        };
        Ok(Extraction { field, target })
    }

    pub(super) fn signature(&self) -> Signature {
        Signature::new().reads(self.field.access()).writes(self.target.access())
    }

    /// Applies the effect on records whose text `wanted` describes.
    pub(super) fn flow(&self, flow: &mut Flow, wanted: &'static str, object: Type, on_mismatch: OnMismatch) {
        let texts = (Kinds::TEXT | Kinds::BYTES, wanted);
        let found = flow.need(codes::FLOW_NOT_A_TEXT, "field", &self.field, texts, true);
        flow.may_fail();
        if on_mismatch == OnMismatch::Fail && self.target == self.field {
            return flow.replace("field", &self.field, object);
        }
        let may_stay = on_mismatch == OnMismatch::Keep || found.missing || found.ty.kinds.overlaps(Kinds::NULL);
        if !may_stay {
            return flow.set("target", &self.target, object);
        }
        let mut set = Flow::new(flow.record.clone());
        set.set("target", &self.target, object);
        if !set.fails() {
            flow.record = flow.record.join(&set.record);
        }
    }

    /// Returns the text; `None` if the field is missing or null.
    pub(super) fn text<'a>(&self, record: &'a Record) -> Result<Option<&'a str>, Fault> {
        text_of(&self.field, record)
    }

    /// Sets the target to the object.
    pub(super) fn set(&self, record: &mut Record, object: Object) -> Result<(), Fault> {
        self.target.set(record, Value::Map(object.into()))
    }

    /// Returns the fault of a text that does not match `what`.
    #[cold]
    pub(super) fn mismatch(&self, what: &str) -> Fault {
        Fault::record(codes::TEXT_NO_MATCH, format!("the text of {} does not match the {what}", self.field))
    }
}
