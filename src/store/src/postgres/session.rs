//! Statements with a time limit. A server that is silent (a frozen machine, a network that drops every packet) does not
//! close the connection: without a limit, callers would wait forever.
//!
//! Statements are not prepared: a proxy that gives each transaction another session, such as pgbouncer, would not find
//! them again. So the client names the types of parameters, and a statement costs one round trip.

use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, GenericClient, Row};

/// Why a statement failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The server or the connection failed.
    #[error(transparent)]
    Postgres(#[from] Error),
    /// No answer arrived within this time. The statement may have been executed, or may still be.
    #[error("no answer in {} s", .0.as_secs_f32())]
    Silent(Duration),
}

/// Waits for an answer of the server, up to the limit.
pub(super) async fn answered<T>(limit: Duration, asked: impl Future<Output = Result<T, Error>>) -> Result<T, Failure> {
    match timeout(limit, asked).await {
        Ok(answer) => answer.map_err(Failure::Postgres),
        Err(_) => Err(Failure::Silent(limit)),
    }
}

/// A connection. It closes on drop, even if answers are pending: the server then rolls back what is not committed.
pub(super) struct Session {
    client: Client,
    driver: AbortHandle,
}

impl Session {
    pub(super) fn new(client: tokio_postgres::Client, driver: AbortHandle, limit: Duration) -> Session {
        Session { client: Timed { inner: client, limit }, driver }
    }

    pub(super) fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    pub(super) fn is_closed(&self) -> bool {
        self.client.inner.is_closed()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // By itself, the driver would wait for the pending answers.
        self.driver.abort();
    }
}

/// A client that runs statements, each with a time limit.
pub(super) struct Timed<C> {
    inner: C,
    limit: Duration,
}

pub(super) type Client = Timed<tokio_postgres::Client>;
pub(super) type Transaction<'a> = Timed<tokio_postgres::Transaction<'a>>;

type Parameters<'a> = &'a [&'a dyn Parameter];

/// A value with its type in PostgreSQL.
pub(super) trait Parameter: Sync {
    fn typed(&self) -> (&(dyn ToSql + Sync), Type);
}

macro_rules! parameters {
    ($($rust:ty => $type:ident,)*) => {
        $(impl Parameter for $rust {
            fn typed(&self) -> (&(dyn ToSql + Sync), Type) {
                (self, Type::$type)
            }
        })*
    };
}

parameters! {
    &str => TEXT,
    String => TEXT,
    bool => BOOL,
    i32 => INT4,
    i64 => INT8,
    &[u8] => BYTEA,
    Vec<u8> => BYTEA,
    &[i64] => INT8_ARRAY,
    Vec<&str> => TEXT_ARRAY,
    Vec<String> => TEXT_ARRAY,
    Vec<i64> => INT8_ARRAY,
    Vec<&[u8]> => BYTEA_ARRAY,
    Vec<Vec<u8>> => BYTEA_ARRAY,
}

fn typed<'a>(parameters: Parameters<'a>) -> Vec<(&'a (dyn ToSql + Sync), Type)> {
    parameters.iter().map(|parameter| parameter.typed()).collect()
}

impl<C: GenericClient> Timed<C> {
    pub(super) async fn query(&self, sql: &str, parameters: Parameters<'_>) -> Result<Vec<Row>, Failure> {
        answered(self.limit, self.inner.query_typed(sql, &typed(parameters))).await
    }

    pub(super) async fn query_one(&self, sql: &str, parameters: Parameters<'_>) -> Result<Row, Failure> {
        answered(self.limit, self.inner.query_typed_one(sql, &typed(parameters))).await
    }

    pub(super) async fn query_opt(&self, sql: &str, parameters: Parameters<'_>) -> Result<Option<Row>, Failure> {
        answered(self.limit, self.inner.query_typed_opt(sql, &typed(parameters))).await
    }

    pub(super) async fn execute(&self, sql: &str, parameters: Parameters<'_>) -> Result<u64, Failure> {
        answered(self.limit, self.inner.execute_typed(sql, &typed(parameters))).await
    }

    pub(super) async fn batch_execute(&self, sql: &str) -> Result<(), Failure> {
        answered(self.limit, self.inner.batch_execute(sql)).await
    }
}

impl Client {
    pub(super) async fn transaction(&mut self) -> Result<Transaction<'_>, Failure> {
        let inner = answered(self.limit, self.inner.transaction()).await?;
        Ok(Timed { inner, limit: self.limit })
    }
}

impl Transaction<'_> {
    pub(super) async fn commit(self) -> Result<(), Failure> {
        answered(self.limit, self.inner.commit()).await
    }
}
