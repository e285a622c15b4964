//! The derive macro of `Parameters`; its documentation is with the trait in `anabranch-processor`.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::parse::{Parse as _, ParseStream};
use syn::spanned::Spanned as _;
use syn::{Attribute, Data, DeriveInput, Expr, Fields, Lit, LitStr, Meta, Token, UnOp};

/// Declares and reads the parameters of a processor.
#[proc_macro_derive(Parameters, attributes(parameter))]
pub fn parameters(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = syn::parse_macro_input!(input as DeriveInput);
    expand(&input).unwrap_or_else(|error| error.to_compile_error()).into()
}

fn expand(input: &DeriveInput) -> syn::Result<TokenStream> {
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
    let (mut declared, mut read, mut names, mut seen) = (Vec::new(), Vec::new(), Vec::new(), Vec::<String>::new());
    let mut values = Vec::new();
    for field in fields {
        let Some(ident) = &field.ident else { continue };
        let attributes = Attributes::of(&field.attrs)?;
        let name = attributes.name.as_ref().map_or_else(|| camel_case(&ident.to_string()), LitStr::value);
        if seen.contains(&name) {
            return Err(syn::Error::new(ident.span(), format!("there is another parameter named {name:?}")));
        }
        let kind = &field.ty;
        // A separate name, because that of the field may be the name of an argument.
        let value = format_ident!("value_{}", values.len());
        if attributes.nested {
            let prefix = format!("{name}.");
            declared.push(quote_spanned! { kind.span() =>
                <#kind as ::anabranch_processor::parameters::Parameters>::declare(&[prefix, #prefix].concat(), declarations);
            });
            read.push(quote_spanned! { kind.span() =>
                let #value = <#kind as ::anabranch_processor::parameters::Parameters>::read(&[prefix, #prefix].concat(), settings);
            });
        } else {
            let (description, validations) = (documentation(&field.attrs), &attributes.validations);
            let default = match &attributes.default {
                Some(default) => quote!(::core::option::Option::Some(#default)),
                None => quote!(::core::option::Option::None),
            };
            let field = quote! {
                const { &::anabranch_processor::parameters::Field {
                    name: #name,
                    description: #description,
                    default: #default,
                    validations: &[#(::anabranch_processor::parameters::Validation::#validations),*],
                } }
            };
            declared.push(quote_spanned! { kind.span() => declarations.add::<#kind>(prefix, #field); });
            read.push(quote_spanned! { kind.span() => let #value = settings.read::<#kind>(prefix, #field); });
        }
        seen.push(name);
        names.push(ident);
        values.push(value);
    }
    let (ident, (generics, arguments, clause)) = (&input.ident, input.generics.split_for_impl());
    // Read all parameters before returning the first failure, so that all problems are reported at once.
    Ok(quote! {
        impl #generics ::anabranch_processor::parameters::Parameters for #ident #arguments #clause {
            fn declare(prefix: &str, declarations: &mut ::anabranch_processor::parameters::Declarations) {
                let _ = (&prefix, &declarations);
                #(#declared)*
            }

            fn read(
                prefix: &str,
                settings: &mut ::anabranch_processor::parameters::Settings,
            ) -> ::core::option::Option<Self> {
                let _ = (&prefix, &settings);
                #(#read)*
                ::core::option::Option::Some(Self { #(#names: #values?),* })
            }
        }
    })
}

/// Content of `#[parameter(…)]`.
#[derive(Default)]
struct Attributes {
    name: Option<LitStr>,
    default: Option<String>,
    nested: bool,
    /// Variants of `Validation`.
    validations: Vec<TokenStream>,
}

impl Attributes {
    fn of(attributes: &[Attribute]) -> syn::Result<Self> {
        let mut found = Attributes::default();
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("parameter")) {
            attribute.parse_nested_meta(|meta| {
                let key = meta.path.get_ident().map(ToString::to_string);
                match key.as_deref() {
                    Some("name") => {
                        let name: LitStr = meta.value()?.parse()?;
                        if name.value().trim().is_empty() || name.value().contains('*') {
                            return Err(syn::Error::new(name.span(), "a name must not be empty or contain *"));
                        }
                        found.name = Some(name);
                    }
                    Some("default") => found.default = Some(literal(&meta.value()?.parse()?)?),
                    Some("nested") => found.nested = true,
                    Some("required") => found.validations.push(quote!(Required)),
                    Some("greater_than") => {
                        let bound = number(meta.value()?)?;
                        found.validations.push(quote!(GreaterThan(#bound)));
                    }
                    Some("less_than") => {
                        let bound = number(meta.value()?)?;
                        found.validations.push(quote!(LessThan(#bound)));
                    }
                    Some("one_of") => {
                        let values = texts(meta.value()?)?;
                        found.validations.push(quote!(OneOf(&[#(#values),*])));
                    }
                    Some("none_of") => {
                        let values = texts(meta.value()?)?;
                        found.validations.push(quote!(NoneOf(&[#(#values),*])));
                    }
                    Some("regex") => {
                        let pattern: LitStr = meta.value()?.parse()?;
                        found
                            .validations
                            .push(quote!(Regex(::anabranch_processor::parameters::Pattern::new(#pattern))));
                    }
                    _ => {
                        return Err(meta.error(
                            "expected name, default, required, greater_than, less_than, one_of, none_of, regex or nested",
                        ));
                    }
                }
                Ok(())
            })?;
            if found.nested && (found.default.is_some() || !found.validations.is_empty()) {
                return Err(syn::Error::new(attribute.span(), "a nested field has only its name"));
            }
        }
        Ok(found)
    }
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

fn number(input: ParseStream<'_>) -> syn::Result<f64> {
    let expression: Expr = input.parse()?;
    let text = literal(&expression)?;
    text.parse().map_err(|_| syn::Error::new(expression.span(), "expected a number"))
}

/// Parses a list of texts. Rejects texts with a comma, which separates them for hosts.
fn texts(input: ParseStream<'_>) -> syn::Result<Vec<String>> {
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
    list.iter().map(text).collect()
}

/// Returns the documentation comment without the indentation of its lines.
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
    lines.join("\n").trim().to_owned()
}

fn camel_case(name: &str) -> String {
    let mut words = name.trim_start_matches("r#").split('_').filter(|word| !word.is_empty());
    let mut camel = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        camel.extend(letters.next().into_iter().flat_map(char::to_uppercase));
        camel.push_str(letters.as_str());
    }
    camel
}
