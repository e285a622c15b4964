//! The reference in docs/ is what the code says, and its links lead somewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anabranch_record::Record;
use anabranch_template::condition::CompiledCondition;
use anabranch_template::{MissingKey, Template};
use regex::Regex;

use crate::process::Workspace;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Files below a directory that end so.
pub fn below(directory: &Path, end: &str) -> Vec<PathBuf> {
    let mut left = vec![directory.to_owned()];
    let mut found = Vec::new();
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.to_string_lossy().ends_with(end) {
            found.push(path);
        }
    }
    found
}

#[test]
#[cfg(all(
    feature = "ai",
    feature = "avro",
    feature = "grpc",
    feature = "http",
    feature = "js",
    feature = "parquet",
    feature = "postgres",
    feature = "s3",
    feature = "singer",
    feature = "wasm"
))]
fn the_reference_is_what_the_code_says() {
    let workspace = Workspace::new();
    let output = workspace.run(&["docs", "write", "made"]).expect_code(0);
    let mut made = BTreeSet::new();
    for path in output.stdout.lines() {
        let checked_in = fs::read_to_string(root().join(path)).unwrap_or_default();
        let wanted = workspace.read(&format!("made/{path}"));
        assert!(
            checked_in == wanted,
            "{path} is not what the code says: run `cargo run --features full -- docs write`"
        );
        made.insert(root().join(path));
    }
    for page in below(&root().join("docs/plugins"), ".md") {
        assert!(made.contains(&page), "{} is of no plugin: remove it", page.display());
    }
}

#[test]
fn links_lead_somewhere() {
    let link = Regex::new(r"\]\(([^)#]*)(?:#[^)]*)?\)").unwrap();
    let mut pages = below(&root().join("docs"), ".md");
    pages.extend(["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "llms.txt"].map(|name| root().join(name)));
    let mut followed = 0;
    for page in &pages {
        let text = fs::read_to_string(page).unwrap();
        for to in link.captures_iter(&text).map(|found| found.get(1).unwrap().as_str().to_owned()) {
            if to.is_empty() || to.contains("://") || to.contains(' ') {
                continue;
            }
            followed += 1;
            assert!(page.parent().unwrap().join(&to).exists(), "{}: {to} leads nowhere", page.display());
        }
    }
    assert!(followed > 50, "{followed}");
}

/// Titles of sections of a page, and tables, with nothing below them.
fn empty_parts(page: &str) -> Vec<&str> {
    let mut empty = Vec::new();
    // The title that has had no text yet, and its level.
    let mut open: Option<(usize, &str)> = None;
    let mut in_code = false;
    let mut lines = page.lines().map(str::trim).filter(|line| !line.is_empty()).peekable();
    while let Some(line) = lines.next() {
        if line.starts_with("```") {
            in_code = !in_code;
        }
        let level = line.chars().take_while(|c| *c == '#').count();
        let is_title = !in_code && (1..=6).contains(&level) && line[level..].starts_with(' ');
        if is_title {
            // A section may begin with a section of its own.
            empty.extend(open.take().filter(|(above, _)| level <= *above).map(|(_, title)| title));
            open = Some((level, line));
        } else if !line.starts_with("<!--") {
            open = None;
        }
        let ends_head = !in_code && line.starts_with("| ---");
        if ends_head && !lines.peek().is_some_and(|next| next.starts_with('|')) {
            empty.push(line);
        }
    }
    empty.extend(open.map(|(_, title)| title));
    empty
}

#[test]
fn no_section_of_a_page_is_empty() {
    for (page, empty) in [
        ("# A\ntext\n## B\n### C\ntext\n", &[][..]),
        ("# A\n\n## B\n\n## C\ntext\n## D\n", &["## B", "## D"]),
        ("# A\n```sh\n# no title\n```\n", &[]),
        ("# A\n| a | b |\n| --- | --- |\n\ntext\n", &["| --- | --- |"]),
    ] {
        assert_eq!(empty_parts(page), empty, "{page}");
    }
    let mut pages = below(&root().join("docs"), ".md");
    pages.extend(["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "llms.txt"].map(|name| root().join(name)));
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        assert_eq!(empty_parts(&text), Vec::<&str>::new(), "{}", page.display());
    }
}

#[test]
fn the_book_has_all_pages() {
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    for page in below(&root().join("docs"), ".md") {
        let name = page.strip_prefix(root().join("docs")).unwrap().to_string_lossy().into_owned();
        assert!(name == "SUMMARY.md" || summary.contains(&format!("({name})")), "SUMMARY.md does not list {name}");
    }
}

#[test]
fn the_examples_of_the_page_on_pipeline_files_are_valid() {
    let page = fs::read_to_string(root().join("docs/pipeline-file.md")).unwrap();
    let workspace = Workspace::new();
    let mut examples = 0;
    for block in page.split("```yaml\n").skip(1) {
        workspace.write(&format!("pipelines/{examples}.yaml"), block.split("```").next().unwrap());
        examples += 1;
    }
    assert!(examples >= 5, "{examples}");
    let output = workspace.run(&["pipelines", "validate", "--strict"]).expect_code(0);
    assert!(output.both().contains(&format!("{examples} files, {examples} pipelines")), "{}", output.both());
}

#[test]
#[cfg(all(feature = "kafka", feature = "postgres"))]
fn the_examples_of_the_page_on_migration_are_valid() {
    let page = fs::read_to_string(root().join("docs/migration.md")).unwrap();
    let mut workspace = Workspace::new();
    let blocks = |fence: &str| -> Vec<String> {
        page.split(fence).skip(1).map(|block| block.split("```").next().unwrap().to_owned()).collect()
    };
    let pipelines = blocks("```yaml\n");
    for (number, text) in pipelines.iter().enumerate() {
        workspace.write(&format!("pipelines/{number}.yaml"), text);
    }
    workspace.env("KAFKA_SERVERS", "localhost:9092");
    workspace.env("ORDERS_CONNECTION_PASSWORD", "p");
    workspace.env("FROM_CONDUIT_DB_URL", "postgresql://u:p@localhost/d");
    let output = workspace.run(&["pipelines", "validate", "--strict"]).expect_code(0);
    assert!(output.both().contains("4 files, 4 pipelines"), "{}", output.both());
    // The page shows what the command writes.
    workspace.write("orders.json", &blocks("```json\n")[0]);
    let written = workspace.run(&["migrate", "kafka-connect", "orders.json", "--dry-run"]).expect_code(0).stdout;
    assert!(pipelines.contains(&written), "{written}");
}

/// The page names the file of each block of code, and shows every file of the example as a whole.
#[test]
fn the_page_on_connectors_shows_the_example() {
    let page = fs::read_to_string(root().join("docs/write-a-connector.md")).unwrap();
    let mut shown: BTreeMap<&str, String> = BTreeMap::new();
    let block = Regex::new(r"(?s)<!-- (\S+) -->\n\n```(?:rust|toml|yaml)\n(.*?\n)```\n").unwrap();
    for found in block.captures_iter(&page) {
        let file = shown.entry(found.get(1).unwrap().as_str()).or_default();
        file.push_str(&found[2]);
    }
    let named: usize = block.find_iter(&page).count();
    let code = ["```rust\n", "```toml\n", "```yaml\n"].map(|fence| page.matches(fence).count());
    assert_eq!(named, code.iter().sum::<usize>(), "a block of code has no file");

    let example = root().join("sdk/connector");
    let lines = |text: &str| text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect::<Vec<_>>();
    for (name, text) in &shown {
        let file = fs::read_to_string(example.join(name)).unwrap();
        // On the page, the project is next to the checkout.
        let file = if *name == "Cargo.toml" { file.replace("../..", "../anabranch") } else { file };
        assert_eq!(lines(text), lines(&file), "sdk/connector/{name}");
    }
    let files = [".rs", ".toml", ".yaml"].map(|end| below(&example, end)).concat();
    for file in files.iter().filter(|file| !file.ends_with("tests/page.rs")) {
        let name = file.strip_prefix(&example).unwrap().to_str().unwrap();
        assert!(shown.contains_key(name), "the page does not show {name}");
    }
}

/// The page on errors lists what the crates declare. A code that nothing raises explains what does not happen.
#[test]
fn every_declared_code_is_explained_and_raised() {
    let names: BTreeSet<&str> = anabranch::docs::errors::ALL.iter().map(|code| code.name()).collect();
    assert_eq!(names.len(), anabranch::docs::errors::ALL.len(), "two codes have one name");
    let is_of_tests = |path: &Path| {
        let parts = ["tests", "target"];
        path.components().any(|part| parts.iter().any(|name| part.as_os_str() == *name)) || path.ends_with("tests.rs")
    };
    let sources: Vec<(PathBuf, String)> = ["graph", "ops", "src"]
        .iter()
        .flat_map(|folder| below(&root().join(folder), ".rs"))
        .filter(|path| !is_of_tests(path))
        .map(|path| (path.clone(), fs::read_to_string(&path).unwrap()))
        .collect();
    let (declared, code): (Vec<_>, Vec<_>) = sources.into_iter().partition(|(path, _)| path.ends_with("codes.rs"));
    let declaration = Regex::new(r#"(?m)^    ([A-Z0-9_]+): "([a-z0-9_.]+)","#).unwrap();
    let used = Regex::new(r"\bcodes::([A-Z0-9_]+)").unwrap();
    let used: BTreeSet<&str> = code
        .iter()
        .flat_map(|(_, text)| used.captures_iter(text).map(|found| found.get(1).unwrap().as_str()))
        .collect();
    let mut seen = 0;
    for (path, text) in declared.iter().filter(|(path, _)| !path.ends_with("testing/codes.rs")) {
        for found in declaration.captures_iter(text) {
            assert!(names.contains(&found[2]), "{}: docs::errors does not list {}", path.display(), &found[2]);
            assert!(used.contains(&found[1]), "{}: nothing raises {}", path.display(), &found[2]);
            seen += 1;
        }
    }
    assert_eq!(seen, names.len());
}

/// Cells of the rows of a table, without the marks of code.
fn cells(row: &str) -> Vec<String> {
    let inner = row.trim_matches('|').replace("\\|", "\u{0}");
    let cell = |cell: &str| {
        let cell = cell.strip_prefix(' ').unwrap_or(cell);
        let cell = cell.strip_suffix(' ').unwrap_or(cell);
        let marks = if cell.starts_with("`` ") { ("`` ", " ``") } else { ("`", "`") };
        let code = cell.strip_prefix(marks.0).and_then(|code| code.strip_suffix(marks.1));
        code.unwrap_or(cell).replace('\u{0}', "|")
    };
    inner.split('|').map(cell).collect()
}

/// Runs what the page shows, apart from the code that makes the page.
#[test]
fn examples_of_the_page_about_templates_give_what_it_says() {
    let page = fs::read_to_string(root().join("docs/templates.md")).unwrap();
    let json = page.split("```json\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let record = Record::from_json(json.as_bytes()).unwrap();
    let mut kind = String::new();
    let mut seen = 0;
    for line in page.lines() {
        if !line.starts_with('|') {
            kind.clear();
            continue;
        }
        let row = cells(line);
        let (Some(result), true) = (row.last(), row.len() > 1) else { continue };
        let example = &row[row.len() - 2];
        if result == "result" {
            kind.clone_from(example);
            continue;
        }
        if kind.is_empty() || result == "---" {
            continue;
        }
        let output = match kind.as_str() {
            "condition" => {
                let verdict = CompiledCondition::compile(example).unwrap().evaluate(&record);
                verdict.map(|verdict| verdict.to_string()).map_err(|fault| fault.to_string())
            }
            "template" | "example" => {
                let mut output = String::new();
                let template = Template::parse(example, MissingKey::NoValue).unwrap();
                template.render(&record, &mut output).map(|()| output).map_err(|error| error.to_string())
            }
            other => panic!("examples of no known kind: {other}"),
        };
        match (output, result.strip_prefix("fails: ")) {
            (Ok(_), None) if result.starts_with('*') => {}
            (Ok(output), None) => assert_eq!(&output, result, "{example}"),
            (Err(error), Some(why)) => assert_eq!(error, why.replace("&lt;", "<"), "{example}"),
            (output, _) => panic!("{example} gives {output:?}, the page says {result}"),
        }
        seen += 1;
    }
    assert!(seen > 250, "{seen}");
}
