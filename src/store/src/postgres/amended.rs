//! The stored form of a pipeline that changes: it keeps what this program does not know.
//!
//! The node of a later version may have written fields of which this one knows nothing. They stay, wherever they are, as long
//! as the object that has them does.

use anabranch_plugin::state::StoreError;
use serde_json::{Map, Value};

use crate::entity::StoredPipeline;

/// Serializes a pipeline of which some fields changed. The others stay as they are in `text`, its stored form.
///
/// # Errors
/// A form is not an object.
pub(super) fn amended(text: &[u8], before: &StoredPipeline, after: &StoredPipeline) -> Result<Vec<u8>, StoreError> {
    let amend = || {
        let fields = |pipeline| serde_json::from_slice::<Map<String, Value>>(&serde_json::to_vec(pipeline)?);
        let stored: Map<String, Value> = serde_json::from_slice(text)?;
        serde_json::to_vec(&object(stored, &fields(before)?, fields(after)?))
    };
    amend().map_err(|error: serde_json::Error| {
        StoreError::Damaged(format!("pipeline {} cannot be written: {error}", after.id))
    })
}

/// Returns the object `after` with the fields of `stored` that `before` does not have.
fn object(
    mut stored: Map<String, Value>,
    before: &Map<String, Value>,
    after: Map<String, Value>,
) -> Map<String, Value> {
    stored.retain(|field, _| after.contains_key(field) || !before.contains_key(field));
    for (field, after) in after {
        let next = match (stored.remove(&field), before.get(&field)) {
            (Some(stored), Some(before)) => value(stored, before, after),
            _ => after,
        };
        stored.insert(field, next);
    }
    stored
}

fn value(stored: Value, before: &Value, after: Value) -> Value {
    match (stored, before, after) {
        (stored, before, after) if *before == after => stored,
        (Value::Object(stored), Value::Object(before), Value::Object(after)) => {
            Value::Object(object(stored, before, after))
        }
        (Value::Array(stored), Value::Array(before), Value::Array(after)) => {
            let with_id = |list: &[Value], id: &Value| list.iter().find(|it| it.get("id") == Some(id)).cloned();
            let next = after.into_iter().map(|after| {
                let same = after.get("id").and_then(|id| Some((with_id(&stored, id)?, with_id(before, id)?)));
                match same {
                    Some((stored, before)) => value(stored, &before, after),
                    None => after,
                }
            });
            Value::Array(next.collect())
        }
        (_, _, after) => after,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_fields_stay_with_their_objects() {
        let before = json!({"name": "a", "list": [{"id": "x", "n": 1}, {"id": "y", "n": 1}], "old": 1, "plain": [1]});
        let stored = json!({
            "name": "a", "later": 7, "list": [{"id": "x", "n": 1, "later": 8}, {"id": "y", "n": 1, "later": 9}],
            "old": 1, "plain": [1],
        });
        let after = json!({"name": "b", "list": [{"id": "z", "n": 1}, {"id": "x", "n": 2}], "plain": [2, 3]});
        let expected = json!({
            "name": "b", "later": 7, "list": [{"id": "z", "n": 1}, {"id": "x", "n": 2, "later": 8}], "plain": [2, 3],
        });
        assert_eq!(value(stored.clone(), &before, after), expected);
        assert_eq!(value(stored.clone(), &before, before.clone()), stored);
    }
}
