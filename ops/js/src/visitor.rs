//! Visitors of syntax trees. They have the methods of [`boa_engine::ast::visitor::Visitor`], whose traversal is compiled
//! again for each visitor. Here a traversal has a visitor behind a reference, so that it is compiled once for all
//! visitors with the same `BreakTy`.

use boa_engine::ast::visitor::{self, NodeRef};
use boa_engine::ast::{
    Module, ModuleItem, ModuleItemList, Script, StatementList, StatementListItem,
    declaration::{
        Binding, Declaration, ExportDeclaration, ExportSpecifier, ImportAttribute, ImportDeclaration, ImportKind,
        ImportSpecifier, LexicalDeclaration, ModuleSpecifier, ReExportKind, VarDeclaration, Variable, VariableList,
    },
    expression::{
        Await, Call, Expression, Identifier, ImportCall, ImportMeta, New, NewTarget, Optional, OptionalOperation,
        OptionalOperationKind, Parenthesized, RegExpLiteral, Spread, SuperCall, TaggedTemplate, This, Yield,
        access::{
            PrivatePropertyAccess, PropertyAccess, PropertyAccessField, SimplePropertyAccess, SuperPropertyAccess,
        },
        literal::{
            ArrayLiteral, Literal, ObjectLiteral, ObjectMethodDefinition, PropertyDefinition, TemplateElement,
            TemplateLiteral,
        },
        operator::{
            Binary, BinaryInPrivate, Conditional, Unary, Update,
            assign::{Assign, AssignTarget},
        },
    },
    function::{
        ArrowFunction, AsyncArrowFunction, AsyncFunctionDeclaration, AsyncFunctionExpression,
        AsyncGeneratorDeclaration, AsyncGeneratorExpression, ClassDeclaration, ClassElement, ClassExpression,
        FormalParameter, FormalParameterList, FunctionBody, FunctionDeclaration, FunctionExpression,
        GeneratorDeclaration, GeneratorExpression, PrivateName,
    },
    pattern::{ArrayPattern, ArrayPatternElement, ObjectPattern, ObjectPatternElement, Pattern},
    property::PropertyName,
    statement::{
        Block, Case, Catch, Finally, If, Labelled, LabelledItem, Return, Statement, Switch, Throw, Try, With,
        iteration::{
            Break, Continue, DoWhileLoop, ForInLoop, ForLoop, ForLoopInitializer, ForOfLoop, IterableLoopInitializer,
            WhileLoop,
        },
    },
};
use boa_engine::interner::Sym;
use std::ops::ControlFlow;

macro_rules! visitors {
    ($($method:ident: $Node:ident,)*) => {
        /// A visitor of a syntax tree. A method that an implementation does not have visits the nodes below its node.
        pub(crate) trait Visitor<'ast>: Sized {
            /// The value of a visitor that has seen enough.
            type BreakTy;

            $(
                #[doc = concat!("Visits a `", stringify!($Node), "`.")]
                fn $method(&mut self, node: &'ast $Node) -> ControlFlow<Self::BreakTy> {
                    node.visit_with(self)
                }
            )*
        }

        impl<'ast, V: Visitor<'ast>> AnyVisitor<'ast, V::BreakTy> for V {
            fn visit_node(&mut self, node: NodeRef<'ast>) -> ControlFlow<V::BreakTy> {
                match node {
                    $(NodeRef::$Node(node) => self.$method(node),)*
                }
            }
        }

        impl<'ast, B> visitor::Visitor<'ast> for Traversal<'_, 'ast, B> {
            type BreakTy = B;

            $(
                fn $method(&mut self, node: &'ast $Node) -> ControlFlow<B> {
                    self.0.visit_node(NodeRef::$Node(node))
                }
            )*
        }
    };
}

/// A node whose children can be visited.
pub(crate) trait VisitWith {
    /// Visits the children of this node.
    fn visit_with<'ast, V: Visitor<'ast>>(&'ast self, visitor: &mut V) -> ControlFlow<V::BreakTy>;
}

impl<N: visitor::VisitWith> VisitWith for N {
    fn visit_with<'ast, V: Visitor<'ast>>(&'ast self, visitor: &mut V) -> ControlFlow<V::BreakTy> {
        visitor::VisitWith::visit_with(self, &mut Traversal(visitor))
    }
}

/// A visitor of any type.
trait AnyVisitor<'ast, B> {
    fn visit_node(&mut self, node: NodeRef<'ast>) -> ControlFlow<B>;
}

struct Traversal<'v, 'ast, B>(&'v mut dyn AnyVisitor<'ast, B>);

visitors! {
    visit_script: Script,
    visit_module: Module,
    visit_function_body: FunctionBody,
    visit_statement_list: StatementList,
    visit_statement_list_item: StatementListItem,
    visit_statement: Statement,
    visit_declaration: Declaration,
    visit_function_expression: FunctionExpression,
    visit_function_declaration: FunctionDeclaration,
    visit_generator_expression: GeneratorExpression,
    visit_generator_declaration: GeneratorDeclaration,
    visit_async_function_expression: AsyncFunctionExpression,
    visit_async_function_declaration: AsyncFunctionDeclaration,
    visit_async_generator_expression: AsyncGeneratorExpression,
    visit_async_generator_declaration: AsyncGeneratorDeclaration,
    visit_class_expression: ClassExpression,
    visit_class_declaration: ClassDeclaration,
    visit_lexical_declaration: LexicalDeclaration,
    visit_block: Block,
    visit_var_declaration: VarDeclaration,
    visit_expression: Expression,
    visit_if: If,
    visit_do_while_loop: DoWhileLoop,
    visit_while_loop: WhileLoop,
    visit_for_loop: ForLoop,
    visit_for_in_loop: ForInLoop,
    visit_for_of_loop: ForOfLoop,
    visit_switch: Switch,
    visit_continue: Continue,
    visit_break: Break,
    visit_return: Return,
    visit_labelled: Labelled,
    visit_throw: Throw,
    visit_try: Try,
    visit_with: With,
    visit_this: This,
    visit_identifier: Identifier,
    visit_formal_parameter_list: FormalParameterList,
    visit_class_element: ClassElement,
    visit_private_name: PrivateName,
    visit_variable_list: VariableList,
    visit_variable: Variable,
    visit_binding: Binding,
    visit_pattern: Pattern,
    visit_literal: Literal,
    visit_reg_exp_literal: RegExpLiteral,
    visit_array_literal: ArrayLiteral,
    visit_object_literal: ObjectLiteral,
    visit_spread: Spread,
    visit_arrow_function: ArrowFunction,
    visit_async_arrow_function: AsyncArrowFunction,
    visit_template_literal: TemplateLiteral,
    visit_property_access: PropertyAccess,
    visit_new: New,
    visit_call: Call,
    visit_super_call: SuperCall,
    visit_import_call: ImportCall,
    visit_optional: Optional,
    visit_tagged_template: TaggedTemplate,
    visit_assign: Assign,
    visit_unary: Unary,
    visit_update: Update,
    visit_binary: Binary,
    visit_binary_in_private: BinaryInPrivate,
    visit_conditional: Conditional,
    visit_await: Await,
    visit_yield: Yield,
    visit_parenthesized: Parenthesized,
    visit_new_target: NewTarget,
    visit_import_meta: ImportMeta,
    visit_for_loop_initializer: ForLoopInitializer,
    visit_iterable_loop_initializer: IterableLoopInitializer,
    visit_case: Case,
    visit_sym: Sym,
    visit_labelled_item: LabelledItem,
    visit_catch: Catch,
    visit_finally: Finally,
    visit_formal_parameter: FormalParameter,
    visit_property_name: PropertyName,
    visit_object_method_definition: ObjectMethodDefinition,
    visit_object_pattern: ObjectPattern,
    visit_array_pattern: ArrayPattern,
    visit_property_definition: PropertyDefinition,
    visit_template_element: TemplateElement,
    visit_simple_property_access: SimplePropertyAccess,
    visit_private_property_access: PrivatePropertyAccess,
    visit_super_property_access: SuperPropertyAccess,
    visit_optional_operation: OptionalOperation,
    visit_assign_target: AssignTarget,
    visit_object_pattern_element: ObjectPatternElement,
    visit_array_pattern_element: ArrayPatternElement,
    visit_property_access_field: PropertyAccessField,
    visit_optional_operation_kind: OptionalOperationKind,
    visit_module_item_list: ModuleItemList,
    visit_module_item: ModuleItem,
    visit_module_specifier: ModuleSpecifier,
    visit_import_attribute: ImportAttribute,
    visit_import_kind: ImportKind,
    visit_import_declaration: ImportDeclaration,
    visit_import_specifier: ImportSpecifier,
    visit_re_export_kind: ReExportKind,
    visit_export_declaration: ExportDeclaration,
    visit_export_specifier: ExportSpecifier,
}
