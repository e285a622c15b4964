//! The endpoint that tests pipelines, for editors in a browser or a program.
//!
//! Each request runs in a separate process: a paused clock, an endless script or excessive memory use do not affect the
//! service. A request consists of texts and not of file names. The process uses the settings of this service.

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anabranch_process::files::system;
use anabranch_settings::handed_down;
use axum::Json;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::body::Body;
use crate::codes;
use crate::error::{ApiError, Kind};
use crate::view::View;

/// Maximum number of concurrent tests of clients; further ones wait.
static TURNS: Semaphore = Semaphore::const_new(2);
/// Time limit of a request: less than the limit of responses.
const PATIENCE: Duration = Duration::from_secs(25);

/// Returns the paths of this module.
pub(super) fn router() -> OpenApiRouter<Arc<View>> {
    OpenApiRouter::new().routes(routes!(test))
}

/// A pipeline and its tests.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TestRequest {
    /// The text of a pipeline file.
    pub pipeline: String,
    /// The text of a test file.
    pub test: String,
}

/// The output of `anabranch pipelines test --json`.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
pub struct TestReport {
    /// True if all tests passed.
    pub ok: bool,
    /// Numbers of passed and failed tests.
    pub summary: serde_json::Value,
    /// The tests with their differences, their coverage, and the errors of their file.
    pub result: serde_json::Value,
}

/// Run the tests of a pipeline
///
/// Writes nothing and opens no network connection. Tests that take longer than 25 s are cancelled.
#[utoipa::path(
    post, path = "/v1/pipelines/test", tag = "pipelines", request_body = TestRequest,
    responses(
        (status = 200, description = "The results, also if tests failed or are not valid", body = TestReport),
    ),
)]
async fn test(Body(request): Body<TestRequest>) -> Result<Json<TestReport>, ApiError> {
    // The semaphore is never closed.
    let _turn = TURNS.acquire().await;
    let unavailable = |why: String| ApiError::new(Kind::Unavailable, codes::TEST_NOT_RUN, why);
    let done = tokio::task::spawn_blocking(move || run(&request)).await;
    match done {
        Ok(Ok(report)) => Ok(Json(report)),
        Ok(Err(why)) => Err(unavailable(why)),
        Err(_) => Err(unavailable("the test could not be run".to_owned())),
    }
}

/// Runs this program on the test, for at most [`PATIENCE`]. Blocks.
///
/// # Errors
/// Why it could not be run to its end.
pub fn run(request: &TestRequest) -> Result<TestReport, String> {
    let cannot = |error: std::io::Error| format!("the test could not be run: {}", system(&error));
    let program = std::env::current_exe().map_err(cannot)?;
    let mut child = Command::new(program)
        .args(["--json", "pipelines", "test", "--stdin"])
        .args(handed_down(std::env::args()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(cannot)?;
    let (input, output) = (child.stdin.take(), child.stdout.take());
    let text = serde_json::to_vec(request).unwrap_or_default();
    let begin = Instant::now();
    let (written, read) = std::thread::scope(|scope| {
        let writing = scope.spawn(|| input.map_or(Ok(()), |mut input| input.write_all(&text)));
        let reading = scope.spawn(|| {
            let mut text = Vec::new();
            output.map_or(Ok(0), |mut output| output.read_to_end(&mut text)).map(|_| text)
        });
        while !reading.is_finished() && begin.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(5));
        }
        if !reading.is_finished() {
            let _ = child.kill();
        }
        (writing.join(), reading.join())
    });
    let _ = child.wait();
    if begin.elapsed() >= PATIENCE {
        return Err(format!("the tests took longer than {} s", PATIENCE.as_secs()));
    }
    let broken = || "the test could not be run".to_owned();
    written.map_err(|_| broken())?.map_err(cannot)?;
    let text = read.map_err(|_| broken())?.map_err(cannot)?;
    serde_json::from_slice(&text).map_err(|_| broken())
}
