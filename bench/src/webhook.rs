//! An HTTP server that answers every request with the same short body.

use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 11\r\n\r\n{\"ok\":true}";

/// Starts the server on a free port and returns the port. It runs until the process ends.
pub(crate) fn serve() -> io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer(&stream));
        }
    });
    Ok(port)
}

/// Answers the requests of one connection until it is closed.
fn answer(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut requests = BufReader::new(stream);
    let mut line = String::new();
    let mut body = Vec::new();
    loop {
        let mut length = 0;
        loop {
            line.clear();
            if requests.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let header = line.trim_end();
            if header.is_empty() {
                break;
            }
            if let Some((name, value)) = header.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().map_err(io::Error::other)?;
            }
        }
        body.resize(length, 0);
        requests.read_exact(&mut body)?;
        (&mut &*stream).write_all(ANSWER)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_answered_again_and_again() {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, serve().unwrap())).unwrap();
        stream.write_all(b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcPOST / HTTP/1.1\r\n\r\n").unwrap();
        let mut answers = vec![0; 2 * ANSWER.len()];
        stream.read_exact(&mut answers).unwrap();
        assert_eq!(answers, ANSWER.repeat(2));
    }
}
