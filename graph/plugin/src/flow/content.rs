//! Checks of the content of bytes and texts, and of keys that several records share.

use anabranch_record::access::Access;
use anabranch_record::code::Code;
use anabranch_record::reference::{Reference, Target};

use super::{Content, Flow, Place, ShapeOrigin, TrialCheck};
use crate::codes;
use crate::flow::shape::Kinds;

/// Remedy for a key that is the same in all records.
pub const OWN_KEY: &str = "set a different key for each record with field.set, field: .Key and value: '{\"id\": {{ \
                           .Payload.After.id }}}'; to insert every record, remove the key with field.exclude and \
                           fields: .Key";

/// Content of a field that a processor or destination rejects.
struct RejectedContent {
    what: &'static str,
    since: Option<(ShapeOrigin, String)>,
    /// True if the field may be missing.
    missing: bool,
    hint: Option<String>,
}

impl Flow {
    /// Fails every record if the value of a reference has one of the `refused` contents. Missing and null values are
    /// accepted.
    pub fn need_other(
        &mut self,
        code: Code,
        place: impl Into<Place>,
        reference: &Reference,
        refused: &[Content],
        wanted: &str,
    ) {
        let Some(RejectedContent { what, since, missing, hint }) = self.refused(reference, refused) else { return };
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

    /// Warns like [`Flow::need_other`], for contents that are accepted by chance in rare records: base64 text may be a
    /// JSON number.
    pub fn need_other_usually(
        &mut self,
        code: Code,
        place: impl Into<Place>,
        reference: &Reference,
        refused: &[Content],
        wanted: &str,
    ) {
        let Some(RejectedContent { what, since, hint, .. }) = self.refused(reference, refused) else { return };
        let message = format!("nearly every record fails here: {reference} is {what}, not {wanted}");
        self.warn(code, place, message, since, hint);
    }

    /// Returns the content that the value of a reference always has, if it is rejected.
    fn refused(&self, reference: &Reference, refused: &[Content]) -> Option<RejectedContent> {
        let found = self.peek(reference);
        let content = found.ty.content.filter(|content| refused.contains(content))?;
        // The place of a raw key or payload is where it became raw, not where its content was set, so it is not
        // reported.
        let since =
            if matches!(reference.target(), Target::Field(..)) { found.ty.since } else { ShapeOrigin::default() };
        let only = found.ty.kinds.within(Kinds::TEXT | Kinds::BYTES | Kinds::NULL);
        let what = content.as_str();
        (only && !self.fails).then(|| RejectedContent {
            what,
            since: Some((since, format!("{what} since here"))),
            missing: found.missing || found.ty.kinds.overlaps(Kinds::NULL),
            hint: (content != Content::Timeless).then(|| {
                format!("decode {reference} in the reverse order of its encoding, with the processor for {what}")
            }),
        })
    }

    /// Warns if several records are split from one and have the same `identity`, so that each overwrites the previous
    /// one in the destination.
    pub fn one_each(&mut self, place: impl Into<Place>, identity: &Access) {
        let Some(pieces) = self.record.pieces.clone().filter(|pieces| !pieces.differ_in(identity)) else { return };
        let message = format!(
            "the records that {:?} creates from one record have the same key: each overwrites the previous one, and \
             only the last remains",
            pieces.step
        );
        let hint = match &pieces.index {
            Some(index) => format!(
                "set a different key for each record after {:?}, with its number, {{{{ index .Metadata {:?} }}}}, or \
                 with another value that differs",
                pieces.step,
                index.as_str()
            ),
            None => format!("set a different key for each record after {:?}", pieces.step),
        };
        self.warn(
            codes::FLOW_KEY_SHARED,
            place,
            message,
            Some((pieces.since, "one record becomes several here".into())),
            Some(hint),
        );
    }

    /// Declares that a destination overwrites records with an equal `identity`. Warns if the identity is the key and
    /// every record has the same key. A trial compares the identities of real records.
    pub fn replaces_by(&mut self, place: impl Into<Place>, identity: &Access) {
        let place = place.into();
        self.look(&place, || TrialCheck::Identity(identity.clone()));
        let Access::These(paths) = identity else { return };
        let is_key = matches!(&paths[..], [path] if path.len() == 1 && *path[0] == *"Key");
        let key = &self.record.key;
        // An object without fields is not a key.
        let fields =
            |text: &str| text.trim().strip_prefix('{')?.strip_suffix('}').map(|fields| fields.trim().is_empty());
        if !is_key || key.absent || self.fails {
            return;
        }
        let Some(text) = key.fixed.as_ref().filter(|text| fields(text) != Some(true)) else { return };
        let message = format!(
            "every record has the same key, {text}: each overwrites the previous one, and only the last remains"
        );
        let since = (key.since, "set here to a value that does not depend on the record".to_owned());
        self.warn(codes::FLOW_KEY_CONSTANT, place, message, Some(since), Some(OWN_KEY.to_owned()));
    }
}
