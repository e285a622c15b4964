//! Everything that people read is plain technical English: some words are never used.

use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;

use crate::docs::below;

/// Words that no comment, message or page has: old or literary ones, people as actors that are programs, and phrases for
/// which the field has a word.
const WORDS: &[&str] = &[
    "anew",
    "besides",
    "mend",
    "mends",
    "mended",
    "told",
    "thereof",
    "ever more",
    "heed",
    "heeds",
    "whoever",
    "somebody",
    "in between",
    "one who",
    "who knows the token",
    "kept records?",
    "let go on elsewhere",
    "it is no more",
    "go on",
    "goes on",
    "come again",
    "comes again",
    "ever more seldom",
    "glimpses?",
    "on its way",
    "what is open",
    "somebody else's",
    "is bound to its thread",
];

/// The parts of a line of Rust that people read: its comment, or what is between its quotes, without names in backquotes
/// and in braces.
fn read_by_people(line: &str) -> String {
    static NAMES: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"`[^`]*`|\{[^}]*\}").unwrap());
    static QUOTED: LazyLock<Regex> = LazyLock::new(|| Regex::new(r#""((?:[^"\\]|\\.)*)"?"#).unwrap());
    let text = line.trim_start();
    let continues = !text.contains('"') && text.ends_with('\\');
    if text.starts_with("//") || continues {
        return NAMES.replace_all(text, "").into_owned();
    }
    let comment = text.split_once(" // ").map_or("", |(_, comment)| comment);
    let strings: Vec<&str> = QUOTED.captures_iter(text).filter_map(|found| Some(found.get(1)?.as_str())).collect();
    NAMES.replace_all(&format!("{} {comment}", strings.join(" ")), "").into_owned()
}

/// True for files of tests, in which names and comments are free.
fn is_test(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "tests" || part.as_os_str() == "node_modules")
        || path.file_name().is_some_and(|name| name == "tests.rs")
}

/// The lines of a file that hold a word, with their numbers.
fn hits(path: &Path, words: &Regex) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    let is_code = path.extension().is_some_and(|extension| extension == "rs");
    let until = if is_code { text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len()) } else { text.len() };
    let said = |line: &str| if is_code { read_by_people(line) } else { line.to_owned() };
    let lines = text[..until].lines().enumerate().filter(|(_, line)| words.is_match(&said(line)));
    lines.map(|(number, line)| format!("{}:{}: {}", path.display(), number + 1, line.trim())).collect()
}

#[test]
fn comments_messages_and_pages_are_plain_english() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let words = Regex::new(&format!(r"(?i)\b({})\b", WORDS.join("|"))).unwrap();
    let code = ["graph", "ops", "src", "sdk", "sim", "bench", "fuzz", "allocator"];
    let mut files: Vec<_> = code.iter().flat_map(|folder| below(&root.join(folder), ".rs")).collect();
    let pages = ["docs", "examples", "packaging", "bench", "fuzz", "src/cli/templates"];
    let pages = pages.iter().flat_map(|folder| [".md", ".yaml", ".txt"].map(|end| below(&root.join(folder), end)));
    files.extend(pages.flatten());
    files.extend(["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|page| root.join(page)));
    assert!(files.len() > 500, "{} files", files.len());
    let found: Vec<String> = files.iter().filter(|path| !is_test(path)).flat_map(|path| hits(path, &words)).collect();
    assert!(found.is_empty(), "{} lines:\n{}", found.len(), found.join("\n"));
}

#[test]
fn names_are_not_read_as_words() {
    let words = Regex::new(r"(?i)\b(told)\b").unwrap();
    for (line, is_hit) in [
        ("// It is told.", true),
        ("/// Calls `told`.", false),
        ("let told = f(told);", false),
        ("format!(\"{told} lines\")", false),
        ("format!(\"the source is told\")", true),
        ("the source is told that \\", true),
        ("let x = told(); // as told", true),
    ] {
        assert_eq!(words.is_match(&read_by_people(line)), is_hit, "{line}");
    }
}
