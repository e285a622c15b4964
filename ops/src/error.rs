//! `error`: fails records.

use std::sync::Arc;

use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics};
use anabranch_plugin::flow::Flow;
use anabranch_plugin::operator::{Fan, Operator, OperatorKind, Rows, Signature};
use anabranch_plugin::specification::{Parameter, ParameterKind, Specification, shared};
use anabranch_record::access::Access;
use anabranch_record::fault::Fault;
use anabranch_template::Template;

use crate::prototype::Prototype;

/// Returns the `error` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    let specification = Specification::builtin("error", "Fails records with a custom error.")
        .describe(
            "Fails every record, so that it goes to the dead-letter queue. Set a `condition` to fail only some of the \
             records.",
        )
        .with(
            Parameter::new(
                "message",
                ParameterKind::Template,
                "The error message. If it contains {{, it is a template over the record.",
            )
            .default_value("error processor triggered"),
        )
        .with_all(shared::processor().into_iter().map(|parameter| parameter.default_value("false")).collect());
    crate::prototype::kind(specification, configure)
}

fn configure(arguments: &Arguments) -> Result<(Signature, Failing), Diagnostics> {
    let Some(message) = arguments.template("message") else {
        return Err(Diagnostic::error("settings.required", "message is required").into());
    };
    let reads = if message.literal().is_some() { Access::NOTHING } else { message.reads() };
    let signature = Signature { fan: Fan::Never, reads, writes: Access::NOTHING, ..Signature::inline() };
    Ok((signature, Failing { message: message.clone() }))
}

#[derive(Clone)]
struct Failing {
    message: Template,
}

impl Operator for Failing {
    fn process(&mut self, rows: &mut Rows<'_>) {
        rows.for_each(|record| {
            let mut message = String::new();
            // The record fails either way. If the template fails to render, its error is the message.
            if let Err(e) = self.message.render(record, &mut message) {
                message = e.to_string();
            }
            Err(Fault::record("error_triggered", message))
        });
    }
}

impl Prototype for Failing {
    fn flow(&self, flow: &mut Flow) {
        flow.may_fail();
        flow.optional_template("message", &self.message);
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
            assert_eq!((fault.code(), fault.message().as_str()), ("error_triggered", message));
            assert_eq!(after, sample);
        }
        assert_eq!(testing::signature(&kind(), &[]).reads, Access::NOTHING);
    }
}
