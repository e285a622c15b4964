//! What bytes and texts hold, and which records have one key.

use super::{Content, Flow, Place, Since};
use crate::flow::shape::Kinds;
use crate::operator::Access;
use crate::reference::{Reference, Target};

/// What a part of a record holds that a step refuses.
struct Refused {
    what: &'static str,
    since: Option<(Since, String)>,
    /// Whether it may be missing.
    missing: bool,
    hint: Option<String>,
}

impl Flow {
    /// Fails every record if what a reference leads to holds what no reader of `wanted` reads. What is missing or null
    /// counts as good.
    pub fn need_other(
        &mut self,
        code: &'static str,
        place: impl Into<Place>,
        reference: &Reference,
        refused: &[Content],
        wanted: &str,
    ) {
        let Some(Refused { what, since, missing, hint }) = self.refused(reference, refused) else { return };
        match missing {
            false => {
                let message = format!("every record fails here: {reference} is {what}, not {wanted}");
                self.fail(code, place, message, since, hint);
            }
            true => {
                let message = format!("every record that has {reference} fails here: it is {what}, not {wanted}");
                self.warn(code, place, message, since, hint);
            }
        }
    }

    /// The same where an odd record may pass: base64 may be a number of JSON by chance.
    pub fn need_other_usually(
        &mut self,
        code: &'static str,
        place: impl Into<Place>,
        reference: &Reference,
        refused: &[Content],
        wanted: &str,
    ) {
        let Some(Refused { what, since, hint, .. }) = self.refused(reference, refused) else { return };
        let message = format!("nearly every record fails here: {reference} is {what}, not {wanted}");
        self.warn(code, place, message, since, hint);
    }

    /// What it always holds where it is there, if that is refused.
    fn refused(&self, reference: &Reference, refused: &[Content]) -> Option<Refused> {
        let found = self.peek(reference);
        let content = found.ty.content.filter(|content| refused.contains(content))?;
        // What was raw before and is still so has been since it was read, whatever it holds.
        let since = if matches!(reference.target(), Target::Field(..)) { found.ty.since } else { Since::default() };
        let only = found.ty.kinds.within(Kinds::TEXT | Kinds::BYTES | Kinds::NULL);
        let what = content.as_str();
        (only && !self.fails).then(|| Refused {
            what,
            since: Some((since, format!("{what} since here"))),
            missing: found.missing || found.ty.kinds.overlaps(Kinds::NULL),
            hint: (content != Content::Timeless).then(|| {
                format!("decode {reference} in the reverse order of how it is encoded, with the processor for {what}")
            }),
        })
    }

    /// Warns where several records were made of one and `identity`, by which what is written later takes the place of
    /// what was written before, is the same in all of them.
    pub fn one_each(&mut self, place: impl Into<Place>, identity: &Access) {
        let Some(pieces) = self.record.pieces.clone().filter(|pieces| !pieces.differ_in(identity)) else { return };
        let message = format!(
            "the records that {:?} makes of one have the same key: each takes the place of the one before, and only the \
             last stays",
            pieces.step
        );
        let hint = match &pieces.index {
            Some(index) => format!(
                "give each a key of its own behind {:?}, with its number, {{{{ index .Metadata {:?} }}}}, or with what else \
                 differs",
                pieces.step,
                index.as_str()
            ),
            None => format!("give each a key of its own behind {:?}", pieces.step),
        };
        self.warn(
            "flow.key_shared",
            place,
            message,
            Some((pieces.since, "several are made of one here".into())),
            Some(hint),
        );
    }
}
