//! A problem as a page, for a person who followed a link.
//!
//! Promises: it says what the JSON form says, field for field, so that neither form tells more (I9);
//! every text goes through one escape, so that a reason which quotes the request stays text (I13). It
//! has no script, style, form or link: the policy of its answer would let none of them work.

use std::fmt::Write as _;

use super::ProblemBody;

/// The page that shows `problem`.
#[must_use]
pub fn page(problem: &ProblemBody) -> String {
    let title = escaped(problem.title);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{status}: {title}</title>\n<h1>{title}</h1>\n<p>{detail}</p>\n<dl>\n",
        status = problem.status,
        detail = escaped(problem.detail),
    );
    let facts = &problem.facts;
    let number = |number: Option<u64>| number.map(|number| number.to_string());
    let rows = [
        ("status", Some(problem.status.to_string())),
        ("code", Some(problem.code.as_str())),
        ("reason", facts.reason.clone()),
        ("setting", facts.setting.map(str::to_owned)),
        ("class", facts.class.map(str::to_owned)),
        ("index", facts.index.map(|index| index.to_string())),
        ("sizeBytes", number(facts.size_bytes)),
        ("limitBytes", number(facts.limit_bytes)),
        ("usedBytes", number(facts.used_bytes)),
        ("nextSeq", number(facts.next_seq)),
        ("logGeneration", number(facts.log_generation.map(u64::from))),
        ("bridgeGeneration", number(facts.bridge_generation)),
        ("cause", facts.cause.map(str::to_owned)),
        ("field", facts.field.map(str::to_owned)),
        ("recordedOutcome", facts.recorded_outcome.map(str::to_owned)),
        ("requestId", Some(problem.request_id.clone())),
        (
            "retryable",
            Some(if problem.retryable { "yes" } else { "no" }.to_owned()),
        ),
    ];
    for (name, value) in rows {
        let Some(value) = value else { continue };
        // Writing to a string cannot fail.
        writeln!(page, "<dt>{name}<dd>{}", escaped(&value)).ok();
    }
    page.push_str("</dl>\n</html>\n");
    page
}

/// Text that stays text between tags and in quoted attributes. Controls, which no page should hold,
/// are shown as U+FFFD; so are the marks that turn the direction of writing.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                safe.push(char::REPLACEMENT_CHARACTER);
            }
            c if c.is_control() => safe.push(char::REPLACEMENT_CHARACTER),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::page;
    use crate::{http::problem::Problem, model::RequestId};

    /// Keeps I13.
    #[test]
    fn a_reason_that_quotes_the_request_stays_text() {
        let hostile = "</dl><script>alert(1)</script>\"'&\u{202e}\u{1b}[2J";
        let problem = Problem::malformed(hostile);
        let page = page(&problem.body(RequestId::from_random([7; 16])));
        let shown = "<dt>reason<dd>&lt;/dl&gt;&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;\
                     \u{fffd}\u{fffd}[2J\n";
        assert!(page.contains(shown), "{page}");
        assert!(
            !page.contains("<script") && page.matches("</dl>").count() == 1,
            "{page}"
        );
    }

    /// Keeps I9: a fact that one form has and the other lacks would be found here.
    #[test]
    fn the_page_says_what_the_json_says() {
        let facts = crate::http::problem::Facts {
            reason: Some("because".to_owned()),
            index: Some(10),
            class: Some("changed"),
            setting: Some("limits.file"),
            size_bytes: Some(16),
            limit_bytes: Some(11),
            used_bytes: Some(12),
            next_seq: Some(13),
            log_generation: Some(14),
            bridge_generation: Some(15),
            cause: Some("presence"),
            field: Some("turn"),
            recorded_outcome: Some("rejected"),
        };
        let problem = Problem::malformed("x").with_facts(facts);
        let body = problem.body(RequestId::from_random([7; 16]));
        let page = page(&body);
        let json = serde_json::to_value(&body).unwrap();
        for (name, value) in json.as_object().unwrap() {
            let said = match name.as_str() {
                // The address of the kind is its code; the occurrence is the request's id.
                "type" | "instance" => continue,
                "title" => format!("<h1>{}</h1>", value.as_str().unwrap()),
                "detail" => format!("<p>{}</p>", super::escaped(value.as_str().unwrap())),
                "retryable" => "<dt>retryable<dd>no\n".to_owned(),
                name => match value.as_str() {
                    Some(text) => format!("<dt>{name}<dd>{text}\n"),
                    None => format!("<dt>{name}<dd>{value}\n"),
                },
            };
            assert!(page.contains(&said), "{name}: {said} in {page}");
        }
    }
}
