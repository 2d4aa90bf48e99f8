//! What a command prints: text for people or one JSON value for programs, on standard output.

use std::{
    fmt::{self, Write as _},
    io::{self, IsTerminal as _, Write as _},
};

use serde::Serialize;

use super::exit::{Exit, Failure};

/// Whom a command prints for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Output {
    /// People.
    Text,
    /// Programs.
    Json,
}

impl Output {
    /// Prints `value` for programs, or what `text` makes of it for people.
    pub(super) fn print<T: Serialize>(
        self,
        value: &T,
        text: impl FnOnce(&T) -> String,
    ) -> Result<(), Failure> {
        match self {
            Self::Text => line(text(value).trim_end_matches('\n')),
            Self::Json => {
                let json = serde_json::to_string_pretty(value)
                    .map_err(|error| Failure::of(Exit::Failed, &error))?;
                line(json)
            }
        }
    }
}

/// Prints one line on standard output at once.
pub(super) fn line(text: impl fmt::Display) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")
        .and_then(|()| out.flush())
        .map_err(|error| Failure::io("printing", &error))
}

/// Tells the person something beside the result, on standard error; a closed one is no failure.
pub(super) fn note(text: impl fmt::Display) {
    let written = writeln!(io::stderr().lock(), "{text}");
    drop(written);
}

/// Whether somebody looks at standard error.
pub(super) fn is_watched() -> bool {
    io::stderr().is_terminal()
}

/// Text from elsewhere as it may be shown in a terminal: controls and marks that turn the direction
/// of text are spelled out.
pub(super) fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        let hides = character.is_control()
            || matches!(character,
                '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}');
        if hides {
            // Writing to a String cannot fail.
            write!(shown, "\\u{{{:x}}}", u32::from(character)).ok();
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Rows in columns as wide as their widest cell.
pub(super) fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = header.iter().map(|cell| cell.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    let header = header.iter().map(|cell| (*cell).to_owned()).collect();
    for row in std::iter::once(&header).chain(rows) {
        let mut line = String::new();
        for (width, cell) in widths.iter().zip(row) {
            let padding = width.saturating_sub(cell.chars().count()).saturating_add(2);
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', padding));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{shown, table};

    #[test]
    fn text_from_elsewhere_cannot_move_the_cursor_or_turn_around() {
        assert_eq!(
            shown("a\u{1b}[2J\u{202e}b\n报"),
            "a\\u{1b}[2J\\u{202e}b\\u{a}报"
        );
    }

    #[test]
    fn a_table_lines_up() {
        let rows = [
            vec!["a".to_owned(), "1".to_owned()],
            vec!["long".to_owned(), "2".to_owned()],
        ];
        assert_eq!(table(&["name", "n"], &rows), "name  n\na     1\nlong  2\n");
    }
}
