//! Checks for dead letters that were removed by the limits of their queues.

use std::time::Duration;

use anabranch_process::runtime;
use anabranch_record::text::Str;
use anabranch_settings::{Database, Settings};
use anabranch_store::Store;
use serde::Deserialize;
use tokio::runtime::Builder;
use tokio::time::timeout;

use super::{CheckResult, DoctorContext};
use crate::cli::report::counted;
use crate::client::{Client, ClientError, escaped};

/// Time limit of all requests together.
const PATIENCE: Duration = Duration::from_secs(10);

/// Numbers of removed dead letters, by pipeline.
type EvictedCounts = Vec<(String, u64)>;

pub(super) fn evicted(subject: &mut DoctorContext<'_>) -> CheckResult {
    let answers = subject.answers();
    let unknown = |why: String| CheckResult::warning(format!("unknown: {why}"));
    let runtime = match runtime::start(&mut Builder::new_current_thread()) {
        Ok(runtime) => runtime,
        Err(error) => return unknown(error.to_string()),
    };
    let settings = subject.settings;
    let asked = runtime.block_on(async {
        let asking = async {
            if answers {
                of_service(settings).await.map_err(|error| error.to_string())
            } else {
                of_store(&settings.database).await
            }
        };
        timeout(PATIENCE, asking).await.unwrap_or_else(|_| Err(format!("no answer within {} s", PATIENCE.as_secs())))
    });
    let mut evicted = match asked {
        Ok(evicted) => evicted,
        // The check of the store reports its errors.
        Err(why) => return unknown(why),
    };
    evicted.retain(|(_, letters)| *letters > 0);
    let Some((worst, _)) = evicted.iter().max_by_key(|(_, letters)| *letters) else {
        return CheckResult::well("the bounds of dead-letter queues have removed no dead letters");
    };
    let of = |(pipeline, letters): &(String, u64)| format!("{pipeline}: {letters}");
    let shown: Vec<String> = evicted.iter().take(5).map(of).collect();
    let more = evicted.len().saturating_sub(shown.len());
    let more = if more > 0 { format!(", and {}", counted(more, "more pipeline")) } else { String::new() };
    CheckResult::warning(format!(
        "the bounds of dead-letter queues have removed dead letters, which are lost ({}{more})",
        shown.join(", ")
    ))
    .advise(format!(
        "set `when-full: stop` and remove `max-age` to keep all dead letters; `anabranch dlq list {worst}` shows \
             the remaining ones"
    ))
}

async fn of_service(settings: &Settings) -> Result<EvictedCounts, ClientError> {
    #[derive(Deserialize)]
    struct Named {
        id: String,
    }
    #[derive(Deserialize)]
    struct Letters {
        evicted: u64,
    }
    let client = Client::of(settings.api.as_ref())?;
    let mut evicted = Vec::new();
    for Named { id } in client.get::<Vec<Named>>("/v1/pipelines").await? {
        let letters: Letters = client.get(&format!("/v1/pipelines/{}/dead-letters?limit=0", escaped(&id))).await?;
        evicted.push((id, letters.evicted));
    }
    Ok(evicted)
}

async fn of_store(database: &Database) -> Result<EvictedCounts, String> {
    if matches!(database, Database::InMemory) {
        return Ok(Vec::new());
    }
    let Some(store) = Store::open_existing(database).map_err(|error| error.to_string())? else { return Ok(Vec::new()) };
    let mut evicted = Vec::new();
    for pipeline in store.pipelines().await.map_err(|error| error.to_string())? {
        let id: Str = pipeline.id;
        let totals = store.letter_totals(&id).await.map_err(|error| error.to_string())?;
        evicted.push((id.to_string(), totals.evicted));
    }
    Ok(evicted)
}
