#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| anabranch_fuzz::check("tap_output", input));
