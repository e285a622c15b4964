//! The schema registry that pipelines share.

use std::sync::Arc;

use anabranch_plugin::schema::{Cached, SchemaRegistry};
use anabranch_settings::Schemas;
use anabranch_store::Store;

use crate::error::ServiceError;

/// Creates the registry of the settings. Opens no connection.
///
/// # Errors
/// The errors of [`elsewhere`].
pub fn registry(settings: &Schemas, store: &Store) -> Result<Arc<dyn SchemaRegistry>, ServiceError> {
    Ok(match elsewhere(settings)? {
        Some(elsewhere) => elsewhere,
        None => Arc::new(Cached::new(store.clone())),
    })
}

/// Creates the external registry, if the settings name one. Opens no connection.
///
/// # Errors
/// Its settings are not valid, or this build does not include the feature.
pub fn elsewhere(settings: &Schemas) -> Result<Option<Arc<dyn SchemaRegistry>>, ServiceError> {
    match settings {
        Schemas::BuiltIn => Ok(None),
        #[cfg(feature = "avro")]
        Schemas::Confluent(confluent) => {
            use anabranch_ops_avro::confluent::{ConfluentRegistry, Login};

            use anabranch_settings::ConfluentLogin;

            let confluent = confluent.clone();
            let access = move || {
                let login = match &confluent.login {
                    ConfluentLogin::None => Login::None,
                    ConfluentLogin::Basic { username, password } => {
                        Login::Basic(username.now().into(), password.now().into())
                    }
                    ConfluentLogin::Bearer { token } => Login::Bearer(token.now().into()),
                };
                (confluent.url.now(), login)
            };
            let registry = ConfluentRegistry::renewing(access);
            let registry = registry.map_err(|error| ServiceError::Schemas(error.to_string()))?;
            Ok(Some(Arc::new(Cached::new(registry))))
        }
        #[cfg(not(feature = "avro"))]
        Schemas::Confluent(_) => {
            Err(ServiceError::Schemas("this program was built without support for it (feature `avro`)".to_owned()))
        }
    }
}
