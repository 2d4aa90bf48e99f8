//! The audit trail, read beside a server or without one: its files are all there is to it.

use std::{fmt::Write as _, thread, time::Duration};

use serde::Serialize;
use serde_json::Value;

use super::{
    arguments::{Audit, AuditFilter, Common},
    beside::{config, opening},
    exit::{Exit, Failure},
    output::{Output, line, shown},
    token::moment,
};
use crate::{
    app,
    audit::{AuditError, Head, Trail, verify},
    model::{Clock as _, SystemClock},
    seal::SealKey,
};

/// How often a trail that is followed is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// What was found of a trail.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Checked {
    lines: u64,
    first_seq: u64,
    head: String,
    /// Bytes of half a line after the last: somebody is writing it, or a crash left it.
    torn: u64,
    whole: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

pub(super) fn run(common: &Common, audit: &Audit, output: Output) -> Result<(), Failure> {
    let found = app::audit_trail(&config(common)?).map_err(|error| opening(&error))?;
    let Some((trail, key)) = found else {
        let message = "there is no audit trail yet: a service writes it when it runs";
        return Err(Failure::new(Exit::NotFound, message));
    };
    match audit {
        Audit::Tail { lines, follow } => tail(&trail, *lines, *follow, output),
        Audit::Query(filter) => query(&trail, filter, output),
        Audit::Verify { head } => check(&trail, &key, head.as_deref(), output),
    }
}

fn failed(error: &AuditError) -> Failure {
    let exit = match error {
        AuditError::Damaged(_) => Exit::Damaged,
        AuditError::Io { .. } => Exit::Failed,
    };
    Failure::of(exit, error)
}

fn tail(trail: &Trail, most: u32, follow: bool, output: Output) -> Result<(), Failure> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let (last, mut at) = trail.last(most).map_err(|error| failed(&error))?;
    for text in last {
        print(&text, output)?;
    }
    if !follow {
        return Ok(());
    }
    loop {
        thread::sleep(LOOK);
        let mut printed = Ok(());
        let more = trail.lines(at, |text| {
            printed = print(text, output);
            printed.is_ok()
        });
        at = more.map_err(|error| failed(&error))?;
        printed?;
    }
}

fn query(trail: &Trail, filter: &AuditFilter, output: Output) -> Result<(), Failure> {
    let since = filter.last.map(|hours| {
        let ago = i64::from(hours).saturating_mul(3_600_000);
        SystemClock.now().as_millis().saturating_sub(ago)
    });
    let mut printed = Ok(());
    let read = trail.lines(None, |text| {
        let Ok(record) = serde_json::from_str::<Value>(text) else {
            return true;
        };
        if fits(&record, filter, since) {
            printed = print(text, output);
        }
        printed.is_ok()
    });
    read.map_err(|error| failed(&error))?;
    printed
}

fn fits(record: &Value, filter: &AuditFilter, since: Option<i64>) -> bool {
    let is = |key: &str, wanted: &Option<String>| {
        let found = record.get(key).and_then(Value::as_str);
        wanted.as_deref().is_none_or(|wanted| found == Some(wanted))
    };
    let time = record.get("time").and_then(Value::as_i64);
    is("event", &filter.event)
        && is("who", &filter.who)
        && is("session", &filter.session)
        && is("attachmentId", &filter.attachment)
        && is("receipt", &filter.receipt)
        && is("ticket", &filter.ticket)
        && since.is_none_or(|since| time.is_some_and(|time| time >= since))
}

/// A line as it stands for programs, and for people one that cannot move the cursor.
fn print(text: &str, output: Output) -> Result<(), Failure> {
    match (output, serde_json::from_str::<Value>(text)) {
        (Output::Json, _) => line(shown(text)),
        (Output::Text, Err(_)) => line(format_args!("not a record: {}", shown(text))),
        (Output::Text, Ok(record)) => {
            let said = |key: &str| match record.get(key) {
                None | Some(Value::Null) => String::new(),
                Some(Value::String(text)) => shown(text),
                Some(other) => other.to_string(),
            };
            let mut told = format!(
                "{:>6}  {}  {:<15}",
                said("seq"),
                moment(record.get("time")),
                said("event")
            );
            for key in [
                "who",
                "session",
                "receipt",
                "ticket",
                "name",
                "attachmentId",
                "bytes",
                "of",
                "code",
                "times",
            ] {
                let value = said(key);
                if !value.is_empty() {
                    // Writing to a String cannot fail.
                    write!(told, "  {key}={value}").ok();
                }
            }
            line(told)
        }
    }
}

fn check(trail: &Trail, key: &SealKey, head: Option<&str>, output: Output) -> Result<(), Failure> {
    let expected = match head {
        None => None,
        Some(text) => Some(Head::parse(text).ok_or_else(|| {
            let message = "a head is SEQ:SEAL, as the service's log says it";
            Failure::new(Exit::Usage, message)
        })?),
    };
    let found = verify(trail, key, expected).map_err(|error| failed(&error))?;
    let fault = found.fault.clone();
    let checked = Checked {
        lines: found.lines,
        first_seq: found.first,
        head: found.head.text(),
        torn: found.torn,
        whole: fault.is_none(),
        file: fault.as_ref().map(|fault| fault.file.clone()),
        line: fault.as_ref().map(|fault| fault.line),
        why: fault.as_ref().map(|fault| fault.why.clone()),
    };
    match fault {
        None => output.print(&checked, |checked| {
            let earlier = match checked.first_seq {
                0 | 1 => String::new(),
                first => format!("; what was before line {first} was taken away"),
            };
            format!(
                "{} lines, each follows from the one before it{earlier}\nhead {}\n",
                checked.lines, checked.head
            )
        }),
        Some(fault) => {
            if output == Output::Json {
                output.print(&checked, |_| String::new())?;
            }
            let message = format!(
                "{}, line {}: {}; {} lines before it are whole",
                shown(&fault.file),
                fault.line,
                shown(&fault.why),
                checked.lines
            );
            Err(Failure::new(Exit::Damaged, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{AuditFilter, fits};

    #[test]
    fn a_record_fits_when_every_filter_does() {
        let record = json!({"event": "sent", "who": "p_1", "time": 50});
        let mut filter = AuditFilter::default();
        assert!(fits(&record, &filter, None) && fits(&record, &filter, Some(50)));
        assert!(!fits(&record, &filter, Some(51)));
        filter.event = Some("sent".to_owned());
        assert!(fits(&record, &filter, None));
        filter.session = Some("s_1".to_owned());
        assert!(!fits(&record, &filter, None));
    }
}
