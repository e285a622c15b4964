//! Codes of commands that were replaced by others.

use anabranch_record::code::Code;

use crate::codes;

/// A code that a command used before it shared the code of other commands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Renamed {
    /// The command, as in its JSON output; `None` for all commands that have no row of their own.
    pub(crate) command: Option<&'static str>,
    /// The code.
    pub(crate) code: Code,
    /// The code that the command used before.
    pub(crate) old: &'static str,
}

const fn of(command: &'static str, code: Code, old: &'static str) -> Renamed {
    Renamed { command: Some(command), code, old }
}

/// All replaced codes. JSON output carries the old one as `oldCode` for one minor version.
pub(crate) const ALL: &[Renamed] = &[
    of("docs.write", codes::CLI_CANNOT_WRITE, "docs.cannot_write"),
    of("init", codes::CLI_CANNOT_WRITE, "init.cannot_write"),
    of("pipelines.init", codes::CLI_CANNOT_WRITE, "pipelines.cannot_write"),
    of("pipelines.validate", codes::CLI_CANNOT_WRITE, "pipelines.cannot_write"),
    of("processors.new", codes::CLI_CANNOT_WRITE, "processors.cannot_write"),
    of("pipelines.test", codes::CLI_CANNOT_WRITE, "test.not_written"),
    of("pipelines.plan", codes::CLI_SYSTEM, "plan.system"),
    of("pipelines.dry-run", codes::CLI_SYSTEM, "run.system"),
    of("processors.run", codes::CLI_SYSTEM, "run.system"),
    of("run", codes::CLI_SYSTEM, "run.system"),
    Renamed { command: None, code: codes::DEAD_LETTER_INVALID_RECORD, old: "dlq.invalid_record" },
    of("pipelines.plan", codes::PIPELINE_INVALID, "plan.invalid"),
    of("pipelines.dry-run", codes::PIPELINE_INVALID, "dry_run.invalid"),
    of("pipelines.plan", codes::PIPELINE_NOT_FOUND, "plan.unknown_pipeline"),
    of("pipelines.dry-run", codes::PIPELINE_NOT_FOUND, "dry_run.unknown_pipeline"),
    Renamed { command: None, code: codes::PIPELINE_NOT_FOUND, old: "pipeline.unknown" },
    of("pipelines.plan", codes::PIPELINES_NONE, "plan.no_pipelines"),
    of("pipelines.dry-run", codes::PIPELINES_NONE, "dry_run.no_pipelines"),
    Renamed { command: None, code: codes::PIPELINES_NONE, old: "run.no_pipelines" },
    Renamed { command: None, code: codes::PIPELINES_PLAN_STALE, old: "provisioning.plan_stale" },
];

/// Returns the code that `command` used before `code`, if it used another one.
pub(crate) fn old_code(command: &str, code: &str) -> Option<&'static str> {
    let of_code = || ALL.iter().filter(|renamed| renamed.code.name() == code);
    let own = of_code().find(|renamed| renamed.command == Some(command));
    own.or_else(|| of_code().find(|renamed| renamed.command.is_none())).map(|renamed| renamed.old)
}

/// Returns the code that replaced `old`.
pub(crate) fn replaced(old: &str) -> Option<Code> {
    ALL.iter().find(|renamed| renamed.old == old).map(|renamed| renamed.code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_finds_the_code_that_it_used_before() {
        assert_eq!(old_code("pipelines.plan", "pipeline.not_found"), Some("plan.unknown_pipeline"));
        assert_eq!(old_code("dlq.list", "pipeline.not_found"), Some("pipeline.unknown"));
        assert_eq!(old_code("pipelines.plan", "cli.usage"), None);
        assert_eq!(replaced("run.system"), Some(codes::CLI_SYSTEM));
    }
}
