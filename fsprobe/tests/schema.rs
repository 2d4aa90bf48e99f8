//! Is the published schema the shape reports really have?

#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::sync::Arc;

use fsprobe::{
    Attack, Options, Target, control::StatThenOpen, oracle::Verdict, prove, report::Mode,
};
use serde_json::{Value, json};

const SCHEMA: &str = include_str!("../../docs/fsprobe-report.schema.json");

/// Checks the few keywords our schema uses; anything else in it is an error.
fn check(schema: &Value, root: &Value, value: &Value, at: &str) -> Result<(), String> {
    for (keyword, rule) in schema.as_object().unwrap() {
        let holds = match keyword.as_str() {
            "$schema" | "$id" | "$defs" | "title" | "description" => true,
            "$ref" => {
                let pointer = rule.as_str().unwrap().trim_start_matches('#');
                check(root.pointer(pointer).unwrap(), root, value, at)?;
                true
            }
            "const" => rule == value,
            "enum" => rule.as_array().unwrap().contains(value),
            "minimum" => value.as_u64() >= rule.as_u64(),
            "type" => match rule.as_str().unwrap() {
                "object" => value.is_object(),
                "array" => value.is_array(),
                "string" => value.is_string(),
                "integer" => value.is_u64() || value.is_i64(),
                "boolean" => value.is_boolean(),
                other => return Err(format!("{at}: unknown type {other}")),
            },
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    check(rule, root, item, &format!("{at}/{index}"))?;
                }
                true
            }
            "required" => rule
                .as_array()
                .unwrap()
                .iter()
                .all(|name| value.get(name.as_str().unwrap()).is_some()),
            "properties" => {
                for (name, rule) in rule.as_object().unwrap() {
                    if let Some(member) = value.get(name) {
                        check(rule, root, member, &format!("{at}/{name}"))?;
                    }
                }
                true
            }
            "additionalProperties" => {
                let known = schema.get("properties").unwrap();
                value
                    .as_object()
                    .into_iter()
                    .flatten()
                    .all(|(name, _)| known.get(name).is_some())
            }
            other => return Err(format!("{at}: unknown keyword {other}")),
        };
        if !holds {
            return Err(format!("{at}: {keyword} {rule} does not hold for {value}"));
        }
    }
    Ok(())
}

#[test]
fn a_report_with_every_part_in_it_keeps_to_the_published_schema() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options::new_in(dir.path());
    options.modes = vec![Mode::Seams];
    options.attacks = vec![Attack::FinalLink, Attack::FinalLinkThere];
    let report = prove(&Target::InProcess(Arc::new(StatThenOpen)), &options).unwrap();
    let report = serde_json::to_value(report).unwrap();
    for part in [
        "/matrix/0",
        "/matrix/2/places/0",
        "/matrix/1/refusals/0",
        "/controls/0/matrix/0",
    ] {
        assert!(
            report.pointer(part).is_some(),
            "{part} is missing, so its schema is not tried"
        );
    }
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    check(&schema, &schema, &report, "").unwrap();

    let mut odd = report.clone();
    odd["host"]["extra"] = json!(1);
    check(&schema, &schema, &odd, "").unwrap_err();
    let mut odd = report;
    odd["counts"]["torn"] = json!(-1);
    check(&schema, &schema, &odd, "").unwrap_err();
}

#[test]
fn the_schema_lists_every_attack_verdict_and_mode() {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let listed = |pointer: &str| schema.pointer(pointer).unwrap().clone();
    assert_eq!(
        listed("/$defs/attack/enum"),
        serde_json::to_value(Attack::ALL).unwrap()
    );
    assert_eq!(
        listed("/$defs/verdict/enum"),
        serde_json::to_value(Verdict::ALL).unwrap()
    );
    assert_eq!(
        listed("/$defs/mode/enum"),
        serde_json::to_value(Mode::ALL).unwrap()
    );
}
