//! Checksums, as lower-case hexadecimal text.

use anabranch_record::text::hexadecimal;

use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};

use super::Function;
use super::signature::function;

/// The table.
pub(super) static TABLE: &[Function] = &[
    function!("sha1sum", (text: Text) => hexadecimal(&Sha1::digest(text.as_bytes()))),
    function!("sha256sum", (text: Text) => hexadecimal(&Sha256::digest(text.as_bytes()))),
    function!("sha512sum", (text: Text) => hexadecimal(&Sha512::digest(text.as_bytes()))),
    function!("adler32sum", (text: Text) => adler32(text.as_bytes()).to_string()),
];

fn adler32(bytes: &[u8]) -> u32 {
    const MODULUS: u32 = 65_521;
    // Maximum number of bytes that can be summed up before 32 bits overflow.
    const RUN: usize = 5_552;
    let (a, b) = bytes.chunks(RUN).fold((1u32, 0u32), |sums, run| {
        let (a, b) = run.iter().fold(sums, |(a, b), byte| {
            let a = a + u32::from(*byte);
            (a, b + a)
        });
        (a % MODULUS, b % MODULUS)
    });
    b << 16 | a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_input_does_not_overflow() {
        assert_eq!(adler32(&[0xff; 100_000]), 0x149a_302c);
        assert_eq!(adler32(b"Wikipedia"), 300_286_872);
    }
}
