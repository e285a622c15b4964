//! Visits the source text of a function in execution order.

use std::ops::ControlFlow::{Break, Continue};

use boa_engine::ast::Spanned;
use boa_engine::ast::declaration::{Binding, Variable};
use boa_engine::ast::expression::access::{PropertyAccess, PropertyAccessField};
use boa_engine::ast::expression::literal::{LiteralKind, PropertyDefinition, TemplateElement, TemplateLiteral};
use boa_engine::ast::expression::operator::assign::{AssignOp, AssignTarget};
use boa_engine::ast::expression::operator::binary::{BinaryOp, LogicalOp, RelationalOp};
use boa_engine::ast::expression::operator::unary::UnaryOp;
use boa_engine::ast::expression::operator::update::UpdateTarget;
use boa_engine::ast::expression::operator::{Assign, Binary, Conditional, Unary, Update};
use boa_engine::ast::expression::{Call, Expression, Identifier, New, Optional, OptionalOperationKind};
use boa_engine::ast::pattern::Pattern;
use boa_engine::ast::statement::{
    DoWhileLoop, ForInLoop, ForLoop, ForOfLoop, If, Return, Switch, Try, WhileLoop, With,
};

use super::{AmbiguousSource, Flow, Inside, Reader, RecordAct, flow};
use crate::inner::visit_inner_functions;
use crate::spot::{ExpressionMeaning, NameScope, RecordObject, step, unparenthesized};
use crate::visitor::{VisitWith, Visitor};

macro_rules! uncertain_statements {
    ($($visit:ident: $node:ty),* $(,)?) => {
        $(fn $visit(&mut self, node: &'ast $node) -> Flow {
            self.perhaps_to_the_end(node, |reader| node.visit_with(reader))
        })*
    };
}

impl Reader<'_> {
    /// Analyzes an inner function. It is unknown whether it is called.
    fn inner_function(&mut self, function: &impl VisitWith) -> Flow {
        self.perhaps(|reader| function.visit_with(reader))
    }
}

impl<'ast> Visitor<'ast> for Reader<'_> {
    type BreakTy = AmbiguousSource;

    visit_inner_functions!(Flow, inner_function);

    uncertain_statements! {
        visit_do_while_loop: DoWhileLoop,
        visit_while_loop: WhileLoop,
        visit_for_loop: ForLoop,
        visit_try: Try,
    }

    fn visit_for_in_loop(&mut self, repeat: &'ast ForInLoop) -> Flow {
        self.visit_expression(repeat.target())?;
        self.perhaps_to_the_end(repeat, |reader| {
            reader.visit_iterable_loop_initializer(repeat.initializer())?;
            reader.visit_statement(repeat.body())
        })
    }

    fn visit_for_of_loop(&mut self, repeat: &'ast ForOfLoop) -> Flow {
        if !repeat.r#await() {
            self.take(repeat.iterable(), RecordAct::Iterate);
        }
        self.visit_expression(repeat.iterable())?;
        self.perhaps_to_the_end(repeat, |reader| {
            reader.visit_iterable_loop_initializer(repeat.initializer())?;
            reader.visit_statement(repeat.body())
        })
    }

    fn visit_identifier(&mut self, name: &'ast Identifier) -> Flow {
        if matches!(self.text(name.sym()), Some("arguments" | "eval")) {
            return Break(AmbiguousSource);
        }
        match self.place(name.sym()) {
            Some(place) => self.examine(place),
            None if self.certain => self.reached.push(name.span().start().into()),
            None => {}
        }
        Continue(())
    }

    /// In a `with` statement, a variable name may refer to a field.
    fn visit_with(&mut self, _: &'ast With) -> Flow {
        Break(AmbiguousSource)
    }

    fn visit_property_access_field(&mut self, field: &'ast PropertyAccessField) -> Flow {
        if let PropertyAccessField::Expr(name) = field {
            self.named(name);
        }
        field.visit_with(self)
    }

    fn visit_property_access(&mut self, access: &'ast PropertyAccess) -> Flow {
        if flow(self.touch_access(access, RecordAct::Read))? {
            return Continue(());
        }
        let PropertyAccess::Simple(simple) = access else { return access.visit_with(self) };
        self.inside(access, Inside::Taken);
        self.inside_value(access);
        if !flow(self.touch(simple.target(), RecordAct::Below))? {
            self.visit_expression(simple.target())?;
        }
        self.visit_property_access_field(simple.field())
    }

    fn visit_optional(&mut self, optional: &'ast Optional) -> Flow {
        let mut at = self.spot(optional.target());
        for operation in optional.chain() {
            at = match operation.kind() {
                OptionalOperationKind::SimplePropertyAccess { field } => step(&at, field, self),
                _ => ExpressionMeaning::Other,
            };
            self.test_field(&at, operation.span());
        }
        // A missing value has no fields here, which is not an error.
        self.tested(optional.target())?;
        optional
            .chain()
            .iter()
            .try_for_each(|operation| self.perhaps(|reader| reader.visit_optional_operation(operation)))
    }

    fn visit_call(&mut self, call: &'ast Call) -> Flow {
        if self.is_json_parse(call.function())
            && let [text, ..] = call.args()
            && let Some(place) = self.as_text(text)
        {
            self.act(place, "", RecordAct::Parse, call.span());
            return Continue(());
        }
        if let (Expression::Identifier(name), [only]) = (unparenthesized(call.function()), call.args())
            && self.text(name.sym()) == Some("String")
        {
            self.printed(only);
        }
        self.method_of_value(call.function());
        if let Some(rest) = self.call_as_text(call)? {
            return rest.iter().try_for_each(|argument| self.visit_expression(argument));
        }
        call.visit_with(self)
    }

    fn visit_new(&mut self, made: &'ast New) -> Flow {
        if let (Expression::Identifier(name), [only]) = (unparenthesized(made.constructor()), made.arguments())
            && self.text(name.sym()) == Some("Date")
            && self.take(only, RecordAct::Text)
        {
            return Continue(());
        }
        made.visit_with(self)
    }

    fn visit_template_literal(&mut self, template: &'ast TemplateLiteral) -> Flow {
        template.elements().iter().try_for_each(|element| match element {
            TemplateElement::Expr(part) if self.take(part, RecordAct::Text) => Continue(()),
            element => {
                if let TemplateElement::Expr(part) = element {
                    self.printed(part);
                }
                self.visit_template_element(element)
            }
        })
    }

    fn visit_property_definition(&mut self, property: &'ast PropertyDefinition) -> Flow {
        match property {
            PropertyDefinition::SpreadObject(all) if self.is_data(all) => {
                self.take(all, RecordAct::Spread);
                // The kind of the value does not matter.
                Continue(())
            }
            _ => property.visit_with(self),
        }
    }

    fn visit_assign(&mut self, assign: &'ast Assign) -> Flow {
        let adds = assign.op() == AssignOp::Add;
        let AssignTarget::Access(access) = assign.lhs() else {
            if adds && self.take(assign.rhs(), RecordAct::Text) {
                return self.visit_assign_target(assign.lhs());
            }
            return assign.visit_with(self);
        };
        let certain = self.certain;
        let logical = matches!(assign.op(), AssignOp::BoolAnd | AssignOp::BoolOr | AssignOp::Coalesce);
        self.certain &= !logical;
        if !(adds && self.take(assign.rhs(), RecordAct::Text)) {
            self.visit_expression(assign.rhs())?;
        }
        if self.assign_as_text(assign, access)? {
            self.certain = certain;
            return Continue(());
        }
        let doing = match self.literal(assign.rhs()).filter(|_| assign.op() == AssignOp::Assign) {
            Some(text) => RecordAct::Assign(text),
            None => RecordAct::Write,
        };
        if adds {
            self.appended_to(access, assign.rhs());
        }
        if assign.op() != AssignOp::Assign {
            self.changed(access, logical);
        }
        let known = flow(self.touch_access(access, doing))?;
        self.certain = certain;
        if known { Continue(()) } else { self.visit_property_access(access) }
    }

    fn visit_update(&mut self, update: &'ast Update) -> Flow {
        if let UpdateTarget::PropertyAccess(access) = update.target() {
            self.changed(access, false);
        }
        match update.target() {
            UpdateTarget::PropertyAccess(access) if flow(self.touch_access(access, RecordAct::Write))? => Continue(()),
            _ => update.visit_with(self),
        }
    }

    fn visit_unary(&mut self, unary: &'ast Unary) -> Flow {
        match unary.op() {
            UnaryOp::Not => self.condition(unary.target()),
            UnaryOp::Plus | UnaryOp::Minus if self.take(unary.target(), RecordAct::Text) => Continue(()),
            UnaryOp::Delete => self.testing(unary.target(), |reader| unary.visit_with(reader)),
            UnaryOp::TypeOf if self.spot(unary.target()).object().is_none() => self.tested(unary.target()),
            _ => unary.visit_with(self),
        }
    }

    fn visit_binary(&mut self, binary: &'ast Binary) -> Flow {
        let (lhs, rhs) = (binary.lhs(), binary.rhs());
        self.operate(binary);
        let is_nothing = |expression: &Expression| match unparenthesized(expression) {
            Expression::Literal(literal) => matches!(literal.kind(), LiteralKind::Null | LiteralKind::Undefined),
            Expression::Identifier(name) => self.text(name.sym()) == Some("undefined"),
            _ => false,
        };
        match binary.op() {
            BinaryOp::Relational(
                RelationalOp::Equal | RelationalOp::NotEqual | RelationalOp::StrictEqual | RelationalOp::StrictNotEqual,
            ) => {
                if is_nothing(lhs) || is_nothing(rhs) {
                    self.tested(lhs)?;
                    return self.tested(rhs);
                }
                self.compared(lhs, rhs);
                self.compared(rhs, lhs);
                binary.visit_with(self)
            }
            BinaryOp::Logical(op) => {
                match op {
                    LogicalOp::And => self.condition(lhs)?,
                    // The right-hand side replaces a missing value.
                    LogicalOp::Or | LogicalOp::Coalesce => self.tested(lhs)?,
                }
                self.perhaps(|reader| reader.visit_expression(rhs))
            }
            BinaryOp::Arithmetic(_)
            | BinaryOp::Relational(
                RelationalOp::GreaterThan
                | RelationalOp::GreaterThanOrEqual
                | RelationalOp::LessThan
                | RelationalOp::LessThanOrEqual,
            ) => [lhs, rhs].into_iter().try_for_each(|side| match self.take(side, RecordAct::Text) {
                true => Continue(()),
                false => self.visit_expression(side),
            }),
            _ => binary.visit_with(self),
        }
    }

    fn visit_conditional(&mut self, conditional: &'ast Conditional) -> Flow {
        self.condition(conditional.condition())?;
        self.perhaps(|reader| {
            reader.visit_expression(conditional.if_true())?;
            reader.visit_expression(conditional.if_false())
        })
    }

    fn visit_if(&mut self, choice: &'ast If) -> Flow {
        self.condition(choice.cond())?;
        self.perhaps_to_the_end(choice, |reader| {
            reader.visit_statement(choice.body())?;
            choice.else_node().map_or(Continue(()), |other| reader.visit_statement(other))
        })
    }

    fn visit_switch(&mut self, switch: &'ast Switch) -> Flow {
        for case in switch.cases() {
            if let Some(condition) = case.condition() {
                self.compared(switch.val(), condition);
            }
        }
        self.visit_expression(switch.val())?;
        self.perhaps_to_the_end(switch, |reader| {
            switch.cases().iter().try_for_each(|case| reader.visit_statement_list(case.body()))
        })
    }

    fn visit_return(&mut self, returned: &'ast Return) -> Flow {
        if let Some(target) = returned.target().filter(|_| self.certain) {
            self.reached.push(target.span().start().into());
        }
        let flow = match returned.target() {
            Some(target) if matches!(self.spot(target), ExpressionMeaning::Object(RecordObject::Record)) => {
                Continue(())
            }
            _ => returned.visit_with(self),
        };
        self.certain = false;
        flow
    }

    fn visit_variable(&mut self, variable: &'ast Variable) -> Flow {
        let object = variable.init().and_then(|init| self.spot(init).object());
        match (object, variable.binding()) {
            (Some(place), Binding::Identifier(name)) if self.bindings.is_constant(name.sym()) => {
                self.names.push((name.sym(), place));
                Continue(())
            }
            (Some(place), Binding::Pattern(Pattern::Object(pattern))) => self.unpack(pattern, place),
            (None, Binding::Identifier(name)) => {
                if let Some(value) = variable.init() {
                    self.keep_value_of(name.sym(), value);
                }
                variable.visit_with(self)
            }
            _ => variable.visit_with(self),
        }
    }
}
