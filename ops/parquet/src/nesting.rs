//! The nesting of the columns of a file, before the file is decoded.
//!
//! The parquet crate reads the schema with a recursive function, without a limit. A file of a few kilobytes can nest so
//! deeply that the stack overflows, which ends the process. So the nesting is read first, from the list of schema elements
//! in the metadata (Thrift, compact protocol): each group has the number of its children.

use crate::column::DEEPEST;

/// Maximum nesting of groups in a file. A list and a map are two groups, so that every file that is written can be read.
const DEEPEST_GROUP: usize = 3 * DEEPEST + 8;

/// Maximum nesting of structures within a schema element.
const DEEPEST_STRUCT: usize = 16;

/// Types of fields in the compact protocol.
const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
const STRUCT: u8 = 12;

/// Field of the metadata with the schema elements, and of an element with the number of its children.
const SCHEMA: i64 = 2;
const CHILDREN: i64 = 5;

/// Returns `true` if the metadata of a file have a schema that is not nested too deeply. `metadata` are the bytes between
/// the pages and the end of the file.
pub(crate) fn is_shallow(metadata: &[u8]) -> bool {
    CompactReader(metadata).schema_is_shallow().unwrap_or(false)
}

/// Reads the compact protocol. Every function returns `None` if the bytes are damaged.
struct CompactReader<'a>(&'a [u8]);

impl CompactReader<'_> {
    fn schema_is_shallow(&mut self) -> Option<bool> {
        let mut id = 0;
        loop {
            let kind = self.field(&mut id)?;
            match (id, kind) {
                (_, 0) => return None,
                (SCHEMA, LIST) => break,
                (_, kind) => self.skip(kind, DEEPEST_STRUCT)?,
            }
        }
        let (elements, kind) = self.list()?;
        if kind != STRUCT {
            return None;
        }
        // The children of each open group that are still to come.
        let mut open: Vec<u64> = Vec::new();
        for _ in 0..elements {
            let children = self.children()?;
            while open.last() == Some(&0) {
                open.pop();
            }
            if let Some(left) = open.last_mut() {
                *left -= 1;
            }
            if children > 0 {
                open.push(children);
            }
            if open.len() > DEEPEST_GROUP {
                return Some(false);
            }
        }
        Some(true)
    }

    /// Reads a schema element, and returns the number of its children.
    fn children(&mut self) -> Option<u64> {
        let (mut id, mut children) = (0, 0);
        loop {
            match self.field(&mut id)? {
                0 => return Some(children),
                I32 if id == CHILDREN => children = u64::try_from(self.signed()?).ok()?,
                kind => self.skip(kind, DEEPEST_STRUCT)?,
            }
        }
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn pass(&mut self, bytes: u64) -> Option<()> {
        self.0 = self.0.get(usize::try_from(bytes).ok()?..)?;
        Some(())
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn signed(&mut self) -> Option<i64> {
        let number = self.number()?;
        Some((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    /// Reads the header of a field of a structure: sets its id, and returns its type. The type 0 is the end.
    fn field(&mut self, id: &mut i64) -> Option<u8> {
        let header = self.byte()?;
        let kind = header & 0x0f;
        match header >> 4 {
            _ if kind == 0 => {}
            0 => *id = self.signed()?,
            step => *id = id.checked_add(i64::from(step))?,
        }
        Some(kind)
    }

    /// Reads the header of a list: number and type of its elements.
    fn list(&mut self) -> Option<(u64, u8)> {
        let header = self.byte()?;
        let count = match header >> 4 {
            15 => self.number()?,
            count => u64::from(count),
        };
        // Every element takes at least a byte.
        (count <= self.0.len() as u64).then_some((count, header & 0x0f))
    }

    /// Passes a field of a structure.
    fn skip(&mut self, kind: u8, depth: usize) -> Option<()> {
        match kind {
            TRUE | FALSE => Some(()),
            kind => self.skip_element(kind, depth),
        }
    }

    fn skip_element(&mut self, kind: u8, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        match kind {
            TRUE | FALSE | BYTE => self.pass(1),
            I16 | I32 | I64 => self.number().map(drop),
            DOUBLE => self.pass(8),
            BINARY => {
                let length = self.number()?;
                self.pass(length)
            }
            LIST | SET => {
                let (count, kind) = self.list()?;
                (0..count).try_for_each(|_| self.skip_element(kind, depth))
            }
            MAP => {
                let count = self.number()?;
                if count == 0 {
                    return Some(());
                }
                let kinds = self.byte()?;
                (0..count).try_for_each(|_| {
                    self.skip_element(kinds >> 4, depth)?;
                    self.skip_element(kinds & 0x0f, depth)
                })
            }
            STRUCT => {
                let mut id = 0;
                loop {
                    match self.field(&mut id)? {
                        0 => return Some(()),
                        kind => self.skip(kind, depth)?,
                    }
                }
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Metadata whose schema is a chain of groups, each with the given number of children.
    fn metadata(children: &[u8]) -> Vec<u8> {
        // Version 1; then a list of structures with more than 14 elements.
        let mut bytes = vec![0x15, 0x02, 0x19, 0xfc];
        bytes.extend([(children.len() & 0x7f) as u8 | 0x80, (children.len() >> 7) as u8]);
        for count in children {
            // A name, then the number of children, then the end.
            bytes.extend([0x48, 1, b'x', 0x15, count * 2, 0]);
        }
        bytes
    }

    #[test]
    fn a_schema_that_is_nested_too_deeply_is_found_before_it_is_decoded() {
        assert!(is_shallow(&metadata(&[1; 100])));
        assert!(!is_shallow(&metadata(&[1; 10_000])));
        // Many groups beside each other are not nested.
        let flat: Vec<u8> = std::iter::once(60).chain([1, 0].repeat(60)).collect();
        assert!(is_shallow(&metadata(&flat)));
        for cut in 0..metadata(&[1; 20]).len() {
            assert!(!is_shallow(&metadata(&[1; 20])[..cut]), "{cut}");
        }
    }
}
