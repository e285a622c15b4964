//! Notifications of the server that nodes of a cluster have something to do.
//!
//! They are hints: a node sees each change at its next renewal too. A proxy that pools transactions passes none, and the nodes
//! do without.

use std::pin::pin;
use std::time::Duration;

use anabranch_settings::PostgresDatabase;
use futures::{FutureExt as _, StreamExt as _};
use tokio::time::sleep;
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Client};

use super::PostgresError;
use super::connection::{Address, message};
use super::session::Failure;
use super::table::Table;

/// The channel of a store. Its table may have two names, but has one object id.
const CHANNEL: &str = "SELECT 'anabranch ' || to_regclass($1)::oid";
/// Notifies the nodes when the transaction is committed. The parameter is the state table.
pub(super) const NOTIFY: &str = "SELECT pg_notify('anabranch ' || to_regclass($1)::oid, '')";

/// Time between two hints: all nodes look at the store after each.
const PAUSE: Duration = Duration::from_millis(100);
/// How long the first notification may take, which this process sends to itself.
const FIRST: Duration = Duration::from_secs(5);
/// Time before a connection is opened again.
const AGAIN: Duration = Duration::from_secs(10);

/// The notifications of a store.
pub(crate) struct Hints {
    address: Address,
    state: String,
}

/// How listening ended without a failure.
enum Listened {
    /// The server has closed the connection.
    Closed,
    /// There are no notifications on this way to the server.
    Nothing,
}

impl Hints {
    /// Connects later.
    ///
    /// # Errors
    /// The address or the name of the table is not valid.
    pub(crate) fn of(database: &PostgresDatabase) -> Result<Hints, PostgresError> {
        let Table { state, .. } = Table::parse(&database.table)?;
        Ok(Hints { address: Address::parse(&database.connection)?, state })
    }

    /// Calls `told` after each notification, at most every [`PAUSE`]. Returns if notifications do not arrive here.
    pub(crate) async fn follow(&self, mut told: impl FnMut()) {
        loop {
            match self.listen(&mut told).await {
                Ok(Listened::Nothing) => {
                    return tracing::debug!("no notifications of the state store arrive: changes are seen at renewals");
                }
                Ok(Listened::Closed) => {}
                Err(error) => tracing::debug!(error = message(&error), "the state store sends no notifications"),
            }
            sleep(AGAIN).await;
        }
    }

    async fn listen(&self, told: &mut impl FnMut()) -> Result<Listened, Failure> {
        let (client, mut connection) = self.address.dial().await?;
        let mut messages = futures::stream::poll_fn(move |context| connection.poll_message(context));
        let (mut asking, mut first) = (pin!(self.ask(&client).fuse()), pin!(sleep(FIRST)));
        let mut is_heard = false;
        loop {
            tokio::select! {
                // Its future is not polled again once it has ended.
                asked = &mut asking => asked?,
                said = messages.next() => match said {
                    None => return Ok(Listened::Closed),
                    Some(Err(error)) => return Err(error.into()),
                    Some(Ok(AsyncMessage::Notification(_))) => {
                        is_heard = true;
                        told();
                        sleep(PAUSE).await;
                        let mut more = 0;
                        while let Some(Some(Ok(AsyncMessage::Notification(_)))) = messages.next().now_or_never() {
                            more += 1;
                        }
                        if more > 0 {
                            told();
                        }
                    }
                    Some(Ok(_)) => {}
                },
                () = &mut first, if !is_heard => return Ok(Listened::Nothing),
            }
        }
    }

    /// Has the server send the notifications, and sends one to see whether they arrive.
    async fn ask(&self, client: &Client) -> Result<(), Failure> {
        let channel: String = client.query_typed_one(CHANNEL, &[(&self.state, Type::TEXT)]).await?.get(0);
        client.batch_execute(&format!("LISTEN \"{channel}\"")).await?;
        client.query_typed_one(NOTIFY, &[(&self.state, Type::TEXT)]).await?;
        Ok(())
    }
}
