//! What a worker is sent of records: what its script can look at, and no more.

use anabranch_record::text::Str;

use super::{Malformed, Reader, write_bytes, write_number};

/// What is sent of records.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Wants {
    pub(crate) position: bool,
    pub(crate) metadata: Want,
    pub(crate) key: Want,
    pub(crate) before: Want,
    pub(crate) after: Want,
}

/// What is sent of the metadata, the key or a side of the payload. Raw data is sent whole where anything is.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Want {
    /// Nothing: it looks absent to the worker, which leaves it alone.
    #[default]
    Nothing,
    /// The fields of these names that are there; sorted, each once.
    Fields(Vec<Str>),
    /// All of it.
    Whole,
}

/// The first byte of a [`Want`].
const NOTHING: u8 = 0;
const FIELDS: u8 = 1;
const WHOLE: u8 = 2;

impl Wants {
    /// Everything.
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
    /// These fields.
    pub(crate) fn fields<'a>(names: impl Iterator<Item = &'a str>) -> Want {
        let mut names: Vec<Str> = names.map(Str::from).collect();
        names.sort();
        names.dedup();
        Want::Fields(names)
    }
}
