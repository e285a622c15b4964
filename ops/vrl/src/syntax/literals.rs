//! Strings that an expression may result in.

use std::ops::Range;

use vrl::parser::ast::{Block, Container, Expr, Group, Literal, Node, Op, Opcode};
use vrl::parser::template_string::StringSegment;

/// Adds the literal strings that may be the result of the expression, with their places.
pub(super) fn strings(node: &Node<Expr>, found: &mut Vec<(String, Range<usize>)>) {
    match node.inner() {
        Expr::Literal(literal) => {
            let text = match literal.inner() {
                Literal::RawString(text) => Some(text.clone()),
                Literal::String(template) => {
                    let text = template.0.iter().map(|segment| match segment {
                        StringSegment::Literal(text, _) => Some(text.as_str()),
                        StringSegment::Template(..) => None,
                    });
                    text.collect()
                }
                _ => None,
            };
            found.extend(text.map(|text| (text, node.span().range())));
        }
        Expr::Container(container) => match container.inner() {
            Container::Group(group) => {
                let Group(inner) = group.inner();
                strings(inner, found);
            }
            Container::Block(block) => of_block(block.inner(), found),
            Container::Array(_) | Container::Object(_) => {}
        },
        Expr::IfStatement(statement) => {
            of_block(statement.inner().if_node.inner(), found);
            if let Some(node) = &statement.inner().else_node {
                of_block(node.inner(), found);
            }
        }
        Expr::Op(op) => {
            let Op(left, opcode, right) = op.inner();
            if matches!(opcode.inner(), Opcode::Err | Opcode::Or) {
                strings(left, found);
                strings(right, found);
            }
        }
        _ => {}
    }
}

fn of_block(Block(nodes): &Block, found: &mut Vec<(String, Range<usize>)>) {
    if let Some(last) = nodes.last() {
        strings(last, found);
    }
}
