//! Numbers.

use super::FunctionEntry;

pub(super) static WHOLE: &[FunctionEntry] = &[
    FunctionEntry::new(
        &["add"],
        "number...",
        "Adds whole numbers; fractions are cut off.",
        r#"{{ add .Payload.After.quantity 10 }}"#,
    ),
    FunctionEntry::new(&["add1"], "number", "Adds 1 to a whole number.", r#"{{ add1 .Payload.After.quantity }}"#),
    FunctionEntry::new(
        &["sub"],
        "number other",
        "Subtracts the second whole number from the first.",
        r#"{{ sub .Payload.After.quantity 1 }}"#,
    ),
    FunctionEntry::new(
        &["mul"],
        "number other...",
        "Multiplies whole numbers.",
        r#"{{ mul .Payload.After.quantity 2 }}"#,
    ),
    FunctionEntry::new(
        &["div"],
        "number other",
        "Divides whole numbers and cuts off the fraction; fails if the second is 0.",
        r#"{{ div 7 2 }}"#,
    ),
    FunctionEntry::new(
        &["mod"],
        "number other",
        "Returns the remainder of a division of whole numbers; fails if the second is 0.",
        r#"{{ mod 7 2 }}"#,
    ),
    FunctionEntry::new(
        &["max", "biggest"],
        "number other...",
        "Returns the largest whole number.",
        r#"{{ max 3 7 5 }}"#,
    ),
    FunctionEntry::new(&["min"], "number other...", "Returns the smallest whole number.", r#"{{ min 3 7 5 }}"#),
    FunctionEntry::new(
        &["int"],
        "value",
        "Converts a number or a text to an `int`; a value that is not a number becomes 0.",
        r#"{{ int .Payload.After.amount }}"#,
    ),
    FunctionEntry::new(&["int64"], "value", "Converts as `int` does, to an `int64`.", r#"{{ int64 "42" }}"#),
    FunctionEntry::new(
        &["atoi"],
        "text",
        "Converts a text to an `int`; a text that is not a whole number becomes 0.",
        r#"{{ atoi "42" }}"#,
    ),
    FunctionEntry::new(
        &["toDecimal"],
        "value",
        "Converts an octal number to a decimal one.",
        r#"{{ toDecimal "0755" }}"#,
    ),
];

pub(super) static FRACTIONS: &[FunctionEntry] = &[
    FunctionEntry::new(&["addf"], "number...", "Adds numbers.", r#"{{ addf .Payload.After.amount 0.1 }}"#),
    FunctionEntry::new(&["add1f"], "number", "Adds 1 to a number.", r#"{{ add1f .Payload.After.amount }}"#),
    FunctionEntry::new(
        &["subf"],
        "number other...",
        "Subtracts the other numbers from the first.",
        r#"{{ subf .Payload.After.amount 0.5 }}"#,
    ),
    FunctionEntry::new(
        &["mulf"],
        "number other...",
        "Multiplies numbers.",
        r#"{{ mulf .Payload.After.amount .Payload.After.quantity }}"#,
    ),
    FunctionEntry::new(
        &["divf"],
        "number other...",
        "Divides the first number by each of the others; fails if one of them is 0.",
        r#"{{ divf .Payload.After.amount 2 }}"#,
    ),
    FunctionEntry::new(&["maxf"], "number other...", "Returns the largest number.", r#"{{ maxf 1.5 3 2.5 }}"#),
    FunctionEntry::new(&["minf"], "number other...", "Returns the smallest number.", r#"{{ minf 1.5 3 2.5 }}"#),
    FunctionEntry::new(
        &["floor"],
        "number",
        "Rounds a number down to a whole one.",
        r#"{{ floor .Payload.After.amount }}"#,
    ),
    FunctionEntry::new(
        &["ceil"],
        "number",
        "Rounds a number up to a whole one.",
        r#"{{ ceil .Payload.After.amount }}"#,
    ),
    FunctionEntry::new(
        &["round"],
        "number places [from]",
        "Rounds a number to decimal places; rounds up from the fraction `from`, which is 0.5 by default. Rounds every \
         number below 0 down, as Sprig does: `round -2.4 0` is -3.",
        r#"{{ round 123.5555 2 }}"#,
    ),
    FunctionEntry::new(
        &["float64"],
        "value",
        "Converts a number or a text to a `float64`; a value that is not a number becomes 0.",
        r#"{{ float64 "1.50" }}"#,
    ),
];

pub(super) static SEQUENCES: &[FunctionEntry] = &[
    FunctionEntry::new(
        &["until"],
        "count",
        "Returns a list of the whole numbers from 0 up to, but not including, `count`.",
        r#"{{ until 4 }}"#,
    ),
    FunctionEntry::new(
        &["untilStep"],
        "start stop step",
        "Returns a list of whole numbers from `start` up to, but not including, `stop`.",
        r#"{{ untilStep 0 10 3 }}"#,
    ),
    FunctionEntry::new(
        &["seq"],
        "bound...",
        "Returns a text of whole numbers: up to `end`, from `start` to `end`, or from `start` by `step` to `end`.",
        r#"{{ seq 0 5 20 }}"#,
    ),
];
