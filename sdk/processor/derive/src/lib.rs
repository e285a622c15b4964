//! The derive macros of `Parameters`: for processors in WebAssembly and for plugins that are built in. Both read the same
//! declarations; their documentation is with the traits in `anabranch-processor` and `anabranch-plugin`.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::meta::ParseNestedMeta;
use syn::parse::{Parse as _, ParseStream};
use syn::spanned::Spanned as _;
use syn::{Attribute, Data, DeriveInput, Expr, Fields, Lit, LitStr, Meta, Token, UnOp};

/// Declares and reads the parameters of a processor in WebAssembly.
#[proc_macro_derive(Parameters, attributes(parameter))]
pub fn parameters(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    derived(input, Runtime::Guest)
}

/// Declares and reads the parameters of a built-in plugin; `anabranch-plugin` re-exports it as `Parameters`.
#[proc_macro_derive(PluginParameters, attributes(parameter))]
pub fn plugin_parameters(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    derived(input, Runtime::Plugin)
}

/// The crate that reads the settings.
#[derive(Clone, Copy, PartialEq)]
enum Runtime {
    /// `anabranch-processor`.
    Guest,
    /// `anabranch-plugin`.
    Plugin,
}

fn derived(input: proc_macro::TokenStream, runtime: Runtime) -> proc_macro::TokenStream {
    let input = syn::parse_macro_input!(input as DeriveInput);
    expand(&input, runtime).unwrap_or_else(|error| error.to_compile_error()).into()
}

fn expand(input: &DeriveInput, runtime: Runtime) -> syn::Result<TokenStream> {
    let fields = match &input.data {
        Data::Struct(data) => &data.fields,
        _ => return Err(syn::Error::new(input.span(), "parameters must be a struct")),
    };
    let none = syn::punctuated::Punctuated::new();
    let fields = match fields {
        Fields::Named(fields) => &fields.named,
        Fields::Unit => &none,
        Fields::Unnamed(_) => return Err(syn::Error::new(fields.span(), "the fields of parameters must have names")),
    };
    let root = runtime.root();
    let case = Case::of(&input.attrs)?;
    let (mut declared, mut read, mut names, mut seen) = (Vec::new(), Vec::new(), Vec::new(), Vec::<String>::new());
    let mut values = Vec::new();
    for field in fields {
        let Some(ident) = &field.ident else { continue };
        let attributes = Attributes::of(&field.attrs, runtime)?;
        let name = match &attributes.name {
            Some(name) => name.clone(),
            None => {
                let name = case.name(&ident.to_string());
                quote!(#name)
            }
        };
        let kind = &field.ty;
        // A separate name, because that of the field may be the name of an argument.
        let value = format_ident!("value_{}", values.len());
        if let Some(nesting) = attributes.nesting {
            let prefix = match nesting {
                Nesting::Named => quote!([prefix, #name, "."]),
                Nesting::Flat => quote!([prefix]),
            };
            let declare = quote! { <#kind as #root::Parameters>::declare(&#prefix.concat(), declarations); };
            declared.push(match &attributes.adjust {
                Some(adjust) => quote_spanned! { kind.span() =>
                    declarations.adjust(#adjust, |declarations| { #declare });
                },
                None => quote_spanned! { kind.span() => #declare },
            });
            read.push(quote_spanned! { kind.span() =>
                let #value = <#kind as #root::Parameters>::read(&#prefix.concat(), settings);
            });
        } else {
            let (types, description, rules) = (runtime.types(), documentation(&field.attrs), &attributes.rules);
            let with_default = attributes.default.iter().map(|default| quote!(.default_value(#default)));
            let default = match &attributes.default {
                Some(default) => quote!(::core::option::Option::Some(#default)),
                None => quote!(::core::option::Option::None),
            };
            declared.push(quote_spanned! { kind.span() =>
                let parameter = #root::Parameter::new(#name, <#kind as #root::#types>::KIND, #description);
                declarations.add::<#kind>(prefix, parameter #(#with_default)* #(.#rules)*);
            });
            if runtime == Runtime::Guest && attributes.has_expression {
                declared.push(quote!(declarations.match_expressions();));
            }
            read.push(quote_spanned! { kind.span() =>
                let #value = settings.read::<#kind>(prefix, &#root::Field { name: #name, default: #default });
            });
        }
        if attributes.nesting != Some(Nesting::Flat) {
            let name = name.to_string();
            if seen.contains(&name) {
                return Err(syn::Error::new(ident.span(), format!("there is another parameter named {name}")));
            }
            seen.push(name);
        }
        names.push(ident);
        values.push(value);
    }
    let (ident, (generics, arguments, clause)) = (&input.ident, input.generics.split_for_impl());
    // Read all parameters before returning the first failure, so that all problems are reported at once.
    Ok(quote! {
        impl #generics #root::Parameters for #ident #arguments #clause {
            fn declare(prefix: &str, declarations: &mut #root::Declarations) {
                let _ = (&prefix, &declarations);
                #(#declared)*
            }

            fn read(
                prefix: &str,
                settings: &mut #root::Settings,
            ) -> ::core::option::Option<Self> {
                let _ = (&prefix, &settings);
                #(#read)*
                ::core::option::Option::Some(Self { #(#names: #values?),* })
            }
        }
    })
}

impl Runtime {
    /// Returns the module with the items that the generated code uses.
    fn root(self) -> TokenStream {
        match self {
            Runtime::Guest => quote!(::anabranch_processor::parameters),
            Runtime::Plugin => quote!(::anabranch_plugin::parameters),
        }
    }

    /// Returns the trait of the types that parameters can have.
    fn types(self) -> TokenStream {
        match self {
            Runtime::Guest => quote!(Setting),
            Runtime::Plugin => quote!(ParameterType),
        }
    }

    /// Returns the rules and other attributes of a field that is not nested.
    fn attributes(self) -> &'static [&'static str] {
        match self {
            Runtime::Guest => &["required", "greater_than", "less_than", "one_of", "none_of", "regex"],
            Runtime::Plugin => &[
                "required",
                "secret",
                "may_be_blank",
                "takes_templates",
                "greater_than",
                "less_than",
                "one_of",
                "none_of",
                "within",
                "regex",
                "aliases",
                "example",
                "only_with",
            ],
        }
    }
}

/// A field that is a struct of parameters.
#[derive(Clone, Copy, PartialEq)]
enum Nesting {
    /// Names begin with the name of the field and a dot.
    Named,
    /// Names are those of the struct.
    Flat,
}

/// Content of `#[parameter(…)]`.
#[derive(Default)]
struct Attributes {
    /// An expression of a text.
    name: Option<TokenStream>,
    /// An expression of a text.
    default: Option<TokenStream>,
    nesting: Option<Nesting>,
    /// A function that changes the parameters of a nested field.
    adjust: Option<Expr>,
    /// Calls of methods of `Parameter`.
    rules: Vec<TokenStream>,
    /// True if a rule is a regular expression.
    has_expression: bool,
}

impl Attributes {
    fn of(attributes: &[Attribute], runtime: Runtime) -> syn::Result<Self> {
        let mut found = Attributes::default();
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("parameter")) {
            attribute.parse_nested_meta(|meta| found.add(&meta, runtime))?;
            if found.nesting.is_some() && (found.default.is_some() || !found.rules.is_empty()) {
                return Err(syn::Error::new(attribute.span(), "a nested field has only its name"));
            }
            if found.nesting == Some(Nesting::Flat) && found.name.is_some() {
                return Err(syn::Error::new(attribute.span(), "a flat field has no name"));
            }
            if found.nesting.is_none() && found.adjust.is_some() {
                return Err(syn::Error::new(attribute.span(), "only a nested field is adjusted"));
            }
        }
        Ok(found)
    }

    fn add(&mut self, meta: &ParseNestedMeta<'_>, runtime: Runtime) -> syn::Result<()> {
        let key = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
        match key.as_str() {
            "name" => {
                let name: Expr = meta.value()?.parse()?;
                if literal(&name).is_ok_and(|name| name.trim().is_empty() || name.contains('*')) {
                    return Err(syn::Error::new(name.span(), "a name must not be empty or contain *"));
                }
                self.name = Some(text(&name, runtime)?);
                return Ok(());
            }
            "default" => {
                self.default = Some(text(&meta.value()?.parse()?, runtime)?);
                return Ok(());
            }
            "nested" => {
                self.nesting = Some(Nesting::Named);
                return Ok(());
            }
            "flatten" => {
                self.nesting = Some(Nesting::Flat);
                return Ok(());
            }
            "adjust" if runtime == Runtime::Plugin => {
                self.adjust = Some(meta.value()?.parse()?);
                return Ok(());
            }
            _ => {}
        }
        self.has_expression |= key == "regex";
        self.rules.push(rule(&key, meta, runtime)?);
        Ok(())
    }
}

/// Returns a call of a method of `Parameter`.
fn rule(key: &str, meta: &ParseNestedMeta<'_>, runtime: Runtime) -> syn::Result<TokenStream> {
    if !runtime.attributes().contains(&key) {
        let adjust = if runtime == Runtime::Plugin { ", adjust" } else { "" };
        let known = runtime.attributes().join(", ");
        return Err(meta.error(format!("expected one of name, default, {known}, nested, flatten{adjust}")));
    }
    let method = format_ident!("{key}");
    Ok(match key {
        "greater_than" | "less_than" => {
            let bound = number(meta.value()?, runtime)?;
            quote!(#method(#bound))
        }
        "one_of" | "none_of" | "within" | "aliases" => {
            let values = texts(meta.value()?, runtime)?;
            quote!(#method(&#values))
        }
        "regex" | "example" | "only_with" => {
            let value = text(&meta.value()?.parse()?, runtime)?;
            quote!(#method(#value))
        }
        _ => quote!(#method()),
    })
}

/// Returns the text of a literal, which may be a negative number.
fn literal(expression: &Expr) -> syn::Result<String> {
    match expression {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Str(text) => return Ok(text.value()),
            Lit::Int(number) => return Ok(number.base10_digits().to_owned()),
            Lit::Float(number) => return Ok(number.base10_digits().to_owned()),
            Lit::Bool(value) => return Ok(value.value.to_string()),
            _ => {}
        },
        Expr::Unary(unary) if matches!(unary.op, UnOp::Neg(_)) => return Ok(format!("-{}", literal(&unary.expr)?)),
        _ => {}
    }
    Err(syn::Error::new(expression.span(), "expected text, a number or a boolean"))
}

/// Returns an expression of a text. For plugins, it may be a constant.
fn text(expression: &Expr, runtime: Runtime) -> syn::Result<TokenStream> {
    match literal(expression) {
        Ok(text) => Ok(quote!(#text)),
        Err(_) if runtime == Runtime::Plugin => Ok(quote!(#expression)),
        Err(error) => Err(error),
    }
}

/// Returns an expression of a number. For plugins, it may be a constant.
fn number(input: ParseStream<'_>, runtime: Runtime) -> syn::Result<TokenStream> {
    let expression: Expr = input.parse()?;
    match literal(&expression).map(|text| text.parse::<f64>()) {
        Ok(Ok(number)) => Ok(quote!(#number)),
        Err(_) if runtime == Runtime::Plugin => Ok(quote!(#expression)),
        _ => Err(syn::Error::new(expression.span(), "expected a number")),
    }
}

/// Returns an expression of a list of texts. For plugins, it may be a constant. Rejects texts with a comma, which
/// separates them for hosts.
fn texts(input: ParseStream<'_>, runtime: Runtime) -> syn::Result<TokenStream> {
    if runtime == Runtime::Plugin && !input.peek(syn::token::Bracket) {
        let constant: Expr = input.parse()?;
        return Ok(quote!(#constant));
    }
    let list;
    syn::bracketed!(list in input);
    let list = list.parse_terminated(Expr::parse, Token![,])?;
    let text = |element: &Expr| {
        let text = literal(element)?;
        if text.contains(',') {
            Err(syn::Error::new(element.span(), "a value must not contain a comma"))
        } else {
            Ok(text)
        }
    };
    let list = list.iter().map(text).collect::<syn::Result<Vec<String>>>()?;
    Ok(quote!([#(#list),*]))
}

/// Returns the documentation comment with one line per paragraph, list item, row of a table and line of code.
fn documentation(attributes: &[Attribute]) -> String {
    let mut lines = Vec::new();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("doc")) {
        if let Meta::NameValue(meta) = &attribute.meta
            && let Expr::Lit(literal) = &meta.value
            && let Lit::Str(text) = &literal.lit
        {
            lines.extend(text.value().split('\n').map(|line| line.strip_prefix(' ').unwrap_or(line).to_owned()));
        }
    }
    let (mut text, mut is_code, mut is_open) = (String::new(), false, false);
    for line in &lines {
        let is_fence = line.trim_start().starts_with("```");
        let continues = is_open && !is_fence && !starts_a_line(line);
        text.push_str(if continues { " " } else { "\n" });
        text.push_str(if continues { line.trim() } else { line.trim_end() });
        is_code ^= is_fence;
        is_open = !(is_code || is_fence || line.trim().is_empty() || line.trim_start().starts_with(['#', '|']));
    }
    text.trim().to_owned()
}

/// Returns `true` for a line that does not continue the paragraph before it.
fn starts_a_line(line: &str) -> bool {
    let start = line.trim_start();
    let digits = start.trim_start_matches(|c: char| c.is_ascii_digit());
    let is_numbered = digits.len() < start.len() && digits.starts_with(". ");
    let is_item = ["* ", "- ", "+ "].iter().any(|mark| start.starts_with(mark));
    start.is_empty() || is_numbered || is_item || start.starts_with(['#', '|', '>']) || line.starts_with("    ")
}

/// How names of fields become names of parameters.
#[derive(Clone, Copy)]
enum Case {
    Camel,
    Snake,
    Kebab,
}

impl Case {
    /// Returns the case in `#[parameter(rename_all = "…")]` of a struct.
    fn of(attributes: &[Attribute]) -> syn::Result<Self> {
        let mut case = Case::Camel;
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("parameter")) {
            attribute.parse_nested_meta(|meta| {
                if !meta.path.is_ident("rename_all") {
                    return Err(meta.error("expected rename_all"));
                }
                let name: LitStr = meta.value()?.parse()?;
                case = match name.value().as_str() {
                    "camelCase" => Case::Camel,
                    "snake_case" => Case::Snake,
                    "kebab-case" => Case::Kebab,
                    _ => return Err(syn::Error::new(name.span(), "expected camelCase, snake_case or kebab-case")),
                };
                Ok(())
            })?;
        }
        Ok(case)
    }

    fn name(self, field: &str) -> String {
        let field = field.trim_start_matches("r#");
        match self {
            Case::Camel => camel_case(field),
            Case::Snake => field.to_owned(),
            Case::Kebab => field.replace('_', "-"),
        }
    }
}

fn camel_case(name: &str) -> String {
    let mut words = name.split('_').filter(|word| !word.is_empty());
    let mut camel = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        camel.extend(letters.next().into_iter().flat_map(char::to_uppercase));
        camel.push_str(letters.as_str());
    }
    camel
}
