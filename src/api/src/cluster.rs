//! A node of a cluster as one of several that answer: requests for a pipeline go to the node that runs it.
//!
//! A node forwards a request once: the node that receives it answers, whether or not it still runs the pipeline.

mod apply;
mod inputs;
pub(crate) mod live;
mod merge;
mod overview;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use percent_encoding::percent_decode_str;
use utoipa_axum::router::OpenApiRouter;

use crate::access::FORWARDED;
use crate::namesakes;
use crate::view::View;

/// Paths below a pipeline, connector or processor that are inspections.
const INSPECTIONS: [&str; 3] = ["inspect", "inspect-in", "inspect-out"];

pub(crate) fn router() -> OpenApiRouter<Arc<View>> {
    overview::router().merge(inputs::router()).merge(apply::router())
}

/// Forwards a request for a pipeline that another node runs.
pub(crate) async fn forwarded(State(view): State<Arc<View>>, request: Request, next: Next) -> Response {
    let Some(peers) = view.peers.as_ref().filter(|_| !request.headers().contains_key(FORWARDED)) else {
        return next.run(request).await;
    };
    let subject = Subject::of(request.uri().path());
    let of_pipeline = subject.and_then(|subject| Some((subject.pipeline(&view)?, subject.rest)));
    let Some((id, rest)) = of_pipeline.filter(|(id, _)| !view.control.has(id)) else {
        return next.run(request).await;
    };
    if rest == Some("live") {
        // Joined from all nodes that run units of the pipeline.
        return next.run(request).await;
    }
    if rest.is_some_and(|rest| INSPECTIONS.contains(&rest)) && view.control.compiled(&id).is_some() {
        // The inspection joins the records of all of them.
        return next.run(request).await;
    }
    let owners = peers.owners(&id).await;
    let Some(peer) = owners.into_iter().next() else { return next.run(request).await };
    match peers.connect(&peer).await {
        Ok(connection) => peers.pass(&peer, connection, request, &view.sessions).await,
        // This node has the configuration and the stored status.
        Err(_) if request.method() == Method::GET => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

/// The part of the service that a path concerns.
#[derive(Debug, PartialEq, Eq)]
struct Subject<'p> {
    kind: SubjectKind,
    id: String,
    /// The path below it.
    rest: Option<&'p str>,
}

#[derive(Debug, PartialEq, Eq)]
enum SubjectKind {
    Pipeline,
    /// A connector or processor, whose id begins with that of its pipeline.
    PartOfPipeline,
}

impl<'p> Subject<'p> {
    fn of(path: &'p str) -> Option<Subject<'p>> {
        let (kind, rest) = path.strip_prefix("/v1/")?.split_once('/')?;
        let (id, rest) = rest.split_once('/').map_or((rest, None), |(id, rest)| (id, Some(rest)));
        let kind = match kind {
            // The id of a pipeline is escaped then.
            "pipelines" if rest.is_none() && namesakes::WORDS.contains(&id) => return None,
            "pipelines" => SubjectKind::Pipeline,
            "connectors" | "processors" => SubjectKind::PartOfPipeline,
            _ => return None,
        };
        let id = percent_decode_str(id).decode_utf8().ok()?.into_owned();
        Some(Subject { kind, id, rest })
    }

    /// Returns the id of the pipeline.
    fn pipeline(&self, view: &View) -> Option<String> {
        match self.kind {
            SubjectKind::Pipeline => Some(self.id.clone()),
            SubjectKind::PartOfPipeline => {
                // Ids may contain colons, so the parts are matched against existing ids.
                let known = view.control.all().into_iter().map(|(pipeline, _)| pipeline.to_string());
                let is_its = |known: &String| self.id.strip_prefix(known).is_some_and(|rest| rest.starts_with(':'));
                known.filter(is_its).max()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_that_of_a_pipeline_or_of_a_part_of_it() {
        let pipeline = |id: &str, rest| Some(Subject { kind: SubjectKind::Pipeline, id: id.to_owned(), rest });
        assert_eq!(Subject::of("/v1/pipelines/a%2Fb"), pipeline("a/b", None));
        assert_eq!(Subject::of("/v1/pipelines/p/live"), pipeline("p", Some("live")));
        // Pipelines may be called like paths.
        assert_eq!(Subject::of("/v1/pipelines/live"), pipeline("live", None));
        assert_eq!(Subject::of("/v1/pipelines/%70lan"), pipeline("plan", None));
        assert_eq!(Subject::of("/v1/pipelines/plan/start"), pipeline("plan", Some("start")));
        for of_none in ["/v1/pipelines/plan", "/v1/pipelines", "/v1/live", "/healthz"] {
            assert_eq!(Subject::of(of_none), None, "{of_none}");
        }
        let part = Subject { kind: SubjectKind::PartOfPipeline, id: "p:in".to_owned(), rest: Some("inspect") };
        assert_eq!(Subject::of("/v1/connectors/p:in/inspect"), Some(part));
    }
}
