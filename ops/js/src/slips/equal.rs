//! Comparisons with a constant result.

use std::ops::ControlFlow;

use boa_engine::ast::Script;
use boa_engine::ast::expression::Expression;
use boa_engine::ast::expression::access::{PropertyAccess, PropertyAccessField};
use boa_engine::ast::expression::literal::LiteralKind;
use boa_engine::ast::expression::operator::Binary;
use boa_engine::ast::expression::operator::binary::{ArithmeticOp, BinaryOp, BitwiseOp, RelationalOp};
use boa_engine::ast::expression::operator::unary::UnaryOp;

use super::kinds::{Kinds, ScriptValueKind};
use super::{ScriptSlip, end, start};
use crate::spot::unparenthesized;
use crate::visitor::{VisitWith, Visitor};

const TYPES: [&str; 8] = ["undefined", "object", "boolean", "number", "string", "function", "symbol", "bigint"];

pub(super) fn of(script: &Script, kinds: &Kinds<'_>) -> Vec<ScriptSlip> {
    let mut equal = Equal { kinds, slips: Vec::new() };
    let _ = script.visit_with(&mut equal);
    equal.slips
}

/// Reason why two values are never equal, and a remedy.
type NeverEqual = (String, String);

struct Equal<'k, 'a> {
    kinds: &'k Kinds<'a>,
    slips: Vec<ScriptSlip>,
}

impl Equal<'_, '_> {
    fn say(&mut self, binary: &Binary, message: String, hint: String) {
        self.slips.push(ScriptSlip { fails: false, start: start(binary.lhs()), end: end(binary.rhs()), message, hint });
    }

    fn shown(&self, expression: &Expression, other: &'static str) -> String {
        self.kinds.text.slice(start(expression), end(expression)).unwrap_or(other).to_owned()
    }

    fn compared(&mut self, binary: &Binary, op: RelationalOp) {
        let is_strict = matches!(op, RelationalOp::StrictEqual | RelationalOp::StrictNotEqual);
        let always = matches!(op, RelationalOp::NotEqual | RelationalOp::StrictNotEqual);
        let (lhs, rhs) = (binary.lhs(), binary.rhs());
        let why = self
            .never(lhs, rhs)
            .or_else(|| self.never(rhs, lhs))
            .or_else(|| self.kinds_differ(lhs, rhs, is_strict))
            .or_else(|| self.kinds_differ(rhs, lhs, is_strict));
        if let Some((why, hint)) = why {
            self.say(binary, format!("this is always {always}: {why}"), hint);
        }
    }

    /// Returns why a value never equals the other one, which is usually a constant.
    fn never(&self, value: &Expression, other: &Expression) -> Option<NeverEqual> {
        if self.kinds.is_nan(other) {
            let shown = self.shown(value, "…");
            return Some(("NaN equals nothing".to_owned(), format!("write Number.isNaN({shown})")));
        }
        if let (Expression::Binary(binary), Some(other)) = (self.kinds.value(value), self.kinds.number(other))
            && binary.op() == BinaryOp::Arithmetic(ArithmeticOp::Mod)
            && let Some(divisor) = self.kinds.number(binary.rhs())
            && divisor != 0
            && other.unsigned_abs() >= divisor.unsigned_abs()
        {
            let why = format!("the remainder of a division is less than the divisor {divisor}");
            return Some((why, format!("compare it with a number from 0 to {}", divisor.unsigned_abs() - 1)));
        }
        let constant = self.kinds.constant(other)?;
        let value = self.kinds.value(value);
        if let Expression::Unary(unary) = value
            && unary.op() == UnaryOp::TypeOf
            && !TYPES.contains(&constant)
        {
            let shown = self.shown(unary.target(), "value");
            let lower = constant.to_ascii_lowercase();
            let hint = match lower.as_str() {
                "array" | "list" => format!("write Array.isArray({shown})"),
                "null" | "nil" | "none" => format!("write {shown} === null"),
                "int" | "integer" | "float" | "double" => "write \"number\"".to_owned(),
                "bool" => "write \"boolean\"".to_owned(),
                "str" | "text" => "write \"string\"".to_owned(),
                "map" | "dict" => "write \"object\"".to_owned(),
                _ if TYPES.contains(&lower.as_str()) => format!("write {lower:?}"),
                _ => format!("the results of typeof are {}", TYPES.join(", ")),
            };
            return Some((format!("typeof never returns {constant:?}"), hint));
        }
        self.case(value, constant).or_else(|| self.length(value, constant)).or_else(|| self.cut(value, constant))
    }

    /// Checks for letters of a case that the value does not contain.
    fn case(&self, value: &Expression, constant: &str) -> Option<NeverEqual> {
        let (target, method, _) = self.kinds.method(value)?;
        match method {
            "toLowerCase" if constant.contains(|c: char| c.is_ascii_uppercase()) => {
                let hint = format!("write {:?}", constant.to_lowercase());
                Some((format!("a text in lower case is not {constant:?}"), hint))
            }
            "toUpperCase" if constant.contains(|c: char| c.is_ascii_lowercase()) => {
                let hint = format!("write {:?}", constant.to_uppercase());
                Some((format!("a text in upper case is not {constant:?}"), hint))
            }
            "trim" if constant.trim() != constant => {
                let hint = format!("write {:?}", constant.trim());
                Some((format!("a text without spaces at its ends is not {constant:?}"), hint))
            }
            "trim" | "trimStart" | "trimEnd" | "substring" | "substr" | "slice" | "charAt" => {
                self.case(self.kinds.value(target), constant)
            }
            _ => None,
        }
    }

    /// Checks for a constant that is longer than the part of a text, or has other decimals than the number.
    fn length(&self, value: &Expression, constant: &str) -> Option<NeverEqual> {
        let (_, method, args) = self.kinds.method(value)?;
        let number = |at: usize| args.get(at).and_then(|argument| self.kinds.number(argument));
        let most = match (method, args) {
            ("slice", [_, _]) => match (number(0)?, number(1)?) {
                (from, to) if (from < 0) == (to < 0) => to.checked_sub(from)?,
                _ => return None,
            },
            ("slice", [_]) => number(0).filter(|from| *from < 0)?.checked_neg()?,
            ("substring", [_, _]) => number(1)?.max(0).abs_diff(number(0)?.max(0)).try_into().ok()?,
            ("substr", [_, _]) => number(1)?,
            ("charAt", _) => 1,
            ("toFixed", _) => return self.decimals(number(0).or(args.is_empty().then_some(0))?, constant),
            _ => return None,
        };
        let most = usize::try_from(most).unwrap_or(0);
        let length = constant.encode_utf16().count();
        // The text of a list may be longer.
        let is_text = method != "slice" || !constant.contains(',');
        (length > most && is_text).then(|| {
            let hint = "compare it with a text of the same length, or use more characters".to_owned();
            (format!("this has at most {most} characters, and {constant:?} has {length}"), hint)
        })
    }

    fn decimals(&self, decimals: i32, constant: &str) -> Option<NeverEqual> {
        let (whole, rest) = constant.split_once('.').unwrap_or((constant, ""));
        let whole = whole.strip_prefix('-').unwrap_or(whole);
        let is_number = !whole.is_empty() && (1..=15).contains(&whole.len());
        let digits = |text: &str| text.chars().all(|c| c.is_ascii_digit());
        let wrong = is_number && digits(whole) && digits(rest) && i32::try_from(rest.len()).ok()? != decimals;
        wrong.then(|| {
            let hint = "write the same number of digits after the decimal point, or compare numbers".to_owned();
            (
                format!(
                    "toFixed({decimals}) returns {decimals} digits after the decimal point, and {constant:?} has a \
                     different number"
                ),
                hint,
            )
        })
    }

    /// Checks for a constant that contains the separator at which the value was split.
    fn cut(&self, value: &Expression, constant: &str) -> Option<NeverEqual> {
        let Expression::PropertyAccess(PropertyAccess::Simple(access)) = value else { return None };
        let PropertyAccessField::Expr(index) = access.field() else { return None };
        self.kinds.number(index)?;
        let (_, "split", [separator]) = self.kinds.method(self.kinds.value(access.target()))? else { return None };
        let separator = self.kinds.constant(separator).filter(|separator| !separator.is_empty())?;
        constant.contains(separator).then(|| {
            let hint = format!("remove {separator:?} from the text");
            (format!("a part of a text that is split at {separator:?} does not contain it"), hint)
        })
    }

    /// Checks for values of two kinds, or a new object.
    fn kinds_differ(&self, value: &Expression, other: &Expression, is_strict: bool) -> Option<NeverEqual> {
        let kind = self.kinds.kind(value)?;
        let is_literal = matches!(
            unparenthesized(value),
            Expression::ArrayLiteral(_) | Expression::ObjectLiteral(_) | Expression::New(_)
        );
        if kind.is_new() && is_literal && (is_strict || self.kinds.kind(other) == Some(kind) || is_empty(value)) {
            let hint = match unparenthesized(value) {
                Expression::New(_) => "compare the contents: dates by getTime(), other objects by their values",
                Expression::ArrayLiteral(_) => "for an empty list, compare its length with 0",
                _ => "for an object without fields, compare Object.keys(…).length with 0",
            };
            return Some((format!("{} that is created here equals no other", kind.named()), hint.to_owned()));
        }
        let other_kind = self.kinds.kind(other)?;
        let differ = if is_strict {
            kind != other_kind
        } else {
            match (kind, other_kind) {
                (ScriptValueKind::Truth, ScriptValueKind::Text) => self.kinds.constant(other).is_some_and(is_word),
                _ => other_kind.is_nothing() && !kind.is_nothing(),
            }
        };
        // Report it only once, for the side that is not constant.
        let is_constant = matches!(unparenthesized(value), Expression::Literal(_)) || kind.is_nothing();
        if !differ || is_constant {
            return None;
        }
        let hint = match (unparenthesized(value), other_kind) {
            (Expression::Unary(unary), _) if unary.op() == UnaryOp::Not => {
                let (value, other) = (self.shown(unary.target(), "value"), self.shown(other, "…"));
                format!("`!` applies only to the operand after it: write {value} !== {other}")
            }
            (Expression::Unary(unary), ScriptValueKind::Undefined | ScriptValueKind::Null)
                if unary.op() == UnaryOp::TypeOf =>
            {
                let value = self.shown(unary.target(), "value");
                let nothing = if other_kind == ScriptValueKind::Null { "null" } else { "undefined" };
                format!("write {value} === {nothing}")
            }
            (_, ScriptValueKind::Text) if kind == ScriptValueKind::Number => match self.kinds.constant(other) {
                Some(text) if !is_word(text) && !text.trim().is_empty() => format!("write the number: {}", text.trim()),
                _ => "compare numbers with numbers".to_owned(),
            },
            (_, ScriptValueKind::Number) if kind == ScriptValueKind::Text => {
                "compare it with a text, or convert it with Number(…)".to_owned()
            }
            _ => "compare values of one kind".to_owned(),
        };
        Some((format!("{} is not {}", kind.named(), other_kind.named()), hint))
    }

    /// Checks for operators that bind other operands than it seems.
    fn precedence(&mut self, binary: &Binary) {
        let (lhs, rhs) = (binary.lhs(), binary.rhs());
        let is_order = |op: BinaryOp| {
            matches!(
                op,
                BinaryOp::Relational(
                    RelationalOp::LessThan
                        | RelationalOp::LessThanOrEqual
                        | RelationalOp::GreaterThan
                        | RelationalOp::GreaterThanOrEqual
                )
            )
        };
        match (binary.op(), lhs, rhs) {
            (op, Expression::Binary(inner), _) if is_order(op) && is_order(inner.op()) => {
                let middle = self.shown(inner.rhs(), "…");
                let message = format!("this compares true or false with {}", self.shown(rhs, "the last value"));
                let (first, last) = (self.shown(lhs, "…"), self.shown(rhs, "…"));
                self.say(binary, message, format!("write {first} && {middle} {} {last}", op_text(op)));
            }
            (BinaryOp::Bitwise(BitwiseOp::And | BitwiseOp::Or | BitwiseOp::Xor), _, Expression::Binary(inner))
                if is_equality(inner.op()) && self.kinds.number(inner.lhs()).is_some() =>
            {
                let message = "the comparison is evaluated first here, before the bitwise operator".to_owned();
                let (value, mask) = (self.shown(lhs, "…"), self.shown(inner.lhs(), "…"));
                let hint = match binary.op() {
                    BinaryOp::Bitwise(BitwiseOp::And) => format!("write ({value} & {mask}) in parentheses"),
                    _ => "put the bitwise operator and its two values in parentheses".to_owned(),
                };
                self.say(binary, message, hint);
            }
            (BinaryOp::Relational(RelationalOp::In | RelationalOp::InstanceOf), Expression::Unary(unary), _)
                if unary.op() == UnaryOp::Not =>
            {
                let word = if binary.op() == BinaryOp::Relational(RelationalOp::In) { "in" } else { "instanceof" };
                let (value, other) = (self.shown(unary.target(), "…"), self.shown(rhs, "…"));
                let message =
                    format!("`!` applies only to the operand after it, so that `{word}` searches for true or false");
                self.say(binary, message, format!("write !({value} {word} {other})"));
            }
            _ => {}
        }
    }

    fn instance(&mut self, binary: &Binary) {
        let Some(name @ ("String" | "Number" | "Boolean")) = self.kinds.global(binary.rhs()) else { return };
        if ["new String", "new Number", "new Boolean", "Object("].iter().any(|new| self.kinds.text.text.contains(new)) {
            return;
        }
        let message = format!("this is always false: values of data are not objects of {name}");
        let shown = self.shown(binary.lhs(), "value");
        self.say(binary, message, format!("write typeof {shown} === {:?}", name.to_lowercase()));
    }

    /// Checks `"name" in Object.keys(object)`.
    fn listed(&mut self, binary: &Binary) {
        let Some(word) = self.kinds.constant(binary.lhs()) else { return };
        let list = unparenthesized(binary.rhs());
        let is_list = matches!(list, Expression::Call(_)) && self.kinds.kind(list) == Some(ScriptValueKind::List);
        if !is_list || word.starts_with(|c: char| c.is_ascii_digit()) || word == "length" {
            return;
        }
        let hint = match self.kinds.method(list) {
            Some((target, "keys", [object])) if self.kinds.global(target) == Some("Object") => {
                format!("write {word:?} in {}", self.shown(object, "object"))
            }
            _ => format!("write {}.includes({word:?})", self.shown(list, "list")),
        };
        let message = "this is always false: `in` searches for an index of the list, not for an element".to_owned();
        self.say(binary, message, hint);
    }
}

fn is_equality(op: BinaryOp) -> bool {
    use RelationalOp::{Equal, NotEqual, StrictEqual, StrictNotEqual};
    matches!(op, BinaryOp::Relational(Equal | NotEqual | StrictEqual | StrictNotEqual))
}

fn op_text(op: BinaryOp) -> &'static str {
    match op {
        BinaryOp::Relational(RelationalOp::LessThan) => "<",
        BinaryOp::Relational(RelationalOp::LessThanOrEqual) => "<=",
        BinaryOp::Relational(RelationalOp::GreaterThan) => ">",
        _ => ">=",
    }
}

/// Returns `true` if the text is not a number, even after conversion.
fn is_word(text: &str) -> bool {
    text.trim().starts_with(|c: char| c.is_alphabetic() && c != 'I')
}

/// Returns `true` for an empty list or object literal.
fn is_empty(value: &Expression) -> bool {
    match unparenthesized(value) {
        Expression::ArrayLiteral(list) => list.as_ref().is_empty(),
        Expression::ObjectLiteral(object) => object.properties().is_empty(),
        _ => false,
    }
}

impl<'ast> Visitor<'ast> for Equal<'_, '_> {
    type BreakTy = ();

    fn visit_binary(&mut self, binary: &'ast Binary) -> ControlFlow<()> {
        self.precedence(binary);
        match binary.op() {
            BinaryOp::Relational(RelationalOp::InstanceOf) => self.instance(binary),
            BinaryOp::Relational(RelationalOp::In) => self.listed(binary),
            BinaryOp::Relational(op) if is_equality(BinaryOp::Relational(op)) => {
                let is_literal = |side: &Expression| match unparenthesized(side) {
                    Expression::Literal(literal) => !matches!(literal.kind(), LiteralKind::Undefined),
                    _ => false,
                };
                // Two constants are compared on purpose, or because of precedence.
                if !(is_literal(binary.lhs()) && is_literal(binary.rhs())) {
                    self.compared(binary, op);
                }
            }
            _ => {}
        }
        binary.visit_with(self)
    }
}
