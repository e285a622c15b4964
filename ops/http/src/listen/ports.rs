//! The addresses on which the sources of this process listen.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anabranch_record::text::Str;

static CLAIMED: Mutex<Vec<(SocketAddr, Str)>> = Mutex::new(Vec::new());

fn claimed() -> MutexGuard<'static, Vec<(SocketAddr, Str)>> {
    CLAIMED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An address of one source. Dropping it makes the address free.
#[derive(Debug)]
pub(super) struct ClaimedAddress(SocketAddr);

/// Claims an address for a connector. Port 0 is any free port, which needs no claim.
///
/// # Errors
/// The address, or the same port at all addresses, belongs to the returned connector.
pub(super) fn claim(address: SocketAddr, connector: &Str) -> Result<ClaimedAddress, Str> {
    let mut claimed = claimed();
    let meets = |other: &SocketAddr| {
        let is_any = address.ip().is_unspecified() || other.ip().is_unspecified();
        address.port() != 0 && other.port() == address.port() && (is_any || other.ip() == address.ip())
    };
    if let Some((_, owner)) = claimed.iter().find(|(other, _)| meets(other)) {
        return Err(owner.clone());
    }
    claimed.push((address, connector.clone()));
    Ok(ClaimedAddress(address))
}

impl Drop for ClaimedAddress {
    fn drop(&mut self) {
        let mut claimed = claimed();
        if let Some(place) = claimed.iter().position(|(address, _)| *address == self.0) {
            claimed.swap_remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_one_source() {
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let (a, b) = (Str::from("p:a"), Str::from("p:b"));
        let first = claim(address("127.0.0.1:1"), &a).unwrap();
        for taken in ["127.0.0.1:1", "0.0.0.0:1", "[::]:1"] {
            assert_eq!(claim(address(taken), &b).unwrap_err(), a, "{taken}");
        }
        let others = ["127.0.0.2:1", "127.0.0.1:2", "127.0.0.1:0", "127.0.0.1:0"];
        let others = others.map(|free| claim(address(free), &b).unwrap());
        drop(first);
        assert!(claim(address("127.0.0.1:1"), &b).is_ok());
        drop(others);
    }
}
