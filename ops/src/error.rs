//! `error`: fails records.

use std::sync::Arc;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::Flow;
use anabranch_plugin::kind;
use anabranch_plugin::operator::{Fan, InlineOperator, OperatorContext, OperatorKind, Rows, Signature};
use anabranch_plugin::parameters::{Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::access::Access;
use anabranch_record::fault::Fault;
use anabranch_template::Template;

use crate::codes;

/// Returns the `error` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    kind::inline::<Failing>()
}

#[derive(Parameters)]
struct Settings {
    /// The error message. If it contains {{, it is a template over the record.
    #[parameter(default = "error processor triggered")]
    message: Template,
}

#[derive(Clone)]
struct Failing {
    message: Template,
}

impl InlineOperator for Failing {
    type Parameters = Settings;

    fn specification() -> Specification {
        Specification::builtin("error", "Fails records with a custom error.")
        .describe(
            "Fails every record, so that it goes to the dead-letter queue. Set a `condition` to fail only some of the \
             records.",
        )
        .with_all(shared::processor_without_data())
    }

    fn configure(Settings { message }: Settings) -> Result<Self, Diagnostics> {
        Ok(Failing { message })
    }

    fn signature(&self) -> Signature {
        let reads = if self.message.literal().is_some() { Access::NOTHING } else { self.message.reads() };
        Signature::new().fan(Fan::Never).reads(reads).writes(Access::NOTHING)
    }

    fn flow(&self, flow: &mut Flow) {
        flow.may_fail();
        flow.optional_template("message", &self.message);
    }

    fn process(&mut self, rows: &mut Rows<'_>, _: &OperatorContext) {
        rows.for_each(|record| {
            let mut message = String::new();
            // The record fails either way. If the template fails to render, its error is the message.
            if let Err(e) = self.message.render(record, &mut message) {
                message = e.to_string();
            }
            Err(Fault::record(codes::ERROR_TRIGGERED, message))
        });
    }
}

#[cfg(test)]
mod tests {
    use anabranch_plugin::operator::Decision;

    use super::*;
    use crate::testing::{self, process, record};

    #[test]
    fn every_record_fails_with_the_message() {
        let sample = record(r#"{"operation":"create","key":"YQ=="}"#);
        for (settings, message) in
            [(&[][..], "error processor triggered"), (&[("message", "no such user")], "no such user")]
        {
            let (after, decision) = process(&kind(), settings, &sample);
            let Decision::Fail(fault) = decision else { panic!("{decision:?}") };
            assert_eq!((fault.code().name(), fault.message().as_str()), ("error_triggered", message));
            assert_eq!(after, sample);
        }
        assert_eq!(testing::signature(&kind(), &[]).reads, Access::NOTHING);
    }
}
