//! Statements that fail in every call of `process`, whatever the record is: the text of the script alone decides it.

mod unfit;

use std::collections::HashMap;
use std::ops::ControlFlow::{self, Break, Continue};

use boa_engine::ast::declaration::{Binding, Declaration, Variable};
use boa_engine::ast::expression::access::{PropertyAccess, PropertyAccessField};
use boa_engine::ast::expression::literal::{PropertyDefinition, TemplateElement};
use boa_engine::ast::expression::operator::assign::{AssignOp, AssignTarget};
use boa_engine::ast::expression::operator::binary::{ArithmeticOp, BinaryOp, RelationalOp};
use boa_engine::ast::expression::operator::unary::UnaryOp;
use boa_engine::ast::expression::operator::update::UpdateTarget;
use boa_engine::ast::expression::operator::{Assign, Binary, Unary};
use boa_engine::ast::expression::{Call, Expression};
use boa_engine::ast::operations::bound_names;
use boa_engine::ast::pattern::Pattern;
use boa_engine::ast::statement::Statement;
use boa_engine::ast::statement::iteration::IterableLoopInitializer;
use boa_engine::ast::{Script, StatementListItem};
use boa_engine::interner::{Interner, Sym};

use anabranch_record::near::did_you_mean;

use super::constants::{self, Value};
use super::kinds::Kinds;
use super::known::MEMBERS;
use super::{ScriptSlip, end, patterns, start, unset};
use crate::ending;
use crate::position::Position;
use crate::process::Process;
use crate::properties::{OF_OBJECTS, OLD_OF_STRINGS};
use crate::spot::{ExpressionMeaning, NameScope, RecordObject, spot, unparenthesized};
use crate::visitor::{VisitWith, Visitor};
use unfit::Unfit;

/// Words of scripts that may change how built-in values behave.
const CHANGES: [&str; 6] = ["__proto__", "Symbol", "globalThis", "Prototype", "defineProp", "Proxy"];

/// Finds the first expression that fails in every call of `process`, or a value that no record can hold.
pub(super) fn of(script: &Script, process: &Process<'_>, kinds: &Kinds<'_>) -> Option<ScriptSlip> {
    if process.generates || CHANGES.iter().any(|word| kinds.text.text.contains(word)) {
        return None;
    }
    let mut loops = Loops(Vec::new());
    let _ = script.visit_with(&mut loops);
    let record = process.record().filter(|record| kinds.is_constant(*record) && !loops.0.contains(record));
    let unset = unset::of(script, process, kinds);
    let mut call = CallOf { kinds, record, changed: loops.0, values: HashMap::new(), unset, unfit: None };
    // Variables outside of the function have their values before the first call.
    for item in script.statements().iter() {
        for variable in variables(item) {
            call.declare(variable);
        }
    }
    match process.body.statements().iter().try_for_each(|item| call.item(item)) {
        Break(found) => found,
        Continue(()) => None,
    }
}

/// Ends with the first failure; `None` if the rest is not certain to be reached.
type Flow = ControlFlow<Option<ScriptSlip>>;

/// A call of `process`, as far as every call goes.
struct CallOf<'a, 'k> {
    kinds: &'k Kinds<'a>,
    record: Option<Sym>,
    /// Variables that loops assign.
    changed: Vec<Sym>,
    /// Variables that keep the value of their declaration.
    values: HashMap<Sym, Value>,
    /// Variables that are null or undefined until `process` assigns them, with the place of the first assignment.
    unset: HashMap<Sym, (&'static str, Position)>,
    /// A part of the record with a value that it cannot hold.
    unfit: Option<Unfit>,
}

impl NameScope for CallOf<'_, '_> {
    fn interner(&self) -> &Interner {
        self.kinds.text.interner
    }

    fn place(&self, name: Sym) -> Option<RecordObject> {
        (Some(name) == self.record).then_some(RecordObject::Record)
    }
}

impl CallOf<'_, '_> {
    fn declare(&mut self, variable: &Variable) {
        if let Binding::Identifier(name) = variable.binding()
            && self.kinds.is_constant(name.sym())
            && !self.changed.contains(&name.sym())
        {
            let value = variable.init().map_or(Value::Undefined, |value| self.value(value));
            self.values.insert(name.sym(), value);
        }
    }

    fn value(&self, expression: &Expression) -> Value {
        constants::value(expression, self.kinds, &self.values)
    }

    /// Says what an expression is: `out` is undefined.
    fn is(&self, expression: &Expression, what: &str) -> String {
        self.at(start(expression), end(expression), what)
    }

    fn at(&self, start: Position, end: Position, what: &str) -> String {
        match self.kinds.text.slice(start, end).filter(|shown| shown.len() <= 40) {
            Some(shown) if shown == what => format!("this is {what}"),
            Some(shown) => format!("`{shown}` is {what}"),
            None => format!("this value is {what}"),
        }
    }

    fn slip(at: &Expression, message: &str, hint: &str) -> ScriptSlip {
        Self::slip_at(start(at), end(at), message, hint)
    }

    fn slip_at(start: Position, end: Position, message: &str, hint: &str) -> ScriptSlip {
        let message = format!("the script fails here: {message}");
        ScriptSlip { fails: true, start, end, message, hint: hint.to_owned() }
    }

    fn fail(at: &Expression, message: &str, hint: &str) -> Flow {
        Break(Some(Self::slip(at, message, hint)))
    }

    fn item(&mut self, item: &StatementListItem) -> Flow {
        self.unfit = self.unfit.take().filter(|unfit| is_return(item) || !self.may_undo(unfit, item));
        if let StatementListItem::Statement(statement) = item {
            return self.statement(statement);
        }
        for variable in variables(item) {
            self.variable(variable)?;
        }
        Continue(())
    }

    fn variable(&mut self, variable: &Variable) -> Flow {
        if let Some(value) = variable.init() {
            self.reach(value)?;
            if let Binding::Pattern(pattern) = variable.binding() {
                self.unpack(pattern, value)?;
            }
        }
        self.declare(variable);
        Continue(())
    }

    fn statement(&mut self, statement: &Statement) -> Flow {
        match statement {
            Statement::Block(block) => block.statement_list().iter().try_for_each(|item| self.item(item)),
            Statement::Var(declared) => declared.0.as_ref().iter().try_for_each(|variable| self.variable(variable)),
            Statement::Expression(expression) => {
                self.reach(expression)?;
                if let Expression::Assign(assign) = unparenthesized(expression) {
                    self.assigned(assign);
                }
                Continue(())
            }
            Statement::Return(returned) => {
                if let Some(target) = returned.target() {
                    self.reach(target)?;
                    if matches!(spot(target, self), ExpressionMeaning::Object(RecordObject::Record)) {
                        return Break(self.unfit.take().map(|unfit| unfit.slip));
                    }
                }
                Break(None)
            }
            Statement::If(choice) => {
                self.reach(choice.cond())?;
                go_on(choice)
            }
            Statement::ForOfLoop(repeat) => {
                self.reach(repeat.iterable())?;
                if !repeat.r#await() {
                    self.iterate(repeat.iterable())?;
                }
                go_on(repeat)
            }
            Statement::ForInLoop(repeat) => {
                self.reach(repeat.target())?;
                go_on(repeat)
            }
            Statement::Switch(switch) => {
                self.reach(switch.val())?;
                go_on(switch)
            }
            Statement::Empty => Continue(()),
            Statement::ForLoop(_) | Statement::WhileLoop(_) | Statement::DoWhileLoop(_) | Statement::Try(_) => {
                go_on(statement)
            }
            _ => Break(None),
        }
    }

    /// Checks an expression that is evaluated, with those of its parts that are always evaluated.
    fn reach(&mut self, expression: &Expression) -> Flow {
        match expression {
            Expression::Parenthesized(inner) => self.reach(inner.expression()),
            Expression::PropertyAccess(access) => self.access(access),
            Expression::Optional(optional) => self.reach(optional.target()),
            Expression::Call(call) => self.call(call),
            Expression::New(new) => {
                self.reach(new.constructor())?;
                self.elements(new.arguments())?;
                self.pattern(expression, new.constructor(), new.arguments())
            }
            Expression::Assign(assign) => self.assign(assign),
            Expression::Unary(unary) => self.unary(unary),
            Expression::Update(update) => match update.target() {
                UpdateTarget::PropertyAccess(access) => self.access(access),
                UpdateTarget::Identifier(_) => Continue(()),
            },
            Expression::Binary(binary) => self.binary(binary),
            Expression::Conditional(conditional) => self.reach(conditional.condition()),
            Expression::Await(awaited) => self.reach(awaited.target()),
            Expression::TemplateLiteral(template) => template.elements().iter().try_for_each(|element| match element {
                TemplateElement::Expr(part) => self.reach(part),
                TemplateElement::String(_) => Continue(()),
            }),
            Expression::ArrayLiteral(list) => self.elements(list.as_ref().iter().flatten()),
            Expression::ObjectLiteral(object) => object.properties().iter().try_for_each(|property| match property {
                PropertyDefinition::Property(_, value) | PropertyDefinition::SpreadObject(value) => self.reach(value),
                _ => Continue(()),
            }),
            _ => Continue(()),
        }
    }

    fn elements<'e>(&mut self, elements: impl IntoIterator<Item = &'e Expression>) -> Flow {
        elements.into_iter().try_for_each(|element| match element {
            Expression::Spread(spread) => {
                self.reach(spread.target())?;
                self.iterate(spread.target())
            }
            other => self.reach(other),
        })
    }

    fn access(&mut self, access: &PropertyAccess) -> Flow {
        let PropertyAccess::Simple(access) = access else { return Continue(()) };
        self.reach(access.target())?;
        let nothing = self.value(access.target()).nothing().or_else(|| self.unset(access.target()));
        if let Some(nothing) = nothing {
            let message = format!("{}, which has no fields", self.is(access.target(), nothing));
            return Self::fail(access.target(), &message, "assign a value first, or write `?.` if it may be missing");
        }
        match access.field() {
            PropertyAccessField::Expr(name) => self.reach(name),
            PropertyAccessField::Const(_) => Continue(()),
        }
    }

    /// Returns the name of the value of a variable that no call has assigned yet.
    fn unset(&self, expression: &Expression) -> Option<&'static str> {
        let Expression::Identifier(name) = unparenthesized(expression) else { return None };
        let (nothing, first) = self.unset.get(&name.sym())?;
        (start(expression) < *first).then_some(*nothing)
    }

    /// Checks the arguments of `RegExp`.
    fn pattern(&self, at: &Expression, constructor: &Expression, args: &[Expression]) -> Flow {
        if self.kinds.global(constructor) != Some("RegExp") {
            return Continue(());
        }
        let (text, flags) = match args {
            [text] => (self.kinds.constant(text), Some("")),
            [text, flags, ..] => (self.kinds.constant(text), self.kinds.constant(flags)),
            [] => return Continue(()),
        };
        match text.zip(flags).and_then(|(text, flags)| patterns::error(text, flags)) {
            Some(error) => {
                let hint = "scripts use the syntax of JavaScript: write flags as the second argument, and \\ for a \
                            backslash";
                Self::fail(at, &error, hint)
            }
            None => Continue(()),
        }
    }

    fn call(&mut self, call: &Call) -> Flow {
        self.reach(call.function())?;
        self.elements(call.args())?;
        self.pattern(call.function(), call.function(), call.args())?;
        let Some((target, name, args)) = self.kinds.called(call) else { return Continue(()) };
        let text = self.kinds.text.text;
        if ['"', '\'', '`'].iter().any(|quote| text.contains(&format!("{quote}{name}{quote}"))) {
            return Continue(());
        }
        let value = self.value(target);
        let is_known = |methods: &[&str]| {
            methods.contains(&name)
                || OF_OBJECTS.contains(&name)
                || name.starts_with("__")
                || (value == Value::Text && OLD_OF_STRINGS.contains(&name))
                // An object may have copies of the functions of a global object.
                || (value == Value::Object && MEMBERS.iter().any(|(_, names)| names.contains(&name)))
        };
        if let Some(methods) = value.methods().filter(|methods| !is_known(methods)) {
            let near = did_you_mean(name, methods.iter().copied());
            let hint = match (value, name) {
                (Value::Set | Value::Map, "includes" | "contains") => "write has".to_owned(),
                (Value::Pattern, _) => "write test for true or false, or text.match(pattern) for the parts".to_owned(),
                (Value::Object, _) => "for an entry, write object[name]; a Map has methods".to_owned(),
                _ => near.map_or_else(|| format!("{} has others", value.named()), |near| format!("write {near}")),
            };
            return Self::fail(call.function(), &format!("{} has no method {name}", value.named()), &hint);
        }
        // A number that is not in the range fails with a number, and other values do not have the method.
        let range = match name {
            "toFixed" => 0..=100,
            "toPrecision" => 1..=100,
            _ => return Continue(()),
        };
        if let [digits] = args
            && let Some(number) = self.kinds.number(digits)
            && !range.contains(&number)
        {
            let message = format!("{name} accepts {} to {} digits, not {number}", range.start(), range.end());
            return Self::fail(digits, &message, "write a number in this range");
        }
        Continue(())
    }

    fn assign(&mut self, assign: &Assign) -> Flow {
        if let AssignTarget::Access(access) = assign.lhs() {
            self.access(access)?;
        }
        if matches!(assign.op(), AssignOp::BoolAnd | AssignOp::BoolOr | AssignOp::Coalesce) {
            return Continue(());
        }
        self.reach(assign.rhs())?;
        match assign.lhs() {
            AssignTarget::Pattern(pattern) => self.unpack(pattern, assign.rhs()),
            _ => Continue(()),
        }
    }

    fn unary(&mut self, unary: &Unary) -> Flow {
        self.reach(unary.target())?;
        if unary.op() == UnaryOp::Plus && self.value(unary.target()) == Value::Big {
            return Self::fail(unary.target(), "`+` does not convert a BigInt to a number", "write Number(…)");
        }
        Continue(())
    }

    fn binary(&mut self, binary: &Binary) -> Flow {
        self.reach(binary.lhs())?;
        if matches!(binary.op(), BinaryOp::Logical(_)) {
            return Continue(());
        }
        self.reach(binary.rhs())?;
        let [lhs, rhs] = [self.value(binary.lhs()), self.value(binary.rhs())];
        let whole = Expression::Binary(binary.clone());
        match binary.op() {
            BinaryOp::Arithmetic(op) => {
                let mixes = |one: Value, other: Value| {
                    one == Value::Big
                        && match other {
                            Value::Number(_) | Value::Truth | Value::Undefined | Value::Null => true,
                            Value::Text | Value::List => op != ArithmeticOp::Add,
                            _ => false,
                        }
                };
                if mixes(lhs, rhs) || mixes(rhs, lhs) {
                    let hint = "use numbers, or write both sides as BigInt: 1n, BigInt(…)";
                    return Self::fail(&whole, "a BigInt does not calculate with other values", hint);
                }
            }
            BinaryOp::Relational(RelationalOp::In) if rhs.is_primitive() => {
                let message = format!("`in` searches for a field of an object, and this is {}", rhs.named());
                return Self::fail(binary.rhs(), &message, "for a part of a text, write text.includes(part)");
            }
            BinaryOp::Relational(RelationalOp::InstanceOf) if rhs.is_primitive() || rhs == Value::List => {
                let message = format!("`instanceof` needs a class, and this is {}", rhs.named());
                return Self::fail(
                    binary.rhs(),
                    &message,
                    "for the kind of a value, write typeof value === \"object\"",
                );
            }
            _ => {}
        }
        Continue(())
    }

    /// Checks an expression whose elements are read one after the other.
    fn iterate(&self, list: &Expression) -> Flow {
        let value = self.value(list);
        if value.is_iterable() {
            return Continue(());
        }
        let message = format!("{}, which has no elements to iterate over", self.is(list, value.named()));
        let hint = match value {
            Value::Object => "write Object.entries(…), Object.keys(…) or Object.values(…)",
            _ => "write a list",
        };
        Self::fail(list, &message, hint)
    }

    /// Checks a value that a pattern divides into variables.
    fn unpack(&self, pattern: &Pattern, value: &Expression) -> Flow {
        match (pattern, self.value(value).nothing()) {
            (Pattern::Array(_), _) => self.iterate(value),
            (Pattern::Object(_), Some(nothing)) => {
                let message = format!("{}, which has no fields", self.is(value, nothing));
                Self::fail(value, &message, "assign an object")
            }
            (Pattern::Object(_), None) => Continue(()),
        }
    }
}

fn is_return(item: &StatementListItem) -> bool {
    matches!(item, StatementListItem::Statement(statement) if matches!(**statement, Statement::Return(_)))
}

fn go_on(part: &impl VisitWith) -> Flow {
    if ending::may_leave(part) { Break(None) } else { Continue(()) }
}

fn variables(item: &StatementListItem) -> &[Variable] {
    match item {
        StatementListItem::Declaration(declaration) => match &**declaration {
            Declaration::Lexical(lexical) => lexical.variable_list().as_ref(),
            _ => &[],
        },
        StatementListItem::Statement(statement) => match &**statement {
            Statement::Var(declared) => declared.0.as_ref(),
            _ => &[],
        },
    }
}

/// Collects the variables that loops over elements assign.
struct Loops(Vec<Sym>);

impl<'ast> Visitor<'ast> for Loops {
    type BreakTy = ();

    fn visit_iterable_loop_initializer(&mut self, initializer: &'ast IterableLoopInitializer) -> ControlFlow<()> {
        match initializer {
            IterableLoopInitializer::Identifier(name) => self.0.push(name.sym()),
            IterableLoopInitializer::Pattern(pattern) => self.0.extend(bound_names(pattern)),
            _ => {}
        }
        initializer.visit_with(self)
    }
}
