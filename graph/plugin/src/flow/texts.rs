//! The possible texts of a value that is set to constants.

use std::collections::BTreeSet;
use std::sync::Arc;

use anabranch_record::access::Access;
use anabranch_record::reference::Side;
use anabranch_record::text::Str;

use super::record::RecordShape;
use super::shape::Fields;

/// Maximum number of possible texts.
const MOST: usize = 16;

/// The possible texts of a value, as a conservative set: `Any` if they are unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Texts {
    /// Unknown.
    #[default]
    Any,
    /// One of these.
    These(Arc<BTreeSet<Str>>),
    /// One of these; the hint says how to get another one.
    Listed {
        /// The texts.
        texts: Arc<BTreeSet<Str>>,
        /// The remedy if another text is expected.
        hint: &'static str,
    },
    /// An integer without sign, from 0 up to this one.
    UpTo(u64),
}

impl Texts {
    /// Creates the set of one text.
    pub fn only(text: impl Into<Str>) -> Texts {
        Texts::These(Arc::new(BTreeSet::from([text.into()])))
    }

    /// Returns `true` if the value may be the text.
    pub fn may_be(&self, text: &str) -> bool {
        match self {
            Texts::Any => true,
            Texts::These(texts) | Texts::Listed { texts, .. } => texts.contains(text),
            Texts::UpTo(most) => text.parse::<u64>().is_ok_and(|number| number <= *most && number.to_string() == text),
        }
    }

    /// Returns `true` if the value is always the text.
    pub fn is_only(&self, text: &str) -> bool {
        matches!(self, Texts::These(texts) if texts.len() == 1 && texts.contains(text))
    }

    /// Returns the texts of both.
    #[must_use]
    pub fn join(&self, other: &Texts) -> Texts {
        match (self, other) {
            (a, b) if a == b => a.clone(),
            (Texts::These(a), Texts::These(b)) if a.len() + b.len() <= MOST => Texts::These(Arc::new(&**a | &**b)),
            (Texts::UpTo(a), Texts::UpTo(b)) => Texts::UpTo(*a.max(b)),
            (Texts::UpTo(_), Texts::These(texts)) if texts.iter().all(|text| self.may_be(text)) => self.clone(),
            (Texts::These(texts), Texts::UpTo(_)) if texts.iter().all(|text| other.may_be(text)) => other.clone(),
            _ => Texts::Any,
        }
    }

    /// Describes the possible texts; `None` if they are unknown, or if the list has a hint of its own.
    pub(crate) fn words(&self) -> Option<String> {
        match self {
            Texts::Any | Texts::Listed { .. } => None,
            Texts::These(texts) if texts.len() == 1 => texts.first().map(|text| format!("always {:?}", text.as_str())),
            Texts::These(texts) => {
                let texts: Vec<String> = texts.iter().map(|text| format!("{:?}", text.as_str())).collect();
                Some(format!("one of {}", texts.join(", ")))
            }
            Texts::UpTo(u64::MAX) => Some("a whole number from \"0\" up".to_owned()),
            Texts::UpTo(most) => Some(format!("a whole number from \"0\" to \"{most}\"")),
        }
    }
}

impl RecordShape {
    /// Removes the known texts of parts that a node writes, unless its flow has changed them since `before`: the node
    /// may write any text.
    pub fn forget_texts(&mut self, before: &RecordShape, writes: &Access) {
        let metadata = Str::from_static("Metadata");
        let known: Vec<Str> = self
            .metadata
            .with_texts()
            .filter(|key| {
                let written = Access::These(vec![vec![metadata.clone(), (*key).clone()]]);
                before.metadata.texts(key) == self.metadata.texts(key) && writes.overlaps(&written)
            })
            .cloned()
            .collect();
        known.iter().for_each(|key| self.metadata.forget_texts(key));
        for side in [Side::Key, Side::Before, Side::After] {
            let mut path = side.parts().to_vec();
            let was = before.side(side).structured.clone();
            if let (Some(fields), Some(was)) = (&mut self.side_mut(side).structured, was) {
                forget(fields, &was, writes, &mut path);
            }
        }
    }
}

fn forget(fields: &mut Fields, was: &Fields, writes: &Access, path: &mut Vec<Str>) {
    let named: Vec<Str> =
        fields.iter().filter(|(_, field)| field.ty.may_have_texts()).map(|(name, _)| name.clone()).collect();
    for name in named {
        let (Some(mut field), Some(before)) = (fields.get(&name), was.get(&name)) else { continue };
        path.push(name.clone());
        if writes.overlaps(&Access::These(vec![path.clone()])) {
            if field.ty.texts == before.ty.texts {
                field.ty.texts = Texts::Any;
            }
            forget(&mut field.ty.fields, &before.ty.fields, writes, path);
            fields.insert(name, field);
        }
        path.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_of_two_values_is_never_too_little() {
        let known =
            [Texts::Any, Texts::only("a"), Texts::only("2"), Texts::only("a").join(&Texts::only("b")), Texts::UpTo(2)];
        for a in &known {
            for b in &known {
                let both = a.join(b);
                assert_eq!(both, b.join(a), "{a:?} {b:?}");
                for text in ["a", "b", "2", "02", "3", "-1", ""] {
                    assert!(both.may_be(text) || !(a.may_be(text) || b.may_be(text)), "{text}: {a:?} {b:?}");
                }
            }
        }
        let many = (0..=MOST).map(|n| Texts::only(n.to_string()));
        assert_eq!(many.reduce(|a, b| a.join(&b)), Some(Texts::Any));
    }
}
