//! Makes a system call fail on the calling thread, as a container's filter does.
#![expect(unsafe_code, reason = "installing a filter has no safe wrapper")]

use rustix::io::Errno;

/// Which calls fail.
#[derive(Clone, Copy)]
pub(crate) struct Calls {
    /// The system call's number.
    number: libc::c_long,
    third: Third,
}

/// What the third argument must be.
#[derive(Clone, Copy)]
enum Third {
    Anything,
    /// It has one of these bits.
    Has(u32),
    /// It is exactly this.
    Is(u32),
}

/// `openat2(2)`.
pub(crate) const OPENAT2: Calls = Calls {
    number: libc::SYS_openat2,
    third: Third::Anything,
};

/// `open(2)` of an unnamed file.
pub(crate) const O_TMPFILE: Calls = Calls {
    number: libc::SYS_openat,
    third: Third::Has(0o20_000_000),
};

/// `open(2)` of a component, to be looked at and not followed: the walk's one way on.
pub(crate) const COMPONENT: Calls = Calls {
    number: libc::SYS_openat,
    // rustix asks for large files always, where libc has no name for it.
    third: Third::Is(
        (libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC).cast_unsigned() | 0o100_000,
    ),
};

/// `statx(2)`.
pub(crate) const STATX: Calls = Calls {
    number: libc::SYS_statx,
    third: Third::Anything,
};

/// `ptrace(2)`.
pub(crate) const PTRACE: Calls = Calls {
    number: libc::SYS_ptrace,
    third: Third::Anything,
};

/// Runs `work` on a thread of its own on which `calls` answer `errno`, for good.
pub(crate) fn with<T: Send>(calls: Calls, errno: Errno, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let filtered = scope.spawn(|| {
            install(calls, errno);
            work()
        });
        filtered.join().unwrap()
    })
}

fn install(calls: Calls, errno: Errno) {
    let step = |code: u32, jt, jf, k| libc::sock_filter {
        code: u16::try_from(code).unwrap(),
        jt,
        jf,
        k,
    };
    let load = |at| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, at);
    let refuse = libc::SECCOMP_RET_ERRNO | u32::try_from(errno.raw_os_error()).unwrap();
    let number = u32::try_from(calls.number).unwrap();
    let jump = |test, operand| step(libc::BPF_JMP | test | libc::BPF_K, 0, 1, operand);
    let is_third = match calls.third {
        Third::Anything => step(libc::BPF_JMP | libc::BPF_JA, 0, 0, 0),
        Third::Has(bits) => jump(libc::BPF_JSET, bits),
        Third::Is(value) => jump(libc::BPF_JEQ, value),
    };
    let mut program = [
        load(0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 3, number),
        // The low half of the third argument of `struct seccomp_data`, on a little-endian machine.
        load(16 + 2 * 8),
        is_third,
        step(libc::BPF_RET | libc::BPF_K, 0, 0, refuse),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).unwrap(),
        filter: program.as_mut_ptr(),
    };
    // SAFETY: both calls take integers and, the second, a pointer to a program that is alive for the
    // length of the call and only read.
    let installed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program,
            ) == 0
    };
    assert!(installed, "{}", std::io::Error::last_os_error());
}
