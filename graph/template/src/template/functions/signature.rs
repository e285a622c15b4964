//! Macros that declare a function together with its parameters.

/// The pattern that extracts an argument of the given parameter type from its value.
macro_rules! argument {
    (Any $name:pat) => {
        $name
    };
    (Text $name:pat) => {
        $crate::template::val::Val::Text($name)
    };
    (Bool $name:pat) => {
        $crate::template::val::Val::Bool($name)
    };
    (Int $name:pat) => {
        $crate::template::val::Val::Int($name)
    };
    (Map $name:pat) => {
        $crate::template::val::Val::Map($name)
    };
    (Time $name:pat) => {
        $crate::template::val::Val::Time($name)
    };
}

/// The form of an argument in the expression: the number itself, a reference to anything else.
macro_rules! seen {
    (Int $name:ident) => {
        *$name
    };
    (Bool $name:ident) => {
        *$name
    };
    ($type:ident $name:ident) => {
        $name
    };
}

/// `function!("name", (a: Text, b: Int) => expression)` is a [`Function`](super::Function) whose expression
/// returns any type that converts to a value. `|cx|` before the parameters names the allowance, `; rest: Any`
/// after them the additional arguments, and `=> try` marks an expression that may fail.
macro_rules! function {
    ($name:literal, $(|$cx:ident|)? (; $rest:ident: $type:ident) => try $body:expr) => {
        $crate::template::functions::Function::new($name, &[], |_context, $rest| {
            $(let $cx = _context;)?
            let result: Result<_, $crate::template::functions::CallError> = $body;
            result.map($crate::template::val::Val::from)
        })
        .variadic($crate::template::functions::Param::$type)
    };
    ($name:literal, $(|$cx:ident|)? ($($arg:ident: $type:ident),* $(; $rest:ident: $rest_type:ident)?) => try $body:expr) => {{
        const PARAMS: &[$crate::template::functions::Param] = &[$($crate::template::functions::Param::$type),*];
        let declared = $crate::template::functions::Function::new($name, PARAMS, |_context, args| {
            $(let $cx = _context;)?
            let [$($crate::template::functions::signature::argument!($type $arg),)* $($rest @ ..)?] = args else {
                return Err($crate::template::functions::CallError::arguments());
            };
            $(let $arg = $crate::template::functions::signature::seen!($type $arg);)*
            let result: Result<_, $crate::template::functions::CallError> = $body;
            result.map($crate::template::val::Val::from)
        });
        $(let declared = declared.variadic($crate::template::functions::Param::$rest_type);)?
        declared
    }};
    ($name:literal, $(|$cx:ident|)? ($($arg:ident: $type:ident),* $(; $rest:ident: $rest_type:ident)?) => $body:expr) => {
        $crate::template::functions::signature::function!(
            $name, $(|$cx|)? ($($arg: $type),* $(; $rest: $rest_type)?) => try Ok($body)
        )
    };
}

pub(super) use {argument, function, seen};
