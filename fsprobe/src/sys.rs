//! The few calls for which no safe wrapper exists, each behind one.

#![expect(
    unsafe_code,
    reason = "a shared mapping and the tracer's start have no safe wrapper"
)]

use std::{
    io,
    os::{fd::AsFd, unix::process::CommandExt as _},
    process::Command,
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering},
};

use nix::{libc, unistd::Pid};
use rustix::mm::{MapFlags, ProtFlags};

/// A writable shared mapping of a file of our own, through which it can be changed unseen.
#[derive(Debug)]
pub(crate) struct SharedMapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone and is only written through `&mut self`.
unsafe impl Send for SharedMapping {}

impl SharedMapping {
    /// Maps the first `len` bytes of `file`, which must be at least that long and stay so.
    pub(crate) fn new(file: impl AsFd, len: usize) -> io::Result<Self> {
        // SAFETY: a fresh mapping at an address the kernel picks overlaps nothing of ours.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                0,
            )?
        };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }

    /// Stores `bytes` at `offset`, both a whole number of words, from the first word to the last; what
    /// does not fit is left out.
    ///
    /// In order and a word at a time, because a `memcpy` may write its first bytes last: a content that
    /// stood still halfway through one would look torn, and was there.
    pub(crate) fn store(&mut self, offset: usize, bytes: &[u8]) {
        let room = self.len.saturating_sub(offset);
        let (words, rest) = bytes.get(..room).unwrap_or(bytes).as_chunks::<8>();
        debug_assert!(rest.is_empty() && offset.is_multiple_of(8));
        for (index, word) in words.iter().enumerate() {
            let at = offset + index * 8;
            // SAFETY: the word lies within the mapping, which lives as long as `self`, and on a boundary
            // of words, because the mapping begins on one of pages. Other processes may look at the same
            // pages, which is the point; we only ever store to them, word by word.
            unsafe {
                AtomicU64::from_ptr(self.start.as_ptr().wrapping_add(at).cast())
                    .store(u64::from_ne_bytes(*word), Ordering::Release);
            }
        }
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `new` mapped, unmapped once.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "the mapping was ours");
    }
}

/// Where a traced thread stands with its system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallStop {
    /// About to enter it.
    Entry { call: u64, arguments: [u64; 6] },
    /// About to return from it.
    Exit { value: i64 },
    /// Neither.
    None,
}

/// What `PTRACE_GET_SYSCALL_INFO` fills in; the union is read as the numbers it is made of.
#[repr(C)]
#[derive(Default)]
struct CallInfo {
    op: u8,
    pad: [u8; 3],
    arch: u32,
    instruction_pointer: u64,
    stack_pointer: u64,
    union: [u64; 8],
}

const PTRACE_GET_SYSCALL_INFO: libc::c_uint = 0x420e;

/// Asks a stopped thread for its architecture and system call.
pub(crate) fn call_stop(tid: Pid) -> io::Result<(u32, CallStop)> {
    let mut info = CallInfo::default();
    // SAFETY: the kernel writes at most the size given, into a plain value that outlives the call.
    let written = unsafe {
        libc::ptrace(
            PTRACE_GET_SYSCALL_INFO as _,
            tid.as_raw(),
            size_of::<CallInfo>(),
            std::ptr::from_mut(&mut info),
        )
    };
    if written < 0 {
        return Err(io::Error::last_os_error());
    }
    let [first, arguments @ ..] = info.union;
    let stop = match info.op {
        1 => {
            let [arguments @ .., _] = arguments;
            CallStop::Entry {
                call: first,
                arguments,
            }
        }
        2 => CallStop::Exit {
            value: first.cast_signed(),
        },
        _ => CallStop::None,
    };
    Ok((info.arch, stop))
}

/// Lets a stopped thread run to its next system call boundary, delivering `signal` if not 0.
pub(crate) fn resume(tid: Pid, signal: i32) -> io::Result<()> {
    go_on(libc::PTRACE_SYSCALL, tid, signal)
}

/// Lets a stopped thread run to its next event or signal, delivering `signal` if not 0.
pub(crate) fn resume_freely(tid: Pid, signal: i32) -> io::Result<()> {
    go_on(libc::PTRACE_CONT, tid, signal)
}

fn go_on(request: libc::c_uint, tid: Pid, signal: i32) -> io::Result<()> {
    // SAFETY: takes no pointers; real-time signals are why the safe wrapper will not do.
    let resumed = unsafe {
        libc::ptrace(
            request as _,
            tid.as_raw(),
            0_usize,
            usize::try_from(signal).unwrap_or(0),
        )
    };
    if resumed < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// The raw wait status of `tid`, if it has one to tell; waits for it where `blocking`.
pub(crate) fn wait_status(tid: Pid, blocking: bool) -> io::Result<Option<i32>> {
    let mut status = 0;
    let flags = libc::__WALL | if blocking { 0 } else { libc::WNOHANG };
    loop {
        // SAFETY: `status` outlives the call. The safe wrapper refuses real-time signals.
        let waited = unsafe { libc::waitpid(tid.as_raw(), &raw mut status, flags) };
        match waited {
            0 => return Ok(None),
            -1 => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            _ => return Ok(Some(status)),
        }
    }
}

/// Bounds what `command`'s process may write to one file, keeps `kept_open` open in it, and ends
/// it with us.
pub(crate) fn limit_child(command: &mut Command, largest_file: u64, kept_open: Option<i32>) {
    // SAFETY: between fork and exec only system calls are made, no memory is allocated.
    unsafe {
        command.pre_exec(move || prepare_child(largest_file, kept_open));
    }
}

/// As [`limit_child`], and has the process traced by the thread that starts it.
///
/// Addresses are not randomised in it, so that two runs differ in nothing that need not differ.
pub(crate) fn trace_child(command: &mut Command, largest_file: u64, kept_open: Option<i32>) {
    // SAFETY: as in `limit_child`.
    unsafe {
        command.pre_exec(move || {
            prepare_child(largest_file, kept_open)?;
            let persona = nix::sys::personality::get()?;
            // Where this is forbidden, runs may differ more, which is noticed and reported.
            let _refused = nix::sys::personality::set(
                persona | nix::sys::personality::Persona::ADDR_NO_RANDOMIZE,
            );
            nix::sys::ptrace::traceme()?;
            Ok(())
        });
    }
}

fn prepare_child(largest_file: u64, kept_open: Option<i32>) -> io::Result<()> {
    use nix::sys::{prctl, resource};
    resource::setrlimit(resource::Resource::RLIMIT_FSIZE, largest_file, largest_file)?;
    resource::setrlimit(resource::Resource::RLIMIT_CORE, 0, 0)?;
    prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    if let Some(fd) = kept_open {
        // SAFETY: the number was taken from a descriptor the parent keeps open until we have
        // started; only its close-on-exec flag is changed, in our copy of the table.
        if unsafe { libc::fcntl(fd, libc::F_SETFD, 0) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
