//! A running service, as commands ask it.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::runtime::{Builder, Runtime};

use super::{Exit, Report};
use crate::client::{Client, ClientError};
use crate::runtime;
use crate::settings::Settings;

/// The service that a command asks, and the runtime that asking needs. All that fails is the report of the command.
pub(super) struct Remote {
    command: &'static str,
    client: Client,
    runtime: Runtime,
}

impl Remote {
    /// The service of these settings. Whether it runs shows with the first request.
    ///
    /// # Errors
    /// The settings do not say where it is.
    pub(super) fn of(command: &'static str, settings: &Settings) -> Result<Self, Box<Report>> {
        let client =
            Client::of(settings.api.as_ref()).map_err(|error| Box::new(Report::new(command).refused(&error)))?;
        Ok(Remote { command, client, runtime: asking(command)? })
    }

    /// The service of these settings where one answers: `None` where nobody listens and the command did not name one.
    ///
    /// # Errors
    /// Somebody listens and does not answer as a service does. Nobody listens at the address that a flag or a variable
    /// named: the store of this machine may belong to another service.
    pub(super) fn find(command: &'static str, settings: &Settings) -> Result<Option<Self>, Box<Report>> {
        let client = match Client::of(settings.api.as_ref()) {
            Ok(client) => client,
            Err(error) if error.is_absence() => return Ok(None),
            Err(error) => return Err(Box::new(Report::new(command).refused(&error))),
        };
        let remote = Remote { command, client, runtime: asking(command)? };
        let named = settings.api.as_ref().is_some_and(|api| api.named);
        match remote.runtime.block_on(remote.client.get::<serde_json::Value>("/healthz")) {
            Ok(_) => Ok(Some(remote)),
            Err(error) if error.is_absence() && !named => Ok(None),
            Err(error) if error.is_absence() => Err(Box::new(remote.refused(&error).suggest(
                "start the service, or correct --api.http.address or ANABRANCH_API_HTTP_ADDRESS; without them and \
                 without a service, this command uses the store of this machine",
            ))),
            Err(error) => Err(remote.refused(&error)),
        }
    }

    /// Where the service is.
    pub(super) fn url(&self) -> String {
        self.client.url()
    }

    /// See [`Client::get`].
    pub(super) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Box<Report>> {
        self.run(self.client.get(path))
    }

    /// The same; `None` from a service that does not know the path.
    pub(super) fn get_if_known<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, Box<Report>> {
        match self.runtime.block_on(self.client.get(path)) {
            Ok(answer) => Ok(Some(answer)),
            Err(ClientError::Refused(refusal)) if refusal.reason == "api.no_such_path" => Ok(None),
            Err(error) => Err(self.refused(&error)),
        }
    }

    /// The same; why the state store of the service is not available, where that is what the service answers.
    pub(super) fn get_of_store<T: DeserializeOwned>(&self, path: &str) -> Result<Result<T, String>, Box<Report>> {
        match self.runtime.block_on(self.client.get(path)) {
            Ok(answer) => Ok(Ok(answer)),
            Err(ClientError::Refused(refusal)) if refusal.reason == "store.unavailable" => Ok(Err(refusal.message)),
            Err(error) => Err(self.refused(&error)),
        }
    }

    /// See [`Client::post`].
    pub(super) fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Box<Report>> {
        self.run(self.client.post(path, body))
    }

    /// See [`Client::delete`].
    pub(super) fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, Box<Report>> {
        self.run(self.client.delete(path))
    }

    /// Asks in a way of its own.
    pub(super) fn run<T>(&self, asking: impl Future<Output = Result<T, ClientError>>) -> Result<T, Box<Report>> {
        self.runtime.block_on(asking).map_err(|error| self.refused(&error))
    }

    /// For requests that go on beside each other, and websockets.
    pub(super) fn parts(&self) -> (&Client, &Runtime) {
        (&self.client, &self.runtime)
    }

    fn refused(&self, error: &ClientError) -> Box<Report> {
        Box::new(Report::new(self.command).refused(error))
    }
}

fn asking(command: &'static str) -> Result<Runtime, Box<Report>> {
    runtime::start(&mut Builder::new_current_thread()).map_err(|error| {
        let message = format!("cannot start: {}", crate::files::system(&error));
        Box::new(Report::new(command).fail(Exit::Environment, "cli.system", message))
    })
}
