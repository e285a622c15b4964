//! Messages of the schema and HTTP functions.

use super::read::{Malformed, Reader};
use super::write::Writer;
use crate::http::{Header, Request, Response};
use crate::schema::Schema;

/// Avro, the only schema type of the protocol.
const AVRO: u64 = 1;

pub(crate) fn create_schema(subject: &str, text: &str) -> Vec<u8> {
    let mut to = Writer::default();
    to.bytes(1, subject.as_bytes());
    to.number(2, AVRO);
    to.bytes(3, text.as_bytes());
    to.0
}

pub(crate) fn get_schema(subject: &str, version: i32) -> Vec<u8> {
    let mut to = Writer::default();
    to.bytes(1, subject.as_bytes());
    // Negative numbers of 32 bits take 64 in the protocol.
    to.number(2, i64::from(version) as u64);
    to.0
}

/// Reads the answer to both functions.
pub(crate) fn schema_answer(bytes: &[u8]) -> Result<Schema, Malformed> {
    let mut from = Reader(bytes);
    let mut schema = Schema { subject: String::new(), version: 0, id: 0, text: String::new() };
    while let Some((number, field)) = from.next()? {
        if number != 1 {
            continue;
        }
        let mut from = field.message()?;
        while let Some((number, field)) = from.next()? {
            match number {
                1 => schema.subject = field.text()?.to_owned(),
                2 => schema.version = field.varint()? as i32,
                3 => schema.id = field.varint()? as i32,
                5 => schema.text = field.text()?.to_owned(),
                _ => {}
            }
        }
    }
    Ok(schema)
}

pub(crate) fn http_request(request: &Request) -> Vec<u8> {
    let mut to = Writer::default();
    to.bytes(1, request.method.as_bytes());
    to.bytes(2, request.url.as_bytes());
    request.headers.iter().for_each(|header| write_header(3, header, &mut to));
    to.bytes(4, &request.body);
    to.bytes(5, request.auth_secret.as_deref().unwrap_or_default().as_bytes());
    to.0
}

pub(crate) fn http_response(bytes: &[u8]) -> Result<Response, Malformed> {
    let mut from = Reader(bytes);
    let mut response = Response::default();
    while let Some((number, field)) = from.next()? {
        match number {
            1 => response.status = u16::try_from(field.varint()?).map_err(|_| Malformed::Type)?,
            2 => read_header(field.message()?, &mut response.headers)?,
            3 => response.body = field.bytes()?.to_vec(),
            _ => {}
        }
    }
    Ok(response)
}

fn write_header(field: u32, header: &Header, to: &mut Writer) {
    to.message(field, |to| {
        to.bytes(1, header.name.as_bytes());
        to.always_bytes(2, header.value.as_bytes());
    });
}

/// Reads a message with a name and all its values.
fn read_header(mut from: Reader<'_>, to: &mut Vec<Header>) -> Result<(), Malformed> {
    let (mut name, mut values) = ("", Vec::new());
    while let Some((number, field)) = from.next()? {
        match number {
            1 => name = field.text()?,
            2 => values.push(field.text()?),
            _ => {}
        }
    }
    to.extend(values.into_iter().map(|value| Header { name: name.to_owned(), value: value.to_owned() }));
    Ok(())
}

/// The other side, for the host's replacement in tests.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) mod host_side {
    use super::*;

    /// Request of a schema function: the subject, and the version or the text.
    pub(crate) struct Asked<'b> {
        pub(crate) subject: &'b str,
        pub(crate) version: i32,
        pub(crate) text: &'b str,
    }

    pub(crate) fn asked(bytes: &[u8], creates: bool) -> Result<Asked<'_>, Malformed> {
        let mut from = Reader(bytes);
        let mut asked = Asked { subject: "", version: 0, text: "" };
        while let Some((number, field)) = from.next()? {
            match number {
                1 => asked.subject = field.text()?,
                2 if !creates => asked.version = field.varint()? as i32,
                3 => asked.text = field.text()?,
                _ => {}
            }
        }
        Ok(asked)
    }

    pub(crate) fn write_schema(schema: &Schema) -> Vec<u8> {
        let mut to = Writer::default();
        to.message(1, |to| {
            to.bytes(1, schema.subject.as_bytes());
            to.number(2, i64::from(schema.version) as u64);
            to.number(3, i64::from(schema.id) as u64);
            to.number(4, AVRO);
            to.bytes(5, schema.text.as_bytes());
        });
        to.0
    }

    pub(crate) fn read_request(bytes: &[u8]) -> Result<Request, Malformed> {
        let mut from = Reader(bytes);
        let mut request = Request::new("", "");
        while let Some((number, field)) = from.next()? {
            match number {
                1 => request.method = field.text()?.to_owned(),
                2 => request.url = field.text()?.to_owned(),
                3 => read_header(field.message()?, &mut request.headers)?,
                4 => request.body = field.bytes()?.to_vec(),
                5 => request.auth_secret = Some(field.text()?.to_owned()),
                _ => {}
            }
        }
        Ok(request)
    }

    pub(crate) fn write_response(response: &Response) -> Vec<u8> {
        let mut to = Writer::default();
        to.number(1, u64::from(response.status));
        response.headers.iter().for_each(|header| write_header(2, header, &mut to));
        to.bytes(3, &response.body);
        to.0
    }
}
