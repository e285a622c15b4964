//! Pages for assistants: `llms.txt` is an overview, `llms-full.txt` contains everything that is needed to write
//! pipelines.

use std::fmt::Write as _;

use anabranch_plugin::registry::Registry;

use super::plugins::{Role, about, all};
use super::{Page, errors};

const ABOUT: &str = "# Anabranch

> A record-streaming service: it moves records from sources, through processors, to destinations. A pipeline is a YAML
> file; it is compiled and checked as a whole before the first record. Every record is delivered at least once.
";

const FORM: &str = r#"
## Pipelines

```yaml
version: "2.2"
pipelines:
  - id: orders                # required, unique
    status: running           # running (default) or stopped
    name: orders              # free text
    description: ""
    connectors:               # at least one source and one destination
      - id: in
        type: source          # source or destination
        plugin: file
        settings: { path: orders.txt }
        processors: []        # only for records of this connector
      - id: out
        type: destination
        plugin: file
        settings: { path: items.ndjson }
    processors:               # for all records, in this order
      - id: decode
        plugin: json.decode
        condition: '{{ eq .Metadata.kind "order" }}'   # selects records; others pass unchanged
        workers: 1            # number of parallel workers; records keep their order
        settings: { field: .Payload.After }
    dead-letter-queue:        # for failed records; without it, the first failure stops the pipeline
      plugin: file
      settings: { path: failed.ndjson }
      window-size: 100        # number of latest records that count
      window-nack-threshold: 10   # maximum number of failures among them; with more, the pipeline stops
```

* `${NAME}` anywhere in a value is replaced by the environment variable. Use variables for credentials.
* A record has `.Position`, `.Operation` (create, update, delete, snapshot), `.Metadata` (texts by key), `.Key`,
  `.Payload.Before`, `.Payload.After`. Keys and payloads are raw bytes or fields; `json.decode` converts bytes to fields.
* Conditions are Go templates that return `true` or `false`: `{{ gt .Payload.After.amount 10.0 }}`, `{{ and (eq
  .Metadata.a "x") (not .Payload.After.done) }}`. Write `10.0` for numbers that may have a fraction: `gt … 10` fails for 4.5.
  A filter drops the records for which its condition is true. The data is the last argument: `contains "@" .Payload.After.email`.
* `split`, `clone` and some others need the setting `preview.pipeline-arch-v2`.

## Commands

* `anabranch pipelines validate FILE` reports errors and warnings with their places; `--json` for programs.
* `anabranch pipelines plan FILE` prints the graph that the pipeline is compiled to, and its delivery guarantees.
* `anabranch pipelines dry-run FILE` shows the changes of each processor to a few real records, and writes nothing.
* `anabranch run` starts all pipelines in `pipelines/`; `run --once` ends when there is nothing more to read.
* `anabranch mcp` offers all this to assistants as tools.
* Every command takes `--json` and then prints one object: `command`, `ok`, `summary`, `result`, `error`.
* Exit codes: 0 success, 1 failure at run time, 2 invalid input, 3 problem of the environment.
"#;

/// Builds `llms.txt`, the overview.
pub fn short(registry: &Registry) -> Page {
    let mut text = format!("{ABOUT}{FORM}");
    text.push_str("\n## Plugins\n\n");
    for (name, roles) in all(registry) {
        let words: Vec<&str> = roles.iter().map(|(role, _)| word(*role)).collect();
        let summary = roles.first().map_or("", |(_, it)| it.summary.as_str());
        let _ = writeln!(text, "- [{name}](docs/plugins/{name}.md) ({}): {summary}", words.join(", "));
    }
    text.push_str(
        "\n## More\n\n\
         - [llms-full.txt](llms-full.txt): every plugin with all its settings, and every error\n\
         - [Tutorial](docs/tutorial.md): first steps\n\
         - [Pipeline files](docs/pipeline-file.md): every field of the pipeline file\n\
         - [Templates](docs/templates.md): templates and conditions, every function with an example\n\
         - [Write a connector](docs/write-a-connector.md): a source, a processor and a destination in Rust, in a program of \
         one\'s own\n\
         - [Glossary](docs/glossary.md): the terms of these pages\n\
         - [Operations](docs/operations.md): running Anabranch as a service\n\
         - [Guarantees](docs/guarantees.md): delivery guarantees of each source and destination\n\
         - [Delivery](docs/delivery.md): delivery guarantees of each pair of source and destination\n\
         - [HTTP](docs/http.md): the API of a running service; its description is at `/openapi.json`\n\
         - [Settings](docs/settings.md): the settings of the service\n\
         - [Errors](docs/errors.md): every error code with its meaning and remedy\n",
    );
    Page { path: "llms.txt".to_owned(), text }
}

/// Builds `llms-full.txt`, everything in one text.
pub fn full(registry: &Registry) -> Page {
    let mut text = format!("{ABOUT}{FORM}");
    for (name, roles) in all(registry) {
        let _ = write!(text, "\n# Plugin {name}\n");
        for (role, specification) in roles {
            about(&mut text, role, specification);
        }
    }
    text.push_str("\n# Errors\n\n");
    for entry in errors::ALL.iter() {
        let _ = writeln!(text, "- `{}`: {} {}", entry, entry.meaning(), entry.remedy());
    }
    Page { path: "llms-full.txt".to_owned(), text }
}

fn word(role: Role) -> &'static str {
    match role {
        Role::Source => "source",
        Role::Destination => "destination",
        Role::Processor => "processor",
    }
}
