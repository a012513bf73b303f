package stack

import "fmt"

// Quota is what the stacks of one account may have together (docs/api.md, "Quotas of an
// account"). 0 stands for no bound.
type Quota struct {
	Stacks  int
	Memory  int64 // bytes; the memory limits of all services together
	Disk    int64 // bytes; what all stacks took on the disk when they were measured last
	Service int64 // memory limit of one service, in bytes
}

// Holding is what of a stack counts towards a quota.
type Holding struct {
	Services []Service
	Disk     Disk
}

// Holding returns what of the stack counts towards a quota.
func (s *Stack) Holding() Holding { return Holding{s.Generation.Services, s.Disk} }

// Check returns an error that names the figure and its kind, if an account may not have
// another stack besides those that it has.
func (q Quota) Check(has []Holding, more Holding) error {
	used, asked := q.Sum(has), q.Sum([]Holding{more})
	switch {
	case q.Stacks > 0 && used.Stacks >= q.Stacks:
		return NewError(TooMany, fmt.Sprintf(
			"your account's quota of stacks is %d, and it has %d; delete one first", q.Stacks, used.Stacks))
	case q.Memory > 0 && asked.Memory > 0 && used.Memory+asked.Memory > q.Memory:
		return NewError(TooMany, fmt.Sprintf(
			"your account's quota of memory is %s; the services of its stacks may use %s, and those of this one another %s; delete a stack, or deploy fewer services",
			megabytes(q.Memory), megabytes(used.Memory), megabytes(asked.Memory)))
	case q.Disk > 0 && (used.Disk >= q.Disk || used.Disk+asked.Disk > q.Disk):
		return NewError(TooMany, fmt.Sprintf(
			"your account's quota of disk space is %s; its stacks take %s, and this one %s; delete a stack, or data of one",
			megabytes(q.Disk), megabytes(used.Disk), megabytes(asked.Disk)))
	}
	return nil
}

// Used is what the stacks of an account have of a quota, in the quota's units.
type Used struct {
	Stacks int
	Memory int64
	Disk   int64
}

// Sum adds up what stacks have.
func (q Quota) Sum(has []Holding) Used {
	u := Used{Stacks: len(has)}
	for _, h := range has {
		u.Memory += q.memory(h.Services)
		u.Disk += h.Disk.Total()
	}
	return u
}

// memory returns how much services may use. A static one has no process.
func (q Quota) memory(services []Service) (bytes int64) {
	for i := range services {
		if !services[i].Spec.IsStatic() {
			bytes += q.Service
		}
	}
	return bytes
}

// megabytes formats a size as settings are written, exactly enough to compare.
func megabytes(bytes int64) string { return fmt.Sprintf("%.6g MB", float64(bytes)/1e6) }
