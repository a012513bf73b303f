package docker

import (
	"encoding/json"
	"slices"
	"sync"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// seccompProfile is the filter of system calls under which every container runs, in the
// form that the engine takes. It is upstream's current one whatever the engine's age, as
// the defaults of old engines let through what has been learned since. It refuses calls
// that upstream ties to a capability, as no tenant has any.
//
// It is narrower than upstream's in two ways. It knows only the machine's own system
// calls, so a 32-bit program is killed: with socketcall it could get around the second
// way, which is that sockets are of the families in socketFamilies only.
var seccompProfile = sync.OnceValue(func() string {
	profile := seccomp.DefaultProfile()
	for i := range profile.ArchMap {
		profile.ArchMap[i].SubArches = nil
	}
	for _, rule := range profile.Syscalls {
		rule.Names = slices.DeleteFunc(rule.Names, func(name string) bool { return slices.Contains(socketCalls, name) })
	}
	profile.Syscalls = slices.DeleteFunc(profile.Syscalls, func(rule *seccomp.Syscall) bool { return len(rule.Names) == 0 })
	for _, family := range socketFamilies {
		profile.Syscalls = append(profile.Syscalls, &seccomp.Syscall{LinuxSyscall: specs.LinuxSyscall{
			Names:  []string{"socket", "socketpair"},
			Action: specs.ActAllow,
			Args:   []specs.LinuxSeccompArg{{Index: 0, Value: family, Op: specs.OpEqualTo}},
		}})
	}
	text, err := json.Marshal(profile)
	if err != nil {
		panic("docker: seccomp profile: " + err.Error()) // it is made of constants
	}
	return string(text)
})

// socketCalls are the system calls that make a socket of a family.
var socketCalls = []string{"socket", "socketpair", "socketcall"}

// socketFamilies are all that a service needs. AF_VSOCK leads to the hypervisor, AF_ALG
// into the kernel's ciphers, and the others to protocols that hardly anybody maintains.
var socketFamilies = []uint64{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}
