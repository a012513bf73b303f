package stack

import "fmt"

// Quota is what the stacks of one account may have together (docs/api.md, "Quotas of an
// account"). 0 stands for no bound.
type Quota struct {
	Stacks  int
	Memory  int64 // bytes; the memory limits of all services together
	Service int64 // memory limit of one service, in bytes
}

// Check returns an error that names the figure and its kind, if an account may not have
// another stack with the services more besides the stacks with the services has.
func (q Quota) Check(has [][]Service, more []Service) error {
	if q.Stacks > 0 && len(has) >= q.Stacks {
		return NewError(TooMany, fmt.Sprintf(
			"your account's quota of stacks is %d, and it has %d; delete one first", q.Stacks, len(has)))
	}
	if q.Memory == 0 {
		return nil
	}
	used, asked := int64(0), q.memory(more)
	for _, services := range has {
		used += q.memory(services)
	}
	if asked > 0 && used+asked > q.Memory {
		return NewError(TooMany, fmt.Sprintf(
			"your account's quota of memory is %s; the services of its stacks may use %s, and those of this one another %s; delete a stack, or deploy fewer services",
			megabytes(q.Memory), megabytes(used), megabytes(asked)))
	}
	return nil
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
