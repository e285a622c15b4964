//! The Confluent wire format: a zero byte, the schema id in four bytes (big-endian), and the data.

use anabranch_plugin::schema::SchemaId;

/// Begins a frame.
pub(crate) fn begin(id: SchemaId, out: &mut Vec<u8>) {
    out.push(0);
    out.extend_from_slice(&id.get().to_be_bytes());
}

/// Returns `true` if the bytes may be a frame.
pub(crate) fn is_frame(bytes: &[u8]) -> bool {
    split(bytes).is_ok()
}

/// Splits a frame into the id and the data.
pub(crate) fn split(frame: &[u8]) -> Result<(SchemaId, &[u8]), &'static str> {
    match frame.first() {
        Some(0) => {}
        None => return Err("it is empty, without the five bytes of the Confluent wire format"),
        Some(b'{' | b'[') => {
            return Err(
                "it does not start with the zero byte of the Confluent wire format, but like JSON text: use json.decode",
            );
        }
        Some(b'O') if frame.starts_with(b"Obj\x01") => {
            return Err("it is an Avro file, not a message in the Confluent wire format");
        }
        Some(_) => return Err("it does not start with the zero byte of the Confluent wire format"),
    }
    let (id, data) = frame[1..].split_first_chunk().ok_or("it is shorter than the five bytes before the data")?;
    let id = SchemaId::new(u32::from_be_bytes(*id)).ok_or("its schema id is not above zero")?;
    Ok((id, data))
}
