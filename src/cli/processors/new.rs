//! `anabranch processors new`.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anabranch_process::files::system;
use serde_json::json;

use crate::cli::init::write_new;
use crate::cli::{Exit, Report};
use crate::codes;

/// Create a Rust crate with a processor that compiles to WebAssembly.
///
/// The processor works and has tests; `cargo test` runs them, and `cargo build --release --target wasm32-wasip1` builds
/// the module for the `processors/` directory. The crate contains a copy of the SDK for this version, in `vendor/`, and
/// does not need this service to compile.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Arguments {
    /// Name of the crate, of the processor and of the module: lower-case letters, digits, "-" and "_".
    name: String,
    /// The directory in which to create the crate.
    #[arg(long, default_value = ".", value_hint = clap::ValueHint::DirPath)]
    path: PathBuf,
    /// Use the SDK in this directory instead of a copy.
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    sdk: Option<PathBuf>,
}

const COMMAND: &str = "processors.new";
/// Directory of the copied sources.
const VENDORED: &str = "vendor";
/// The SDK in it.
const SDK: &str = "vendor/sdk/processor";

/// The files of the crate, with placeholders.
const TEMPLATES: [(&str, &str); 4] = [
    ("Cargo.toml", include_str!("../templates/processor/Cargo.toml.template")),
    ("README.md", include_str!("../templates/processor/README.md.template")),
    ("src/lib.rs", include_str!("../templates/processor/lib.rs.template")),
    ("src/main.rs", include_str!("../templates/processor/main.rs.template")),
];

macro_rules! sources {
    ($($file:literal),* $(,)?) => {
        /// The sources of the SDK and of the crate of records that it uses, without their tests. Their paths are those in
        /// the repository, because their manifests refer to each other by relative paths.
        const SOURCES: &[(&str, &str)] = &[$(($file, include_str!(concat!("../../../", $file)))),*];
    };
}

sources! {
    "graph/record/Cargo.toml",
    "graph/record/src/access.rs",
    "graph/record/src/avro.rs",
    "graph/record/src/clock.rs",
    "graph/record/src/code.rs",
    "graph/record/src/codes.rs",
    "graph/record/src/extent.rs",
    "graph/record/src/fault.rs",
    "graph/record/src/json.rs",
    "graph/record/src/json/read.rs",
    "graph/record/src/json/write.rs",
    "graph/record/src/lib.rs",
    "graph/record/src/mark.rs",
    "graph/record/src/mask.rs",
    "graph/record/src/metadata.rs",
    "graph/record/src/near.rs",
    "graph/record/src/phrase.rs",
    "graph/record/src/protobuf.rs",
    "graph/record/src/protobuf/read.rs",
    "graph/record/src/protobuf/record.rs",
    "graph/record/src/protobuf/same.rs",
    "graph/record/src/protobuf/specification.rs",
    "graph/record/src/protobuf/write.rs",
    "graph/record/src/record.rs",
    "graph/record/src/reference.rs",
    "graph/record/src/reference/parse.rs",
    "graph/record/src/reference/slips.rs",
    "graph/record/src/reference/write.rs",
    "graph/record/src/specification.rs",
    "graph/record/src/text.rs",
    "graph/record/src/value.rs",
    "sdk/processor/Cargo.toml",
    "sdk/processor/derive/Cargo.toml",
    "sdk/processor/derive/src/lib.rs",
    "sdk/processor/src/error.rs",
    "sdk/processor/src/guest.rs",
    "sdk/processor/src/host.rs",
    "sdk/processor/src/host/imports.rs",
    "sdk/processor/src/http.rs",
    "sdk/processor/src/http/message.rs",
    "sdk/processor/src/lib.rs",
    "sdk/processor/src/logging.rs",
    "sdk/processor/src/parameters.rs",
    "sdk/processor/src/parameters/setting.rs",
    "sdk/processor/src/processor.rs",
    "sdk/processor/src/schema.rs",
    "sdk/processor/src/schema/avro.rs",
    "sdk/processor/src/schema/codec.rs",
    "sdk/processor/src/schema/message.rs",
    "sdk/processor/src/testing.rs",
    "sdk/processor/src/testing/host.rs",
    "sdk/processor/src/wire.rs",
}

pub(super) fn new(arguments: &Arguments) -> Report {
    let name = arguments.name.as_str();
    if let Some(problem) = problem(name) {
        return Report::new(COMMAND)
            .fail(
                Exit::Invalid,
                codes::PROCESSORS_INVALID_NAME,
                format!("{name:?} cannot be the name of a processor: {problem}"),
            )
            .suggest("choose a name like my-processor");
    }
    let sdk = match &arguments.sdk {
        None => SDK.to_owned(),
        Some(path) => match chosen(path) {
            Ok(path) => path,
            Err(report) => return *report,
        },
    };
    let root = if arguments.path == Path::new(".") { PathBuf::from(name) } else { arguments.path.join(name) };
    match write(&root, name, &sdk, arguments.sdk.is_none()) {
        Ok(()) => {}
        Err((path, error)) if error.kind() == ErrorKind::AlreadyExists => {
            return Report::new(COMMAND)
                .fail(Exit::Invalid, codes::PROCESSORS_EXISTS, format!("{} already exists", path.display()))
                .suggest("choose another name, or another directory with --path");
        }
        Err((path, error)) => {
            return Report::new(COMMAND).fail(
                Exit::Environment,
                codes::CLI_CANNOT_WRITE,
                format!("cannot create {}: {}", path.display(), system(&error)),
            );
        }
    }
    let module = root.join(format!("target/wasm32-wasip1/release/{name}.wasm"));
    let shown = root.display();
    Report::new(COMMAND)
        .text(format!(
            "Made {shown}. There, `cargo test` tests it, `rustup target add wasm32-wasip1` is needed once, and
`cargo build --release --target wasm32-wasip1` makes {}.\n",
            module.display()
        ))
        .result(json!({ "directory": shown.to_string(), "processor": name, "module": module.display().to_string() }))
}

/// Returns the path of an SDK in the form that a manifest elsewhere can contain.
fn chosen(path: &Path) -> Result<String, Box<Report>> {
    let refused = |exit, problem: String| {
        let message = format!("{} is not an SDK: {problem}", path.display());
        Box::new(Report::new(COMMAND).fail(exit, codes::PROCESSORS_SDK, message))
    };
    let absolute = path.canonicalize().map_err(|error| refused(Exit::Environment, system(&error).to_string()))?;
    if !absolute.join("Cargo.toml").is_file() {
        return Err(refused(Exit::Invalid, "it has no Cargo.toml".to_owned()));
    }
    match absolute.to_str() {
        // As a string in TOML.
        Some(text) => Ok(text.replace('\\', "\\\\").replace('"', "\\\"")),
        None => Err(refused(Exit::Invalid, "its path is not valid UTF-8".to_owned())),
    }
}

/// Returns the reason why a name cannot be that of a crate.
fn problem(name: &str) -> Option<&'static str> {
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        return Some("it does not begin with a lower-case letter");
    }
    if !name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_') {
        return Some("it contains characters other than lower-case letters, digits, \"-\" and \"_\"");
    }
    if name.len() > 64 {
        return Some("it is longer than 64 characters");
    }
    const TAKEN: &[&str] = &[
        "abstract",
        "alloc",
        "anabranch-processor",
        "anabranch-record",
        "anabranch_processor",
        "anabranch_record",
        "as",
        "async",
        "await",
        "become",
        "box",
        "break",
        "build",
        "const",
        "continue",
        "core",
        "crate",
        "deps",
        "do",
        "dyn",
        "else",
        "enum",
        "examples",
        "extern",
        "false",
        "final",
        "fn",
        "for",
        "gen",
        "if",
        "impl",
        "in",
        "incremental",
        "let",
        "loop",
        "macro",
        "match",
        "mod",
        "move",
        "mut",
        "override",
        "priv",
        "proc-macro",
        "proc_macro",
        "pub",
        "ref",
        "return",
        "self",
        "static",
        "std",
        "struct",
        "super",
        "test",
        "trait",
        "true",
        "try",
        "type",
        "typeof",
        "unsafe",
        "unsized",
        "use",
        "virtual",
        "where",
        "while",
        "yield",
    ];
    TAKEN.contains(&name).then_some("it is a reserved name of Rust or of the SDK")
}

/// Writes all files into a directory that must not exist yet. Errors carry the path that they concern.
fn write(root: &Path, name: &str, sdk: &str, copies: bool) -> Result<(), (PathBuf, std::io::Error)> {
    if let Some(parent) = root.parent() {
        std::fs::create_dir_all(parent).map_err(|error| (parent.to_owned(), error))?;
    }
    std::fs::create_dir(root).map_err(|error| (root.to_owned(), error))?;
    let filled = TEMPLATES.map(|(file, template)| (file.to_owned(), fill(template, name, sdk)));
    let ignored = (".gitignore".to_owned(), "/target\n".to_owned());
    let copied =
        SOURCES.iter().filter(|_| copies).map(|(file, text)| (format!("{VENDORED}/{file}"), (*text).to_owned()));
    for (file, text) in filled.into_iter().chain([ignored]).chain(copied) {
        let path = root.join(file);
        let parent = path.parent().unwrap_or(root);
        std::fs::create_dir_all(parent).map_err(|error| (parent.to_owned(), error))?;
        write_new(&path, text.as_bytes(), 0o644).map_err(|error| (path.clone(), error))?;
    }
    Ok(())
}

fn fill(template: &str, name: &str, sdk: &str) -> String {
    let kind: String = name
        .split(['-', '_'])
        .flat_map(|word| {
            let mut letters = word.chars();
            letters.next().map(|c| c.to_ascii_uppercase()).into_iter().chain(letters).collect::<Vec<_>>()
        })
        .collect();
    // Names that the template itself uses.
    const USED: &[&str] =
        &["Error", "Output", "Parameters", "Processor", "Record", "Reference", "Settings", "Specification"];
    let kind = if USED.contains(&kind.as_str()) { format!("My{kind}") } else { kind };
    template
        .replace("__SDK__", sdk)
        .replace("__CRATE__", &name.replace('-', "_"))
        .replace("__TYPE__", &kind)
        .replace("__NAME__", name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_of_the_sdk_lacks_only_tests() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let (mut open, mut found) = (vec![root.join("sdk/processor"), root.join("graph/record")], Vec::new());
        while let Some(directory) = open.pop() {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                let name = path.file_name().unwrap().to_str().unwrap().to_owned();
                match path.is_dir() {
                    true if name != "tests" && name != "target" && name != "examples" => open.push(path),
                    false if name != "tests.rs" && (name == "Cargo.toml" || name.ends_with(".rs")) => {
                        found.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
                    }
                    _ => {}
                }
            }
        }
        found.sort_unstable();
        assert_eq!(found, SOURCES.iter().map(|(file, _)| *file).collect::<Vec<_>>());
    }

    #[test]
    fn names_of_crates_are_told_from_other_names() {
        for name in ["a", "my-processor", "my_2"] {
            assert_eq!(problem(name), None, "{name}");
        }
        for name in ["", "A", "2a", "-a", "a b", "../a", "fn", "std", "ä", "anabranch-processor"] {
            assert!(problem(name).is_some(), "{name}");
        }
    }

    #[test]
    fn a_type_does_not_take_a_name_of_the_sdk() {
        assert_eq!(fill("__TYPE__ __CRATE__", "my-own_2", ""), "MyOwn2 my_own_2");
        assert_eq!(fill("__TYPE__", "record", ""), "MyRecord");
    }
}
