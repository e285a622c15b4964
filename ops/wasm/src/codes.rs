//! Codes of errors and findings of this crate.

anabranch_record::codes! {
    /// A WebAssembly processor returned a value that is not a record.
    WASM_BAD_RECORD: "wasm_bad_record", "This is a defect of the processor: report it to its author.";

    /// A WebAssembly processor returned an invalid response.
    WASM_BAD_RESPONSE: "wasm_bad_response", "This is a defect of the processor: report it to its author.";

    /// A WebAssembly processor refuses its settings.
    WASM_CONFIGURE: "wasm_configure", "The message comes from the processor.";

    /// A WebAssembly processor failed for this record.
    WASM_ERROR: "wasm_error", "The message comes from the processor.";

    /// A WebAssembly processor exited.
    WASM_EXITED: "wasm_exited", "The message comes from the processor.";

    /// A WebAssembly processor requested network access that is not allowed.
    WASM_NETWORK: "wasm_network", "Check the settings processors.egress.*.";

    /// A WebAssembly processor returned no records.
    WASM_NO_PROGRESS: "wasm_no_progress", "This is a defect of the processor: report it to its author.";

    /// A WebAssembly processor could not be opened.
    WASM_OPEN: "wasm_open", "The message comes from the processor.";

    /// A WebAssembly processor cannot be started.
    WASM_START: "wasm_start", "Check its file, which may not be a processor.";

    /// A WebAssembly processor could not be closed.
    WASM_TEARDOWN: "wasm_teardown", "The message comes from the processor.";

    /// A WebAssembly processor exceeded its time limit.
    WASM_TIMEOUT: "wasm_timeout", "Raise processors.timeout.";

    /// A WebAssembly processor crashed.
    WASM_TRAP: "wasm_trap", "This is a defect of the processor: report it to its author.";
}
