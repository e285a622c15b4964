//! Endpoints that delete versions and subjects: first softly, then permanently.

use anabranch_plugin::schema::SchemaError;
use anabranch_record::text::Str;
use anabranch_store::{Deletion, SchemaEntry};
use axum::extract::{Path, State};

use super::refusal::SchemaRefusal;
use super::{Answer, Media, Registry, Shared};
use crate::error::RegistryError;
use crate::query::Query;

fn how(query: &Query) -> Deletion {
    if query.is_set("permanent") { Deletion::Gone } else { Deletion::Hidden }
}

impl Registry {
    /// Refuses to delete versions that other schemas refer to.
    async fn is_free(&self, subject: &Str, entries: &[SchemaEntry]) -> Result<(), SchemaRefusal> {
        for entry in entries {
            let referring = self.store.referring(subject, entry.version).await?;
            if let Some(id) = referring.first() {
                return Err(SchemaRefusal::referred_to(subject, entry.version, *id));
            }
        }
        Ok(())
    }
}

/// Delete a subject
///
/// Its versions are not listed any more, but records that name them still find them. A second deletion with `permanent`
/// removes them. Their numbers are not assigned again.
#[utoipa::path(
    delete, path = "/subjects/{subject}", tag = "schema registry",
    params(("subject" = String, Path, description = "The subject"),
           ("permanent" = Option<bool>, Query, description = "Delete permanently; requires an earlier soft deletion")),
    responses((status = 200, description = "Numbers of the deleted versions", body = Vec<u32>, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 404, description = "`40401`: no such subject; `40404`: already soft-deleted; `40405`: not soft-deleted yet", body = RegistryError),
              (status = 422, description = "`42206`: a schema refers to it", body = RegistryError)),
)]
pub(super) async fn delete_subject(
    State(registry): Shared,
    Path(subject): Path<String>,
    query: Query,
) -> Answer<Vec<u32>> {
    let (subject, how) = (Str::from(subject), how(&query));
    let _one_at_a_time = registry.changing.lock().await;
    let mut entries = registry.store.entries(&subject).await?;
    if entries.is_empty() {
        return Err(SchemaError::SubjectNotFound(subject).into());
    }
    let is_live = entries.iter().any(|entry| !entry.deleted);
    match how {
        Deletion::Hidden if !is_live => return Err(SchemaRefusal::subject_deleted(&subject)),
        Deletion::Gone if is_live => return Err(SchemaRefusal::subject_not_deleted(&subject)),
        Deletion::Hidden => entries.retain(|entry| !entry.deleted),
        Deletion::Gone => {}
    }
    registry.is_free(&subject, &entries).await?;
    let versions: Vec<_> = entries.iter().map(|entry| entry.version).collect();
    let numbers = versions.iter().map(|version| version.get()).collect();
    registry.store.delete_schemas(&subject, versions, how).await?;
    registry.store.set_level(Some(&subject), None).await?;
    Ok(Media(numbers))
}

/// Delete a version of a subject
///
/// It is not listed any more, but records that name it still find it. A second deletion with `permanent` removes it.
/// Its number is not assigned again.
#[utoipa::path(
    delete, path = "/subjects/{subject}/versions/{version}", tag = "schema registry",
    params(("subject" = String, Path, description = "The subject"),
           ("version" = String, Path, description = "A number from 1, or `latest`"),
           ("permanent" = Option<bool>, Query, description = "Delete permanently; requires an earlier soft deletion")),
    responses((status = 200, description = "Number of the deleted version", body = u32, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 404, description = "`40401`: no such subject; `40402`: no such version; `40406`: already soft-deleted; `40407`: not soft-deleted yet", body = RegistryError),
              (status = 422, description = "`42202`: invalid version; `42206`: a schema refers to it", body = RegistryError)),
)]
pub(super) async fn delete_version(
    State(registry): Shared,
    Path((subject, version)): Path<(String, String)>,
    query: Query,
) -> Answer<u32> {
    let (subject, how) = (Str::from(subject), how(&query));
    let _one_at_a_time = registry.changing.lock().await;
    let entries = registry.store.entries(&subject).await?;
    if entries.is_empty() {
        return Err(SchemaError::SubjectNotFound(subject).into());
    }
    let entry = match version.as_str() {
        // The latest version that this kind of deletion applies to.
        "latest" | "-1" => {
            let mut meant = entries.iter().rev().filter(|entry| entry.deleted == (how == Deletion::Gone));
            meant.next().copied().ok_or_else(|| SchemaRefusal::from(SchemaError::SubjectNotFound(subject.clone())))?
        }
        number => {
            let version = number.parse().map_err(|_| SchemaRefusal::invalid_version(number))?;
            let found = entries.into_iter().find(|entry| entry.version == version);
            found.ok_or_else(|| {
                SchemaRefusal::from(SchemaError::VersionNotFound { subject: subject.clone(), version })
            })?
        }
    };
    match how {
        Deletion::Hidden if entry.deleted => return Err(SchemaRefusal::version_deleted(&subject, entry.version)),
        Deletion::Gone if !entry.deleted => return Err(SchemaRefusal::version_not_deleted(&subject, entry.version)),
        Deletion::Hidden | Deletion::Gone => {}
    }
    registry.is_free(&subject, &[entry]).await?;
    registry.store.delete_schemas(&subject, vec![entry.version], how).await?;
    Ok(Media(entry.version.get()))
}
