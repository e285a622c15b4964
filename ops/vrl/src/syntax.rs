//! The syntax tree of a program: its accesses to the record, the expressions that are not evaluated for every record,
//! multiplications, which are replaced by calls of [`super::functions::multiply`], and assignments of variables that can
//! grow with each assignment, which are followed by calls of [`super::functions::assigned`].
//!
//! The tree of the library can only be taken apart, so the walk builds a new one.

mod literals;

use std::ops::Range;

use vrl::parser::Span;
use vrl::parser::ast::{
    Abort, Array, Assignment, AssignmentOp, AssignmentTarget, Block, Container, Expr, FunctionArgument, FunctionCall,
    FunctionClosure, Group, Ident, IfStatement, Literal, Node, Not, Object, Op, Opcode, Predicate, Program, Query,
    QueryTarget, Return, RootExpr, Unary,
};
use vrl::parser::template_string::StringSegment;
use vrl::path::{OwnedSegment, OwnedTargetPath, OwnedValuePath, PathPrefix};

/// Maximum depth of the syntax tree. Evaluation is recursive, and runs on threads of the service.
const MOST_DEPTH: usize = 128;

/// Integers up to which a string may be multiplied by a constant without a check: the program's author chose them.
const SMALL_FACTOR: i64 = 1000;

/// Functions whose argument is a path that need not exist.
const TESTS: [&str; 6] = ["del", "exists", "is_null", "is_nullish", "is_object", "type_def"];

/// Accesses of a program to the record, and their circumstances.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// Paths that are read, with their places.
    pub(crate) reads: Vec<PathRead>,
    /// Paths that are removed, and paths that are set or removed where types do not follow.
    pub(crate) writes: Vec<PathWrite>,
    /// True if the whole of `.` or `%` is copied by a function that gets only a path.
    pub(crate) copies: Vec<PathPrefix>,
    /// Ranges that are evaluated for some records only, or whose errors the program handles.
    pub(crate) guarded: Vec<Range<usize>>,
    /// True if the program has `return`.
    pub(crate) returns: bool,
    /// Indexes of lists in assignments, without sign, with their places.
    pub(crate) indexes: Vec<(usize, Range<usize>)>,
    /// Place at which the tree is too deep.
    pub(crate) too_deep: Option<Range<usize>>,
}

/// A path that a program reads.
#[derive(Debug)]
pub(crate) struct PathRead {
    pub(crate) path: OwnedTargetPath,
    pub(crate) place: Range<usize>,
    /// True if the program only tests or removes it, so that it need not exist.
    pub(crate) tested: bool,
}

/// A path that a program sets or removes.
#[derive(Debug)]
pub(crate) struct PathWrite {
    pub(crate) path: OwnedTargetPath,
    pub(crate) place: Range<usize>,
    /// True if empty parents are removed too.
    pub(crate) compact: bool,
    /// True if it is removed with `del`.
    pub(crate) removed: bool,
    /// True in a closure: the types of the library do not follow what a closure does.
    pub(crate) in_closure: bool,
    /// Literal strings that may be the value, with their places.
    pub(crate) strings: Vec<(String, Range<usize>)>,
}

/// Finds the accesses of a program, and guards its multiplications.
pub(crate) fn examine(program: Program) -> (Program, Facts) {
    let end = program.0.last().map_or(0, Node::end);
    let mut walk = Walk { facts: Facts::default(), depth: 0, closures: 0, variables: 0, end };
    let mut roots = Vec::new();
    for root in program {
        let span = root.span();
        match root.into_inner() {
            RootExpr::Expr(node) => {
                let (node, check) = walk.statement(node);
                roots.push(Node::new(span, RootExpr::Expr(node)));
                roots.extend(check.map(|check| Node::new(span, RootExpr::Expr(check))));
            }
            error @ RootExpr::Error(_) => roots.push(Node::new(span, error)),
        }
    }
    (Program(roots), walk.facts)
}

struct Walk {
    facts: Facts,
    depth: usize,
    /// Number of closures around the current expression.
    closures: usize,
    /// Number of variables read so far.
    variables: usize,
    /// End of the program.
    end: usize,
}

impl Walk {
    fn expression(&mut self, node: Node<Expr>) -> Node<Expr> {
        if self.depth >= MOST_DEPTH {
            self.facts.too_deep.get_or_insert(node.span().range());
            return node;
        }
        self.depth += 1;
        let span = node.span();
        let inner = match node.into_inner() {
            Expr::Container(node) => Expr::Container(node.map(|container| self.container(container))),
            Expr::IfStatement(node) => Expr::IfStatement(node.map(|statement| self.choice(statement))),
            Expr::Op(node) => self.operation(node),
            Expr::Assignment(node) => Expr::Assignment(node.map(|assignment| self.assignment(span, assignment))),
            Expr::Query(node) => Expr::Query(node.map(|query| self.query(span, query, false))),
            Expr::FunctionCall(node) => Expr::FunctionCall(node.map(|call| self.call(call))),
            Expr::Unary(node) => Expr::Unary(node.map(|Unary::Not(not)| Unary::Not(not.map(|not| self.not(not))))),
            Expr::Abort(node) => {
                self.ends(span);
                Expr::Abort(node.map(|Abort { message }| Abort {
                    message: message.map(|message| Box::new(self.expression(*message))),
                }))
            }
            Expr::Return(node) => {
                self.facts.returns = true;
                self.ends(span);
                Expr::Return(node.map(|Return { expr }| Return { expr: Box::new(self.expression(*expr)) }))
            }
            Expr::Literal(node) => {
                if let Literal::String(template) = node.inner() {
                    let is_read = |segment: &&StringSegment| matches!(segment, StringSegment::Template(..));
                    self.variables += template.0.iter().filter(is_read).count();
                }
                Expr::Literal(node)
            }
            Expr::Variable(node) => {
                self.variables += 1;
                Expr::Variable(node)
            }
            other @ Expr::Break(_) => other,
        };
        self.depth -= 1;
        Node::new(span, inner)
    }

    /// Notes that the program may end here, so that the rest is not evaluated for every record.
    fn ends(&mut self, span: Span) {
        self.facts.guarded.push(span.end()..self.end);
    }

    fn guarded(&mut self, span: Span) {
        self.facts.guarded.push(span.range());
    }

    fn container(&mut self, container: Container) -> Container {
        match container {
            Container::Group(node) => {
                Container::Group(Box::new(node.map(|Group(inner)| Group(self.expression(inner)))))
            }
            Container::Block(node) => Container::Block(node.map(|block| self.block(block))),
            Container::Array(node) => Container::Array(
                node.map(|array| array.into_iter().map(|node| self.expression(node)).collect::<Array>()),
            ),
            Container::Object(node) => {
                Container::Object(node.map(|object| {
                    object.into_iter().map(|(key, node)| (key, self.expression(node))).collect::<Object>()
                }))
            }
        }
    }

    fn block(&mut self, block: Block) -> Block {
        let (mut nodes, mut rest) = (Vec::new(), block.into_iter().peekable());
        while let Some(node) = rest.next() {
            let span = node.span();
            let (node, check) = self.statement(node);
            let is_last = rest.peek().is_none();
            match check {
                None => nodes.push(node),
                Some(check) if is_last => {
                    // The value of the block is that of the assignment.
                    nodes.push(kept(node));
                    nodes.push(check);
                    nodes.push(Node::new(span, Expr::Variable(Node::new(span, Ident::new(KEPT)))));
                }
                Some(check) => nodes.extend([node, check]),
            }
        }
        Block(nodes)
    }

    /// Walks through an expression of a block. Returns it, with the check of the variable that it makes larger: in a
    /// closure, each assignment can do that again and again; elsewhere, one of a value with several variables can.
    fn statement(&mut self, node: Node<Expr>) -> (Node<Expr>, Option<Node<Expr>>) {
        let (span, assigned) = (node.span(), assigned(&node));
        let before = self.variables;
        let node = self.expression(node);
        let read = self.variables - before;
        let grows = |keeps: bool| self.closures > 0 || read + usize::from(keeps) > 1;
        let check = assigned.filter(|(_, keeps)| grows(*keeps)).map(|(ident, _)| checked(span, ident));
        (node, check)
    }

    fn choice(&mut self, IfStatement { predicate, if_node, else_node }: IfStatement) -> IfStatement {
        let predicate = predicate.map(|predicate| match predicate {
            Predicate::One(node) => Predicate::One(Box::new(self.expression(*node))),
            Predicate::Many(nodes) => Predicate::Many(nodes.into_iter().map(|node| self.expression(node)).collect()),
        });
        self.guarded(if_node.span());
        let if_node = if_node.map(|block| self.block(block));
        let else_node = else_node.map(|node| {
            self.guarded(node.span());
            node.map(|block| self.block(block))
        });
        IfStatement { predicate, if_node, else_node }
    }

    fn not(&mut self, not: Not) -> Not {
        let (sign, inner) = not.take();
        Not::new(sign.span(), self.expression(*inner))
    }

    fn operation(&mut self, node: Node<Op>) -> Expr {
        let (span, Op(left, opcode, right)) = node.take();
        match opcode.inner() {
            // The left side is evaluated, but its error is handled.
            Opcode::Err => {
                self.guarded(left.span());
                self.guarded(right.span());
            }
            Opcode::And | Opcode::Or => self.guarded(right.span()),
            _ => {}
        }
        let is_multiplied = *opcode.inner() == Opcode::Mul && !is_small(&left) && !is_small(&right);
        let (left, right) = (self.expression(*left), self.expression(*right));
        if !is_multiplied {
            return Expr::Op(Node::new(span, Op(Box::new(left), opcode, Box::new(right))));
        }
        let argument = |expr: Node<Expr>| Node::new(expr.span(), FunctionArgument { ident: None, expr });
        Expr::FunctionCall(Node::new(
            span,
            FunctionCall {
                ident: Node::new(opcode.span(), Ident::new(super::functions::multiply::NAME)),
                abort_on_error: false,
                arguments: vec![argument(left), argument(right)],
                closure: None,
            },
        ))
    }

    fn assignment(&mut self, span: Span, assignment: Assignment) -> Assignment {
        match assignment {
            Assignment::Single { target, op, expr } => {
                let mut strings = Vec::new();
                if op == AssignmentOp::Assign {
                    literals::strings(&expr, &mut strings);
                }
                self.target(span, &target, &op, strings);
                Assignment::Single { target, op, expr: Box::new(self.expression(*expr)) }
            }
            Assignment::Infallible { ok, err, op, expr } => {
                self.target(span, &ok, &op, Vec::new());
                self.target(span, &err, &AssignmentOp::Assign, Vec::new());
                self.guarded(expr.span());
                Assignment::Infallible { ok, err, op, expr: Box::new(self.expression(*expr)) }
            }
        }
    }

    fn target(
        &mut self,
        span: Span,
        target: &Node<AssignmentTarget>,
        op: &AssignmentOp,
        strings: Vec<(String, Range<usize>)>,
    ) {
        let place = target.span().range();
        let place = if place.is_empty() { span.range() } else { place };
        for segment in segments(target.inner()) {
            if let OwnedSegment::Index(index) = segment {
                self.facts.indexes.push((index.unsigned_abs(), place.clone()));
            }
        }
        let path = match target.inner() {
            AssignmentTarget::External(None) => OwnedTargetPath::event_root(),
            AssignmentTarget::External(Some(path)) => path.clone(),
            AssignmentTarget::Query(query) => match query.target.inner() {
                QueryTarget::External(prefix) => path_of(*prefix, query),
                _ => return,
            },
            AssignmentTarget::Noop | AssignmentTarget::Internal(..) => return,
        };
        if *op == AssignmentOp::Merge {
            self.facts.reads.push(PathRead { path: path.clone(), place: place.clone(), tested: true });
        }
        let in_closure = self.closures > 0;
        self.facts.writes.push(PathWrite { path, place, compact: false, removed: false, in_closure, strings });
    }

    fn removal(&mut self, path: OwnedTargetPath, place: Range<usize>, compact: bool) {
        let in_closure = self.closures > 0;
        self.facts.writes.push(PathWrite { path, place, compact, removed: true, in_closure, strings: Vec::new() });
    }

    fn query(&mut self, span: Span, query: Query, tested: bool) -> Query {
        let Query { target, path } = query;
        let target = target.map(|target| match target {
            QueryTarget::External(prefix) => {
                let path = OwnedTargetPath { prefix, path: path.inner().clone() };
                self.facts.reads.push(PathRead { path, place: span.range(), tested });
                QueryTarget::External(prefix)
            }
            QueryTarget::FunctionCall(call) => QueryTarget::FunctionCall(self.call(call)),
            QueryTarget::Container(container) => QueryTarget::Container(self.container(container)),
            internal @ QueryTarget::Internal(_) => {
                self.variables += 1;
                internal
            }
        });
        Query { target, path }
    }

    fn call(&mut self, call: FunctionCall) -> FunctionCall {
        let FunctionCall { ident, abort_on_error, arguments, closure } = call;
        let name = ident.inner().to_string();
        let external = arguments.first().and_then(|argument| external(&argument.expr));
        if let Some(path) = &external {
            match name.as_str() {
                "del" => self.removal(path.clone(), arguments[0].span().range(), arguments.len() > 1),
                "unnest" => self.facts.copies.push(path.prefix),
                _ => {}
            }
        }
        let tested = TESTS.contains(&name.as_str());
        let arguments = arguments.into_iter().map(|argument| {
            argument.map(|FunctionArgument { ident, expr }| {
                let expr = match tested {
                    true => self.tested(expr),
                    false => self.expression(expr),
                };
                FunctionArgument { ident, expr }
            })
        });
        let arguments = arguments.collect();
        let closure = closure.map(|closure| {
            self.guarded(closure.span());
            closure.map(|FunctionClosure { variables, block }| {
                self.closures += 1;
                let block = block.map(|block| self.block(block));
                self.closures -= 1;
                FunctionClosure { variables, block }
            })
        });
        FunctionCall { ident, abort_on_error, arguments, closure }
    }

    /// Walks through an argument that need not exist.
    fn tested(&mut self, node: Node<Expr>) -> Node<Expr> {
        let span = node.span();
        match node.into_inner() {
            Expr::Query(node) => Node::new(span, Expr::Query(node.map(|query| self.query(span, query, true)))),
            other => self.expression(Node::new(span, other)),
        }
    }
}

/// Returns the variable that an assignment sets or changes, and whether it keeps a part of its value.
fn assigned(node: &Node<Expr>) -> Option<(Ident, bool)> {
    let Expr::Assignment(assignment) = node.inner() else { return None };
    let (target, op) = match assignment.inner() {
        Assignment::Single { target, op, .. } => (target, op),
        Assignment::Infallible { ok, op, .. } => (ok, op),
    };
    let (ident, is_part) = match target.inner() {
        AssignmentTarget::Internal(ident, path) => (ident, path.is_some()),
        AssignmentTarget::Query(query) => match query.target.inner() {
            QueryTarget::Internal(ident) => (ident, true),
            _ => return None,
        },
        AssignmentTarget::Noop | AssignmentTarget::External(_) => return None,
    };
    Some((ident.clone(), is_part || *op == AssignmentOp::Merge))
}

/// Name of the variable that holds the value of an assignment, which no program can write.
const KEPT: &str = "=value";

/// Returns the assignment of the value of an assignment to [`KEPT`].
fn kept(node: Node<Expr>) -> Node<Expr> {
    let span = node.span();
    let target = Node::new(span, AssignmentTarget::Internal(Ident::new(KEPT), None));
    let assignment = Assignment::Single { target, op: AssignmentOp::Assign, expr: Box::new(node) };
    Node::new(span, Expr::Assignment(Node::new(span, assignment)))
}

/// Returns the segments of the path of a target.
fn segments(target: &AssignmentTarget) -> &[OwnedSegment] {
    match target {
        AssignmentTarget::Noop | AssignmentTarget::Internal(_, None) | AssignmentTarget::External(None) => &[],
        AssignmentTarget::Internal(_, Some(path)) => &path.segments,
        AssignmentTarget::External(Some(path)) => &path.path.segments,
        AssignmentTarget::Query(query) => &query.path.inner().segments,
    }
}

/// Returns a call that checks the size of a variable.
fn checked(span: Span, ident: Ident) -> Node<Expr> {
    let variable =
        Query { target: Node::new(span, QueryTarget::Internal(ident)), path: Node::new(span, OwnedValuePath::root()) };
    let expr = Node::new(span, Expr::Query(Node::new(span, variable)));
    let call = FunctionCall {
        ident: Node::new(span, Ident::new(super::functions::assigned::NAME)),
        abort_on_error: false,
        arguments: vec![Node::new(span, FunctionArgument { ident: None, expr })],
        closure: None,
    };
    Node::new(span, Expr::FunctionCall(Node::new(span, call)))
}

fn path_of(prefix: PathPrefix, query: &Query) -> OwnedTargetPath {
    OwnedTargetPath { prefix, path: query.path.inner().clone() }
}

/// Returns the path into the record, if the expression is one.
fn external(node: &Node<Expr>) -> Option<OwnedTargetPath> {
    match node.inner() {
        Expr::Query(query) => match query.target.inner() {
            QueryTarget::External(prefix) => Some(path_of(*prefix, query)),
            _ => None,
        },
        _ => None,
    }
}

/// Returns `true` if a multiplication by the expression cannot make a long string of a short one.
fn is_small(node: &Node<Expr>) -> bool {
    match node.inner() {
        Expr::Literal(literal) => match literal.inner() {
            Literal::Integer(number) => *number <= SMALL_FACTOR,
            Literal::Float(_) => true,
            _ => false,
        },
        _ => false,
    }
}
