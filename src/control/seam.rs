//! Where tests make a commit or flush fail, or look at the files in between.

use std::{fmt, io, sync::Arc};

use super::ControlError;

/// A moment in the life of a commit.
#[cfg_attr(
    not(feature = "_seams"),
    expect(unreachable_pub, reason = "named outside by tests alone")
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Before COMMIT.
    Commit,
    /// After COMMIT, before the heads log's line is written.
    HeadsWrite,
    /// After the line, before its flush.
    HeadsFlush,
}

/// What is called at each [`Step`]; production calls nothing.
#[derive(Clone, Default)]
pub(super) struct Seam(Option<Hook>);

type Hook = Arc<dyn Fn(Step) -> io::Result<()> + Send + Sync>;

impl Seam {
    #[cfg(any(test, feature = "_seams"))]
    pub(super) fn new(hook: impl Fn(Step) -> io::Result<()> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(hook)))
    }

    pub(super) fn at(&self, step: Step) -> Result<(), ControlError> {
        match &self.0 {
            None => Ok(()),
            Some(hook) => hook(step).map_err(|error| ControlError::from_io("a test seam", error)),
        }
    }
}

impl fmt::Debug for Seam {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Seam").field(&self.0.is_some()).finish()
    }
}
