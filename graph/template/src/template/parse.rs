//! The parser: compiles tokens to a template.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use anabranch_record::text::Str;

use super::lex::{self, Token, TokenClass, Tokens, error};
use super::tree::{Body, Branches, Call, Command, Definition, Node, Offsets, Operand, Pipeline, Range_, Term, Tree};
use super::{TemplateError, slips};

mod expression;
mod literal;

/// Maximum nesting of actions, parentheses and `else if`.
const MOST_NESTED: usize = 100;
/// Maximum length of a template in bytes.
const MOST_BYTES: usize = 1 << 20;

type Parsed<T> = Result<T, TemplateError>;

/// Compiles `source`, with suggestions in errors.
pub(super) fn parse(source: &str) -> Parsed<Tree> {
    unexplained(source).map_err(|error| slips::explain(source, error))
}

/// Compiles `source`, with the plain errors of the grammar.
pub(super) fn unexplained(source: &str) -> Parsed<Tree> {
    if source.len() > MOST_BYTES {
        return Err(error(0..0, "the template is longer than 1 MiB"));
    }
    let Tokens { tokens, error } = lex::tokens(source);
    let mut parser = Parser {
        source,
        tokens,
        error,
        next: 0,
        depth: 0,
        scope: Scope::new(true),
        templates: vec![Definition { name: Str::from_static(""), body: Body::default(), slots: 1 }],
        defined: HashMap::new(),
    };
    let (body, end) = parser.body(true)?;
    if let Some(end) = end {
        return Err(parser.unexpected(&end, "template"));
    }
    parser.templates[0].body = body;
    parser.templates[0].slots = parser.scope.most;
    let mut templates = parser.templates;
    let by_name: HashMap<Str, usize> = templates.iter().enumerate().map(|(i, t)| (t.name.clone(), i)).collect();
    for template in &mut templates {
        link(&mut template.body, &by_name);
    }
    Ok(Tree { source: Arc::from(source), templates })
}

/// Resolves each call to the template with its name.
fn link(body: &mut Body, by_name: &HashMap<Str, usize>) {
    for node in body.iter_mut() {
        match node {
            Node::Template(call) => call.target = by_name.get(&call.name).copied(),
            Node::If(branches) | Node::With(branches) => {
                branches.arms.iter_mut().for_each(|(_, body)| link(body, by_name));
                link(&mut branches.otherwise, by_name);
            }
            Node::Range(range) => {
                link(&mut range.body, by_name);
                link(&mut range.otherwise, by_name);
            }
            Node::Text(_) | Node::Print(_) | Node::Let(_) | Node::Break | Node::Continue => {}
        }
    }
}

/// Variables and context of one template.
struct Scope {
    variables: Vec<Str>,
    most: usize,
    /// Number of enclosing `range` actions.
    ranges: usize,
    /// True if `.` is the record here.
    dot_is_record: bool,
    /// True if `$` is the record.
    root_is_record: bool,
}

impl Scope {
    fn new(main: bool) -> Scope {
        Scope { variables: vec![Str::from_static("$")], most: 1, ranges: 0, dot_is_record: main, root_is_record: main }
    }

    fn declare(&mut self, name: Str) -> usize {
        self.variables.push(name);
        self.most = self.most.max(self.variables.len());
        self.variables.len() - 1
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.variables.iter().rposition(|v| v == name)
    }
}

struct Parser<'t> {
    source: &'t str,
    tokens: Vec<Token>,
    error: Option<TemplateError>,
    next: usize,
    depth: usize,
    scope: Scope,
    templates: Vec<Definition>,
    defined: HashMap<Str, usize>,
}

impl<'t> Parser<'t> {
    fn peek(&self) -> Token {
        let last = self.tokens.len() - 1;
        self.tokens[self.next.min(last)].clone()
    }

    fn take(&mut self) -> Token {
        let token = self.peek();
        self.next += 1;
        token
    }

    fn skip_space(&mut self) {
        while self.peek().kind == TokenClass::Space {
            self.next += 1;
        }
    }

    fn peek_solid(&mut self) -> Token {
        self.skip_space();
        self.peek()
    }

    fn take_solid(&mut self) -> Token {
        self.skip_space();
        self.take()
    }

    fn text(&self, token: &Token) -> &'t str {
        &self.source[token.at.clone()]
    }

    fn is_keyword(&self, token: &Token, word: &str) -> bool {
        token.kind == TokenClass::Keyword && self.text(token) == word
    }

    /// Returns the error for an unexpected token. At the place where the lexer stopped, this is the lexer's own error.
    fn unexpected(&mut self, token: &Token, context: &str) -> TemplateError {
        match token.kind {
            TokenClass::End => self
                .error
                .take()
                .unwrap_or_else(|| error(token.at.clone(), "unexpected EOF").hint("an `{{end}}` is missing")),
            TokenClass::Keyword if matches!(self.text(token), "end" | "else") => {
                error(token.at.clone(), format!("unexpected {{{{{}}}}}", self.text(token)))
            }
            _ => error(token.at.clone(), format!("unexpected <{}> in {context}", self.text(token))),
        }
    }

    fn nested<T>(&mut self, at: &Range<usize>, parse: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth == MOST_NESTED {
            return Err(error(at.clone(), format!("nested more than {MOST_NESTED} deep")));
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    /// Parses nodes up to the end of the template, or up to and including the word of `{{end}}` or `{{else`.
    fn body(&mut self, top: bool) -> Parsed<(Body, Option<Token>)> {
        let mut nodes = Vec::new();
        loop {
            let token = self.take();
            match token.kind {
                TokenClass::Text => nodes.push(Node::Text(place(&token.at))),
                TokenClass::Open => {
                    let word = self.peek_solid();
                    if word.kind != TokenClass::Keyword {
                        nodes.push(self.plain_action()?);
                        continue;
                    }
                    self.next += 1;
                    match self.text(&word) {
                        "end" => {
                            self.expect_close("end")?;
                            return Ok((nodes.into(), Some(word)));
                        }
                        "else" => return Ok((nodes.into(), Some(word))),
                        "define" if top => self.define(&word)?,
                        _ => nodes.push(self.nested(&word.at, |p| p.control(&word))?),
                    }
                }
                TokenClass::End if top && self.error.is_none() => return Ok((nodes.into(), None)),
                _ => return Err(self.unexpected(&token, "template")),
            }
        }
    }

    fn expect_close(&mut self, context: &str) -> Parsed<()> {
        let token = self.take_solid();
        if token.kind == TokenClass::Close {
            Ok(())
        } else {
            Err(self.unexpected(&token, &format!("{{{{{context}}}}}")))
        }
    }

    fn plain_action(&mut self) -> Parsed<Node> {
        let pipeline = self.pipeline("command", TokenClass::Close)?;
        Ok(if pipeline.variable.is_some() { Node::Let(pipeline) } else { Node::Print(pipeline) })
    }

    fn control(&mut self, word: &Token) -> Parsed<Node> {
        match self.text(word) {
            "if" => self.branches("if").map(Node::If),
            "with" => self.branches("with").map(Node::With),
            "range" => self.range(),
            "template" => self.call(word),
            "block" => self.block(word),
            name @ ("break" | "continue") => {
                self.expect_close(name)?;
                if self.scope.ranges == 0 {
                    return Err(error(word.at.clone(), format!("{{{{{name}}}}} outside {{{{range}}}}")));
                }
                Ok(if name == "break" { Node::Break } else { Node::Continue })
            }
            "define" => Err(error(word.at.clone(), "unexpected {{define}}")
                .hint("define templates at the top level, not inside another action")),
            _ => Err(self.unexpected(word, "command")),
        }
    }

    /// Runs `parse` and removes the variables that it declared from the scope.
    fn scoped<T>(&mut self, parse: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        let variables = self.scope.variables.len();
        let dot = self.scope.dot_is_record;
        let parsed = parse(self);
        self.scope.variables.truncate(variables);
        self.scope.dot_is_record = dot;
        parsed
    }

    /// Parses `if` and `with`, with any number of `else if`.
    fn branches(&mut self, word: &'static str) -> Parsed<Branches> {
        self.scoped(|p| {
            let record = p.scope.dot_is_record;
            let mut arms = Vec::new();
            loop {
                let pipeline = p.pipeline(word, TokenClass::Close)?;
                p.scope.dot_is_record = record && (word == "if" || is_record(&pipeline));
                let (body, end) = p.scoped(|p| p.body(false))?;
                p.scope.dot_is_record = record;
                arms.push((pipeline, body));
                let Some(end) = end.filter(|end| p.is_keyword(end, "else")) else {
                    return Ok(Branches { arms: arms.into(), otherwise: Body::default() });
                };
                let next = p.peek_solid();
                if p.is_keyword(&next, word) {
                    p.next += 1;
                    continue;
                }
                let otherwise = p.otherwise(&end)?;
                return Ok(Branches { arms: arms.into(), otherwise });
            }
        })
    }

    /// Parses the body after a plain `else`, up to the `end`.
    fn otherwise(&mut self, word: &Token) -> Parsed<Body> {
        self.expect_close("else")?;
        let (body, end) = self.scoped(|p| p.body(false))?;
        match end {
            Some(end) if self.is_keyword(&end, "else") => {
                Err(error(end.at, "expected end; found {{else}}").hint("this action already has an `{{else}}`"))
            }
            Some(_) => Ok(body),
            None => Err(self.unexpected(word, "else")),
        }
    }

    fn range(&mut self) -> Parsed<Node> {
        self.scoped(|p| {
            let record = p.scope.dot_is_record;
            let start = p.peek_solid().at.start;
            let declared = p.declarations("range")?;
            let commands = p.commands("range", TokenClass::Close)?;
            let at = place(&(start..p.tokens[p.next - 1].at.start));
            let mut slots = p.assign(&declared)?;
            let element = slots.pop();
            let key = slots.pop();
            p.scope.ranges += 1;
            p.scope.dot_is_record = false;
            let parsed = p.scoped(|p| p.body(false));
            p.scope.ranges -= 1;
            p.scope.dot_is_record = record;
            let (body, end) = parsed?;
            let otherwise = match end.filter(|end| p.is_keyword(end, "else")) {
                Some(end) => p.otherwise(&end)?,
                None => Body::default(),
            };
            let pipeline = Pipeline { variable: None, commands, at };
            Ok(Node::Range(Box::new(Range_ { pipeline, key, element, body, otherwise })))
        })
    }

    fn template_name(&mut self, context: &str) -> Parsed<(Str, Range<usize>)> {
        let token = self.take_solid();
        match token.kind {
            TokenClass::Quoted | TokenClass::Raw => Ok((self.string(&token)?.to_key(), token.at)),
            _ => Err(self.unexpected(&token, context)),
        }
    }

    fn call(&mut self, word: &Token) -> Parsed<Node> {
        let (name, at) = self.template_name("template clause")?;
        let argument = if self.peek_solid().kind == TokenClass::Close {
            self.next += 1;
            None
        } else {
            Some(self.pipeline("template clause", TokenClass::Close)?)
        };
        Ok(Node::Template(Call { name, target: None, argument, at: place(&(word.at.start..at.end)) }))
    }

    fn block(&mut self, word: &Token) -> Parsed<Node> {
        let (name, at) = self.template_name("block clause")?;
        let argument = Some(self.pipeline("block clause", TokenClass::Close)?);
        self.definition(name.clone(), &at)?;
        Ok(Node::Template(Call { name, target: None, argument, at: place(&(word.at.start..at.end)) }))
    }

    fn define(&mut self, word: &Token) -> Parsed<()> {
        let (name, at) = self.template_name("define clause")?;
        self.expect_close("define clause")?;
        self.nested(&word.at, |p| p.definition(name, &at))
    }

    /// Parses and registers the body of a named template. A later definition replaces an empty one.
    fn definition(&mut self, name: Str, at: &Range<usize>) -> Parsed<()> {
        let outer = std::mem::replace(&mut self.scope, Scope::new(false));
        let parsed = self.body(false);
        let scope = std::mem::replace(&mut self.scope, outer);
        let (body, end) = parsed?;
        if let Some(end) = end.filter(|end| self.is_keyword(end, "else")) {
            return Err(self.unexpected(&end, "define clause"));
        }
        if name.is_empty() {
            return Err(error(at.clone(), "a template needs a name"));
        }
        let defined = Definition { name: name.clone(), body, slots: scope.most };
        match self.defined.get(&name) {
            None => {
                self.defined.insert(name, self.templates.len());
                self.templates.push(defined);
            }
            Some(index) if self.is_empty(&self.templates[*index].body) => self.templates[*index] = defined,
            Some(_) if self.is_empty(&defined.body) => {}
            Some(_) => return Err(error(at.clone(), format!("multiple definition of template {:?}", &*name))),
        }
        Ok(())
    }

    fn is_empty(&self, body: &Body) -> bool {
        body.iter().all(|node| match node {
            Node::Text(at) => self.source[at.start as usize..at.end as usize].trim().is_empty(),
            _ => false,
        })
    }
}

/// Returns `true` if the pipeline is the record itself: `with .`, `with $`.
fn is_record(pipeline: &Pipeline) -> bool {
    matches!(&*pipeline.commands, [Command { head: Operand { term: Term::Dot, .. }, args }] if args.is_empty())
}

/// Converts a range to a place. Templates are shorter than 4 GiB: their length is checked first.
fn place(at: &Range<usize>) -> Offsets {
    u32::try_from(at.start).unwrap_or(u32::MAX)..u32::try_from(at.end).unwrap_or(u32::MAX)
}

fn range(at: &Offsets) -> Range<usize> {
    at.start as usize..at.end as usize
}
