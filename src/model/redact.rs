use std::fmt;

/// A value that may be used but not shown: paths, tokens and file names on their way to a log.
///
/// `Debug` and `Display` print a fixed word, so that a value cannot reach telemetry by accident.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Redacted<T>(T);

impl<T> Redacted<T> {
    /// Hides `value`.
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// The value itself; a call of this is a decision that the place may see it.
    pub const fn reveal(&self) -> &T {
        &self.0
    }
}

impl<T> fmt::Debug for Redacted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

impl<T> fmt::Display for Redacted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

#[cfg(test)]
mod tests {
    use super::Redacted;

    #[test]
    fn a_redacted_value_does_not_show_itself() {
        let secret = Redacted::new("hf_secret");
        assert_eq!(format!("{secret} {secret:?}"), "[redacted] [redacted]");
        assert_eq!(*secret.reveal(), "hf_secret");
    }
}
