use std::fmt;

use thiserror::Error;

use crate::model::PrincipalId;

/// Someone who can hold a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The id others name it by.
    pub id: PrincipalId,
    /// What sort of caller it is.
    pub kind: PrincipalKind,
    /// What people call it; unique.
    pub name: PrincipalName,
}

/// The three sorts of caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PrincipalKind {
    /// Runs the service; sees no session on that account.
    Operator,
    /// A host program: creates sessions, sees and writes those it created.
    Host,
    /// A person: reads the sessions it owns, and may upload to them.
    User,
}

impl PrincipalKind {
    /// The kind's word, in the database and on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Host => "host",
            Self::User => "user",
        }
    }

    /// The kind of this word.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Operator, Self::Host, Self::User]
            .into_iter()
            .find(|kind| kind.as_str() == text)
    }
}

impl fmt::Display for PrincipalKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What people call a principal.
///
/// Invariant: 1..=64 characters, none of them a control, no white space at either end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PrincipalName(Box<str>);

/// Text that is not a [`PrincipalName`].
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("a principal's name is 1 to 64 characters without controls or white space at the ends")]
pub struct ParsePrincipalNameError;

impl PrincipalName {
    /// Takes a name as it stands.
    ///
    /// # Errors
    /// [`ParsePrincipalNameError`] when it breaks the invariant.
    pub fn parse(text: &str) -> Result<Self, ParsePrincipalNameError> {
        let length = text.chars().count();
        if !(1..=64).contains(&length) || text.trim() != text || text.chars().any(char::is_control)
        {
            return Err(ParsePrincipalNameError);
        }
        Ok(Self(text.into()))
    }

    /// The name's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PrincipalName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::PrincipalName;

    #[test]
    fn a_name_fits_on_a_line_and_is_what_it_looks_like() {
        for name in ["alice", "build host #3", "编译机"] {
            assert!(PrincipalName::parse(name).is_ok(), "{name}");
        }
        for name in ["", " a", "a\n", "a\u{1b}[2J", &"x".repeat(65)] {
            assert!(PrincipalName::parse(name).is_err(), "{name:?}");
        }
    }
}
