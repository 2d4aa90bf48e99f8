//! The one leaf with `unsafe`: system calls that no library wraps safely.
//!
//! Promises: each function here is safe to call with any argument. Leaves to others: everything else.

#![expect(
    unsafe_code,
    reason = "no library we use has a safe form of these calls; each block states why it is sound"
)]

use std::{
    io,
    os::fd::{AsRawFd as _, BorrowedFd},
};

#[cfg(feature = "service")]
use rustix::ioctl::{Getter, Opcode, ioctl};

/// `TIOCOUTQ`, of the same number on all architectures we build for.
#[cfg(feature = "service")]
const TIOCOUTQ: Opcode = 0x5411;

/// How many bytes of a socket's output the peer has not acknowledged (TCP) or not read (Unix).
///
/// # Errors
/// What the system says; `ENOTTY` for something that is not a socket.
///
/// # Source
/// `tcp(7)` and `unix(7)`, `SIOCOUTQ`.
#[cfg(feature = "service")]
pub(crate) fn unacknowledged(socket: BorrowedFd<'_>) -> io::Result<u64> {
    // SAFETY: this opcode writes one C int through the pointer, and `Getter` provides exactly that.
    let bytes: i32 = unsafe { ioctl(socket, Getter::<TIOCOUTQ, i32>::new()) }?;
    Ok(u64::try_from(bytes).unwrap_or(0))
}

/// Takes a read lease on `file`.
///
/// Its break is announced by `SIGURG`, which does nothing unless handled; the default, `SIGIO`,
/// would end the process.
pub(crate) fn take_read_lease(file: BorrowedFd<'_>) -> io::Result<()> {
    fcntl(file, F_SETSIG, libc::SIGURG)?;
    fcntl(file, libc::F_SETLEASE, libc::F_RDLCK).map(drop)
}

/// Whether the lease is held and nobody waits for its end.
pub(crate) fn holds_read_lease(file: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(fcntl(file, libc::F_GETLEASE, 0)? == libc::F_RDLCK)
}

/// Gives the lease up.
pub(crate) fn give_lease_up(file: BorrowedFd<'_>) -> io::Result<()> {
    fcntl(file, libc::F_SETLEASE, libc::F_UNLCK).map(drop)
}

/// `F_SETSIG` as in Linux's `asm-generic/fcntl.h`; libc lacks it for most targets.
const F_SETSIG: libc::c_int = 10;

fn fcntl(
    file: BorrowedFd<'_>,
    command: libc::c_int,
    argument: libc::c_int,
) -> io::Result<libc::c_int> {
    // SAFETY: the descriptor is open for as long as it is borrowed, and the commands above take an
    // integer: no memory is read or written.
    let answer = unsafe { libc::fcntl(file.as_raw_fd(), command, argument) };
    if answer == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(answer)
}
