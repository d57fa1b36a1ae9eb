//! Puts the stacks and hops of a report of the second schema back where they belong: what comes out has
//! the keys of the first.

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Map, Value};

/// The schema with stacks and hops in their places.
pub const FULL_SCHEMA: &str = "offwake.report/1";
/// The schema with each stack and each hop once.
pub const SCHEMA: &str = "offwake.report/2";

type Object = Map<String, Value>;

/// Returns a report with the keys of [`FULL_SCHEMA`].
///
/// # Errors
///
/// When it is of neither schema, or names a stack or a hop that it does not have.
pub fn resolve(mut report: Value) -> Result<Value> {
    match report["schema"].as_str() {
        Some(FULL_SCHEMA) => return Ok(report),
        Some(SCHEMA) => {}
        other => bail!("an unknown schema: {other:?}"),
    }
    let stacks = take_list(&mut report, "stacks")?;
    let mut hops = take_list(&mut report, "hops")?;
    let mut is_used = Use { stacks: vec![false; stacks.len()], hops: vec![false; hops.len()] };
    for hop in &mut hops {
        put_stack(object(hop)?, &stacks, &mut is_used)?;
    }
    for wait in report["waits"].as_array_mut().context("no waits")? {
        put_stack(object(wait)?, &stacks, &mut is_used)?;
        for part in wait["blame"].as_array_mut().context("no blame")? {
            put_stack(object(part)?, &stacks, &mut is_used)?;
            put_chain(object(part)?, &hops, &mut is_used)?;
        }
    }
    let is_complete = is_used.stacks.iter().chain(&is_used.hops).all(|is_used| *is_used);
    ensure!(is_complete, "a stack or a hop that nothing refers to");
    report["schema"] = FULL_SCHEMA.into();
    Ok(report)
}

/// What was referred to.
struct Use {
    stacks: Vec<bool>,
    hops: Vec<bool>,
}

fn take_list(report: &mut Value, key: &str) -> Result<Vec<Value>> {
    match object(report)?.remove(key) {
        Some(Value::Array(list)) => Ok(list),
        other => bail!("{key} is no list: {other:?}"),
    }
}

fn object(value: &mut Value) -> Result<&mut Object> {
    value.as_object_mut().context("no object")
}

fn put_stack(entry: &mut Object, stacks: &[Value], is_used: &mut Use) -> Result<()> {
    let id = entry.remove("stack_id").context("no stack_id")?;
    entry.insert("stack".to_owned(), find(&id, stacks, &mut is_used.stacks)?);
    Ok(())
}

fn put_chain(part: &mut Object, hops: &[Value], is_used: &mut Use) -> Result<()> {
    let ids = part.remove("hop_ids").context("no hop_ids")?;
    let ids = ids.as_array().context("hop_ids is no list")?;
    let chain = ids.iter().map(|id| find(id, hops, &mut is_used.hops)).collect::<Result<_>>()?;
    part.insert("chain".to_owned(), Value::Array(chain));
    Ok(())
}

fn find(id: &Value, table: &[Value], is_used: &mut [bool]) -> Result<Value> {
    let id = id.as_u64().and_then(|id| usize::try_from(id).ok());
    let found = id.and_then(|id| Some((table.get(id)?, is_used.get_mut(id)?)));
    let (value, is_used) = found.with_context(|| format!("no such id: {id:?}"))?;
    *is_used = true;
    Ok(value.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn compact() -> Value {
        json!({
            "schema": SCHEMA,
            "waits": [{ "tid": 7, "stack_id": 1, "blame": [
                { "ns": 5, "stack_id": 0, "hop_ids": [0] },
                { "ns": 6, "stack_id": 2, "hop_ids": [] } ] }],
            "hops": [{ "tid": 8, "stack_id": 0 }],
            "stacks": [["main", "wake"], ["main", "wait"], []],
        })
    }

    #[test]
    fn stacks_and_hops_come_back_where_they_belong() -> Result<()> {
        let resolved = json!({
            "schema": FULL_SCHEMA,
            "waits": [{ "tid": 7, "stack": ["main", "wait"], "blame": [
                { "ns": 5, "stack": ["main", "wake"],
                  "chain": [{ "tid": 8, "stack": ["main", "wake"] }] },
                { "ns": 6, "stack": [], "chain": [] } ] }],
        });
        ensure!(resolve(compact())? == resolved);
        ensure!(resolve(resolved.clone())? == resolved);
        Ok(())
    }

    #[test]
    fn an_id_of_nothing_and_a_thing_without_use_are_errors() {
        for (pointer, wrong) in [
            ("/waits/0/stack_id", json!(3)),
            ("/waits/0/blame/0/hop_ids/0", json!(1)),
            ("/hops/0/stack_id", json!(-1)),
            ("/waits/0/stack_id", json!(0)),
            ("/waits/0/blame/0/hop_ids", json!([])),
            ("/schema", json!("offwake.report/3")),
        ] {
            let mut report = compact();
            *report.pointer_mut(pointer).expect("a value") = wrong;
            assert!(resolve(report).is_err(), "{pointer}");
        }
    }
}
