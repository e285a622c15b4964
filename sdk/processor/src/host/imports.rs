//! Functions that the host provides to a WebAssembly module.
#![allow(unsafe_code, reason = "calling an import is unsafe by definition")]

mod raw {
    #[link(wasm_import_module = "conduit")]
    unsafe extern "C" {
        pub(super) fn command_request(pointer: *mut u8, length: usize) -> u32;
        pub(super) fn command_response(pointer: *mut u8, length: usize) -> u32;
        pub(super) fn create_schema(pointer: *mut u8, length: usize) -> u32;
        pub(super) fn get_schema(pointer: *mut u8, length: usize) -> u32;
        pub(super) fn http_request(pointer: *mut u8, length: usize) -> u32;
    }
}

macro_rules! safe {
    ($($name:ident),*) => {$(
        pub(super) fn $name(buffer: &mut [u8]) -> u32 {
            // SAFETY: the host reads and writes within the given bytes, which are initialised and borrowed mutably for
            // the whole call.
            unsafe { raw::$name(buffer.as_mut_ptr(), buffer.len()) }
        }
    )*};
}

safe!(command_request, command_response, create_schema, get_schema, http_request);
