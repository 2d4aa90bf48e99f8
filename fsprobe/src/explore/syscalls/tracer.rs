//! Runs a program under `ptrace` and stops it at every system call boundary, forks and threads
//! included, letting one thread run at a time.
//!
//! A thread keeps running until it ends or waits in the kernel; then the lowest-numbered thread that
//! can go on does. Threads that wait come back to a boundary of their own and are held there until
//! it is their turn. Where that is not enough to make two runs alike, the caller notices from the
//! boundaries themselves.

#![forbid(unsafe_code)]

use std::{
    io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use nix::{
    libc,
    sys::{
        prctl, ptrace,
        signal::{Signal, kill},
        uio::{RemoteIoVec, process_vm_readv},
    },
    unistd::Pid,
};

use super::calls::{self, Names};
use crate::{
    child,
    error::ProbeError,
    subject::process::{Ended, Output},
    sys::{self, CallStop},
};

/// How long a thread may compute, others waiting, before it no longer has the stage to itself.
const SLICE: Duration = Duration::from_millis(100);
/// How long a wait in the kernel has to last to count as one.
const BLINK: Duration = Duration::from_micros(200);
/// How often a thread goes on before others that are ready get a turn.
const TURNS: u32 = 4096;
/// Threads and processes of one run; more are not followed any further.
const MAX_THREADS: usize = 512;

/// A moment at which a thread of the program stands still at the edge of a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Boundary {
    /// The thread, numbered in order of appearance.
    pub(super) thread: u32,
    pub(super) call: u64,
    pub(super) is_entry: bool,
}

impl Boundary {
    /// In words, for reports.
    pub(super) fn title(self) -> String {
        let side = if self.is_entry { "before" } else { "after" };
        let thread = if self.thread == 0 {
            String::new()
        } else {
            format!(" of thread {}", self.thread)
        };
        format!("{side} {}{thread}", calls::title(self.call))
    }
}

/// What a run showed besides the answer.
#[derive(Debug, Default)]
pub(super) struct Trace {
    /// Every boundary from the first call that reached the root.
    pub(super) boundaries: Vec<Boundary>,
    /// How many of them there are up to the last call that had to do with the root.
    pub(super) relevant: usize,
    /// Why the boundaries do not tell everything, if they do not.
    pub(super) blind: Option<&'static str>,
    /// The file was mapped: bytes arrived without calls from then on.
    pub(super) mapped: bool,
    /// Two threads had to run at once.
    pub(super) overlapped: bool,
}

/// What the caller is asked while a program runs.
pub(super) trait Observer {
    /// A boundary was reached, the `index`th since the program first reached the root.
    fn at(&mut self, index: usize, boundary: Boundary) -> Result<(), ProbeError>;

    /// Nothing has moved for a moment; whether something the caller did holds the program, which
    /// settles its fate.
    fn idle(&mut self) -> bool;
}

/// Runs `command`, prepared with [`sys::trace_child`], until it ends.
///
/// A program in which nothing moves for `patience`, or that goes on for ten times as long, is
/// killed and counts as hung; so is everything it started and left running.
pub(super) fn run(
    mut command: std::process::Command,
    output: &Output,
    root: &Path,
    patience: Duration,
    observer: &mut dyn Observer,
) -> Result<(Ended, Trace), ProbeError> {
    let _punctual = Punctual::new();
    sys::trace_child(&mut command, Output::MAX, output.kept_open);
    let child = command.spawn().map_err(|source| {
        if source.raw_os_error() == Some(libc::EPERM) {
            host("trace a program", source)
        } else {
            let program = command.get_program().to_string_lossy().into_owned();
            ProbeError::Start { program, source }
        }
    })?;
    let main = Pid::from_raw(child.id().cast_signed());
    let mut tracer = Tracer {
        main,
        root: root.to_owned(),
        threads: vec![Thread::new(main, 0)],
        started: 1,
        trace: Trace::default(),
        stage: if output.kept_open.is_some() {
            Stage::Opening
        } else {
            Stage::Before
        },
        ended: None,
        current: None,
        observer,
    };
    let outcome = tracer.begin().and_then(|()| tracer.drive(patience));
    tracer.end_all();
    outcome.map(|ended| (ended, tracer.trace))
}

struct Tracer<'a> {
    main: Pid,
    root: PathBuf,
    threads: Vec<Thread>,
    /// Threads seen so far, for numbering them.
    started: u32,
    trace: Trace,
    stage: Stage,
    ended: Option<Ended>,
    /// The thread on stage and how often in a row it went on.
    current: Option<(Pid, u32)>,
    observer: &'a mut dyn Observer,
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// A reader of ours opens its root, and will say when it has.
    Opening,
    /// The root was not reached yet.
    Before,
    /// It was.
    Reached,
}

struct Thread {
    tid: Pid,
    number: u32,
    state: State,
    /// The call it is in, and whether that has to do with the root.
    inside: Option<(u64, bool)>,
    /// Its first stop is the tracer's doing and not a signal.
    is_new: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// At a stop, to be resumed with this signal.
    Ready(i32),
    /// Resumed at this time and not heard of since.
    Running(Instant),
    /// Waiting in the kernel, or not yet stopped for the first time.
    Waiting,
}

impl Thread {
    fn new(tid: Pid, number: u32) -> Self {
        Self {
            tid,
            number,
            state: State::Waiting,
            inside: None,
            is_new: true,
        }
    }
}

impl Tracer<'_> {
    /// Waits for the stop after `exec` and asks for everything to be followed.
    fn begin(&mut self) -> Result<(), ProbeError> {
        let status =
            sys::wait_status(self.main, true).map_err(|e| host("wait for a program", e))?;
        let Some(status) = status.filter(|status| libc::WIFSTOPPED(*status)) else {
            return Err(host(
                "trace a program",
                io::ErrorKind::PermissionDenied.into(),
            ));
        };
        debug_assert_eq!(libc::WSTOPSIG(status), libc::SIGTRAP);
        let options = ptrace::Options::PTRACE_O_TRACESYSGOOD
            | ptrace::Options::PTRACE_O_TRACECLONE
            | ptrace::Options::PTRACE_O_TRACEFORK
            | ptrace::Options::PTRACE_O_TRACEVFORK
            | ptrace::Options::PTRACE_O_TRACEEXEC
            | ptrace::Options::PTRACE_O_EXITKILL;
        ptrace::setoptions(self.main, options).map_err(|e| host("follow a program", e.into()))?;
        if let Some(main) = self.threads.first_mut() {
            main.state = State::Ready(0);
            main.is_new = false;
        }
        Ok(())
    }

    fn drive(&mut self, patience: Duration) -> Result<Ended, ProbeError> {
        let deadline = Instant::now() + patience.saturating_mul(10);
        loop {
            self.let_one_run(patience, deadline)?;
            if let Some(ended) = self.ended {
                return Ok(ended);
            }
        }
    }

    /// Resumes one thread and stays with it until it stops again, ends, or waits.
    fn let_one_run(&mut self, patience: Duration, deadline: Instant) -> Result<(), ProbeError> {
        let Some(tid) = self.next(patience, deadline)? else {
            return Ok(());
        };
        // A thread that is gone tells so when it is asked next.
        let Some(thread) = self.find(tid) else {
            return Ok(());
        };
        if let State::Ready(signal) = thread.state {
            thread.state = State::Running(Instant::now());
            let resumed = if self.stage == Stage::Opening {
                sys::resume_freely(tid, signal)
            } else {
                sys::resume(tid, signal)
            };
            match resumed {
                Err(error) if error.raw_os_error() != Some(libc::ESRCH) => {
                    return Err(host("resume a program", error));
                }
                _ => {}
            }
        }
        let resumed = Instant::now();
        let mut looks = 0_u32;
        loop {
            if self.hear(tid)? {
                return Ok(());
            }
            if Instant::now() >= deadline {
                self.ended = Some(Ended::Hung);
                return Ok(());
            }
            let since = resumed.elapsed();
            if since > BLINK && is_waiting(tid) {
                if let Some(thread) = self.find(tid) {
                    thread.state = State::Waiting;
                }
                return Ok(());
            }
            if since > SLICE && self.hear_others(tid)? {
                // It may be spinning for what only another can do.
                self.trace.overlapped = true;
                return Ok(());
            }
            looks += 1;
            pause(looks);
        }
    }

    /// The thread whose turn it is; waits where none can go on. `None` once all is over.
    fn next(&mut self, patience: Duration, deadline: Instant) -> Result<Option<Pid>, ProbeError> {
        // Whoever ran last goes on, but not so long that it could wait for another in a loop.
        if let Some((tid, turns)) = &mut self.current
            && *turns < TURNS
            && self
                .threads
                .iter()
                .any(|thread| thread.tid == *tid && matches!(thread.state, State::Ready(_)))
        {
            *turns += 1;
            return Ok(Some(*tid));
        }
        let tired = self.current.take().map(|(tid, _)| tid);
        let mut looks = 0_u32;
        let mut quiet_since = Instant::now();
        let mut asked = Instant::now();
        loop {
            if self.ended.is_some() {
                return Ok(None);
            }
            // Let everybody who is about to come back do so, so that the order is always the same.
            let mut is_settled = false;
            while !is_settled {
                is_settled = !self.hear_others(Pid::from_raw(0))?;
                if !is_settled {
                    quiet_since = Instant::now();
                }
            }
            if self.ended.is_some() {
                return Ok(None);
            }
            let ready = |thread: &&Thread| matches!(thread.state, State::Ready(_));
            let mut all_ready = self.threads.iter().filter(ready);
            // The one that just had its turns goes last.
            let next = all_ready.clone().find(|thread| Some(thread.tid) != tired);
            if let Some(thread) = next.or_else(|| all_ready.next()) {
                self.current = Some((thread.tid, 0));
                return Ok(Some(thread.tid));
            }
            if self.threads.is_empty() {
                // Everything ended without the first process saying how: it was killed with all.
                self.ended = Some(Ended::Signal(libc::SIGKILL));
                return Ok(None);
            }
            let now = Instant::now();
            if now.duration_since(quiet_since) > patience || now > deadline {
                self.ended = Some(Ended::Hung);
                return Ok(None);
            }
            if now.duration_since(asked) > crate::explore::seams::FIFO_PATIENCE {
                asked = now;
                if self.observer.idle() {
                    self.ended = Some(Ended::Hung);
                    return Ok(None);
                }
            }
            looks += 1;
            pause(looks);
        }
    }

    fn find(&mut self, tid: Pid) -> Option<&mut Thread> {
        self.threads.iter_mut().find(|thread| thread.tid == tid)
    }

    /// Whether any thread but `tid` has something to say; it is heard.
    fn hear_others(&mut self, tid: Pid) -> Result<bool, ProbeError> {
        let waiting: Vec<Pid> = self
            .threads
            .iter()
            .filter(|thread| thread.tid != tid && !matches!(thread.state, State::Ready(_)))
            .map(|thread| thread.tid)
            .collect();
        let mut heard = false;
        for other in waiting {
            heard |= self.hear(other)?;
        }
        Ok(heard)
    }

    /// Whether `tid` had something to say.
    fn hear(&mut self, tid: Pid) -> Result<bool, ProbeError> {
        match sys::wait_status(tid, false) {
            Ok(None) => Ok(false),
            Ok(Some(status)) => {
                self.take(tid, status)?;
                Ok(true)
            }
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => {
                // Taken down by an `exec` or an exit of its whole process.
                self.threads.retain(|thread| thread.tid != tid);
                Ok(true)
            }
            Err(error) => Err(host("wait for a program", error)),
        }
    }

    fn take(&mut self, tid: Pid, status: i32) -> Result<(), ProbeError> {
        if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
            self.threads.retain(|thread| thread.tid != tid);
            if tid == self.main {
                self.ended = Some(if libc::WIFEXITED(status) {
                    Ended::Exit(libc::WEXITSTATUS(status))
                } else {
                    Ended::Signal(libc::WTERMSIG(status))
                });
            }
            return Ok(());
        }
        let signal = libc::WSTOPSIG(status);
        let event = status >> 16;
        if signal == libc::SIGTRAP | 0x80 {
            return self.boundary(tid);
        }
        let mut deliver = 0;
        if event != 0 {
            self.event(tid, event);
        } else if let Some(thread) = self.find(tid) {
            let is_first = std::mem::replace(&mut thread.is_new, false);
            if self.stage == Stage::Opening && signal == child::OPENED as i32 {
                self.stage = Stage::Before;
                // Whoever waits since before will not be stopped when it goes on; a test harness
                // has one such thread, and it only goes on when all is over.
                self.trace.overlapped |= self.threads.len() > 2;
            } else if !(is_first && signal == libc::SIGSTOP) {
                deliver = signal;
            }
        }
        if let Some(thread) = self.find(tid) {
            thread.state = State::Ready(deliver);
        }
        Ok(())
    }

    fn event(&mut self, tid: Pid, event: i32) {
        match event {
            libc::PTRACE_EVENT_CLONE | libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK => {
                let Ok(child) = ptrace::getevent(tid) else {
                    return;
                };
                let child = Pid::from_raw(i32::try_from(child).unwrap_or_default());
                if self.threads.len() < MAX_THREADS {
                    self.threads.push(Thread::new(child, self.started));
                    self.started += 1;
                } else {
                    self.trace.blind = Some("it started too many threads to follow");
                }
            }
            libc::PTRACE_EVENT_EXEC => {
                if let Some(thread) = self.find(tid) {
                    thread.inside = None;
                }
            }
            _ => {}
        }
    }

    fn boundary(&mut self, tid: Pid) -> Result<(), ProbeError> {
        let stop = match sys::call_stop(tid) {
            Ok(stop) => stop,
            // Killed while we looked.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(()),
            Err(error) => return Err(host("look at a system call", error)),
        };
        let (arch, stop) = stop;
        if calls::NATIVE_ARCH.is_some_and(|native| native != arch) {
            self.trace.blind = Some("it makes system calls of another architecture");
        }
        let noted = match stop {
            CallStop::Entry { call, arguments } => {
                let touches = self.touches(tid, call, arguments);
                let Some(thread) = self.find(tid) else {
                    return Ok(());
                };
                thread.inside = Some((call, touches));
                let boundary = Boundary {
                    thread: thread.number,
                    call,
                    is_entry: true,
                };
                Some((boundary, touches))
            }
            CallStop::Exit { value } => {
                let Some(thread) = self.find(tid) else {
                    return Ok(());
                };
                let number = thread.number;
                thread.inside.take().map(|(call, touches)| {
                    if calls::is_uring(call) && value >= 0 {
                        self.trace.blind = Some("it uses io_uring, whose reads have no boundaries");
                    }
                    (
                        Boundary {
                            thread: number,
                            call,
                            is_entry: false,
                        },
                        touches,
                    )
                })
            }
            CallStop::None => None,
        };
        if let Some((boundary, touches)) = noted {
            if touches {
                self.stage = Stage::Reached;
            }
            if self.stage == Stage::Reached {
                let index = self.trace.boundaries.len();
                self.trace.boundaries.push(boundary);
                // Once it is mapped, every later moment may be one in which it is read.
                if touches || self.trace.mapped {
                    self.trace.relevant = index + 1;
                }
                self.observer.at(index, boundary)?;
            }
        }
        if let Some(thread) = self.find(tid) {
            thread.state = State::Ready(0);
        }
        Ok(())
    }

    /// Whether a call has to do with something beneath the root.
    fn touches(&mut self, tid: Pid, call: u64, arguments: [u64; 6]) -> bool {
        let argument = |index: usize| arguments.get(index).copied().unwrap_or_default();
        // Descriptors are 32-bit; the upper half of the register is anybody's.
        #[expect(clippy::cast_possible_truncation, reason = "the kernel does the same")]
        let descriptor = |index: usize| (argument(index) as u32).cast_signed();
        match calls::names(call) {
            None => false,
            Some(Names::Path { path }) => self.is_beneath(tid, libc::AT_FDCWD, argument(path)),
            Some(Names::At { dir, path }) => self.is_beneath(tid, descriptor(dir), argument(path)),
            Some(Names::Descriptor { fd }) => self.holds(tid, descriptor(fd)),
            Some(Names::Mapping { fd }) => {
                let touches = descriptor(fd) >= 0 && self.holds(tid, descriptor(fd));
                self.trace.mapped |= touches;
                touches
            }
        }
    }

    fn is_beneath(&self, tid: Pid, dir: i32, path: u64) -> bool {
        let path = read_string(tid, path);
        if path.first() == Some(&b'/') {
            return is_below(&self.root, &path);
        }
        if dir == libc::AT_FDCWD {
            return leads_below(tid, "cwd", &self.root, &path);
        }
        dir >= 0 && leads_below(tid, &format!("fd/{dir}"), &self.root, &path)
    }

    fn holds(&self, tid: Pid, fd: i32) -> bool {
        self.stage != Stage::Opening
            && fd >= 0
            && leads_below(tid, &format!("fd/{fd}"), &self.root, b"")
    }

    /// Ends everything that is left.
    fn end_all(&mut self) {
        let until = Instant::now() + Duration::from_secs(5);
        while !self.threads.is_empty() && Instant::now() < until {
            let left: Vec<Pid> = self.threads.iter().map(|thread| thread.tid).collect();
            for tid in left {
                // Already gone is as good.
                let _gone = kill(tid, Signal::SIGKILL);
                match sys::wait_status(tid, false) {
                    Ok(Some(status)) if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) => {
                        self.threads.retain(|thread| thread.tid != tid);
                    }
                    Err(_gone) => self.threads.retain(|thread| thread.tid != tid),
                    Ok(_) => {}
                }
            }
            thread::yield_now();
        }
    }
}

/// Whether `path`, relative to what `/proc/<tid>/<link>` leads to, lies beneath `root`.
fn leads_below(tid: Pid, link: &str, root: &Path, path: &[u8]) -> bool {
    let Ok(at) = rustix::fs::readlink(format!("/proc/{tid}/{link}"), Vec::new()) else {
        return false;
    };
    let mut whole = at.into_bytes();
    if !path.is_empty() {
        whole.push(b'/');
        whole.extend_from_slice(path);
    }
    is_below(root, &whole)
}

/// Whether `path` is `root` or starts with it as a directory.
fn is_below(root: &Path, path: &[u8]) -> bool {
    path.strip_prefix(root.as_os_str().as_bytes())
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// The string at `address` in `tid`'s memory, as far as it can be read.
fn read_string(tid: Pid, address: u64) -> Vec<u8> {
    const PAGE: usize = 4096;
    let Ok(mut address) = usize::try_from(address) else {
        return Vec::new();
    };
    let mut text = Vec::new();
    while address != 0 && text.len() <= PAGE {
        // Never across a page: the next one need not be there.
        let mut chunk = vec![0; PAGE - address % PAGE];
        let remote = [RemoteIoVec {
            base: address,
            len: chunk.len(),
        }];
        let read = process_vm_readv(tid, &mut [io::IoSliceMut::new(&mut chunk)], &remote);
        let Ok(count @ 1..) = read else { break };
        chunk.truncate(count);
        if let Some(end) = chunk.iter().position(|byte| *byte == 0) {
            chunk.truncate(end);
            text.append(&mut chunk);
            break;
        }
        text.append(&mut chunk);
        address = address.saturating_add(count);
    }
    text
}

/// Whether the kernel has put `tid` to sleep, for a while or for good.
fn is_waiting(tid: Pid) -> bool {
    let Ok(stat) = read_small(&format!("/proc/{tid}/stat")) else {
        return false;
    };
    // The name before it may contain anything, a closing bracket included.
    let after = stat.iter().rposition(|byte| *byte == b')').map(|at| at + 2);
    // A leader that ended before its threads stays as a zombie until they are heard of.
    matches!(
        after.and_then(|at| stat.get(at)),
        Some(b'S' | b'D' | b'Z' | b'X')
    )
}

fn read_small(path: &str) -> io::Result<Vec<u8>> {
    use rustix::fs::{Mode, OFlags};
    let fd = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut bytes = vec![0; 1024];
    let count = rustix::io::read(&fd, &mut bytes)?;
    bytes.truncate(count);
    Ok(bytes)
}

/// Waits a little. Sleeping instead of spinning keeps the scheduler on our side: on a busy machine
/// whoever spins is put last, and the program with it.
fn pause(looks: u32) {
    thread::sleep(Duration::from_micros(match looks {
        0..100 => 5,
        100..200 => 50,
        _ => 500,
    }));
}

/// Makes short sleeps of this thread short for as long as it lives.
struct Punctual(i32);

impl Punctual {
    fn new() -> Self {
        let before = prctl::get_timerslack().unwrap_or_default();
        // Without it the probe is only slower.
        let _refused = prctl::set_timerslack(1);
        Self(before)
    }
}

impl Drop for Punctual {
    fn drop(&mut self) {
        // 0 would mean the default, which is what was read or the best guess.
        let _refused = prctl::set_timerslack(u64::try_from(self.0).unwrap_or_default());
    }
}

fn host(what: &'static str, source: io::Error) -> ProbeError {
    ProbeError::Host { what, source }
}
