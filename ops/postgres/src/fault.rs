//! Classifies errors of PostgreSQL.

use anabranch_record::code::Code;
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::phrase::shortened;
use tokio_postgres::Error;
use tokio_postgres::error::{DbError, SqlState};

use crate::codes;

/// Maximum length in bytes of each part of an error of the server. The server quotes rejected values at any length.
const PART_BYTES: usize = 1 << 10;

/// A failed statement.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The fault of a row.
    Row(Fault),
    /// The cached layout of a table may be out of date.
    Stale(Fault),
    /// The connection or the server failed: it is unknown whether the statement took effect.
    Lost(Fault),
    /// The server rolled the statement back, and a retry may succeed.
    Retry(Fault),
    /// The user lacks a permission on a whole table. It may be granted later.
    Denied(Fault),
    /// Retries cannot succeed.
    Fatal(Fault),
}

impl Failure {
    pub(crate) fn into_fault(self) -> Fault {
        match self {
            Failure::Row(fault)
            | Failure::Stale(fault)
            | Failure::Lost(fault)
            | Failure::Retry(fault)
            | Failure::Denied(fault)
            | Failure::Fatal(fault) => fault,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let Some(db) = error.as_db_error() else {
            return Failure::Lost(Fault::transient(codes::CONNECTION_LOST, text(&error)));
        };
        let (code, text) = (db.code(), describe(db));
        let meaning = if is_of_row(db) { Meaning::Row } else { meaning(code) };
        match meaning {
            Meaning::Lost => Failure::Lost(Fault::transient(codes::SERVER_UNAVAILABLE, text)),
            Meaning::Retry => Failure::Retry(Fault::transient(codes::TRANSACTION_CONFLICT, text)),
            Meaning::Denied => {
                let text = format!("{text}; grant the right, and the pipeline resumes");
                Failure::Denied(Fault::transient(codes::POSTGRES_DENIED, text))
            }
            Meaning::Stale => Failure::Stale(Fault::record(row_code(code), text)),
            Meaning::Row => Failure::Row(Fault::record(row_code(code), text)),
            Meaning::Fatal => Failure::Fatal(Fault::fatal(codes::POSTGRES_REFUSED, text)),
        }
    }
}

enum Meaning {
    Row,
    Stale,
    Lost,
    Retry,
    Denied,
    Fatal,
}

/// Classifies an error by its SQLSTATE (appendix A of the PostgreSQL manual).
fn meaning(code: &SqlState) -> Meaning {
    let class = code.code().get(..2).unwrap_or_default();
    match (class, code.code()) {
        ("08" | "53" | "57" | "58", "57014") => Meaning::Retry,
        ("08" | "53" | "57" | "58", _) => Meaning::Lost,
        ("40", _) | (_, "55P03" | "55006" | "25006" | "25P03") => Meaning::Retry,
        (_, "42P01" | "42703" | "42704" | "42804" | "42P10" | "0A000" | "22P03" | "26000" | "3F000") => Meaning::Stale,
        // States of the table or the server, for example after a trigger was changed.
        ("55", _) | (_, "XX000" | "42883" | "42P02") => Meaning::Stale,
        // A missing permission on a whole table is not the fault of a row, and can be granted.
        (_, "42501") => Meaning::Denied,
        ("28" | "3D", _) | (_, "XX001" | "XX002") => Meaning::Fatal,
        _ => Meaning::Row,
    }
}

/// Returns `true` if a permission is denied for the values of a row, by a policy or a trigger. Errors about a whole
/// table name the routine that checks such permissions.
fn is_of_row(db: &DbError) -> bool {
    let routine = db.routine().unwrap_or_default();
    *db.code() == SqlState::INSUFFICIENT_PRIVILEGE
        && (routine == "ExecWithCheckOptions" || (db.where_().is_some() && !routine.starts_with("aclcheck_error")))
}

fn row_code(code: &SqlState) -> Code {
    match code.code() {
        "23505" => codes::UNIQUE_VIOLATION,
        "23502" => codes::NOT_NULL_VIOLATION,
        "23503" => codes::FOREIGN_KEY_VIOLATION,
        "23514" => codes::CHECK_VIOLATION,
        "42P01" | "3F000" => codes::TABLE_MISSING,
        "42703" => codes::COLUMN_MISSING,
        state if state.starts_with("22") => codes::VALUE_REJECTED,
        _ => codes::ROW_REJECTED,
    }
}

/// Returns message, detail, hint, place and SQLSTATE; each part is shortened.
fn describe(db: &DbError) -> String {
    let part = |text: &str| shortened(text.to_owned(), PART_BYTES);
    let mut text = format!("PostgreSQL: {} (SQLSTATE {})", part(db.message()), db.code().code());
    for more in [db.detail(), db.hint()].into_iter().flatten() {
        text.push_str(": ");
        text.push_str(&part(more));
    }
    if let Some(context) = db.where_() {
        text.push_str(", at ");
        text.push_str(&part(context.lines().next().unwrap_or_default()));
    }
    text
}

/// Returns the text of an error that does not come from the server, with its causes.
fn text(error: &Error) -> String {
    let mut text = error.to_string();
    if let Some(words) = anabranch_ops_tls::within(error) {
        return format!("{text}: {words}");
    }
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

/// Classifies a failed connection attempt. `was_opened` is true if the database was reachable before, so that it may
/// come back.
pub(crate) fn connect(error: &Error, place: &str, was_opened: bool) -> Fault {
    if let Some(db) = error.as_db_error() {
        let hint = match (db.code().code(), db.code().code().get(..2)) {
            ("3D000", _) => "; create the database, or correct its name in the URL",
            (_, Some("28")) => "; check user and password in the URL, and the server's pg_hba.conf",
            _ => "",
        };
        let text = format!("cannot connect to {place}: {}{hint}", describe(db));
        // A restore renames the database, or blocks connections to it.
        let is_away = matches!(db.code().code(), "3D000" | "55000");
        let class = match meaning(db.code()) {
            _ if is_away && was_opened => FaultClass::Transient,
            Meaning::Lost | Meaning::Retry => FaultClass::Transient,
            Meaning::Row | Meaning::Stale | Meaning::Denied | Meaning::Fatal => FaultClass::Fatal,
        };
        let fault = Fault::new(class, codes::CONNECT_FAILED, text);
        // A wrong password, an unknown user, or a user without permission to log in.
        return if db.code().code().starts_with("28") { fault.of_login() } else { fault };
    }
    let text = format!("cannot connect to {place}: {}", text(error));
    let own = error.to_string();
    // The client shows the kind of an error only in its text.
    let settled = ["authentication error", "invalid configuration", "invalid connection string"]
        .contains(&own.as_str())
        || (own.starts_with("error performing TLS handshake") && !is_network(error));
    match settled {
        true if own.starts_with("error performing TLS") => Fault::fatal(
            codes::CONNECT_FAILED,
            format!("{text}; check sslmode, sslrootcert, sslcert and sslkey in the URL"),
        ),
        true => Fault::fatal(codes::CONNECT_FAILED, text),
        false => Fault::transient(codes::CONNECT_FAILED, text),
    }
}

/// Returns `true` if the cause is the network and not the handshake.
fn is_network(error: &Error) -> bool {
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        if let Some(io) = cause.downcast_ref::<std::io::Error>()
            && io.kind() != std::io::ErrorKind::InvalidData
            && io.kind() != std::io::ErrorKind::InvalidInput
        {
            return true;
        }
        next = cause.source();
    }
    false
}
