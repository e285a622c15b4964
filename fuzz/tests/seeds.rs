//! Every seed, through the function that its fuzz target calls.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

#[test]
fn what_must_hold_of_any_input_holds_of_the_seeds() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds");
    for (target, check) in anabranch_fuzz::TARGETS {
        let files: Vec<_> = fs::read_dir(seeds.join(target)).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(!files.is_empty(), "{target} has no seed");
        for file in files {
            println!("{}", file.display());
            let input = fs::read(file).unwrap();
            check(&input);
            // Inputs that were cut off, and with a byte that is not text, are inputs too.
            check(&input[..input.len() / 2]);
            let mut broken = input;
            if let Some(byte) = broken.get_mut(7) {
                *byte ^= 0x80;
            }
            check(&broken);
        }
    }
    assert_eq!(fs::read_dir(seeds).unwrap().count(), anabranch_fuzz::TARGETS.len(), "seeds of no target");
}
