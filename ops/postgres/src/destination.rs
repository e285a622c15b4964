//! The `postgres` destination: its parameters and guarantees.

use std::sync::Arc;
use std::time::Duration;

use anabranch_plugin::destination::{Destination, DestinationKind, Retry, WritePolicy, Writer};
use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{Content, Flow, Form, Place};
use anabranch_plugin::host::Host;
use anabranch_plugin::kind;
use anabranch_plugin::letter::LetterForm;
use anabranch_plugin::parameters::{Argument, Choice, Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::access::Access;
use anabranch_record::extent::{CollectionSpace, Extent};
use anabranch_record::fault::Fault;
use anabranch_record::metadata::key;
use anabranch_record::reference::Side;
use anabranch_record::text::Str;
use anabranch_record::{Operation, Record};
use anabranch_template::Template;
use async_trait::async_trait;

use crate::address::Address;
use crate::codes;
use crate::history::TableHistory;
use crate::name::{TABLES, TableName, check, resource};
use crate::refusal::refusal;
use crate::settings::{COLLECTION, Settings, TableSelector};
use crate::writer::TableWriter;

/// Returns the `postgres` destination for the registry.
pub(crate) fn kind() -> Arc<dyn DestinationKind> {
    let specification = Specification::builtin("postgres", "Writes records to tables of PostgreSQL.")
        .describe(
            "Each field of `.Payload.After` is a column, and so is each field of the key. A record whose key and \
             payload have different values for a column fails. Records with the operations create, snapshot and \
             update are inserted, or update the row with the same key; delete deletes the row. Records with an \
             absent or empty key are inserted. The key must be structured, or the JSON text of an object; a \
             primary key or unique constraint over its columns must exist.\n\n\
             A batch is one transaction. Rows that PostgreSQL rejects are found by bisection and go to the \
             dead-letter queue with its message; the others are written. Of several records with the same key in \
             a batch, the last is written.\n\n\
             If a table is dropped while the pipeline runs, or altered so that a column is removed, has another \
             type or is required, no record fails. The destination retries with back-off, and then the pipeline \
             recovers, until the table fits again. The same applies to a database that is renamed, dropped or \
             closed to connections while the pipeline runs, and to a revoked permission. It also applies to a \
             write of at least eight records that all lack the same table, column, type or key, in the table or \
             in an object that its triggers use. At the first start, a missing table stops the pipeline. If you \
             changed the table on purpose, change the pipeline and apply it, or restart it. Rows that a \
             constraint rejects are dead letters, even if the constraint is new. A row that a trigger or a rule \
             skips counts as written.\n\n\
             An update changes only the columns that the record has. If its data before the change and its key have \
             different values for a column of the key, and the data after it confirms the new one, the row gets the \
             new key. If metadata postgres.unchanged names columns that the record lacks and a row with the key does \
             not exist, nothing is written, and the log contains a warning. A delete without a key and with metadata \
             postgres.truncate removes all rows of the table, which needs the permission TRUNCATE.\n\n\
             As a dead-letter queue, it writes a row for each dead letter, with the columns name (the key), \
             pipeline, source, node, code, error, failed_at and record; set table. See dead-letters.md.\n\n\
             Types: text is parsed as the column's type (uuid, numbers, dates, intervals, enums …), lists become \
             arrays, vectors or JSON, maps become JSON or hstore. A time without an offset is in UTC. A value that does not \
             fit fails its record: a number out of range, a fraction for an integer, an integer that double \
             precision cannot represent exactly, text that is too long, a time of day for a date. Text that \
             PostgreSQL prints for a value of the column's type is that value again: dates BC or beyond the year 9999, \
             infinity, and array literals such as {1,2} too.\n\n\
             As in PostgreSQL, values beyond the precision of a type are rounded or truncated: decimals beyond \
             the scale of numeric(p,s) and money, numbers for real and vector to 24 bits, text of a number for \
             double precision to 53 bits, times to microseconds or the column's precision, spaces at the end \
             beyond char(n) and varchar(n), name after 63 bytes and \"char\" after the first.",
        )
        .with_all(shared::destination());
    kind::destination(specification, configure)
}

#[derive(Parameters)]
struct Options {
    /// Address of the database, postgresql://<user>:<password>@<host>:<port>/<database>; special characters in the
    /// password as %XX. Options: ?sslmode=disable, prefer (default), require, verify-ca or verify-full;
    /// &sslrootcert=<PEM file> with the authorities to trust instead of those of the system; &sslcert=<PEM
    /// file>&sslkey=<PEM file> with a certificate for the login, and its key.
    #[parameter(secret, example = "postgresql://user:password@localhost:5432/postgres")]
    url: Argument<Str>,
    /// Table, as table or schema.table; a template is rendered for each record. Names are case-sensitive; put a name
    /// with a dot in double quotes.
    #[parameter(default = COLLECTION)]
    table: Argument<Template>,
    /// Store the position of the source in the transaction of the rows, in the table anabranch_marks. If this is the
    /// only destination, or the source replays exactly, no row is written twice after a crash, even without a key. If
    /// the database loses transactions, for example after a failover or a restore, the source delivers them again, or
    /// the pipeline stops and reports both positions. The table anabranch_writers belongs to anabranch_marks: back up
    /// and restore both together with the rows.
    #[parameter(default = false)]
    exactly_once: bool,
    /// Schema of anabranch_marks and anabranch_writers, which exactlyOnce needs; both are created if they are missing.
    /// The default is the first schema of the search path.
    #[parameter(name = "marks.schema", only_with = "exactlyOnce")]
    marks_schema: Option<Argument<Str>>,
    /// Create missing tables. The columns of the key are the primary key. Types are those that the schema of the records
    /// declares (the postgres source does so), or inferred from the first records.
    #[parameter(default = false)]
    create_tables: bool,
    /// Add missing columns for new fields.
    #[parameter(default = false)]
    add_columns: bool,
    /// Reaction to a record that has other columns than its table. refuse: the record fails, unless addColumns adds the
    /// column. evolve: missing columns are added without NOT NULL, and columns are widened (for example integer to
    /// bigint, or varchar to a longer one) if the schema of the record declares wider types, as those of the postgres
    /// source do. Nothing is removed, renamed or narrowed. With exactlyOnce, the pipeline changes a table only while no
    /// other run has taken over.
    #[parameter(name = "schemaDrift", default = "refuse")]
    schema_drift: SchemaDrift,
}

/// Reaction of the destination to a change of the schemas of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SchemaDrift {
    Refuse,
    Evolve,
}

impl Choice for SchemaDrift {
    const CHOICES: &'static [(&'static str, Self)] =
        &[("refuse", SchemaDrift::Refuse), ("evolve", SchemaDrift::Evolve)];
}

fn configure(options: Options) -> Result<Arc<dyn Destination>, Diagnostics> {
    let Options { url, table, exactly_once, marks_schema, create_tables, add_columns, schema_drift } = options;
    let evolves = schema_drift == SchemaDrift::Evolve;
    let mut findings = Diagnostics::new();
    let address = Address::parse(&url).map_err(|why| {
        findings
            .push(url.invalid(format_args!("{why}; expected postgresql://<user>:<password>@<host>:<port>/<database>")));
    });
    let name = TableSelector::new(&table);
    let wrong = match &name {
        TableSelector::Fixed(text) => TableName::parse(text).err(),
        _ => TableName::never(table.pieces()),
    };
    if let Some(why) = wrong {
        findings.push(table.invalid(format_args!("this is not a table name: {why}")));
    }
    if let Some(schema) = &marks_schema
        && let Err(why) = check(schema.trim())
    {
        findings.push(schema.invalid(format_args!("this is not a schema name: {why}")));
    }
    match address {
        Ok(address) if !findings.has_errors() => Ok(Arc::new(PostgresDestination(Arc::new(Settings {
            address,
            table: name,
            exactly_once,
            marks_schema: marks_schema.map(|schema| schema.trim().to_owned()),
            create_tables,
            add_columns: add_columns || evolves,
            evolves,
            history: TableHistory::default(),
        })))),
        _ => Err(findings),
    }
}

/// Returns a description of the part of a table name that looks like SQL or the notation of another tool. Names in
/// double quotes are taken literally.
fn hardly_a_name(text: &str) -> Option<&'static str> {
    const CHARACTERS: [(&[char], &str); 6] = [
        (&['(', ')'], "a parenthesis"),
        (&[';'], "a semicolon"),
        (&['`'], "a backtick"),
        (&['[', ']'], "a bracket"),
        (&['{', '}'], "a brace"),
        (&['\''], "a single quote"),
    ];
    const STATEMENTS: [&str; 8] = ["insert", "into", "update", "delete", "select", "create", "table", "copy"];
    if text.contains('"') {
        return None;
    }
    let character = CHARACTERS.iter().find(|(characters, _)| text.contains(*characters)).map(|(_, what)| *what);
    let word = text.split_once(char::is_whitespace).map(|(word, _)| word.to_ascii_lowercase());
    let statement = word.is_some_and(|word| STATEMENTS.contains(&word.as_str()));
    character.or(statement.then_some("an SQL statement"))
}

struct PostgresDestination(Arc<Settings>);

#[async_trait]
impl Destination for PostgresDestination {
    async fn open(&self, host: &Host) -> Result<Box<dyn Writer>, Fault> {
        Ok(Box::new(TableWriter::open(self.0.clone(), host).await?))
    }

    fn flow(&self, flow: &mut Flow) {
        flow.may_fail();
        flow.need_fields(Place::NODE, Side::After, true);
        if self.0.address.config.get_dbname().is_none() {
            let message = "url contains no database: PostgreSQL uses the database that has the name of the user";
            let hint = "add the name of the database to the end of the address: \
                        postgresql://<user>:<password>@<host>:<port>/<database>";
            flow.warn(codes::SETTINGS_NO_DATABASE, "url", message, None, Some(hint.to_owned()));
        }
        let key = &flow.record.key;
        let is_name = key.content == Some(Content::Name);
        if key.form() == Some(Form::Raw) && (is_name || key.plain) {
            let since = (key.since, "the key has this form since here".to_owned());
            let hint = "for rows without a key, remove it earlier with field.exclude and fields: .Key; for rows \
                        with a key, set it earlier with field.set, field: .Key and value: '{\"id\": {{ \
                        .Payload.After.id }}}'";
            // A name with unusual characters is probably JSON, and a raw key of another kind has a schema prefix.
            if is_name || !key.is_raw() {
                let what = if is_name { "the name of an object in a bucket" } else { "not the JSON text of an object" };
                let message = format!(
                    "nearly every record fails here: .Key is {what}, and PostgreSQL needs an object with the key's \
                     columns, or no key"
                );
                flow.warn(codes::FLOW_KEY_RAW, Place::NODE, message, Some(since), Some(hint.to_owned()));
            } else {
                let message = "every record fails here: .Key is not the JSON text of an object, and PostgreSQL \
                               needs an object with the key's columns, or no key";
                flow.fail(codes::FLOW_KEY_RAW, Place::NODE, message, Some(since), Some(hint.to_owned()));
            }
        }
        let operations = flow.record.operations;
        let needs_key = !operations.contains(Operation::Create) && !operations.contains(Operation::Snapshot);
        if flow.record.key.is_absent() && needs_key {
            let message = "every record fails here: its operation is update or delete, and it has no key that \
                           identifies the row";
            let since = (flow.record.key.since, "there is no key since here".to_owned());
            let hint = "keep the key, or set it earlier with field.set, field: .Key and value: '{\"id\": {{ \
                        .Payload.After.id }}}'";
            flow.fail(codes::FLOW_KEY_MISSING, Place::NODE, message, Some(since), Some(hint.to_owned()));
        }
        if flow.record.key.is_absent() && flow.record.after.is_absent() && !flow.fails() {
            let message = "every record fails here: it has neither a key nor data after the change, so there is nothing \
                           to write";
            let since = (flow.record.after.since, "absent since here".to_owned());
            let hint = "keep .Payload.After, which contains the columns of the row".to_owned();
            flow.fail(codes::FLOW_NOTHING_TO_WRITE, Place::NODE, message, Some(since), Some(hint));
        }
        let key = Access::These(vec![vec!["Key".into()]]);
        let table = match &self.0.table {
            TableSelector::Fixed(_) => Access::NOTHING,
            TableSelector::Collection => Access::metadata(key::COLLECTION),
            TableSelector::Template(template) => template.reads(),
        };
        flow.replaces_by(Place::NODE, &Access::union([key.clone(), table.clone()]));
        if !flow.record.key.absent || flow.record.key.form() == Some(Form::Structured) {
            // If the pieces of a record go to different tables, each table has its own row with that key.
            let is_apart = flow.record.pieces.as_ref().is_some_and(|pieces| pieces.differ_in(&table));
            if !is_apart {
                flow.one_each(Place::NODE, &key);
            }
        }
        match &self.0.table {
            TableSelector::Template(template) => flow.template("table", template),
            TableSelector::Collection if !flow.record.metadata.may_have(&key::COLLECTION) => {
                let message = "every record fails here: none has the metadata recfmt.collection, which names its table";
                flow.fail(codes::FLOW_NO_METADATA, Place::NODE, message, None, Some("set table".to_owned()));
            }
            TableSelector::Fixed(text) => {
                if let Some(what) = hardly_a_name(text) {
                    let message = format!("table: {what} becomes a part of the table name");
                    let hint = "write only the name, as table or schema.table; put a name with such characters in \
                                double quotes; to choose the table for each record, write a template";
                    flow.warn(codes::SETTINGS_NOT_A_NAME, "table", message, None, Some(hint.to_owned()));
                }
            }
            TableSelector::Collection => {}
        }
    }

    fn writes(&self) -> Vec<Extent> {
        let TableSelector::Fixed(text) = &self.0.table else { return Vec::new() };
        let Ok(table) = TableName::parse(text) else { return Vec::new() };
        let name = resource(table.schema(), table.table()).into();
        vec![Extent { what: TABLES, space: self.0.address.space(), name, whole: true, setting: "table" }]
    }

    fn collections(&self) -> Option<CollectionSpace> {
        let by_collection = matches!(self.0.table, TableSelector::Collection);
        by_collection.then(|| CollectionSpace { what: TABLES, space: self.0.address.space(), setting: "table" })
    }

    fn letter_form(&self) -> LetterForm {
        LetterForm::Columns
    }

    fn written(&self, record: &Record) -> Option<Result<Vec<u8>, Fault>> {
        refusal(&self.0, record).map(Err)
    }

    fn takes_shares(&self) -> bool {
        true
    }

    fn refuses_earlier_runs(&self) -> bool {
        true
    }

    fn policy(&self) -> WritePolicy {
        let retry = if self.0.exactly_once { Retry::Transactional } else { Retry::Idempotent };
        WritePolicy { rows: 4096, bytes: 4 << 20, linger: Duration::ZERO, retry }
    }
}
