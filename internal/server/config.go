package server

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	netmail "net/mail"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/berth-host/berth/internal/datadir"
	"github.com/berth-host/berth/internal/mail"
	"github.com/berth-host/berth/internal/registry"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// Config is the configuration of one installation. Settings gives the variable, default
// and meaning of each field; durations are positive, sizes are in bytes.
type Config struct {
	Listen         string
	BaseURL        *url.URL
	AppsDomain     string
	DataDir        string
	DatabaseURL    string
	RedisURL       string
	TrustedProxies []netip.Prefix

	Cluster    string // off or swarm
	KeyFile    string // "" for that in the data directory
	NodeLease  time.Duration
	NodeGrace  time.Duration
	NodeLost   string // wait or restore
	PeerListen string
	PeerCert   string
	PeerKey    string
	PeerCA     string

	SnapshotEvery time.Duration // 0 for never

	TLS           string // off, files or acme
	TLSCert       string
	TLSKey        string
	ACMEDirectory string
	ACMEEmail     string

	DNS         string // host:port; "" for the system's
	HTTPListen  string // "" for none
	DomainTimes stack.DomainTimes

	Limits          stack.Limits
	CreatesPerHour  int
	RefusedPerHour  int
	ClaimsPerMinute int
	FormsPerMinute  int

	ValidationsPerMinute int

	AccountStacks int   // 0 for no quota
	AccountMemory int64 // 0 for no quota
	AccountDisk   int64 // 0 for no quota
	StackDisk     int64 // 0 for no limit

	MaxUpload   int64
	MaxUnpacked int64
	MaxData     int64
	MaxEntries  int
	MaxUnpacks  int

	MaxBuilds     int
	BuildTimeout  time.Duration
	BuildCacheMax int64

	Wait          time.Duration
	HealthTimeout time.Duration
	Drain         time.Duration
	ReloadWait    time.Duration

	ProxyTimeout        time.Duration
	ProxyConnectTimeout time.Duration
	FastLane            bool
	ConnsPerClient      int

	LogMax int64

	BuildEnvFile string
	BuildCAFile  string

	ContainerRuntime string
	ServiceMemory    int64
	ServiceCPUs      float64
	ServicePids      int64
	BuildMemory      int64
	DiskFloor        int64

	OrphanGrace      time.Duration
	AllowUnknownData bool

	Registry         registry.Address // zero without one
	RegistryAuthFile string
	RegistryCAFile   string

	SuperviseEvery time.Duration

	NetworkPool    netip.Prefix
	NetworkAllow   []string // host:port
	AllowUnguarded bool

	WebhookTimeout time.Duration
	WebhookRetries []time.Duration
	WebhookAllow   []netip.Prefix
	AdminListen    string // "" for no admin listener

	SMTP     mail.Server // zero for none
	MailFrom netmail.Address
}

// Setting is one variable of the configuration.
type Setting struct {
	Name    string // BERTH_LISTEN
	Default string // as written in the environment; "" for none
	Meaning string
	set     func(value string) error
}

// adminListen is the only setting that may be set to an empty value.
const adminListen = "BERTH_ADMIN_LISTEN"

// Flag returns the setting's name on the command line: --listen for BERTH_LISTEN.
func (s Setting) Flag() string {
	name := strings.TrimPrefix(s.Name, "BERTH_")
	return strings.ReplaceAll(strings.ToLower(name), "_", "-")
}

// Settings returns all settings in the order in which berthd config prints them.
func Settings() []Setting { return new(Config).settings() }

// settings returns all settings, which set the fields of c.
func (c *Config) settings() []Setting {
	return slices.Concat(c.addresses(), c.domains(), c.cluster(), c.allowances(), c.work(), c.surroundings())
}

// addresses returns the settings of where the server is reached and keeps its data.
func (c *Config) addresses() []Setting {
	return []Setting{
		{"BERTH_LISTEN", ":8080", "address of the API, the pages and the public URLs", into(&c.Listen, parseText)},
		{"BERTH_BASE_URL", "http://localhost:8080", "public URL of this server", into(&c.BaseURL, parseBaseURL)},
		{"BERTH_APPS_DOMAIN", "", "domain under which services get their names; when empty, the host of the base URL", into(&c.AppsDomain, parseDomain)},
		{"BERTH_DATA_DIR", "./data", "database, sources, static sites, logs, keys; services' data and builds are volumes and images of the engine", into(&c.DataDir, parseText)},
		{"BERTH_DATABASE_URL", "", "postgres://…, or sqlite:///path/to/database; when empty, berth.db in the data directory", into(&c.DatabaseURL, parseText)},
		{"BERTH_REDIS_URL", "embedded", "redis://…, or embedded to run Redis in this process", into(&c.RedisURL, parseText)},
		{"BERTH_TRUSTED_PROXIES", "", "CIDRs whose X-Forwarded-For counts, separated by commas", into(&c.TrustedProxies, list(parsePrefix))},
		{"BERTH_TLS", tlsOff, "certificates of the listener: off (plain HTTP, for use behind a proxy), files, or acme (one for each name)", into(&c.TLS, parseTLS)},
		{"BERTH_TLS_CERT", "", "PEM certificate chain for the base URL's host and all names below the apps domain; reloaded when it changes", into(&c.TLSCert, parseText)},
		{"BERTH_TLS_KEY", "", "PEM private key of the certificate", into(&c.TLSKey, parseText)},
		{"BERTH_ACME_DIRECTORY", "https://acme-v02.api.letsencrypt.org/directory", "ACME directory of the certificate authority; using it means agreeing to its terms", into(&c.ACMEDirectory, parseText)},
		{"BERTH_ACME_EMAIL", "", "email address to which the authority reports problems", into(&c.ACMEEmail, parseText)},
	}
}

// allowances returns the settings of how long an unclaimed stack lives and how much a client
// network and an account may ask for.
func (c *Config) allowances() []Setting {
	return []Setting{
		{"BERTH_TTL", "1h", "lifetime of an unclaimed stack that sets no ttl", into(&c.Limits.TTL, parseDuration)},
		{"BERTH_TTL_MIN", "15m", "shortest lifetime of an unclaimed stack", into(&c.Limits.TTLMin, parseDuration)},
		{"BERTH_TTL_MAX", "24h", "longest lifetime of an unclaimed stack, counted from its creation", into(&c.Limits.TTLMax, parseDuration)},
		{"BERTH_EXPIRY_NOTICE", "5m", "how long before expiry stack.expiring is recorded", into(&c.Limits.ExpiryNotice, parseDuration)},
		{"BERTH_RETENTION", "7d", "how long an expired stack is kept and can be claimed", into(&c.Limits.Retention, parseDuration)},
		{"BERTH_UNCLAIMED_PER_IP", "3", "unclaimed stacks, building or live, for each client network", into(&c.Limits.UnclaimedPerIP, parseCount)},
		{"BERTH_CREATES_PER_HOUR", "30", "anonymous creates in an hour for each client network", into(&c.CreatesPerHour, parseCount)},
		{"BERTH_REFUSED_PER_HOUR", "120", "anonymous creates refused with 413 or 422 in an hour for each client network", into(&c.RefusedPerHour, parseCount)},
		{"BERTH_CLAIMS_PER_MINUTE", "10", "claim requests in a minute for each client network", into(&c.ClaimsPerMinute, parseCount)},
		{"BERTH_FORMS_PER_MINUTE", "10", "password forms (sign-up, sign-in, claim, password change, account deletion) in a minute for each client network", into(&c.FormsPerMinute, parseCount)},
		{"BERTH_VALIDATIONS_PER_MINUTE", "30", "POST /v0/validate requests in a minute for each client network", into(&c.ValidationsPerMinute, parseCount)},
		{"BERTH_ACCOUNT_STACKS", "", "stacks of each account; no quota when empty", into(&c.AccountStacks, optional(parseCount[int]))},
		{"BERTH_ACCOUNT_MEMORY", "", "memory that the services of all stacks of an account may use, by BERTH_SERVICE_MEMORY; no quota when empty", into(&c.AccountMemory, optional(parseMemory))},
		{"BERTH_ACCOUNT_DISK", "", "disk space that all stacks of an account may take before it gets another; no quota when empty", into(&c.AccountDisk, optional(parseSize))},
		{"BERTH_STACK_DISK", "", "disk space of each stack: data, images without base images, source and build caches; above it a stack takes no deploy and no larger data, and above 1.2 times it is stopped; no limit when empty", into(&c.StackDisk, optional(parseSize))},
	}
}

// work returns the settings of uploads and builds, and of how long everything may take.
func (c *Config) work() []Setting {
	return []Setting{
		{"BERTH_MAX_UPLOAD", "50MB", "largest uploaded archive", into(&c.MaxUpload, parseSize)},
		{"BERTH_MAX_UNPACKED", "1GB", "largest total size of an archive's files", into(&c.MaxUnpacked, parseSize)},
		{"BERTH_MAX_ENTRIES", "100000", "most files and folders in an archive", into(&c.MaxEntries, parseCount)},
		{"BERTH_MAX_DATA", "10GB", "largest total size of the files that replace the data of a service", into(&c.MaxData, parseSize)},
		{"BERTH_MAX_UNPACKS", "8", "uploads unpacked at the same time; others wait in line for at most a minute", into(&c.MaxUnpacks, parseCount)},
		{"BERTH_MAX_BUILDS", "4", "builds that run at the same time", into(&c.MaxBuilds, parseCount)},
		{"BERTH_BUILD_TIMEOUT", "600s", "time limit for each install, build and release command, and for copying a static site out of its build", into(&c.BuildTimeout, parseDuration)},
		{"BERTH_BUILD_CACHE_MAX", "2GB", "build caches that each service keeps from one build to the next; the tools' caches used longest ago go first", into(&c.BuildCacheMax, parseSize)},
		{"BERTH_WAIT", "90s", "longest time that wait=true holds a response", into(&c.Wait, parseDuration)},
		{"BERTH_HEALTH_TIMEOUT", "60s", "time that a started service has to become healthy", into(&c.HealthTimeout, parseDuration)},
		{"BERTH_DRAIN", "30s", "time that open requests get to finish when their process is stopped", into(&c.Drain, parseDuration)},
		{"BERTH_RELOAD_WAIT", "20m", "time that jobs and uploads get to end before another process takes the server's place on SIGHUP", into(&c.ReloadWait, parseDuration)},
		{"BERTH_PROXY_TIMEOUT", "60s", "time limit for a service's response headers, and for a connection to a service on which no byte moves", into(&c.ProxyTimeout, parseDuration)},
		{"BERTH_PROXY_CONNECT_TIMEOUT", "5s", "time limit for connecting to a service", into(&c.ProxyConnectTimeout, parseDuration)},
		{"BERTH_FAST_LANE", "on", "on to serve plain requests for services by the server's own reader of HTTP/1.1, or off to have net/http read all", into(&c.FastLane, parseSwitch)},
		{"BERTH_CONNS_PER_CLIENT", "1000", "connections at the public addresses for each client network; loopback and trusted proxies are not counted", into(&c.ConnsPerClient, parseCount)},
		{"BERTH_SUPERVISE_EVERY", "2s", "interval between two checks of all processes", into(&c.SuperviseEvery, parseDuration)},
		{"BERTH_BACKOFF", "1s", "wait before the first restart of a crashed service; it doubles with each crash", into(&c.Limits.Backoff, parseDuration)},
		{"BERTH_BACKOFF_MAX", "30s", "longest wait before a restart", into(&c.Limits.BackoffMax, parseDuration)},
		{"BERTH_CRASH_LIMIT", "5", "crashes of one service in the window that a stack survives, and restarts in a row that do not become healthy", into(&c.Limits.Crashes, parseCount)},
		{"BERTH_CRASH_WINDOW", "10m", "window in which crashes are counted", into(&c.Limits.CrashWindow, parseDuration)},
		{"BERTH_LOG_MAX", "5MB", "size at which a service's log is rotated", into(&c.LogMax, parseSize)},
	}
}

// surroundings returns the settings of webhooks, mails, containers and networks, and of what
// operators see.
func (c *Config) surroundings() []Setting {
	return []Setting{
		{"BERTH_WEBHOOK_TIMEOUT", "5s", "time limit for each attempt of a webhook delivery", into(&c.WebhookTimeout, parseDuration)},
		{"BERTH_WEBHOOK_RETRIES", "1s,5s,25s", "waits between the attempts of a delivery, separated by commas; there is one more attempt than waits", into(&c.WebhookRetries, parseDurations)},
		{"BERTH_WEBHOOK_ALLOW", "", "CIDRs that webhooks may reach although they are private or loopback, separated by commas", into(&c.WebhookAllow, list(parsePrefix))},
		{"BERTH_SMTP_URL", "", "server that takes mails, as smtp://[user:password@]host:port, or smtps:// for TLS from the first byte; no mail is sent when empty", into(&c.SMTP, optional(mail.ParseServer))},
		{"BERTH_MAIL_FROM", "", "address that mails come from, such as Berth <berth@example.com>", into(&c.MailFrom, optional(mail.ParseSender))},
		{"BERTH_BUILD_ENV_FILE", "", "file of NAME=value lines passed to builds, for package mirrors, which are open to builds even if they are private or on this machine", into(&c.BuildEnvFile, parseText)},
		{"BERTH_BUILD_CA_FILE", "", "PEM bundle of certificates that builds trust in addition to the public ones", into(&c.BuildCAFile, parseText)},
		{"BERTH_CONTAINER_RUNTIME", "", "OCI runtime of containers, such as runsc; when empty, the engine's default", into(&c.ContainerRuntime, parseText)},
		{"BERTH_SERVICE_MEMORY", "", "memory limit of each service; none when empty", into(&c.ServiceMemory, optional(parseMemory))},
		{"BERTH_SERVICE_CPUS", "", "CPU limit of each service in cores, such as 1.5, at most what the engine has; none when empty", into(&c.ServiceCPUs, optional(parseCores))},
		{"BERTH_SERVICE_PIDS", "1024", "most processes and threads of each service", into(&c.ServicePids, parseCount)},
		{"BERTH_BUILD_MEMORY", "", "memory limit of each build; none when empty", into(&c.BuildMemory, optional(parseMemory))},
		{"BERTH_DISK_FLOOR", "1GB", "free disk space below which build caches and installed dependencies go and then uploads and builds are refused, while stacks keep running; 0 turns this off", into(&c.DiskFloor, parseFloor)},
		{"BERTH_ORPHAN_GRACE", "1h", "how long containers, images and files of stacks and generations that the database does not know are kept, counted from each start; their volumes and snapshots are never removed", into(&c.OrphanGrace, parseDuration)},
		{"BERTH_ALLOW_UNKNOWN_DATA", "false", "start even if the engine has volumes or snapshots of this installation and the database knows none of their stacks", into(&c.AllowUnknownData, parseFlag)},
		{"BERTH_REGISTRY", "", "OCI registry for base images, and for the images, sites, sources and snapshots of stacks, as [http://|https://]host[:port][/prefix]; https by default", into(&c.Registry, optional(registry.ParseAddress))},
		{"BERTH_REGISTRY_AUTH_FILE", "", "file like Docker's config.json with the credentials for BERTH_REGISTRY", into(&c.RegistryAuthFile, parseText)},
		{"BERTH_REGISTRY_CA_FILE", "", "PEM bundle of the authorities that vouch for BERTH_REGISTRY; the public ones when empty", into(&c.RegistryCAFile, parseText)},
		{"BERTH_NETWORK_POOL", "10.213.0.0/16", "IPv4 range from which each stack gets a /28, and two more during a redeploy", into(&c.NetworkPool, parsePool)},
		{"BERTH_NETWORK_ALLOW", "", "hosts, as host:port, that stacks may reach even if they are private or on this machine", into(&c.NetworkAllow, list(parseHostPort))},
		{"BERTH_ALLOW_UNGUARDED", "false", "accept anonymous stacks even if the firewall rules that isolate them cannot be set", into(&c.AllowUnguarded, parseFlag)},
		{adminListen, "127.0.0.1:9090", "address of /metrics, /readyz and /debug/pprof, for operators only; when empty, they are off", into(&c.AdminListen, parseText)},
	}
}

// Load reads the configuration: flags take precedence over the environment, and that
// over the defaults. The error is one line that names the setting.
func Load(flag func(name string) (string, bool), env func(name string) (string, bool)) (Config, error) {
	var c Config
	for _, s := range c.settings() {
		value, from := s.lookup(flag, env)
		if err := s.set(value); err != nil {
			return Config{}, fmt.Errorf("%s=%q: %w", from, hidePassword(value), err)
		}
	}
	c.AppsDomain = cmp.Or(c.AppsDomain, c.BaseURL.Hostname())
	return c, c.check()
}

// lookup returns a setting's value and what to call its source in an error.
func (s Setting) lookup(flag, env func(string) (string, bool)) (value, from string) {
	if value, ok := flag(s.Flag()); ok {
		return value, "--" + s.Flag()
	}
	if value, ok := env(s.Name); ok && (value != "" || s.Name == adminListen) {
		return value, s.Name
	}
	return s.Default, s.Name
}

// check refuses settings that are right alone and wrong together.
func (c *Config) check() error {
	switch l := c.Limits; {
	case l.TTLMin > l.TTLMax:
		return fmt.Errorf("BERTH_TTL_MIN (%s) is above BERTH_TTL_MAX (%s)", l.TTLMin, l.TTLMax)
	case l.TTL < l.TTLMin || l.TTL > l.TTLMax:
		return fmt.Errorf("BERTH_TTL (%s) must lie between BERTH_TTL_MIN (%s) and BERTH_TTL_MAX (%s)", l.TTL, l.TTLMin, l.TTLMax)
	}
	if c.Registry.Host == "" && c.RegistryAuthFile+c.RegistryCAFile != "" {
		return errors.New("BERTH_REGISTRY_AUTH_FILE and BERTH_REGISTRY_CA_FILE need BERTH_REGISTRY")
	}
	if c.AccountMemory > 0 && c.ServiceMemory == 0 {
		return errors.New("BERTH_ACCOUNT_MEMORY counts the memory limits of services; set BERTH_SERVICE_MEMORY too")
	}
	if (c.SMTP == mail.Server{}) != (c.MailFrom == netmail.Address{}) {
		return errors.New("BERTH_SMTP_URL and BERTH_MAIL_FROM belong together; set both, or neither")
	}
	return cmp.Or(c.checkTLS(), c.checkPlain(), c.checkCluster())
}

// Print writes every setting with its value, default and meaning.
func Print(w io.Writer, flag, env func(string) (string, bool)) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "VARIABLE\tVALUE\tDEFAULT\tMEANING")
	for _, s := range Settings() {
		value, _ := s.lookup(flag, env)
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", s.Name, cmp.Or(hidePassword(value), "-"), cmp.Or(s.Default, "-"), s.Meaning)
	}
	return table.Flush()
}

// hidePassword hides the password of an address, with or without a scheme, even if it
// cannot be parsed otherwise.
func hidePassword(value string) string {
	scheme, rest, ok := strings.Cut(value, "://")
	if !ok {
		scheme, rest = "", value
	} else {
		scheme += "://"
	}
	login, host, ok := cutLast(rest, "@")
	if user, _, secret := strings.Cut(login, ":"); ok && secret {
		rest = user + ":xxxxx@" + host
	}
	return scheme + passwordQuery.ReplaceAllString(rest, "${1}xxxxx")
}

// passwordQuery is a password in the query of an address of PostgreSQL.
var passwordQuery = regexp.MustCompile(`(\b(?:ssl)?password=)[^&]*`)

// cutLast is strings.Cut at the last sep.
func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// checkFiles reads the files that the configuration names for builds, and the
// database's address.
func (c *Config) checkFiles() error {
	_, database := c.databasePath()
	_, env := c.buildEnv()
	_, ca := c.buildCA()
	_, registry := c.openRegistry()
	return cmp.Or(database, env, ca, registry)
}

// openRegistry returns the registry, to which it does not speak; nil if there is none.
func (c *Config) openRegistry() (*registry.Registry, error) {
	if c.Registry.Host == "" {
		return nil, nil //nolint:nilnil // that is an answer
	}
	return registry.Open(registry.Options{Address: c.Registry, AuthFile: c.RegistryAuthFile, CAFile: c.RegistryCAFile})
}

// databasePath returns the path of the database's file, "" if the database is one of
// PostgreSQL.
func (c *Config) databasePath() (string, error) {
	if c.DatabaseURL == "" {
		return datadir.Dir(c.DataDir).Database(), nil
	}
	path, err := parseDatabase(c.DatabaseURL)
	if err != nil {
		return "", fmt.Errorf("BERTH_DATABASE_URL: %w", err)
	}
	return path, nil
}

// parseDatabase returns the path in the address of a database, "" for one of PostgreSQL.
func parseDatabase(address string) (path string, err error) {
	if isPostgres(address) {
		return "", store.CheckPostgres(address)
	}
	path, ok := strings.CutPrefix(address, "sqlite://")
	if !ok || path == "" {
		return "", errors.New("write postgres://user@host/database, or sqlite:///path/to/berth.db")
	}
	return path, nil
}

// isPostgres reports whether an address is one of PostgreSQL.
func isPostgres(address string) bool {
	return strings.HasPrefix(address, "postgres://") || strings.HasPrefix(address, "postgresql://")
}

// buildEnv reads the file of variables for builds.
func (c *Config) buildEnv() (map[string]string, error) {
	env := map[string]string{}
	if c.BuildEnvFile == "" {
		return env, nil
	}
	file, err := os.ReadFile(c.BuildEnvFile)
	if err != nil {
		return nil, fmt.Errorf("BERTH_BUILD_ENV_FILE: %w", err)
	}
	for line := range strings.Lines(string(file)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("BERTH_BUILD_ENV_FILE: %s: a line is not NAME=value", c.BuildEnvFile)
		}
		env[name] = value
	}
	return env, nil
}

// buildCA reads the bundle for builds; nil if there is none.
func (c *Config) buildCA() ([]byte, error) {
	if c.BuildCAFile == "" {
		return nil, nil
	}
	bundle, err := os.ReadFile(c.BuildCAFile)
	if err != nil {
		return nil, fmt.Errorf("BERTH_BUILD_CA_FILE: %w", err)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(bundle) {
		return nil, fmt.Errorf("BERTH_BUILD_CA_FILE: %s does not contain a PEM certificate", c.BuildCAFile)
	}
	return bundle, nil
}
