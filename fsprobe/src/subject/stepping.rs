//! A program of any language that stops at its own steps: the founding probe's reader, where it has a
//! test hook between its check and its open.
//!
//! At a step the program writes the line `fsprobe-step NAME` to standard error and reads a line from
//! standard input before it goes on. What it read goes to standard output; another exit status than 0
//! is a refusal, whose class a line `fsprobe-refused CLASS` says.

#![forbid(unsafe_code)]

use std::{
    ffi::{OsStr, OsString},
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use super::{Claims, Reader, Refusal, Seam, Subject, process::fill_in};

/// The most lines of standard error that are read, and the longest.
const LINES: usize = 10_000;
const LINE: u64 = 4 << 10;

/// A program and its arguments, with `{root}`, `{path}` and `{ceiling}` where they belong.
#[derive(Clone, Debug)]
pub struct Stepping {
    name: String,
    argv: Vec<OsString>,
}

impl Stepping {
    /// The program of this command line, under its own name.
    #[must_use]
    pub fn new(argv: Vec<OsString>) -> Self {
        let last = argv.first().map(Path::new).and_then(Path::file_name);
        Self {
            name: last.map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
            argv,
        }
    }
}

impl Subject for Stepping {
    fn name(&self) -> &str {
        &self.name
    }

    fn claims(&self) -> Claims {
        Claims {
            ceiling: true,
            ..Claims::default()
        }
    }

    fn open(&self, root: &Path) -> Result<Box<dyn Reader>, Refusal> {
        Ok(Box::new(Opened {
            argv: self.argv.clone(),
            root: root.to_owned(),
        }))
    }
}

struct Opened {
    argv: Vec<OsString>,
    root: PathBuf,
}

impl Reader for Opened {
    fn read(&mut self, path: &Path, ceiling: u64, seam: &mut Seam<'_>) -> Result<Vec<u8>, Refusal> {
        let failed = |error: std::io::Error| Refusal::new(format!("no answer: {error}"));
        let mut argv = self.argv.iter().map(|one| self.fill(one, path, ceiling));
        let mut child = Command::new(argv.next().unwrap_or_default())
            .args(argv)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let (Some(out), Some(err), Some(mut go)) =
            (child.stdout.take(), child.stderr.take(), child.stdin.take())
        else {
            return Err(Refusal::new("no answer"));
        };
        // More than the ceiling is kept, so that it can be judged; not much more.
        let most = ceiling.saturating_mul(2).saturating_add(1);
        let answer = thread::spawn(move || {
            let mut bytes = Vec::new();
            out.take(most).read_to_end(&mut bytes).map(|_count| bytes)
        });
        let mut class = "refused".to_owned();
        let mut lines = BufReader::new(err);
        for _ in 0..LINES {
            let mut line = String::new();
            let read = (&mut lines).take(LINE).read_line(&mut line);
            if read.map_err(failed)? == 0 {
                break;
            }
            if let Some(step) = line.trim_end().strip_prefix("fsprobe-step ") {
                seam(step);
                go.write_all(b"\n").map_err(failed)?;
            } else if let Some(why) = line.trim_end().strip_prefix("fsprobe-refused ") {
                why.clone_into(&mut class);
            }
        }
        drop((go, lines));
        let bytes = answer.join();
        let status = child.wait().map_err(failed)?;
        match bytes {
            Ok(Ok(bytes)) if status.success() => Ok(bytes),
            Ok(Err(error)) => Err(failed(error)),
            _ => Err(Refusal::new(class)),
        }
    }
}

impl Opened {
    fn fill(&self, argument: &OsStr, path: &Path, ceiling: u64) -> OsString {
        let ceiling = ceiling.to_string();
        let with: [(&[u8], &[u8]); 3] = [
            (b"{root}", self.root.as_os_str().as_bytes()),
            (b"{path}", path.as_os_str().as_bytes()),
            (b"{ceiling}", ceiling.as_bytes()),
        ];
        fill_in(argument, with)
    }
}

#[cfg(test)]
mod tests {
    use std::{path::Path, sync::Arc};

    use super::Stepping;
    use crate::{
        Arena,
        baseline::{Outcome, run_with},
        control::OpenatWalk,
        subject::Subject,
    };

    /// A check-then-open reader in shell, with a stop between the two.
    const WEAK: &str = r#"
        f="$1/$2"
        [ -L "$f" ] && { echo 'fsprobe-refused LINK' >&2; exit 1; }
        [ "$(stat -c %s "$f")" -le "$3" ] || { echo 'fsprobe-refused LARGE' >&2; exit 1; }
        echo 'fsprobe-step checked' >&2
        read -r go
        head -c "$(($3 + 1))" "$f" > "$4"
        [ "$(stat -c %s "$4")" -le "$3" ] || { echo 'fsprobe-refused GREW' >&2; exit 1; }
        cat "$4"
    "#;

    fn outcome(script: &str) -> Outcome {
        let dir = tempfile::tempdir().unwrap();
        let scratch = dir.path().join("scratch").into_os_string();
        let argv = ["sh", "-c", script, "weak", "{root}", "{path}", "{ceiling}"];
        let mut argv: Vec<_> = argv.iter().map(Into::into).collect();
        argv.push(scratch);
        let control: Arc<dyn Subject> = Arc::new(Stepping::new(argv));
        assert_eq!(control.name(), "sh");
        assert!(control.open(Path::new("/")).is_ok());
        let reference: Arc<dyn Subject> = Arc::new(OpenatWalk);
        let arena = Arena::new_in(dir.path()).unwrap();
        run_with(&arena, 7, &control, &reference).unwrap().outcome
    }

    #[test]
    fn a_program_that_stops_at_its_check_is_a_control_of_the_baseline() {
        assert_eq!(outcome(WEAK), Outcome::Reproduced);
        // One that no longer loses, and one that never stops, ask for somebody to look.
        let pinned = WEAK.replace(
            "echo 'fsprobe-step",
            "exec 9<\"$f\"; f=/dev/fd/9; echo 'fsprobe-step",
        );
        assert_eq!(outcome(&pinned), Outcome::Review);
        let silent = WEAK.replace("fsprobe-step checked", "nothing");
        assert_eq!(outcome(&silent.replace("read -r go", "")), Outcome::Review);
    }
}
