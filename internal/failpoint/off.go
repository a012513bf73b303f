//go:build !failpoint

package failpoint

// Here is a point at which the process may be killed.
func Here(string) {}

// Error is a point at which the process may be killed or meet an error.
func Error(string) error { return nil }
