package operator

import "time"

// Stack is a stack as an operator sees it. What was not measured is nil.
type Stack struct {
	ID        string     `json:"id"`
	Name      string     `json:"name"`
	Status    string     `json:"status"`
	Owner     *string    `json:"owner"` // email of the account; nil for an unclaimed stack
	CreatedAt time.Time  `json:"created_at"`
	ExpiresAt *time.Time `json:"expires_at"` // nil for a claimed stack
	Deploying bool       `json:"deploying"`
	Restoring bool       `json:"restoring"` // what it served is being brought back
	Cores     *float64   `json:"cpu_cores"`
	Memory    *int64     `json:"memory_bytes"`
	Data      *int64     `json:"data_bytes"`
	Disk      *int64     `json:"disk_bytes"`       // all that it takes
	DiskAt    *time.Time `json:"disk_measured_at"` // of Data and Disk
	Failure   string     `json:"error,omitempty"`  // why it failed, or why its latest deploy did
	Node      string     `json:"node,omitempty"`   // id of the owner, in a cluster
	NodeName  string     `json:"node_name,omitempty"`
	NodeState string     `json:"node_state,omitempty"` // NodeReady, away or lost
	Epoch     int64      `json:"epoch"`

	Services []Service `json:"services,omitzero"`  // nil where all stacks are listed
	Left     []Left    `json:"data_left,omitzero"` // nil where all stacks are listed
}

// NodeReady is the state of a node that has its lease. In any other state its stacks may not be
// served.
const NodeReady = "ready"

// Service is a service of a stack as an operator sees it.
type Service struct {
	Name    string   `json:"name"`
	Runtime string   `json:"runtime"`
	Status  string   `json:"status"`
	Cores   *float64 `json:"cpu_cores"`
	Memory  *int64   `json:"memory_bytes"`
	Data    *int64   `json:"data_bytes"`
}

// Stacks are all stacks, and the builds in line on this machine.
type Stacks struct {
	Stacks []Stack `json:"stacks"`
	Builds Builds  `json:"builds"`
}

// Builds are how many builds run, and how many wait for their turn.
type Builds struct {
	Running int `json:"running"`
	Waiting int `json:"waiting"`
}

// Left are volumes with data of a stack on a node that does not own it.
type Left struct {
	Stack    string   `json:"stack"`
	Node     string   `json:"node"` // id
	NodeName string   `json:"node_name"`
	Volumes  []string `json:"volumes"`
}

// Account is an account as an operator sees it.
type Account struct {
	ID        string    `json:"id"`
	Email     string    `json:"email"`
	CreatedAt time.Time `json:"created_at"`
	Stacks    int       `json:"stacks"` // that it owns
	Disabled  bool      `json:"disabled"`
	Reason    string    `json:"reason,omitempty"` // for which it is disabled
}

// Accounts are all accounts.
type Accounts struct {
	Accounts []Account `json:"accounts"`
}

// Stopped are the stacks that were stopped with their account.
type Stopped struct {
	Stacks []string `json:"stacks"`
}

// Ban is a banned client network.
type Ban struct {
	Network   string     `json:"network"`
	CreatedAt time.Time  `json:"created_at"`
	EndsAt    *time.Time `json:"ends_at"` // nil for never
}

// BanList are all bans that have not ended.
type BanList struct {
	Bans []Ban `json:"bans"`
}

// Entry is a command that an operator gave.
type Entry struct {
	At      time.Time `json:"at"`
	UID     int       `json:"uid"` // of the process that sent it
	Command string    `json:"command"`
	Result  string    `json:"result"` // ok, begun, or the error
}

// Entries are the last commands, oldest first.
type Entries struct {
	Entries []Entry `json:"entries"`
}
