package main

import (
	"os"
	"runtime/debug"

	"github.com/berth-host/berth/internal/manpage"
	"github.com/berth-host/berth/internal/reload"
	"github.com/berth-host/berth/internal/server"
)

// A package sets these when it builds berthd, so that every command uses the settings and
// the data of the service. They are empty in other builds.
var (
	packaged     string // version of the package
	settingsFile string // environment file that the service also reads
	dataDir      string // default of BERTH_DATA_DIR
)

const dataDirName = "BERTH_DATA_DIR"

// installedDefaults sets the variables that the package's settings contain and the
// environment does not. A process that another one has started for a reload keeps to the
// settings of that.
func installedDefaults() error {
	if settingsFile != "" && !reload.HasSettings() {
		if err := server.LoadFile(settingsFile); err != nil {
			return err
		}
	}
	if dataDir != "" && os.Getenv(dataDirName) == "" {
		return os.Setenv(dataDirName, dataDir)
	}
	return nil
}

// version returns the version of the package, or of the source.
func version() string {
	if packaged != "" {
		return packaged
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}

// defaultOf returns the default of a setting in this build.
func defaultOf(s server.Setting) string {
	if s.Name == dataDirName && dataDir != "" {
		return dataDir
	}
	return s.Default
}

// manual returns what the manual page says beside the commands and the settings.
func manual() []manpage.Section {
	return []manpage.Section{
		{Title: "Environment", Text: "Every option that begins a setting can also be set as an environment variable: --listen is BERTH_LISTEN. Options take precedence. DOCKER_HOST is the address of the Docker engine, which must run on this machine."},
		{Title: "Files", Text: "/etc/berth/berthd.env contains the settings of the service and of all commands of the installed package. /var/lib/berth is its data directory; the data of services is in the engine's volumes. Back all of it up with berthd backup, and copy /etc/berth."},
		{Title: "Signals", Text: "SIGTERM and SIGINT end the server after the open requests, within BERTH_DRAIN. Deployed services keep running, and the next server takes them over. SIGHUP has a new process of the program take the place of this one once its jobs have ended, within BERTH_RELOAD_WAIT, without losing a request; it is refused in the first process of a container."},
		{Title: "Examples", Items: []manpage.Item{
			{Tag: "berthd doctor", Text: "Check the machine before the first start, and say what to do about faults."},
			{Tag: "berthd images build", Text: "Make the base images, so that the first deploys need not wait; needed where no registry has debian:trixie-slim."},
			{Tag: "systemctl enable --now berthd", Text: "Start the service of the installed package, now and whenever the machine starts."},
			{Tag: "systemctl reload berthd", Text: "Have the program that an upgrade has put in place take over without losing a request."},
			{Tag: "berthd stacks list", Text: "List all stacks with what they use and why they failed."},
			{Tag: "berthd stacks stop stk_0123456789ab --reason 'mines coins'", Text: "Stop a stack; its data stays, and its owner reads the reason."},
			{Tag: "berthd backup /backup/berth.age --recipient age1...", Text: "Back everything up while the server runs, encrypted for a public key of age."},
			{Tag: "berthd restore /backup/berth.age --identity key.txt", Text: "Bring a backup to an empty machine, before the service is started there."},
		}},
		{Title: "See also", Text: "berth(1), systemctl(1), journalctl(1)"},
	}
}
