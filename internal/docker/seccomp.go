package docker

import (
	"encoding/json"
	"slices"
	"sync"
	"syscall"
)

// seccompProfile is the filter of system calls that every container runs under,
// in the form that the engine takes. It does not depend on the engine's age: the
// defaults of old ones let through what the kernel has learned since.
//
// What is not listed fails with EPERM. What upstream ties to a capability is not
// listed, since no tenant has any: mounting, namespaces, bpf, performance
// events, modules, kexec, clocks, raw I/O, NUMA policy. Neither are io_uring, the
// keyring and userfaultfd, in which ways out of containers were found most often.
// Only the machine's own system calls are known: a 32-bit program is killed.
var seccompProfile = sync.OnceValue(func() string {
	profile := seccomp{
		DefaultAction: actionRefuse,
		ArchMap:       []seccompArch{{"SCMP_ARCH_X86_64"}, {"SCMP_ARCH_AARCH64"}},
		Rules: []seccompRule{
			{Names: slices.Concat(fileCalls, memoryCalls, processCalls, signalCalls, timeCalls, networkCalls, otherCalls), Action: actionAllow},
			{Names: []string{"clone"}, Action: actionAllow, Args: []seccompArg{{Index: 0, Value: newNamespaces, ValueTwo: 0, Op: opMasked}}},
			// A filter cannot look into the structure that clone3 takes; a C library
			// that finds it missing uses clone.
			{Names: []string{"clone3"}, Action: actionRefuse, Errno: uint(syscall.ENOSYS)},
		},
	}
	for _, family := range socketFamilies {
		profile.Rules = append(profile.Rules, allowArg("socket", family), allowArg("socketpair", family))
	}
	for _, persona := range personalities {
		profile.Rules = append(profile.Rules, allowArg("personality", persona))
	}
	text, err := json.Marshal(profile)
	if err != nil {
		panic("docker: seccomp profile: " + err.Error()) // it is made of constants
	}
	return string(text)
})

// The engine's form of a profile.
type (
	seccomp struct {
		DefaultAction string        `json:"defaultAction"`
		ArchMap       []seccompArch `json:"archMap"`
		Rules         []seccompRule `json:"syscalls"`
	}
	seccompArch struct {
		Architecture string `json:"architecture"`
	}
	seccompRule struct {
		Names  []string     `json:"names"`
		Action string       `json:"action"`
		Errno  uint         `json:"errnoRet,omitempty"`
		Args   []seccompArg `json:"args,omitempty"`
	}
	seccompArg struct {
		Index    uint   `json:"index"`
		Value    uint64 `json:"value"`
		ValueTwo uint64 `json:"valueTwo"`
		Op       string `json:"op"`
	}
)

const (
	actionAllow  = "SCMP_ACT_ALLOW"
	actionRefuse = "SCMP_ACT_ERRNO"
	opEqual      = "SCMP_CMP_EQ"
	opMasked     = "SCMP_CMP_MASKED_EQ" // argument AND Value equals ValueTwo
)

// allowArg allows a system call whose first argument is value.
func allowArg(name string, value uint64) seccompRule {
	return seccompRule{Names: []string{name}, Action: actionAllow, Args: []seccompArg{{Value: value, Op: opEqual}}}
}

// newNamespaces are the flags of clone that make a namespace.
const newNamespaces = syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUSER |
	syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | 0x02000000 // CLONE_NEWCGROUP

// socketFamilies are all that a service needs. AF_VSOCK leads to the hypervisor,
// AF_ALG into the kernel's ciphers, and the rest to protocols that hardly anybody
// looks after.
var socketFamilies = []uint64{syscall.AF_UNIX, syscall.AF_INET, syscall.AF_INET6, syscall.AF_NETLINK}

// personalities are the native one, with or without the kernel's version
// understated (0x20000) or as 32 bits (8), and the question which one it is.
var personalities = []uint64{0, 8, 0x20000, 0x20008, 0xffffffff}

// The system calls of 64-bit Linux that are allowed whatever their arguments; a
// name that an architecture or an engine does not know it skips.
var (
	fileCalls = []string{
		"access", "chdir", "chmod", "chown", "close", "close_range", "copy_file_range", "creat", "dup", "dup2", "dup3",
		"faccessat", "faccessat2", "fadvise64", "fallocate", "fchdir", "fchmod", "fchmodat", "fchmodat2", "fchown",
		"fchownat", "fcntl", "fdatasync", "fgetxattr", "flistxattr", "flock", "fremovexattr", "fsetxattr", "fstat",
		"fstatfs", "fsync", "ftruncate", "futimesat", "getcwd", "getdents", "getdents64", "getxattr", "getxattrat",
		"inotify_add_watch", "inotify_init", "inotify_init1", "inotify_rm_watch", "io_cancel", "io_destroy",
		"io_getevents", "io_pgetevents", "io_setup", "io_submit", "ioctl", "lchown", "lgetxattr", "link", "linkat",
		"listxattr", "listxattrat", "llistxattr", "lremovexattr", "lseek", "lsetxattr", "lstat", "mkdir", "mkdirat",
		"mknod", "mknodat", "name_to_handle_at", "newfstatat", "open", "openat", "openat2", "pipe", "pipe2", "pread64",
		"preadv", "preadv2", "pwrite64", "pwritev", "pwritev2", "read", "readahead", "readlink", "readlinkat", "readv",
		"removexattr", "removexattrat", "rename", "renameat", "renameat2", "rmdir", "sendfile", "setxattr",
		"setxattrat", "splice", "stat", "statfs", "statx", "symlink", "symlinkat", "sync", "sync_file_range", "syncfs",
		"tee", "truncate", "umask", "unlink", "unlinkat", "utime", "utimensat", "utimes", "vmsplice", "write", "writev",
	}
	memoryCalls = []string{
		"brk", "cachestat", "madvise", "map_shadow_stack", "membarrier", "memfd_create", "memfd_secret", "mincore",
		"mlock", "mlock2", "mlockall", "mmap", "mprotect", "mremap", "mseal", "msync", "munlock", "munlockall", "munmap",
		"pkey_alloc", "pkey_free", "pkey_mprotect", "remap_file_pages", "shmat", "shmctl", "shmdt", "shmget",
	}
	processCalls = []string{
		"arch_prctl", "capget", "capset", "execve", "execveat", "exit", "exit_group", "fork", "get_robust_list",
		"get_thread_area", "getcpu", "getegid", "geteuid", "getgid", "getgroups", "getpgid", "getpgrp", "getpid",
		"getppid", "getpriority", "getresgid", "getresuid", "getrlimit", "getrusage", "getsid", "gettid", "getuid",
		"ioprio_get", "ioprio_set", "landlock_add_rule", "landlock_create_ruleset", "landlock_restrict_self",
		"modify_ldt", "pidfd_open", "pidfd_send_signal", "prctl", "prlimit64", "process_mrelease", "process_vm_readv",
		"process_vm_writev", "ptrace", "rseq", "sched_get_priority_max", "sched_get_priority_min", "sched_getaffinity",
		"sched_getattr", "sched_getparam", "sched_getscheduler", "sched_rr_get_interval", "sched_setaffinity",
		"sched_setattr", "sched_setparam", "sched_setscheduler", "sched_yield", "seccomp", "set_robust_list",
		"set_thread_area", "set_tid_address", "setfsgid", "setfsuid", "setgid", "setgroups", "setpgid", "setpriority",
		"setregid", "setresgid", "setresuid", "setreuid", "setrlimit", "setsid", "setuid", "times", "vfork", "wait4",
		"waitid",
	}
	signalCalls = []string{
		"alarm", "kill", "pause", "restart_syscall", "rt_sigaction", "rt_sigpending", "rt_sigprocmask",
		"rt_sigqueueinfo", "rt_sigreturn", "rt_sigsuspend", "rt_sigtimedwait", "rt_tgsigqueueinfo", "sigaltstack",
		"signalfd", "signalfd4", "tgkill", "tkill",
	}
	timeCalls = []string{
		"adjtimex", "clock_adjtime", "clock_getres", "clock_gettime", "clock_nanosleep", "getitimer", "gettimeofday",
		"nanosleep", "setitimer", "time", "timer_create", "timer_delete", "timer_getoverrun", "timer_gettime",
		"timer_settime", "timerfd_create", "timerfd_gettime", "timerfd_settime",
	}
	networkCalls = []string{
		"accept", "accept4", "bind", "connect", "getpeername", "getsockname", "getsockopt", "listen", "recvfrom",
		"recvmmsg", "recvmsg", "sendmmsg", "sendmsg", "sendto", "setsockopt", "shutdown",
	}
	otherCalls = []string{
		"epoll_create", "epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_pwait2", "epoll_wait", "eventfd", "eventfd2",
		"futex", "futex_requeue", "futex_wait", "futex_waitv", "futex_wake", "getrandom", "mq_getsetattr", "mq_notify",
		"mq_open", "mq_timedreceive", "mq_timedsend", "mq_unlink", "msgctl", "msgget", "msgrcv", "msgsnd", "poll",
		"ppoll", "pselect6", "select", "semctl", "semget", "semop", "semtimedop", "sysinfo", "uname",
		"uretprobe",
	}
)
