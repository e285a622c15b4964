use anabranch_plugin::host::LogLevel;
use anabranch_plugin::schema::MemoryRegistry;
use anabranch_process::log::{LogFormat, LogSettings, Output};
use anabranch_settings::Database;

use super::*;

/// Without pipelines.
fn control() -> Control {
    let settings = LogSettings { level: LogLevel::Error, format: LogFormat::Cli };
    let (control, _) = Control::new(Shared {
        store: Store::open(&Database::InMemory).unwrap(),
        registry: Registry::new(),
        compile: CompileOptions::default(),
        schemas: Arc::new(MemoryRegistry::new()),
        log: Log::new(settings, Output::to_file(tempfile::tempfile().unwrap()).unwrap()),
        executor: Handle::current(),
        opening: Arc::new(Semaphore::new(1)),
        recovery: RecoveryPolicy::default(),
        once: false,
        live_restart: true,
        slots: 1,
        traces: None,
    });
    control
}

fn put(control: &Control) -> Arc<PipelineEntry> {
    control.put(&"p".into(), NextStart::Incomplete("a source".into()), Status::Stopped { reason: StopReason::User })
}

#[tokio::test]
async fn who_waits_for_a_pipeline_that_is_deleted_and_made_again_gets_the_new_one() {
    let control = control();
    let old = put(&control);
    let (_, gate) = control.gate("p").await.unwrap();
    let mut waiting = std::pin::pin!(control.gate("p"));
    assert!(futures::future::poll_immediate(&mut waiting).await.is_none());
    control.remove(&old);
    let new = put(&control);
    drop(gate);
    let (entry, _) = waiting.await.unwrap();
    assert!(Arc::ptr_eq(&entry, &new) && !Arc::ptr_eq(&entry, &old));
    // Who still has the old one cannot take the new one away with it.
    control.remove(&old);
    assert!(control.entry("p").is_ok());
    control.remove(&new);
    assert!(matches!(control.gate("p").await, Err(ControlError::NotFound(_))));
}
