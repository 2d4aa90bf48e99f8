//! The one leaf with `unsafe`: system calls that no library wraps safely.
//!
//! Promises: each function here is safe to call with any argument. Leaves to others: everything else.

#![expect(
    unsafe_code,
    reason = "no library we use has a safe form of these calls; each block states why it is sound"
)]

use std::{io, os::fd::BorrowedFd};

use rustix::ioctl::{Getter, Opcode, ioctl};

/// `TIOCOUTQ`, of the same number on all architectures we build for.
const TIOCOUTQ: Opcode = 0x5411;

/// How many bytes of a socket's output the peer has not acknowledged (TCP) or not read (Unix).
///
/// # Errors
/// What the system says; `ENOTTY` for something that is not a socket.
///
/// # Source
/// `tcp(7)` and `unix(7)`, `SIOCOUTQ`.
pub(crate) fn unacknowledged(socket: BorrowedFd<'_>) -> io::Result<u64> {
    // SAFETY: this opcode writes one C int through the pointer, and `Getter` provides exactly that.
    let bytes: i32 = unsafe { ioctl(socket, Getter::<TIOCOUTQ, i32>::new()) }?;
    Ok(u64::try_from(bytes).unwrap_or(0))
}
