//! Global names of scripts and of other runtimes, with replacements for the latter.

/// Global names of the engine.
pub(super) const OF_LANGUAGE: [&str; 61] = [
    "AggregateError",
    "Array",
    "ArrayBuffer",
    "Atomics",
    "BigInt",
    "BigInt64Array",
    "BigUint64Array",
    "Boolean",
    "DataView",
    "Date",
    "Error",
    "EvalError",
    "FinalizationRegistry",
    "Float32Array",
    "Float64Array",
    "Function",
    "Infinity",
    "Int16Array",
    "Int32Array",
    "Int8Array",
    "Iterator",
    "JSON",
    "Map",
    "Math",
    "NaN",
    "Number",
    "Object",
    "Promise",
    "Proxy",
    "RangeError",
    "ReferenceError",
    "Reflect",
    "RegExp",
    "Set",
    "SharedArrayBuffer",
    "String",
    "Symbol",
    "SyntaxError",
    "TypeError",
    "TypedArray",
    "URIError",
    "Uint16Array",
    "Uint32Array",
    "Uint8Array",
    "Uint8ClampedArray",
    "WeakMap",
    "WeakRef",
    "WeakSet",
    "arguments",
    "decodeURI",
    "decodeURIComponent",
    "encodeURI",
    "encodeURIComponent",
    "eval",
    "globalThis",
    "isFinite",
    "isNaN",
    "parseFloat",
    "parseInt",
    "require",
    "undefined",
];
/// Additional global names of this service.
pub(super) const OF_SERVICE: [&str; 11] = [
    "Record",
    "RawData",
    "StructuredData",
    "logger",
    "console",
    "crypto",
    "btoa",
    "atob",
    "TextEncoder",
    "TextDecoder",
    "__anabranch_record",
];
/// Members of the objects among them.
pub(super) const MEMBERS: [(&str, &[&str]); 3] = [
    ("crypto", &["randomUUID", "getRandomValues"]),
    ("console", &["trace", "debug", "log", "info", "warn", "error", "assert"]),
    ("logger", &["Trace", "Debug", "Info", "Warn", "Error", "trace", "debug", "info", "warn", "error"]),
];

/// Functions of global objects of the engine.
pub(super) const FUNCTIONS: [(&str, &[&str]); 7] = [
    (
        "Math",
        &[
            "abs", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "clz32", "cos", "cosh",
            "exp", "expm1", "floor", "fround", "hypot", "imul", "log", "log10", "log1p", "log2", "max", "min", "pow",
            "random", "round", "sign", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
        ],
    ),
    ("JSON", &["isRawJSON", "parse", "rawJSON", "stringify"]),
    ("Date", &["UTC", "now", "parse"]),
    ("Array", &["from", "isArray", "of"]),
    (
        "Object",
        &[
            "assign",
            "create",
            "defineProperties",
            "defineProperty",
            "entries",
            "freeze",
            "fromEntries",
            "getOwnPropertyDescriptor",
            "getOwnPropertyDescriptors",
            "getOwnPropertyNames",
            "getOwnPropertySymbols",
            "getPrototypeOf",
            "groupBy",
            "hasOwn",
            "is",
            "isExtensible",
            "isFrozen",
            "isSealed",
            "keys",
            "preventExtensions",
            "seal",
            "setPrototypeOf",
            "values",
        ],
    ),
    ("Number", &["isFinite", "isInteger", "isNaN", "isSafeInteger", "parseFloat", "parseInt"]),
    ("String", &["fromCharCode", "fromCodePoint", "raw"]),
];
/// Functions that all functions have, also those that are global objects.
pub(super) const OF_FUNCTIONS: [&str; 4] = ["apply", "bind", "call", "toString"];

/// Returns the advice for a name of another runtime.
pub(super) fn advice(name: &str) -> Option<&'static str> {
    Some(match name {
        "fetch" | "XMLHttpRequest" | "WebSocket" | "EventSource" | "axios" | "http" | "https" | "request" => {
            "a script has no network access: put the processor webhook.http before it, which sends the request and \
             stores the answer in the record"
        }
        "setTimeout"
        | "setInterval"
        | "setImmediate"
        | "clearTimeout"
        | "clearInterval"
        | "queueMicrotask"
        | "requestAnimationFrame"
        | "sleep" => "a script has no timers: it processes one record and ends; call the function directly",
        "Buffer" => {
            "for the text of bytes, write new TextDecoder().decode(bytes); for the bytes of a text, RawData(text); for \
             base64, btoa and atob"
        }
        "structuredClone" => "write { ...object }, or JSON.parse(JSON.stringify(object)) for all levels",
        "window" | "self" | "global" => "write globalThis",
        "document" | "navigator" | "location" | "localStorage" | "sessionStorage" => {
            "a script runs in the service, not in a browser; to keep state from record to record, use a variable \
             outside of process"
        }
        "module" | "exports" => "write function process(rec) { … }: the service finds it by its name",
        "Deno" | "Bun" | "fs" | "os" | "path" | "__dirname" | "__filename" => {
            "a script cannot access files or the environment"
        }
        "Intl" => {
            "scripts do not support locales: build the text, for example from date.toISOString() and number.toFixed(2)"
        }
        "URL" | "URLSearchParams" => "divide the text with split or a regular expression",
        "Headers" | "Request" | "Response" | "AbortController" | "FormData" => {
            "a script has no network access: put the processor webhook.http before it"
        }
        "performance" => "write Date.now()",
        "alert" | "print" | "log" | "println" => "write console.log(…) or logger.info(…)",
        "escape" | "unescape" => "write encodeURIComponent or decodeURIComponent",
        "None" | "nil" | "NULL" => "write null",
        "True" => "write true",
        "False" => "write false",
        _ => return None,
    })
}

/// Common names for a record.
pub(super) const OF_RECORDS: [&str; 9] =
    ["record", "records", "rec", "r", "msg", "message", "event", "payload", "data"];

/// Members of `process` in Node.js.
pub(super) const OF_NODE: [&str; 14] = [
    "env",
    "argv",
    "exit",
    "cwd",
    "stdout",
    "stderr",
    "stdin",
    "platform",
    "nextTick",
    "hrtime",
    "pid",
    "version",
    "versions",
    "memoryUsage",
];
