//! A report for people: a table for the terminal, and a page that needs nothing but itself.

#![forbid(unsafe_code)]

use std::fmt::Write as _;

use crate::{
    attack::Attack,
    oracle::Verdict,
    report::{Conclusion, ControlRun, Coverage, Kind, ModeRun, Report, Role, Row},
    subject::Claims,
};

/// How many places a table shows per row.
const PLACES: usize = 2;

/// The report as text of fixed-width columns.
#[must_use]
pub fn table(report: &Report) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail; the result is dropped in one place.
    write_table(&mut text, report).unwrap_or_default();
    text
}

fn write_table(text: &mut String, report: &Report) -> std::fmt::Result {
    writeln!(text, "{}", title(report))?;
    writeln!(text, "{}", circumstances(report))?;
    for run in &report.modes {
        writeln!(text, "\n{}", about_mode(run))?;
        for note in &run.notes {
            writeln!(text, "  note: {}", plain(note))?;
        }
        let rows: Vec<&Row> = report
            .matrix
            .iter()
            .filter(|row| row.mode == run.mode)
            .collect();
        if rows.is_empty() {
            continue;
        }
        write!(text, "  {:20}", "attack")?;
        for verdict in Verdict::ALL {
            write!(text, " {:>10}", verdict.name())?;
        }
        writeln!(text, "  lost at")?;
        for row in rows {
            write!(text, "  {:20}", row.attack.name())?;
            for verdict in Verdict::ALL {
                let count = row.counts.of(verdict);
                let shown = if count == 0 {
                    "·".to_owned()
                } else {
                    count.to_string()
                };
                write!(text, " {shown:>10}")?;
            }
            writeln!(text, "  {}", places(row))?;
        }
    }
    writeln!(text, "\n{}", worth(report))?;
    writeln!(text, "\n{}", conclusion(report))?;
    for reason in report.reasons.iter().take(12) {
        writeln!(text, "  {}", plain(reason))?;
    }
    if report.reasons.len() > 12 {
        writeln!(text, "  and {} more", report.reasons.len() - 12)?;
    }
    Ok(())
}

fn title(report: &Report) -> String {
    let subject = &report.subject;
    let how = match subject.kind {
        Kind::InProcess => "in process".to_owned(),
        Kind::Command | Kind::Http => plain(&subject.invocation.join(" ")),
    };
    let build = if report.build.is_empty() {
        String::new()
    } else {
        format!(", {}", report.build)
    };
    format!("{} ({how}{})", plain(&subject.name), plain(&build))
}

fn circumstances(report: &Report) -> String {
    format!(
        "{} on {}, claims {}, {} s, seed {}",
        plain(&report.host.kernel),
        plain(&report.host.filesystem.kind),
        claims(report.subject.claims),
        seconds(report.elapsed_ms),
        report.seed
    )
}

fn claims(claims: Claims) -> String {
    let all = [
        ("ceiling", claims.ceiling),
        ("whole", claims.whole),
        ("special-files", claims.special_files),
        ("hard-links", claims.hard_links),
        ("root", claims.root),
    ];
    let made: Vec<&str> = all
        .iter()
        .filter(|(_, made)| *made)
        .map(|(name, _)| *name)
        .collect();
    if made.is_empty() {
        "none".to_owned()
    } else {
        made.join(" ")
    }
}

fn about_mode(run: &ModeRun) -> String {
    let depth = if run.depth > 1 {
        format!(", depth {}", run.depth)
    } else {
        String::new()
    };
    let moments = match run.coverage {
        Coverage::Random => format!("{} changes", run.flips),
        Coverage::Exhaustive | Coverage::Sampled | Coverage::CutShort | Coverage::Inconclusive => {
            format!("{} moments", run.boundaries)
        }
    };
    format!(
        "{}: {}{depth}, {moments}, {} reads, {} s",
        run.mode,
        run.coverage.name(),
        run.runs,
        seconds(run.elapsed_ms)
    )
}

fn places(row: &Row) -> String {
    let mut shown: Vec<String> = row
        .places
        .iter()
        .take(PLACES)
        .map(|place| plain(&place.moment))
        .collect();
    shown.dedup();
    let more = row.places.len().saturating_sub(PLACES);
    if more > 0 {
        shown.push(format!("{more} more"));
    }
    if row.counts.sightings > 0 {
        shown.push(format!("FIFO opened {} times", row.counts.sightings));
    }
    if row.prevented > 0 {
        shown.push(format!("prevented {} times", row.prevented));
    }
    shown.join("; ")
}

/// What the readers of known worth did, one line per mode and role.
fn worth(report: &Report) -> String {
    let mut lines = Vec::new();
    for run in &report.modes {
        for (role, word) in [(Role::Control, "controls"), (Role::Reference, "references")] {
            let of = |control: &&ControlRun| control.mode == run.mode && control.role == role;
            let named: Vec<String> = report.controls.iter().filter(of).map(fate).collect();
            if !named.is_empty() {
                lines.push(format!("{word} in {}: {}", run.mode, named.join(", ")));
            }
        }
    }
    if lines.is_empty() {
        "no controls ran".to_owned()
    } else {
        lines.join("\n")
    }
}

fn fate(control: &ControlRun) -> String {
    let fate = if control.beaten { "lost" } else { "held" };
    format!("{} {fate}", plain(&control.name))
}

fn conclusion(report: &Report) -> &'static str {
    match report.conclusion {
        Conclusion::Proven => "proven: nothing was lost, and weak readers lost beside it",
        Conclusion::Broken => "broken",
        Conclusion::Inconclusive => "inconclusive",
    }
}

fn seconds(ms: u64) -> String {
    format!("{}.{}", ms / 1000, ms % 1000 / 100)
}

/// Text from a subject, without what could move a cursor or pretend to be something else.
fn plain(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{FFFD}' } else { c })
        .collect()
}

/// The report as one HTML file: no scripts, no fonts, no requests.
#[must_use]
pub fn html(report: &Report) -> String {
    let mut page = String::new();
    write_html(&mut page, report).unwrap_or_default();
    page
}

const STYLE: &str = "
:root { color-scheme: light dark; --ok: #2f8f5b; --no: #8a93a0; --bad: #c8372d; --odd: #c98a14; --hung: #8a4fc0;
  --over: #4a7fc1;
  --line: #8883; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p { margin: .25rem 0; }
code { font-family: ui-monospace, monospace; font-size: .92em; overflow-wrap: anywhere; }
.verdict { display: inline-block; padding: .15rem .7rem; border-radius: 1rem; color: #fff;
  font-weight: 600; }
.proven { background: var(--ok); } .broken { background: var(--bad); }
.inconclusive { background: var(--odd); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--line);
  vertical-align: top; }
th.n, td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.bad { color: var(--bad); font-weight: 600; }
svg { display: block; width: 16rem; height: 1rem; }
small { opacity: .8; }
.key span { display: inline-flex; align-items: center; gap: .35rem; margin-right: 1rem; }
.key i { width: .8rem; height: .8rem; border-radius: 2px; display: inline-block; }
";

fn write_html(page: &mut String, report: &Report) -> std::fmt::Result {
    let name = escape(&report.subject.name);
    let word = report.conclusion.name();
    write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>fsprobe: {name} is {word}</title>\n<style>{STYLE}</style>\n\
         <h1>{}</h1>\n<p><span class=\"verdict {word}\">{word}</span></p>\n<p>{}</p>\n",
        escape(&title(report)),
        escape(&circumstances(report))
    )?;
    if !report.reasons.is_empty() {
        page.push_str("<ul>\n");
        for reason in &report.reasons {
            writeln!(page, "<li>{}</li>", escape(reason))?;
        }
        page.push_str("</ul>\n");
    }
    page.push_str("<p class=\"key\">");
    for verdict in Verdict::ALL {
        write!(
            page,
            "<span><i style=\"background:var({})\"></i>{}</span>",
            colour(verdict),
            verdict.name()
        )?;
    }
    page.push_str("</p>\n");
    for run in &report.modes {
        writeln!(page, "<h2>{}</h2>", escape(&about_mode(run)))?;
        for note in &run.notes {
            writeln!(page, "<p><small>{}</small></p>", escape(note))?;
        }
        let rows = report.matrix.iter().filter(|row| row.mode == run.mode);
        write_matrix(page, rows, report.subject.claims)?;
    }
    page.push_str(
        "<h2>Readers of known worth</h2>\n<div class=\"scroll\"><table>\n<tr><th>reader\
                   <th>expected<th>in<th>did<th>escaped at\n",
    );
    for control in &report.controls {
        write_control(page, control)?;
    }
    page.push_str("</table></div>\n<h2>Host</h2>\n");
    let host = &report.host;
    writeln!(
        page,
        "<p>{}, {}. Filesystem {}, id <code>{}</code>, mounted {}. Boot <code>{}</code>.</p>",
        escape(&host.kernel),
        escape(&host.machine),
        escape(&host.filesystem.kind),
        escape(&host.filesystem.fsid),
        escape(&host.filesystem.mount_flags.join(", ")),
        escape(&host.boot_id)
    )?;
    writeln!(
        page,
        "<p><small>{}, fsprobe {}</small></p>\n</html>",
        report.format, report.probe
    )
}

fn write_control(page: &mut String, control: &ControlRun) -> std::fmt::Result {
    let (expected, as_expected) = match control.role {
        Role::Control => ("loses", control.beaten),
        Role::Reference => ("holds", !control.beaten),
    };
    let places: Vec<String> = control
        .matrix
        .iter()
        .flat_map(|row| row.places.iter().map(move |place| (row.attack, place)))
        .take(4)
        .map(|(attack, place)| format!("{attack}: {}", place.moment))
        .collect();
    writeln!(
        page,
        "<tr><td>{}<td>{expected}<td>{}<td class=\"{}\">{}<td><small>{}</small>",
        escape(&control.name),
        control.mode,
        if as_expected { "" } else { "bad" },
        if control.beaten { "lost" } else { "held" },
        escape(&places.join("; "))
    )
}

fn write_matrix<'a>(
    page: &mut String,
    rows: impl Iterator<Item = &'a Row>,
    claims: Claims,
) -> std::fmt::Result {
    page.push_str("<div class=\"scroll\"><table>\n<tr><th>attack<th>share");
    for verdict in Verdict::ALL {
        write!(page, "<th class=\"n\">{}", verdict.name())?;
    }
    page.push_str("<th>lost at\n");
    for row in rows {
        write!(
            page,
            "<tr><td>{}<br><small>{}</small><td>",
            row.attack,
            row.attack.describe()
        )?;
        write_bar(page, row)?;
        for verdict in Verdict::ALL {
            let count = row.counts.of(verdict);
            let class = if count > 0 && counts_against(verdict, claims) {
                "n bad"
            } else {
                "n"
            };
            let shown = if count == 0 {
                "·".to_owned()
            } else {
                count.to_string()
            };
            write!(page, "<td class=\"{class}\">{shown}")?;
        }
        writeln!(page, "<td><small>{}</small>", escape(&places(row)))?;
    }
    page.push_str("</table></div>\n");
    Ok(())
}

/// Shares of the verdicts as one bar; a loss is never thinner than can be seen.
fn write_bar(page: &mut String, row: &Row) -> std::fmt::Result {
    const WIDTH: u64 = 1000;
    let total = row.counts.total().max(1);
    write!(
        page,
        "<svg viewBox=\"0 0 {WIDTH} 10\" preserveAspectRatio=\"none\" role=\"img\" \
         aria-label=\"shares for {}\">",
        row.attack
    )?;
    let present: Vec<Verdict> = Verdict::ALL
        .into_iter()
        .filter(|verdict| row.counts.of(*verdict) > 0)
        .collect();
    let mut widths: Vec<u64> = present
        .iter()
        .map(|verdict| (row.counts.of(*verdict).saturating_mul(WIDTH) / total).max(30))
        .collect();
    let excess = widths.iter().sum::<u64>().saturating_sub(WIDTH);
    if let Some(widest) = widths.iter_mut().max() {
        *widest = widest.saturating_sub(excess);
    }
    let mut x = 0;
    for (verdict, width) in present.iter().zip(&widths) {
        write!(
            page,
            "<rect x=\"{x}\" width=\"{width}\" height=\"10\" style=\"fill:var({})\"/>",
            colour(*verdict)
        )?;
        x += width;
    }
    page.push_str("</svg>");
    Ok(())
}

fn colour(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Inside => "--ok",
        Verdict::Refused => "--no",
        Verdict::Escaped => "--bad",
        Verdict::Torn => "--odd",
        Verdict::Hung => "--hung",
        Verdict::OverLimit => "--over",
    }
}

fn counts_against(verdict: Verdict, claims: Claims) -> bool {
    match verdict {
        Verdict::Escaped | Verdict::Hung => true,
        Verdict::Torn => claims.whole,
        Verdict::OverLimit => claims.ceiling,
        Verdict::Inside | Verdict::Refused => false,
    }
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in plain(text).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Every attack with what it does, for `--help` and the documentation.
#[must_use]
pub fn attacks() -> String {
    let mut text = String::new();
    for attack in Attack::ALL {
        writeln!(text, "{:20} {}", attack.name(), attack.describe()).unwrap_or_default();
    }
    text
}
