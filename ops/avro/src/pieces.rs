//! Schemas of pieces that are built later from a row.

use anabranch_plugin::operator::Pieces;
use anabranch_record::Record;
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;

use crate::part::SchemaPart;

/// Subjects and versions for the key and the payload in the metadata.
type Names = [Option<Str>; 4];

fn keys() -> [Str; 4] {
    let [(key, key_version), (payload, payload_version)] = SchemaPart::ALL.map(SchemaPart::names);
    [key, key_version, payload, payload_version]
}

fn names(keys: &[Str; 4], record: &Record) -> Names {
    keys.each_ref().map(|key| record.metadata.get(key).cloned())
}

/// Returns the pieces with the schema names that `visit` sets. `visit` is called once for each piece, and only these
/// names are kept of its changes: four bytes per piece. Pieces without a schema cost nothing.
///
/// # Errors
/// Returns the error of `visit`.
pub(crate) fn named(pieces: &Pieces, mut visit: impl FnMut(&mut Record) -> Result<(), Fault>) -> Result<Pieces, Fault> {
    let keys = keys();
    // All pieces have the same metadata except for their numbers.
    if pieces.is_empty() || names(&keys, &pieces.make(0)).iter().all(Option::is_none) {
        return Ok(pieces.clone());
    }
    let mut distinct: Vec<Names> = Vec::new();
    let mut each: Vec<u32> = Vec::with_capacity(pieces.len());
    let mut changed = false;
    for mut piece in pieces.iter() {
        let before = names(&keys, &piece);
        visit(&mut piece)?;
        let after = names(&keys, &piece);
        changed |= before != after;
        let at = distinct.iter().rposition(|names| *names == after).unwrap_or_else(|| {
            distinct.push(after);
            distinct.len() - 1
        });
        each.push(u32::try_from(at).unwrap_or(u32::MAX));
    }
    if !changed {
        return Ok(pieces.clone());
    }
    let inner = pieces.clone();
    Ok(Pieces::new(pieces.len(), move |i| {
        let mut piece = inner.make(i);
        for (key, name) in keys.iter().zip(&distinct[each[i] as usize]) {
            match name {
                Some(name) if piece.metadata.get(key) != Some(name) => {
                    piece.metadata.insert(key.clone(), name.clone());
                }
                Some(_) => {}
                None => {
                    piece.metadata.remove(key);
                }
            }
        }
        piece
    }))
}
