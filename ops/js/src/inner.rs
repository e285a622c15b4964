//! Treats all kinds of inner functions alike in visitors.

/// Defines the methods of a [`Visitor`](crate::visitor::Visitor) for every kind of inner function: each
/// passes the node to the given method of the visitor. The lifetime of the nodes is `'ast`.
macro_rules! visit_inner_functions {
    ($flow:ty, $inside:ident) => {
        crate::inner::visit_inner_functions! { $flow, $inside,
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
            visit_arrow_function: ArrowFunction,
            visit_async_arrow_function: AsyncArrowFunction,
        }

        fn visit_object_method_definition(
            &mut self,
            node: &'ast boa_engine::ast::expression::literal::ObjectMethodDefinition,
        ) -> $flow {
            self.$inside(node)
        }
    };
    ($flow:ty, $inside:ident, $($visit:ident: $node:ident),* $(,)?) => {
        $(fn $visit(&mut self, node: &'ast boa_engine::ast::function::$node) -> $flow {
            self.$inside(node)
        })*
    };
}

pub(crate) use visit_inner_functions;
