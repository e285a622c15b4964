//! Ports of the loopback that no other test is given.
//!
//! Uses the standard library only, so that other crates of the workspace take it by its path.

#![allow(dead_code, unreachable_pub, reason = "several test binaries share it, none uses all of it")]

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// A port where nobody listens until a program is told to. While it is held the system gives it to nobody who asks for any
/// port; whoever asks for this one gets it.
#[derive(Debug)]
pub struct Port {
    number: u16,
    /// Both ends of a connection of this port. They keep it in use, and keep nobody from listening.
    _held: [TcpStream; 2],
}

impl Port {
    /// A port of the system's choice.
    pub fn hold() -> Port {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let near = TcpStream::connect(address).unwrap();
        let (far, _) = listener.accept().unwrap();
        drop(listener);
        // A process that a test beside this one starts has a copy of the listener until it runs its program.
        let begun = Instant::now();
        while !is_refused(address) {
            assert!(begun.elapsed() < Duration::from_secs(120), "somebody listens at {address}");
            std::thread::sleep(Duration::from_millis(2));
        }
        Port { number: address.port(), _held: [near, far] }
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.number
    }
}

fn is_refused(address: SocketAddr) -> bool {
    TcpStream::connect(address).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Listens, as soon as no process that a test beside this one starts has a copy of an earlier listener.
    fn listen(address: SocketAddr) -> TcpListener {
        let begun = Instant::now();
        loop {
            match TcpListener::bind(address) {
                Ok(listener) => return listener,
                Err(error) if error.kind() == ErrorKind::AddrInUse && begun.elapsed() < Duration::from_secs(120) => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                Err(error) => panic!("{address}: {error}"),
            }
        }
    }

    #[test]
    fn a_port_that_is_held_is_nobodys_until_it_is_asked_for() {
        let port = Port::hold();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port.number()));
        assert!(is_refused(address));
        // A server comes, goes with a client, and comes again.
        for _ in 0..2 {
            let listener = listen(address);
            let client = TcpStream::connect(address).unwrap();
            drop((listener.accept().unwrap(), client));
        }
        let others: Vec<TcpListener> = (0..100).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).collect();
        assert!(others.iter().all(|other| other.local_addr().unwrap() != address));
    }
}
