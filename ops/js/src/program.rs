//! A script and its checks at compile time of the pipeline.

use std::ops::ControlFlow;

use anabranch_record::code::Code;
use anabranch_record::text::Str;
use boa_engine::Source;
use boa_engine::ast::expression::{Call, Expression, Identifier, ImportCall};
use boa_engine::ast::operations::{lexically_declared_names, var_declared_names};
use boa_engine::ast::scope::Scope;
use boa_engine::ast::{Span, Spanned};
use boa_engine::interner::{Interner, Sym};
use boa_engine::parser::lexer::error::Error as LexError;
use boa_engine::parser::{Error, Parser};

use crate::acts::{Act, FieldRead, Read};
use crate::codes;
use crate::ending;
use crate::nesting;
use crate::position::Position;
use crate::process::Process;
use crate::slips::{self, ScriptSlip};
use crate::visitor::{VisitWith, Visitor};

/// Maximum stack in bytes for checking a script. Memory is used only if the text is really nested.
const MOST_STACK: usize = 2 << 30;

const DEEP: &str = "assign parts of it to variables, or move them into functions";
const MODULES: &str = "a script is one file and cannot access other files: include the code that it needs";

/// A script that can be run.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// Source text.
    pub(crate) text: Str,
    /// Name in messages: `script`, or the path of its file.
    pub(crate) name: Str,
}

/// Findings about a script that can be run.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Findings {
    /// Accesses of its function to a record; whether they are correct depends on the records.
    pub(crate) acts: Vec<Act>,
    /// Fields that its function reads and does not create.
    pub(crate) fields: Vec<FieldRead>,
    /// Errors that do not depend on the records.
    pub(crate) slips: Vec<ScriptSlip>,
}

/// A flaw for which a script is rejected.
#[derive(Debug, PartialEq)]
pub(crate) struct ScriptFlaw {
    pub(crate) code: Code,
    /// Position; `None` for the script as a whole.
    pub(crate) position: Option<Position>,
    pub(crate) message: String,
    pub(crate) hint: Option<&'static str>,
}

impl Program {
    /// Checks the script without running it, on a separate thread: the stack for parsing depends on the text.
    pub(crate) fn check(&self) -> Result<Findings, ScriptFlaw> {
        if let Err(position) = nesting::check(&self.text) {
            let message = format!("brackets are nested deeper than {} levels", nesting::MOST_BRACKETS);
            return Err(ScriptFlaw {
                code: codes::SCRIPT_TOO_DEEP,
                position: Some(position),
                message,
                hint: Some(DEEP),
            });
        }
        let stack = nesting::stack(&self.text);
        if stack > MOST_STACK {
            return Err(ScriptFlaw {
                code: codes::SCRIPT_TOO_LARGE,
                position: None,
                message: format!(
                    "the script has {} bytes, and too many of them are brackets and operators to check it safely",
                    self.text.len()
                ),
                hint: Some("remove unused code, or move large tables into a record or a lookup"),
            });
        }
        let unchecked = |why: String| ScriptFlaw {
            code: codes::SCRIPT_UNCHECKED,
            position: None,
            message: format!("the script cannot be checked: {why}"),
            hint: Some("try again; the machine may be short of memory or threads"),
        };
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("script-check".to_owned()).stack_size(stack);
            let parsing = thread.spawn_scoped(scope, || self.parse()).map_err(|error| unchecked(error.to_string()))?;
            parsing.join().unwrap_or_else(|_| Err(unchecked("the parser panicked".to_owned())))
        })
    }

    /// Like `check`, on the current thread, whose stack must be as large as [`nesting::stack`] returns.
    pub(crate) fn parse(&self) -> Result<Findings, ScriptFlaw> {
        let mut interner = Interner::default();
        let source = Source::from_bytes(self.text.as_bytes());
        let script = Parser::new(source).parse_script(&Scope::new_global(), &mut interner);
        let script = script.map_err(|error| self.syntax(&error))?;
        let require = interner.get("require");
        let declared = |name: Sym| {
            var_declared_names(script.statements()).contains(&name)
                || lexically_declared_names(script.statements()).contains(&name)
        };
        let mut modules = Modules { require: require.filter(|name| !declared(*name)) };
        if let ControlFlow::Break((what, span)) = script.visit_with(&mut modules) {
            return Err(ScriptFlaw {
                code: codes::SCRIPT_MODULE,
                position: Some(span.start().into()),
                message: format!("{what} is not available to scripts"),
                hint: Some(MODULES),
            });
        }
        // The function may be defined in other ways, but not without its name.
        match interner.get("process") {
            Some(process) if declared(process) || self.text.contains("globalThis") => {
                let process = Process::of(&script, process);
                let read = process.as_ref().map_or(Ok(Read::default()), |process| self.process(process, &interner))?;
                let slips = slips::of(&script, process.as_ref(), &read.reached, &self.text, &interner);
                Ok(Findings { acts: read.acts, fields: read.fields, slips })
            }
            _ => Err(ScriptFlaw {
                code: codes::SCRIPT_WITHOUT_PROCESS,
                position: None,
                message: "the script declares no function named process".to_owned(),
                hint: Some("begin with: function process(rec) { return rec; }"),
            }),
        }
    }

    /// Analyzes the function.
    fn process(&self, process: &Process<'_>, interner: &Interner) -> Result<Read, ScriptFlaw> {
        let message = match process.generates {
            true => "process is a generator, so it returns no record: every record fails",
            false if ending::gives_nothing(process.body, interner.get("undefined")) => {
                "process never returns a value, so every record is dropped"
            }
            false => return Ok(process.read(interner)),
        };
        Err(ScriptFlaw {
            code: codes::SCRIPT_NO_RESULT,
            position: Some(process.name.span().start().into()),
            message: message.to_owned(),
            hint: Some("end it with `return rec;`; to drop every record on purpose, write `return null;`"),
        })
    }

    fn syntax(&self, error: &Error) -> ScriptFlaw {
        let (position, message) = match error {
            Error::Expected { expected, found, span, .. } => {
                let expected: Vec<String> = expected.iter().map(|token| format!("`{token}`")).collect();
                (Some(span.start().into()), format!("expected {}, found `{found}`", expected.join(" or ")))
            }
            Error::Unexpected { found, span, message } => {
                let what = if found.is_empty() { String::new() } else { format!("unexpected `{found}`: ") };
                (Some(span.start().into()), format!("{what}{message}"))
            }
            Error::General { message, position } => (Some((*position).into()), message.to_string()),
            Error::Lex { err: LexError::Syntax(message, position) } => (Some((*position).into()), message.to_string()),
            Error::AbruptEnd => (Some(self.end()), "the script ends in the middle of a statement".to_owned()),
            other => (None, other.to_string()),
        };
        let module = position.is_some_and(|at: Position| {
            let line = self.text.lines().nth(at.line - 1).unwrap_or_default().trim_start();
            line.starts_with("import") || line.starts_with("export")
        });
        match module {
            true => ScriptFlaw {
                code: codes::SCRIPT_MODULE,
                position,
                message: "import and export are not available to scripts".to_owned(),
                hint: Some(MODULES),
            },
            false => ScriptFlaw { code: codes::SCRIPT_SYNTAX, position, message, hint: None },
        }
    }

    fn end(&self) -> Position {
        let text = self.text.trim_end();
        let line = text.lines().count().max(1);
        Position { line, column: text.lines().last().map_or(0, |line| line.chars().count()) + 1 }
    }
}

/// Searches for imports of other files.
struct Modules {
    require: Option<Sym>,
}

impl<'ast> Visitor<'ast> for Modules {
    type BreakTy = (&'static str, Span);

    fn visit_call(&mut self, call: &'ast Call) -> ControlFlow<Self::BreakTy> {
        if let Expression::Identifier(name) = call.function()
            && Some(Identifier::sym(*name)) == self.require
        {
            return ControlFlow::Break(("require", call.span()));
        }
        call.visit_with(self)
    }

    fn visit_import_call(&mut self, call: &'ast ImportCall) -> ControlFlow<Self::BreakTy> {
        ControlFlow::Break(("import", call.span()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flaw(text: &str) -> Option<(&'static str, Option<String>, String)> {
        let program = Program { text: text.into(), name: "script".into() };
        let flaw = program.check().err()?;
        Some((flaw.code.name(), flaw.position.map(|at| at.to_string()), flaw.message))
    }

    #[test]
    fn a_script_declares_process() {
        for good in [
            "function process(rec) { return rec }",
            "const process = rec => rec",
            "var process; process = rec => null",
            "async function process(rec) { return rec }",
            "globalThis.process = rec => rec",
            "function require(x) { return x } function process(rec) { return require(rec) }",
        ] {
            assert_eq!(flaw(good), None, "{good}");
        }
        for bad in ["", "function proces(rec) {}", "(function () { function process(rec) {} })()"] {
            assert_eq!(flaw(bad).map(|flaw| flaw.0), Some("script.no_process"), "{bad}");
        }
    }

    #[test]
    fn process_returns_something() {
        for good in [
            "function process(rec) { if (rec.Key) return; return rec }",
            "function process(rec) { return null }",
            "function process(rec) { throw new Error('x') }",
            "function process(rec) { console.log(rec); for (;;) {} }",
            "function process(rec) { while (true) { f() } } function f() {}",
            "function process(rec) { if (rec.Key) { throw 1 } else { throw 2 } }",
            "function process(rec) { try { throw 1 } catch { throw 2 } }",
            "let process = rec => {}; process = rec => rec",
            "const process = rec => console.log(rec)",
            "async function process(rec) { return rec }",
        ] {
            assert_eq!(flaw(good), None, "{good}");
        }
        for (bad, place) in [
            ("function process(rec) {}", "1:10"),
            ("\nfunction process(rec) { rec.Metadata.x = '1' }", "2:10"),
            ("function process(rec) { if (rec.Key) throw 1; rec.Metadata.x = '1' }", "1:10"),
            ("function process(rec) { return }", "1:10"),
            ("function process(rec) { return undefined }", "1:10"),
            ("function process(rec) { return void 0 }", "1:10"),
            ("const process = rec => { rec.Metadata.x = '1' }", "1:7"),
            ("function process(rec) { const f = () => { return rec } }", "1:10"),
            ("function process(rec) { while (true) { break } }", "1:10"),
            ("async function process(rec) { rec.Metadata.x = '1' }", "1:16"),
            ("function* process(rec) { yield rec }", "1:11"),
        ] {
            let flaw = flaw(bad).map(|(code, place, _)| (code, place));
            assert_eq!(flaw, Some(("script.no_result", Some(place.to_owned()))), "{bad}");
        }
    }

    #[test]
    fn flaws_have_a_place() {
        let found: Vec<_> = [
            "function process(rec) {\n  retrun rec;\n}",
            "function process(rec) {\n  return rec;\n",
            "function process(rec) {\n  let x = 'abc\n}",
            "function process(rec) { return rec }\nlet a; let a;",
            "import fs from 'fs';\nfunction process(rec) { return rec }",
            "export function process(rec) { return rec }",
            "function process(rec) {\n  const x = require('fs'); return rec }",
            "async function process(rec) {\n  await import('x'); return rec }",
        ]
        .into_iter()
        .map(|text| flaw(text).unwrap())
        .collect();
        insta::assert_debug_snapshot!(found);
    }
}
