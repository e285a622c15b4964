//! `log`, to the log of the service.

use vrl::compiler::prelude::*;

/// Compiles a call of `log`. The argument `rate_limit_secs` has no effect.
pub(super) fn compile(state: &TypeState, arguments: &ArgumentList) -> Compiled {
    let levels = ["trace", "debug", "info", "warn", "error"].map(Value::from);
    let level = arguments.optional_enum("level", &levels, state)?;
    let level = level.map_or_else(|| "info".to_owned(), |level| level.to_string_lossy().into_owned());
    Ok(Line { value: arguments.required("value"), level }.as_expr())
}

#[derive(Clone, Debug)]
struct Line {
    value: Box<dyn Expression>,
    level: String,
}

impl FunctionExpression for Line {
    fn resolve(&self, context: &mut Context) -> Resolved {
        let value = self.value.resolve(context)?;
        let text = value.to_string_lossy();
        // The log adds the pipeline that this thread works for.
        match self.level.as_str() {
            "trace" => tracing::trace!("{text}"),
            "debug" => tracing::debug!("{text}"),
            "warn" => tracing::warn!("{text}"),
            "error" => tracing::error!("{text}"),
            _ => tracing::info!("{text}"),
        }
        Ok(Value::Null)
    }

    fn type_def(&self, _: &TypeState) -> TypeDef {
        TypeDef::null().infallible().impure()
    }
}
