//! The paths that need the token.

use std::sync::Arc;

use utoipa_axum::router::OpenApiRouter;

use crate::view::View;
use crate::{
    apply, backup, cluster, dead_letters, edit, graph, inspect, lifecycle, live, pipelines, plugins, positions, testing,
};

/// Returns the paths that need the token and use the view; each is declared in the file of its endpoint.
pub(crate) fn paths() -> OpenApiRouter<Arc<View>> {
    OpenApiRouter::new()
        .merge(pipelines::router())
        .merge(lifecycle::router())
        .merge(edit::router())
        .merge(apply::router())
        .merge(positions::router())
        .merge(backup::router())
        .merge(cluster::router())
        .merge(live::router())
        .merge(graph::router())
        .merge(inspect::router())
        .merge(plugins::router())
        .merge(dead_letters::router())
        .merge(testing::router())
}
