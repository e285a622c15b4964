//! Messages of the HTTP function.

use anabranch_record::protobuf::write::{self, bytes_unless_empty as bytes, message};
use anabranch_record::protobuf::{DecodeError, Reader};
use bytes::Bytes;

use super::{Header, Request, Response};

pub(super) fn request(request: &Request) -> Vec<u8> {
    let mut to = Vec::new();
    bytes(&mut to, 1, request.method.as_bytes());
    bytes(&mut to, 2, request.url.as_bytes());
    request.headers.iter().for_each(|header| write_header(3, header, &mut to));
    bytes(&mut to, 4, &request.body);
    bytes(&mut to, 5, request.auth_secret.as_deref().unwrap_or_default().as_bytes());
    to
}

pub(super) fn response(message: Vec<u8>) -> Result<Response, DecodeError> {
    let message = Bytes::from(message);
    let mut from = Reader::new(&message);
    let mut response = Response::default();
    while let Some((number, field)) = from.next()? {
        match number {
            1 => {
                let status = u16::try_from(field.varint()?);
                response.status = status.map_err(|_| DecodeError::Malformed("a status out of range"))?;
            }
            2 => read_header(field.message()?, &mut response.headers)?,
            3 => response.body = field.bytes()?.to_vec(),
            _ => {}
        }
    }
    Ok(response)
}

fn write_header(field: u32, header: &Header, to: &mut Vec<u8>) {
    message(to, field, header.name.len() + header.value.len(), |to| {
        bytes(to, 1, header.name.as_bytes());
        write::bytes(to, 2, header.value.as_bytes());
    });
}

/// Reads a message with a name and all its values.
fn read_header(mut from: Reader<'_>, to: &mut Vec<Header>) -> Result<(), DecodeError> {
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

/// The other side, for the host of tests.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) mod host_side {
    use anabranch_record::protobuf::write::number_unless_zero;

    use super::*;

    pub(crate) fn read_request(message: &Bytes) -> Result<Request, DecodeError> {
        let mut from = Reader::new(message);
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
        let mut to = Vec::new();
        number_unless_zero(&mut to, 1, u64::from(response.status));
        response.headers.iter().for_each(|header| write_header(2, header, &mut to));
        bytes(&mut to, 3, &response.body);
        to
    }
}
