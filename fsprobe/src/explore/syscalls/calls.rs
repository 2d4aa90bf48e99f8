//! Which system calls name a file, and how: what it takes to see a program reach the arena.

#![forbid(unsafe_code)]

use nix::libc;

/// How one argument of a call names a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Names {
    /// A path, relative to the current directory.
    Path { path: usize },
    /// A path, relative to a descriptor; an empty path means the descriptor itself.
    At { dir: usize, path: usize },
    /// A descriptor.
    Descriptor { fd: usize },
    /// A descriptor whose bytes get into the program's memory without further calls.
    Mapping { fd: usize },
}

/// How `call` names files, if it does; calls that only write or close are left out.
pub(super) fn names(call: u64) -> Option<Names> {
    let call = i64::try_from(call).ok()?;
    #[cfg(target_arch = "x86_64")]
    match call {
        libc::SYS_open
        | libc::SYS_stat
        | libc::SYS_lstat
        | libc::SYS_access
        | libc::SYS_readlink => return Some(Names::Path { path: 0 }),
        _ => {}
    }
    match call {
        libc::SYS_openat
        | libc::SYS_openat2
        | libc::SYS_newfstatat
        | libc::SYS_statx
        | libc::SYS_faccessat
        | libc::SYS_faccessat2
        | libc::SYS_readlinkat
        | libc::SYS_name_to_handle_at
        | libc::SYS_open_tree => Some(Names::At { dir: 0, path: 1 }),
        libc::SYS_chdir
        | libc::SYS_chroot
        | libc::SYS_statfs
        | libc::SYS_getxattr
        | libc::SYS_lgetxattr
        | libc::SYS_listxattr
        | libc::SYS_llistxattr
        | libc::SYS_execve
        | libc::SYS_truncate => Some(Names::Path { path: 0 }),
        libc::SYS_inotify_add_watch => Some(Names::Path { path: 1 }),
        libc::SYS_read
        | libc::SYS_pread64
        | libc::SYS_readv
        | libc::SYS_preadv
        | libc::SYS_preadv2
        | libc::SYS_fstat
        | libc::SYS_fstatfs
        | libc::SYS_lseek
        | libc::SYS_getdents64
        | libc::SYS_copy_file_range
        | libc::SYS_splice
        | libc::SYS_fchdir
        | libc::SYS_fcntl
        | libc::SYS_flock
        | libc::SYS_fadvise64
        | libc::SYS_readahead
        | libc::SYS_fsync
        | libc::SYS_fdatasync
        | libc::SYS_sync_file_range
        | libc::SYS_fgetxattr => Some(Names::Descriptor { fd: 0 }),
        libc::SYS_sendfile => Some(Names::Descriptor { fd: 1 }),
        // FICLONE and its kin name the source in the third argument.
        libc::SYS_ioctl => Some(Names::Descriptor { fd: 2 }),
        libc::SYS_mmap => Some(Names::Mapping { fd: 4 }),
        _ => None,
    }
}

/// Whether the call hands reads to the kernel in a way that has no boundaries.
pub(super) fn is_uring(call: u64) -> bool {
    i64::try_from(call).is_ok_and(|call| call == libc::SYS_io_uring_setup)
}

/// The call's name, for people.
pub(super) fn title(call: u64) -> String {
    macro_rules! named {
        ($($name:ident)*) => {
            &[$((libc::$name, stringify!($name))),*]
        };
    }
    #[cfg(target_arch = "x86_64")]
    const OLD: &[(i64, &str)] = named!(
        SYS_open SYS_stat SYS_lstat SYS_access SYS_readlink SYS_poll SYS_dup2 SYS_pipe SYS_fork
        SYS_vfork SYS_arch_prctl SYS_epoll_wait SYS_getdents
    );
    #[cfg(not(target_arch = "x86_64"))]
    const OLD: &[(i64, &str)] = &[];
    const COMMON: &[(i64, &str)] = named!(
        SYS_openat SYS_openat2 SYS_newfstatat SYS_statx SYS_faccessat SYS_faccessat2
        SYS_readlinkat SYS_read SYS_pread64 SYS_readv SYS_preadv SYS_preadv2 SYS_fstat SYS_statfs
        SYS_fstatfs SYS_lseek SYS_getdents64 SYS_sendfile SYS_copy_file_range SYS_splice SYS_mmap
        SYS_munmap SYS_mprotect SYS_mremap SYS_madvise SYS_brk SYS_ioctl SYS_fcntl SYS_fadvise64
        SYS_close SYS_write SYS_writev SYS_pwrite64 SYS_dup SYS_dup3 SYS_chdir SYS_fchdir
        SYS_getcwd SYS_futex SYS_epoll_ctl SYS_epoll_pwait SYS_ppoll SYS_clone SYS_clone3
        SYS_execve SYS_exit SYS_exit_group SYS_wait4 SYS_rt_sigaction SYS_rt_sigprocmask
        SYS_sched_yield SYS_getpid SYS_gettid SYS_getuid SYS_getrandom SYS_prctl SYS_fsync
        SYS_fdatasync SYS_flock SYS_ftruncate SYS_memfd_create SYS_getxattr SYS_lgetxattr
        SYS_fgetxattr SYS_listxattr SYS_llistxattr SYS_flistxattr SYS_umask SYS_eventfd2
    );
    i64::try_from(call)
        .ok()
        .and_then(|call| OLD.iter().chain(COMMON).find(|(number, _)| *number == call))
        .map_or_else(
            || format!("call {call}"),
            |(_, name)| name.replacen("SYS_", "", 1),
        )
}

/// The architecture whose call numbers these are, as `ptrace` tells it.
pub(super) const NATIVE_ARCH: Option<u32> = if cfg!(target_arch = "x86_64") {
    Some(0xC000_003E)
} else if cfg!(all(target_arch = "aarch64", target_endian = "little")) {
    Some(0xC000_00B7)
} else if cfg!(target_arch = "riscv64") {
    Some(0xC000_00F3)
} else {
    None
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_have_their_usual_names() {
        assert_eq!(title(u64::try_from(libc::SYS_openat2).unwrap()), "openat2");
        assert_eq!(title(999_999), "call 999999");
    }
}
