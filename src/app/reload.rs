//! What is read again while the service runs: on SIGHUP, and a certificate also when it changes.

use std::{error::Error, fmt};

type Again = Box<dyn Fn() -> Result<(), Box<dyn Error + Send + Sync>> + Send + Sync>;

/// The parts that can be read again, each by itself: one that fails keeps what it had, and the others
/// go on.
#[derive(Default)]
pub struct Reloads(Vec<(&'static str, Again)>);

impl fmt::Debug for Reloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|(what, _)| what))
            .finish()
    }
}

impl Reloads {
    /// Adds a part. `again` may block, and leaves what there was when it fails.
    pub fn add<E: Into<Box<dyn Error + Send + Sync>>>(
        &mut self,
        what: &'static str,
        again: impl Fn() -> Result<(), E> + Send + Sync + 'static,
    ) {
        self.0
            .push((what, Box::new(move || again().map_err(Into::into))));
    }

    /// Reads every part again and says in the log how each went. Blocks. Says how many failed.
    #[must_use]
    pub fn run(&self) -> usize {
        let parts = self.0.iter();
        parts.filter(|(what, again)| !tell(what, again())).count()
    }
}

/// Says in the log how reading `what` again went, and whether it went well.
pub(super) fn tell(what: &str, read: Result<(), Box<dyn Error + Send + Sync>>) -> bool {
    let Err(error) = read else {
        tracing::info!(what, "read again");
        return true;
    };
    let mut causes = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        causes.push_str(": ");
        causes.push_str(&error.to_string());
        cause = error.source();
    }
    tracing::error!(what, error = causes, "not read again: what was there stays");
    false
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };

    use super::Reloads;

    #[test]
    fn one_that_fails_does_not_keep_the_others() {
        let runs = Arc::new(AtomicU32::new(0));
        let mut reloads = Reloads::default();
        reloads.add("bad", || Err("no"));
        reloads.add("good", {
            let runs = Arc::clone(&runs);
            move || {
                runs.fetch_add(1, Ordering::SeqCst);
                Ok::<_, String>(())
            }
        });
        assert_eq!(reloads.run(), 1);
        assert_eq!(reloads.run(), 1);
        assert_eq!(runs.load(Ordering::SeqCst), 2);
    }
}
