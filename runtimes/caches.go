package runtimes

// Cache is what a tool of a project keeps of what it has compiled. It lies below /cache,
// from one build to the next.
type Cache struct {
	Name   string // path below /cache, whose first part is the tool
	Folder string // in the service's folder, that the cache is put in place of; "" if the environment leads the tool to it
	Beside string // file or folder in the service's folder; without it the tool is not used
}

// packageCaches are those of tools of a package.json. Not all of .next/cache is among them:
// Next.js also keeps there what it has fetched, which the next build would take for what
// an address answers, and what its server needs.
var packageCaches = []Cache{
	{"next/webpack", ".next/cache/webpack", "node_modules/next"},
	{"next/swc", ".next/cache/swc", "node_modules/next"},
	{"next/turbopack", ".next/cache/turbopack", "node_modules/next"},
	{"node_modules/cache", "node_modules/.cache", "node_modules"},
	{"vite/cache", "node_modules/.vite", "node_modules/vite"},
	{"turbo", "", "turbo.json"},
}

// packageMarks are the records that package managers leave in node_modules, the lock of
// Bun, which leaves none, and the changes that projects make to packages.
var packageMarks = []string{
	"node_modules/.package-lock.json", "node_modules/.yarn-integrity", "node_modules/.yarn-state.yml", "node_modules/.pnpm/lock.yaml",
	"bun.lock", "bun.lockb", "patches", ".yarn/patches",
}
