//! `cohere.command`: generates text with a Cohere model.

use std::sync::Arc;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{Flow, Kinds, Type};
use anabranch_plugin::operator::OperatorKind;
use anabranch_plugin::parameters::{Argument, Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::Record;
use anabranch_record::fault::Fault;
use anabranch_record::reference::Reference;
use anabranch_record::text::Str;
use anabranch_record::value::Value;
use serde_json::{Value as Json, json};

use crate::codes;
use crate::cohere::Api;
use crate::question::{RecordRequest, RequestOperator, output, text_in};
use crate::text::text_at;

/// Returns the `cohere.command` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    let specification = Specification::builtin("cohere.command", "Generates text with a Cohere model.")
        .describe(
            "Replaces `%s` in `prompt` with the text in `request.body`, sends the prompt to the model, and stores \
             the answer in `response.body`. Sends one request per record.",
        )
        .with_all(shared::processor());
    anabranch_plugin::kind::operator(specification, configure)
}

#[derive(Parameters)]
struct Settings {
    /// The prompt; %s stands for the text, %% for a percent sign.
    prompt: Argument<Str>,
    /// Name of the model.
    #[parameter(default = "command")]
    model: Str,
    /// The text.
    #[parameter(name = "request.body", default = ".Payload.After", within = [".Metadata", ".Key", ".Payload"])]
    input: Reference,
    /// Field for the answer.
    #[parameter(name = "response.body", default = ".Payload.After", within = [".Metadata", ".Key", ".Payload"])]
    output: Argument<Reference>,
    #[parameter(flatten)]
    api: Api,
}

fn configure(settings: Settings) -> Result<RequestOperator<Chat>, Diagnostics> {
    let Settings { prompt, model, input, output: place, api } = settings;
    let output = output(&place)?;
    let prompt = Prompt::parse(&prompt).map_err(|what| prompt.finding(codes::SETTINGS_INVALID, what))?;
    let address = api.address("/v2/chat")?;
    Ok(RequestOperator { address, question: Arc::new(Chat { input, output, model, prompt }) })
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

impl RecordRequest for Chat {
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
