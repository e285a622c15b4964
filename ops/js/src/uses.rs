//! Finds the objects of a record that a function cannot keep: those that it only reads fields of and writes fields to.
//!
//! If in doubt, an object counts as kept. This applies to objects that are passed on, stored, compared by value, called
//! on, used in an inner function or accessed by a computed name.

use std::cell::Cell;
use std::ops::ControlFlow::{self, Break, Continue};

use anabranch_record::metadata::own_key;
use boa_engine::Source;
use boa_engine::ast::StatementListItem;
use boa_engine::ast::declaration::{Binding, Variable};
use boa_engine::ast::expression::access::{PropertyAccess, PropertyAccessField};
use boa_engine::ast::expression::literal::LiteralKind;
use boa_engine::ast::expression::operator::assign::{AssignOp, AssignTarget};
use boa_engine::ast::expression::operator::binary::{BinaryOp, LogicalOp, RelationalOp};
use boa_engine::ast::expression::operator::unary::UnaryOp;
use boa_engine::ast::expression::operator::{Assign, Binary, Conditional, Unary};
use boa_engine::ast::expression::{Call, Expression, Identifier, Optional, OptionalOperationKind, TaggedTemplate};
use boa_engine::ast::function::{FormalParameterList, FunctionBody};
use boa_engine::ast::pattern::{ObjectPattern, ObjectPatternElement, Pattern};
use boa_engine::ast::property::PropertyName;
use boa_engine::ast::scope::Scope;
use boa_engine::ast::statement::{If, Return, Statement, With};
use boa_engine::interner::{Interner, Sym};
use boa_engine::parser::Parser;

use crate::inner::visit_inner_functions;
use crate::properties::{PAYLOAD, RECORD};
use crate::spot::{ExpressionMeaning, NameScope, spot, step, unparenthesized};
use crate::visitor::{VisitWith, Visitor};

pub(crate) use crate::spot::RecordObject;

/// Maximum number of named fields of an object.
const MOST_FIELDS: usize = 32;

/// Uses of the record in a function that does not keep it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RecordUses {
    /// Fields that it names; `None` for an object that it may keep.
    fields: [Option<Vec<String>>; RecordObject::COUNT],
    /// Objects that it mentions.
    mentioned: [bool; RecordObject::COUNT],
    /// Objects that it may replace.
    replaced: [bool; RecordObject::COUNT],
    /// True if it may return an object that is not this record.
    others: bool,
}

impl RecordUses {
    /// Analyzes the source text of a function. Returns `None` if the function may keep the record, or the text is
    /// ambiguous.
    pub(crate) fn of(function: &str) -> Option<RecordUses> {
        let mut interner = Interner::default();
        let source = format!("({function})");
        let mut parser = Parser::new(Source::from_bytes(source.as_bytes()));
        let script = parser.parse_script(&Scope::new_global(), &mut interner).ok()?;
        let [StatementListItem::Statement(statement)] = &script.statements()[..] else { return None };
        let Statement::Expression(expression) = &**statement else { return None };
        let (parameters, body) = match unparenthesized(expression) {
            Expression::FunctionExpression(function) => (function.parameters(), function.body()),
            Expression::ArrowFunction(function) => (function.parameters(), function.body()),
            _ => return None,
        };
        Reader::read(&interner, parameters, body)
    }

    /// Returns the named fields of an object, or `None` if the object may be kept.
    pub(crate) fn fields(&self, place: RecordObject) -> Option<&[String]> {
        self.fields[place as usize].as_deref()
    }

    /// Returns `true` if the function mentions an object, so that its existence or its kind matters.
    pub(crate) fn mentions(&self, place: RecordObject) -> bool {
        self.mentioned[place as usize]
    }

    /// Returns `true` if the function may replace this object.
    pub(crate) fn replaces(&self, place: RecordObject) -> bool {
        self.replaced[place as usize]
    }

    /// Returns `true` if the function may return an object that is not the record that it was called with.
    pub(crate) fn returns_others(&self) -> bool {
        self.others
    }
}

/// Use of an expression's value: it may be kept, or is dropped.
#[derive(Clone, Copy, PartialEq)]
enum ValueUse {
    Kept,
    Dropped,
}

/// The record may be kept.
struct KeptRecord;

type Flow = ControlFlow<KeptRecord>;

struct Reader<'i> {
    interner: &'i Interner,
    uses: RecordUses,
    /// Variables that hold an object, the parameter first.
    names: Vec<(Sym, RecordObject)>,
    /// Variables that hold different objects at different times.
    mixed: Vec<Sym>,
    /// Number of inner functions around the visited node.
    depth: usize,
    /// Objects that were mentioned.
    mentioned: Cell<[bool; RecordObject::COUNT]>,
}

impl NameScope for Reader<'_> {
    fn interner(&self) -> &Interner {
        self.interner
    }

    fn place(&self, name: Sym) -> Option<RecordObject> {
        let known = self.names.iter().find(|(known, _)| *known == name && !self.mixed.contains(&name));
        known.map(|(_, place)| *place)
    }

    fn came_across(&self, place: RecordObject) {
        let mut mentioned = self.mentioned.get();
        mentioned[place as usize] = true;
        self.mentioned.set(mentioned);
    }
}

impl<'i> Reader<'i> {
    fn read(interner: &'i Interner, parameters: &FormalParameterList, body: &FunctionBody) -> Option<RecordUses> {
        let (first, others) = parameters.as_ref().split_first()?;
        let Binding::Identifier(record) = first.variable().binding() else { return None };
        if first.is_rest_param() || first.init().is_some() {
            return None;
        }
        let names = vec![(record.sym(), RecordObject::Record)];
        let mentioned = Cell::default();
        let mut reader =
            Reader { interner, uses: RecordUses::default(), names, mixed: Vec::new(), depth: 0, mentioned };
        // A variable may be used above its declaration: visit again with the newly found names.
        loop {
            let known = (reader.names.len(), reader.mixed.len());
            reader.uses = RecordUses::default();
            reader.uses.fields.iter_mut().for_each(|fields| *fields = Some(Vec::new()));
            let mut all = others.iter().try_for_each(|other| reader.visit_formal_parameter(other));
            if all.is_continue() {
                all = reader.visit_function_body(body);
            }
            if all.is_break() {
                return None;
            }
            if known == (reader.names.len(), reader.mixed.len()) {
                return Some(RecordUses { mentioned: reader.mentioned.get(), ..reader.uses });
            }
        }
    }

    fn text(&self, name: Sym) -> Option<&'i str> {
        self.interner.resolve(name)?.utf8()
    }

    fn spot(&self, expression: &Expression) -> ExpressionMeaning {
        spot(expression, self)
    }

    fn step(&self, base: &ExpressionMeaning, field: &PropertyAccessField) -> ExpressionMeaning {
        step(base, field, self)
    }

    /// Returns the object in a field, if the field holds one.
    fn child(&self, place: RecordObject, name: &str) -> Option<RecordObject> {
        let child = place.child(name)?;
        self.came_across(child);
        Some(child)
    }

    fn keep(&mut self, place: RecordObject) -> Flow {
        self.uses.fields[place as usize] = None;
        if place == RecordObject::Record { Break(KeptRecord) } else { Continue(()) }
    }

    fn note(&mut self, place: RecordObject, name: Option<&str>) -> Flow {
        let known = name.filter(|name| match place {
            RecordObject::Record => RECORD.contains(name),
            RecordObject::Payload => PAYLOAD.contains(name),
            // The name is an alias: the entry may be stored under another name.
            RecordObject::Metadata if own_key(name).is_some() => false,
            // The engine does not treat an index as a name.
            _ => name.parse::<u32>().is_err(),
        });
        let Some(name) = known else { return self.keep(place) };
        if let Some(fields) = &mut self.uses.fields[place as usize]
            && !fields.iter().any(|field| field == name)
        {
            fields.push(name.to_owned());
            if fields.len() > MOST_FIELDS {
                return self.keep(place);
            }
        }
        Continue(())
    }

    /// Notes the meaning of an expression.
    fn found(&mut self, spot: &ExpressionMeaning, fate: ValueUse) -> Flow {
        if let ExpressionMeaning::Field(place, name) = spot {
            self.note(*place, name.as_deref())?;
        }
        match spot.object() {
            Some(place) if fate == ValueUse::Kept => self.keep(place),
            _ => Continue(()),
        }
    }

    fn access(&mut self, access: &PropertyAccess, fate: ValueUse) -> Flow {
        if self.depth == 0
            && let PropertyAccess::Simple(simple) = access
            && let spot @ ExpressionMeaning::Field(..) = self.step(&self.spot(simple.target()), simple.field())
        {
            self.found(&spot, fate)?;
            return self.visit_property_access_field(simple.field());
        }
        access.visit_with(self)
    }

    fn optional(&mut self, optional: &Optional, fate: ValueUse) -> Flow {
        if self.depth > 0 {
            return optional.visit_with(self);
        }
        let mut at = self.spot(optional.target());
        self.dropped(optional.target())?;
        for operation in optional.chain() {
            at = match operation.kind() {
                OptionalOperationKind::SimplePropertyAccess { field } => {
                    let next = self.step(&at, field);
                    self.found(&next, ValueUse::Dropped)?;
                    next
                }
                _ => {
                    self.receives(&at)?;
                    ExpressionMeaning::Other
                }
            };
            self.visit_optional_operation(operation)?;
        }
        self.found(&at, fate)
    }

    /// Notes a call: the callee receives the object that it is a field of.
    fn receives(&mut self, callee: &ExpressionMeaning) -> Flow {
        match callee {
            ExpressionMeaning::Object(place) | ExpressionMeaning::Field(place, _) => self.keep(*place),
            ExpressionMeaning::Other => Continue(()),
        }
    }

    /// Visits an expression whose value is not kept if it is one of the objects.
    fn dropped(&mut self, expression: &Expression) -> Flow {
        match self.depth == 0 && self.spot(expression).object().is_some() {
            // The fields on the path to it always exist.
            true => Continue(()),
            false => self.visit_expression(expression),
        }
    }

    /// Visits an expression that is only tested for truth.
    fn tested(&mut self, expression: &Expression) -> Flow {
        match unparenthesized(expression) {
            Expression::Unary(unary) if unary.op() == UnaryOp::Not => self.tested(unary.target()),
            Expression::Binary(binary) if matches!(binary.op(), BinaryOp::Logical(_)) => {
                self.tested(binary.lhs())?;
                self.tested(binary.rhs())
            }
            other => self.dropped(other),
        }
    }

    /// Visits a returned expression, which may be the record.
    fn returned(&mut self, expression: &Expression) -> Flow {
        match unparenthesized(expression) {
            other if matches!(self.spot(other), ExpressionMeaning::Object(RecordObject::Record)) => Continue(()),
            Expression::Conditional(conditional) => {
                self.tested(conditional.condition())?;
                self.returned(conditional.if_true())?;
                self.returned(conditional.if_false())
            }
            Expression::Binary(binary) if binary.op() == BinaryOp::Logical(LogicalOp::And) => {
                self.tested(binary.lhs())?;
                self.returned(binary.rhs())
            }
            other => {
                self.uses.others |= !matches!(other, Expression::Literal(_));
                self.visit_expression(other)
            }
        }
    }

    /// Records that a variable holds an object; returns `false` if it may hold others.
    fn name(&mut self, variable: Sym, place: RecordObject) -> bool {
        match self.names.iter().position(|(known, _)| *known == variable) {
            None => self.names.push((variable, place)),
            // The parameter itself.
            Some(0) => return false,
            Some(at) if self.names[at].1 == place || self.mixed.contains(&variable) => {}
            Some(_) => self.mixed.push(variable),
        }
        !self.mixed.contains(&variable)
    }

    /// Visits a pattern whose variables hold fields of an object.
    fn unpack(&mut self, pattern: &ObjectPattern, place: RecordObject) -> Flow {
        for element in pattern.bindings() {
            match element {
                ObjectPatternElement::SingleName { name: PropertyName::Literal(name), ident, default_init } => {
                    let name = self.text(name.sym());
                    self.note(place, name)?;
                    match name.and_then(|name| self.child(place, name)) {
                        Some(child) if self.name(ident.sym(), child) => {}
                        Some(child) => self.keep(child)?,
                        None => self.visit_identifier(ident)?,
                    }
                    if let Some(default) = default_init {
                        self.visit_expression(default)?;
                    }
                }
                ObjectPatternElement::Pattern { name: PropertyName::Literal(name), pattern, default_init: None } => {
                    let name = self.text(name.sym());
                    self.note(place, name)?;
                    match (name.and_then(|name| self.child(place, name)), pattern) {
                        (Some(child), Pattern::Object(inner)) => self.unpack(inner, child)?,
                        (Some(child), _) => {
                            self.keep(child)?;
                            self.visit_pattern(pattern)?;
                        }
                        (None, _) => self.visit_pattern(pattern)?,
                    }
                }
                other => {
                    self.keep(place)?;
                    self.visit_object_pattern_element(other)?;
                }
            }
        }
        Continue(())
    }

    fn inside(&mut self, function: &impl VisitWith) -> Flow {
        self.depth += 1;
        let flow = function.visit_with(self);
        self.depth -= 1;
        flow
    }
}

impl<'ast> Visitor<'ast> for Reader<'_> {
    type BreakTy = KeptRecord;

    visit_inner_functions!(Flow, inside);

    fn visit_identifier(&mut self, name: &'ast Identifier) -> Flow {
        if matches!(self.text(name.sym()), Some("arguments" | "eval")) {
            return Break(KeptRecord);
        }
        match self.place(name.sym()) {
            Some(place) => self.keep(place),
            None => Continue(()),
        }
    }

    /// In a `with` statement, a variable name may refer to a field.
    fn visit_with(&mut self, _: &'ast With) -> Flow {
        Break(KeptRecord)
    }

    fn visit_property_access(&mut self, access: &'ast PropertyAccess) -> Flow {
        self.access(access, ValueUse::Kept)
    }

    fn visit_optional(&mut self, optional: &'ast Optional) -> Flow {
        self.optional(optional, ValueUse::Kept)
    }

    fn visit_call(&mut self, call: &'ast Call) -> Flow {
        self.receives(&self.spot(call.function()))?;
        call.visit_with(self)
    }

    fn visit_tagged_template(&mut self, template: &'ast TaggedTemplate) -> Flow {
        self.receives(&self.spot(template.tag()))?;
        template.visit_with(self)
    }

    fn visit_assign(&mut self, assign: &'ast Assign) -> Flow {
        match assign.lhs() {
            AssignTarget::Access(access) if assign.op() == AssignOp::Assign => {
                if let PropertyAccess::Simple(simple) = access
                    && let Some(place) = self.step(&self.spot(simple.target()), simple.field()).object()
                {
                    self.uses.replaced[place as usize] = true;
                }
                self.access(access, ValueUse::Dropped)?;
                self.visit_expression(assign.rhs())
            }
            _ => assign.visit_with(self),
        }
    }

    fn visit_unary(&mut self, unary: &'ast Unary) -> Flow {
        match unary.op() {
            UnaryOp::Not => self.tested(unary.target()),
            UnaryOp::TypeOf | UnaryOp::Void => self.dropped(unary.target()),
            UnaryOp::Delete => {
                self.receives(&self.spot(unary.target()))?;
                unary.visit_with(self)
            }
            _ => unary.visit_with(self),
        }
    }

    fn visit_binary(&mut self, binary: &'ast Binary) -> Flow {
        let is_null = |expression: &Expression| matches!(unparenthesized(expression), Expression::Literal(literal) if *literal.kind() == LiteralKind::Null);
        match binary.op() {
            BinaryOp::Relational(RelationalOp::StrictEqual | RelationalOp::StrictNotEqual) => {
                self.dropped(binary.lhs())?;
                self.dropped(binary.rhs())
            }
            // A comparison with any other value converts the object to text.
            BinaryOp::Relational(RelationalOp::Equal | RelationalOp::NotEqual)
                if is_null(binary.lhs()) || is_null(binary.rhs()) =>
            {
                self.dropped(binary.lhs())?;
                self.dropped(binary.rhs())
            }
            // Objects are truthy, so the value is that of the other side.
            BinaryOp::Logical(LogicalOp::And) => {
                self.tested(binary.lhs())?;
                self.visit_expression(binary.rhs())
            }
            _ => binary.visit_with(self),
        }
    }

    fn visit_conditional(&mut self, conditional: &'ast Conditional) -> Flow {
        self.tested(conditional.condition())?;
        self.visit_expression(conditional.if_true())?;
        self.visit_expression(conditional.if_false())
    }

    fn visit_if(&mut self, choice: &'ast If) -> Flow {
        self.tested(choice.cond())?;
        self.visit_statement(choice.body())?;
        choice.else_node().map_or(Continue(()), |other| self.visit_statement(other))
    }

    fn visit_return(&mut self, returned: &'ast Return) -> Flow {
        match returned.target() {
            Some(target) if self.depth == 0 => self.returned(target),
            _ => returned.visit_with(self),
        }
    }

    fn visit_variable(&mut self, variable: &'ast Variable) -> Flow {
        let place = variable.init().filter(|_| self.depth == 0).and_then(|init| self.spot(init).object());
        if let (Some(place), Some(init)) = (place, variable.init()) {
            match variable.binding() {
                Binding::Identifier(name) if self.name(name.sym(), place) => return self.dropped(init),
                Binding::Pattern(Pattern::Object(pattern)) => {
                    self.dropped(init)?;
                    return self.unpack(pattern, place);
                }
                _ => {}
            }
        }
        variable.visit_with(self)
    }
}

#[cfg(test)]
mod tests;
