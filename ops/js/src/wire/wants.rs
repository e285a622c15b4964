//! Parts of records that are sent to a worker: only those that its script can read.

use anabranch_record::text::Str;

use super::{Malformed, Reader, write_bytes, write_number};

/// Parts of records that are sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Wants {
    pub(crate) position: bool,
    pub(crate) metadata: Want,
    pub(crate) key: Want,
    pub(crate) before: Want,
    pub(crate) after: Want,
}

/// Parts of the metadata, the key or a payload side that are sent. Raw data is sent as a whole or not at all.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Want {
    /// Nothing: the worker sees it as absent and leaves it unchanged.
    #[default]
    Nothing,
    /// The existing fields with these names, which are sorted and unique.
    Fields(Vec<Str>),
    /// Everything.
    Whole,
}

/// First byte of an encoded [`Want`].
const NOTHING: u8 = 0;
const FIELDS: u8 = 1;
const WHOLE: u8 = 2;

impl Wants {
    /// All parts.
    pub(crate) const ALL: Wants =
        Wants { position: true, metadata: Want::Whole, key: Want::Whole, before: Want::Whole, after: Want::Whole };

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.push(self.position.into());
        for want in [&self.metadata, &self.key, &self.before, &self.after] {
            match want {
                Want::Nothing => out.push(NOTHING),
                Want::Whole => out.push(WHOLE),
                Want::Fields(names) => {
                    out.push(FIELDS);
                    write_number(out, names.len() as u64);
                    names.iter().for_each(|name| write_bytes(out, name.as_bytes()));
                }
            }
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Wants, Malformed> {
        let position = reader.byte()? != 0;
        let mut want = || {
            Ok(match reader.byte()? {
                NOTHING => Want::Nothing,
                WHOLE => Want::Whole,
                FIELDS => {
                    let count = reader.count()?;
                    let names = (0..count).map(|_| reader.text()).collect::<Result<Vec<_>, _>>()?;
                    if !names.is_sorted_by(|a, b| a < b) {
                        return Err(Malformed);
                    }
                    Want::Fields(names)
                }
                _ => return Err(Malformed),
            })
        };
        Ok(Wants { position, metadata: want()?, key: want()?, before: want()?, after: want()? })
    }
}

impl Want {
    /// Wants these fields.
    pub(crate) fn fields<'a>(names: impl Iterator<Item = &'a str>) -> Want {
        let mut names: Vec<Str> = names.map(Str::from).collect();
        names.sort();
        names.dedup();
        Want::Fields(names)
    }
}
