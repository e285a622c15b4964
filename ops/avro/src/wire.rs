//! The Confluent wire format: a zero byte, the schema id in four bytes (big-endian), and the data.

use anabranch_plugin::schema::SchemaId;

/// Begins a frame.
pub(crate) fn begin(id: SchemaId, out: &mut Vec<u8>) {
    out.push(0);
    out.extend_from_slice(&id.get().to_be_bytes());
}

/// Splits a frame into the id and the data.
pub(crate) fn split(frame: &[u8]) -> Result<(SchemaId, &[u8]), &'static str> {
    let Some((0, rest)) = frame.split_first().map(|(magic, rest)| (*magic, rest)) else {
        return Err("it does not start with the zero byte of the Confluent wire format");
    };
    let (id, data) = rest.split_first_chunk().ok_or("it is shorter than the five bytes before the data")?;
    let id = SchemaId::new(u32::from_be_bytes(*id)).ok_or("its schema id is not above zero")?;
    Ok((id, data))
}
