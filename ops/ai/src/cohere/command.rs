//! `cohere.command`: generates text with a Cohere model.

use std::sync::Arc;

use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{Flow, Kinds, Type};
use anabranch_plugin::operator::{ConfiguredOperator, OperatorKind};
use anabranch_plugin::specification::{Parameter, ParameterKind, Specification, shared};
use anabranch_record::Record;
use anabranch_record::fault::Fault;
use anabranch_record::reference::Reference;
use anabranch_record::text::Str;
use anabranch_record::value::Value;
use serde_json::{Value as Json, json};

use crate::finding::finding;
use crate::question::{Asking, Question, output, text_in};
use crate::service::{Address, backoff};
use crate::text::text_at;

/// Returns the `cohere.command` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    let specification = Specification::builtin("cohere.command", "Generates text with a Cohere model.")
        .describe(
            "Replaces `%s` in `prompt` with the text in `request.body`, sends the prompt to the model, and stores \
             the answer in `response.body`. Sends one request per record.",
        )
        .with(
            Parameter::new("prompt", ParameterKind::Text, "The prompt; %s stands for the text, %% for a percent sign.")
                .required(),
        )
        .with(Parameter::new("model", ParameterKind::Text, "Name of the model.").default_value("command"))
        .with(super::place("request.body", "The text."))
        .with(super::place("response.body", "Field for the answer."))
        .with_all(super::parameters())
        .with_all(shared::processor());
    anabranch_plugin::kind::operator(specification, configure)
}

fn configure(arguments: &Arguments) -> Result<Arc<dyn ConfiguredOperator>, Diagnostics> {
    let input = crate::question::input(arguments, "request.body")?;
    let output = output(arguments, "response.body")?;
    let prompt = arguments.text("prompt").map_or("", Str::as_str);
    let prompt = Prompt::parse(prompt).map_err(|what| finding(arguments, "prompt", what))?;
    let address = Address::configure(arguments, "baseURL", "/v2/chat", Some("apiKey"), backoff(arguments))?;
    let model = arguments.text("model").cloned().unwrap_or_default();
    Ok(Arc::new(Asking { address, question: Arc::new(Chat { input, output, model, prompt }) }))
}

/// A prompt template with placeholders.
#[derive(Debug, PartialEq, Eq)]
struct Prompt(Vec<String>);

impl Prompt {
    fn parse(text: &str) -> Result<Prompt, String> {
        let mut pieces = vec![String::new()];
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            let piece = if c == '%' { chars.next() } else { None };
            match (c, piece, pieces.last_mut()) {
                ('%', Some('s' | 'v'), _) => pieces.push(String::new()),
                ('%', Some('%'), Some(last)) => last.push('%'),
                ('%', other, _) => {
                    let verb = other.map(String::from).unwrap_or_default();
                    return Err(format!(
                        "prompt: \"%{verb}\" is not a placeholder: write %s for the text, %% for a percent sign"
                    ));
                }
                (c, _, Some(last)) => last.push(c),
                (_, _, None) => {}
            }
        }
        match pieces.len() {
            1 => Err("prompt: it has no %s for the text".to_owned()),
            _ => Ok(Prompt(pieces)),
        }
    }

    fn fill(&self, text: &str) -> String {
        self.0.join(text)
    }
}

struct Chat {
    input: Reference,
    output: Reference,
    model: Str,
    prompt: Prompt,
}

impl Question for Chat {
    fn ask(&self, record: &Record) -> Result<Json, Fault> {
        let content = self.prompt.fill(&text_at(record, &self.input)?);
        Ok(
            json!({ "model": self.model.as_str(), "stream": false, "messages": [{ "role": "user", "content": content }] }),
        )
    }

    fn read(&self, answer: &Json) -> Result<String, String> {
        let pieces = answer.pointer("/message/content").and_then(Json::as_array).ok_or("it has no message")?;
        // A reasoning model also returns pieces of other types.
        let piece = pieces.iter().find(|piece| piece.get("text").is_some()).ok_or("its message has no text")?;
        text_in(piece, "/text")
    }

    fn put(&self, text: String, record: &mut Record) -> Result<(), Fault> {
        self.output.set(record, Value::from(text))
    }

    fn input(&self) -> &Reference {
        &self.input
    }

    fn output(&self) -> &Reference {
        &self.output
    }

    fn flow(&self, flow: &mut Flow) {
        flow.get("request.body", &self.input);
        flow.set("response.body", &self.output, Type::of(Kinds::TEXT));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_has_a_hole_for_the_text() {
        assert_eq!(Prompt::parse("What is %s? 100%%").unwrap().fill("x %s"), "What is x %s? 100%");
        assert_eq!(Prompt::parse("%s%s").unwrap().fill("a"), "aa");
        for bad in ["none", "%d", "ends with %", ""] {
            assert!(Prompt::parse(bad).is_err(), "{bad}");
        }
    }
}
