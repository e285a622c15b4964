//! What assistants read: `llms.txt` says what there is, `llms-full.txt` is all that is needed to write pipelines.

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
        processors: []        # of this connector alone
      - id: out
        type: destination
        plugin: file
        settings: { path: items.ndjson }
    processors:               # of all records, in this order
      - id: decode
        plugin: json.decode
        condition: '{{ eq .Metadata.kind "order" }}'   # for which records; others pass unchanged
        workers: 1            # how many run in parallel; the order of records stays
        settings: { field: .Payload.After }
    dead-letter-queue:        # where failed records go; without it the first failure stops the pipeline
      plugin: file
      settings: { path: failed.ndjson }
      window-size: 100        # how many of the last records are looked at
      window-nack-threshold: 10   # how many of these may fail before the pipeline stops
```

* `${NAME}` anywhere in a value is replaced by the environment variable. Credentials belong there and not in files.
* A record has `.Position`, `.Operation` (create, update, delete, snapshot), `.Metadata` (texts by name), `.Key`,
  `.Payload.Before`, `.Payload.After`. Keys and payloads are bytes or fields; `json.decode` makes fields of bytes.
* Conditions are Go templates that say `true` or `false`: `{{ gt .Payload.After.amount 10.0 }}`, `{{ and (eq
  .Metadata.a "x") (not .Payload.After.done) }}`. Write `10.0` for numbers that may have a fraction: `gt … 10` fails for 4.5.
  A filter drops the records for which its condition holds. The data are the last argument: `contains "@" .Payload.After.email`.
* `split`, `clone` and some others need the setting `preview.pipeline-arch-v2`.

## Ways of working

* `anabranch pipelines validate FILE` reports every mistake with its place; `--json` for programs.
* `anabranch pipelines plan FILE` prints the graph that the pipeline is compiled to, and what is delivered how often.
* `anabranch pipelines dry-run FILE` shows what each step makes of a few real records, and writes nothing.
* `anabranch run` starts all pipelines in `pipelines/`; `run --once` ends when there is nothing more to read.
* `anabranch mcp` offers all this to assistants as tools.
* Every command takes `--json` and then prints one object: `command`, `ok`, `summary`, `result`, `error`.
* Exit codes: 0 done, 1 failed while running, 2 what was given is not valid, 3 the environment refuses.
"#;

/// `llms.txt`: what there is and where.
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
         - [Tutorial](docs/tutorial.md): the first hour\n\
         - [Templates](docs/templates.md): templates and conditions, every function with an example\n\
         - [Operations](docs/operations.md): running it as a service\n\
         - [Guarantees](docs/guarantees.md): what is promised, for each source and destination\n\
         - [Delivery](docs/delivery.md): what is promised for each pair of source and destination\n\
         - [HTTP](docs/http.md): the API of a running service; its description is at `/openapi.json`\n\
         - [Settings](docs/settings.md): of the service\n\
         - [Errors](docs/errors.md): every code, what it means and what to do\n",
    );
    Page { path: "llms.txt".to_owned(), text }
}

/// `llms-full.txt`: all of it in one text.
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
        let _ = writeln!(text, "- `{}`: {} {}", entry.code, entry.meaning, entry.advice);
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
