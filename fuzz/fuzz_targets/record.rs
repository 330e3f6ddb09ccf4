//! See `weir_sim::fuzz::record`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_sim::fuzz::record(data));
