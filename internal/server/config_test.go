package server_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-host/berth/internal/server"
)

// from looks settings up in a map.
func from(values map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := values[name]
		return value, ok
	}
}

func load(t *testing.T, env map[string]string) server.Config {
	t.Helper()
	c, err := server.Load(from(nil), from(env))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestLoad_Defaults(t *testing.T) {
	c := load(t, nil)
	if c.BaseURL.String() != "http://localhost:8080" || c.AppsDomain != "localhost" || c.Listen != ":8080" {
		t.Errorf("addresses = %v %v %v", c.BaseURL, c.AppsDomain, c.Listen)
	}
	if c.MaxUpload != 50_000_000 || c.LogMax != 5_000_000 || c.MaxUnpacked != 1_000_000_000 {
		t.Errorf("sizes = %d %d %d", c.MaxUpload, c.LogMax, c.MaxUnpacked)
	}
	if c.Limits.TTL != time.Hour || c.Limits.TTLMin != 15*time.Minute || c.Limits.TTLMax != 24*time.Hour || c.Limits.UnclaimedPerIP != 3 {
		t.Errorf("limits = %+v", c.Limits)
	}
	if c.CreatesPerHour != 30 || c.ClaimsPerMinute != 10 || c.FormsPerMinute != 10 {
		t.Errorf("rates = %d %d %d", c.CreatesPerHour, c.ClaimsPerMinute, c.FormsPerMinute)
	}
	if c.OrphanGrace != time.Hour || c.AllowUnknownData {
		t.Errorf("grace of orphans = %v, unknown data %v", c.OrphanGrace, c.AllowUnknownData)
	}
	if c.TLS != "off" {
		t.Errorf("TLS = %q, want it off", c.TLS)
	}
	if c.Wait != 90*time.Second || c.BuildTimeout != 10*time.Minute || c.HealthTimeout != time.Minute || c.MaxBuilds != 4 {
		t.Errorf("times = %v %v %v, builds %d", c.Wait, c.BuildTimeout, c.HealthTimeout, c.MaxBuilds)
	}
	if c.WebhookTimeout != 5*time.Second || len(c.WebhookAllow) != 0 ||
		!slices.Equal(c.WebhookRetries, []time.Duration{time.Second, 5 * time.Second, 25 * time.Second}) {
		t.Errorf("webhooks = %v %v %v", c.WebhookTimeout, c.WebhookRetries, c.WebhookAllow)
	}
}

func TestLoad_FlagsGoBeforeTheEnvironment(t *testing.T) {
	c, err := server.Load(from(map[string]string{"listen": ":1"}), from(map[string]string{"BERTH_LISTEN": ":2", "BERTH_WAIT": "2s"}))
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen != ":1" || c.Wait != 2*time.Second {
		t.Errorf("listen %q, wait %v", c.Listen, c.Wait)
	}
}

func TestLoad_ReadsValuesAsPeopleWriteThem(t *testing.T) {
	c := load(t, map[string]string{
		"BERTH_BASE_URL":        "https://Berth.Example.com/",
		"BERTH_APPS_DOMAIN":     "apps.example.net",
		"BERTH_TRUSTED_PROXIES": "10.1.2.3/8, 2001:db8::1",
		"BERTH_MAX_UPLOAD":      "10MiB",
		"BERTH_SERVICE_MEMORY":  "512 MB",
		"BERTH_SERVICE_CPUS":    "1.5",
		"BERTH_TTL_MAX":         "2d",
		"BERTH_HEALTH_TIMEOUT":  "1500ms",
		"BERTH_NETWORK_POOL":    "172.31.0.7/20",
		"BERTH_WEBHOOK_ALLOW":   "127.0.0.1,fd00::/8",
		"BERTH_WEBHOOK_RETRIES": "100ms, 2m",
		"BERTH_NETWORK_ALLOW":   "dns.internal:53, 10.0.0.9:5000",
		"BERTH_ALLOW_UNGUARDED": "true",
		"BERTH_DISK_FLOOR":      "5GB",
		"BERTH_BUILD_CACHE_MAX": "300MB",
		"BERTH_ACCOUNT_STACKS":  "20",
		"BERTH_ACCOUNT_MEMORY":  "4GB",
		"BERTH_ACCOUNT_DISK":    "40GB",
		"BERTH_STACK_DISK":      "10GB",
	})
	if c.AccountDisk != 40_000_000_000 || c.StackDisk != 10_000_000_000 {
		t.Errorf("disk space = %d %d", c.AccountDisk, c.StackDisk)
	}
	if c.BuildCacheMax != 300_000_000 {
		t.Errorf("build caches = %d", c.BuildCacheMax)
	}
	if len(c.NetworkAllow) != 2 || c.NetworkAllow[1] != "10.0.0.9:5000" || !c.AllowUnguarded || c.DiskFloor != 5_000_000_000 {
		t.Errorf("guards = %v %v %d", c.NetworkAllow, c.AllowUnguarded, c.DiskFloor)
	}
	if c.BaseURL.String() != "https://berth.example.com" || c.AppsDomain != "apps.example.net" {
		t.Errorf("addresses = %v %v", c.BaseURL, c.AppsDomain)
	}
	if len(c.TrustedProxies) != 2 || c.TrustedProxies[0].String() != "10.0.0.0/8" || c.TrustedProxies[1].String() != "2001:db8::1/128" {
		t.Errorf("trusted proxies = %v", c.TrustedProxies)
	}
	if c.MaxUpload != 10<<20 || c.ServiceMemory != 512_000_000 || c.ServiceCPUs != 1.5 || c.AccountStacks != 20 || c.AccountMemory != 4e9 {
		t.Errorf("sizes = %d %d %v %d %d", c.MaxUpload, c.ServiceMemory, c.ServiceCPUs, c.AccountStacks, c.AccountMemory)
	}
	if c.Limits.TTLMax != 48*time.Hour || c.HealthTimeout != 1500*time.Millisecond || c.NetworkPool.String() != "172.31.0.0/20" {
		t.Errorf("others = %v %v %v", c.Limits.TTLMax, c.HealthTimeout, c.NetworkPool)
	}
	if len(c.WebhookAllow) != 2 || c.WebhookAllow[0].String() != "127.0.0.1/32" ||
		!slices.Equal(c.WebhookRetries, []time.Duration{100 * time.Millisecond, 2 * time.Minute}) {
		t.Errorf("webhooks = %v %v", c.WebhookAllow, c.WebhookRetries)
	}
}

func TestLoad_NamesABadValueInOneLine(t *testing.T) {
	for name, value := range map[string]string{
		"BERTH_BASE_URL":           "localhost:8080",
		"BERTH_APPS_DOMAIN":        "bad domain",
		"BERTH_TRUSTED_PROXIES":    "10.0.0.0/33",
		"BERTH_TTL":                "2 days",
		"BERTH_WAIT":               "-5s",
		"BERTH_MAX_UPLOAD":         "50 megabytes",
		"BERTH_MAX_UNPACKED":       "99999999999GB",
		"BERTH_MAX_BUILDS":         "0",
		"BERTH_SERVICE_CPUS":       "many",
		"BERTH_SERVICE_MEMORY":     "64KB",
		"BERTH_BUILD_MEMORY":       "5MiB",
		"BERTH_SERVICE_PIDS":       "-1",
		"BERTH_ACCOUNT_STACKS":     "0",
		"BERTH_ACCOUNT_MEMORY":     "4GB", // without BERTH_SERVICE_MEMORY
		"BERTH_NETWORK_POOL":       "fd00::/64",
		"BERTH_TTL_MIN":            "30h",
		"BERTH_FORMS_PER_MINUTE":   "0",
		"BERTH_TLS":                "on",
		"BERTH_TLS_CERT":           "cert.pem",
		"BERTH_WEBHOOK_TIMEOUT":    "0s",
		"BERTH_WEBHOOK_RETRIES":    "1s,,5s",
		"BERTH_WEBHOOK_ALLOW":      "localhost",
		"BERTH_NETWORK_ALLOW":      "10.0.0.9",
		"BERTH_ALLOW_UNGUARDED":    "perhaps",
		"BERTH_ORPHAN_GRACE":       "0",
		"BERTH_ALLOW_UNKNOWN_DATA": "perhaps",
		"BERTH_DISK_FLOOR":         "none",
		"BERTH_BUILD_CACHE_MAX":    "0",
		"BERTH_REGISTRY":           "https://me:hunter2@registry.example.com",
		"BERTH_REGISTRY_AUTH_FILE": "config.json",
		"BERTH_SMTP_URL":           "imap://me:hunter2@mail.example.com",
		"BERTH_DNS":                "192.0.2.53",
		"BERTH_HTTP_LISTEN":        ":80",
		"BERTH_DOMAIN_PENDING":     "a week",
		"BERTH_DOMAIN_EVERY":       "0s",
		"BERTH_DOMAIN_GRACE":       "-1h",
		"BERTH_REGISTRY_CA_FILE":   "ca.pem",
	} {
		_, err := server.Load(from(nil), from(map[string]string{name: value}))
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error shows the password: %v", name, err)
		}
		if err == nil || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s=%s: error %v, want one line that names it", name, value, err)
		}
	}
}

func TestLoad_TakesOnOrOffForTheFastLane(t *testing.T) {
	for value, want := range map[string]bool{"": true, "on": true, "off": false} {
		if c := load(t, map[string]string{"BERTH_FAST_LANE": value}); c.FastLane != want {
			t.Errorf("%q: %v", value, c.FastLane)
		}
	}
	for _, value := range []string{"true", "1", "OFF", "of", "off,on"} {
		_, err := server.Load(from(nil), from(map[string]string{"BERTH_FAST_LANE": value}))
		if want := `BERTH_FAST_LANE="` + value + `": write on or off`; err == nil || err.Error() != want {
			t.Errorf("%q: error %v, want %s", value, err, want)
		}
	}
}

func TestLoad_SaysThatADurationMustBeAboveZero(t *testing.T) {
	for name, value := range map[string]string{"BERTH_SUPERVISE_EVERY": "0s", "BERTH_WAIT": "0", "BERTH_DRAIN": "-5s", "BERTH_WEBHOOK_RETRIES": "1s,0s"} {
		_, err := server.Load(from(nil), from(map[string]string{name: value}))
		if err == nil || !strings.Contains(err.Error(), "not above 0") {
			t.Errorf("%s=%s: error %v, want that it must be above 0", name, value, err)
		}
	}
}

func TestLoad_RefusesTLSThatCannotWork(t *testing.T) {
	for _, tt := range []struct {
		env  map[string]string
		want string
	}{
		{map[string]string{"BERTH_TLS": "files", "BERTH_TLS_CERT": "c", "BERTH_TLS_KEY": "k"}, "BERTH_BASE_URL"},
		{map[string]string{"BERTH_TLS": "acme"}, "BERTH_BASE_URL"},
		{map[string]string{"BERTH_TLS": "acme", "BERTH_BASE_URL": "https://192.0.2.1"}, "not an IP address"},
		{map[string]string{"BERTH_TLS": "files", "BERTH_BASE_URL": "https://a.test"}, "BERTH_TLS_CERT and BERTH_TLS_KEY"},
		{map[string]string{"BERTH_TLS": "files", "BERTH_BASE_URL": "https://a.test", "BERTH_TLS_CERT": "c"}, "BERTH_TLS_KEY"},
		{map[string]string{"BERTH_TLS": "acme", "BERTH_BASE_URL": "https://a.test", "BERTH_TLS_KEY": "k"}, "BERTH_TLS=files"},
		{map[string]string{"BERTH_TLS": "off", "BERTH_BASE_URL": "https://a.test", "BERTH_TLS_KEY": "k"}, "BERTH_TLS=files"},
		{map[string]string{"BERTH_TLS": "files", "BERTH_BASE_URL": "https://a.test", "BERTH_TLS_CERT": "c", "BERTH_TLS_KEY": "k"}, ""},
		{map[string]string{"BERTH_TLS": "acme", "BERTH_BASE_URL": "https://a.test"}, ""},
		{map[string]string{"BERTH_BASE_URL": "https://a.test"}, ""},
		{map[string]string{"BERTH_TLS": "acme", "BERTH_BASE_URL": "https://a.test", "BERTH_HTTP_LISTEN": ":8080"}, "same address"},
		{map[string]string{"BERTH_TLS": "acme", "BERTH_BASE_URL": "https://a.test", "BERTH_HTTP_LISTEN": ":80"}, ""},
	} {
		_, err := server.Load(from(nil), from(tt.env))
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %v, want %q", tt.env, err, tt.want)
		}
	}
}

// The names and defaults are those of the specification and the decisions on it.
func TestPrint_ShowsTheSpecifiedDefaults(t *testing.T) {
	var out bytes.Buffer
	if err := server.Print(&out, from(nil), from(nil)); err != nil {
		t.Fatal(err)
	}
	defaults := map[string]string{}
	for line := range strings.Lines(out.String()) {
		columns := strings.Fields(line)
		defaults[columns[0]] = columns[2]
	}
	for name, want := range map[string]string{
		"BERTH_DNS": "-", "BERTH_HTTP_LISTEN": "-", "BERTH_DOMAIN_PENDING_EVERY": "1m", "BERTH_DOMAIN_PENDING": "7d", "BERTH_DOMAIN_EVERY": "24h", "BERTH_DOMAIN_GRACE": "72h",
		"BERTH_LISTEN": ":8080", "BERTH_BASE_URL": "http://localhost:8080", "BERTH_APPS_DOMAIN": "-", "BERTH_DATA_DIR": "./data",
		"BERTH_DATABASE_URL": "-", "BERTH_REDIS_URL": "embedded", "BERTH_TRUSTED_PROXIES": "-", "BERTH_TTL": "1h", "BERTH_TTL_MIN": "15m",
		"BERTH_TTL_MAX": "24h", "BERTH_EXPIRY_NOTICE": "5m", "BERTH_RETENTION": "7d", "BERTH_UNCLAIMED_PER_IP": "3",
		"BERTH_CREATES_PER_HOUR": "30", "BERTH_REFUSED_PER_HOUR": "120", "BERTH_CLAIMS_PER_MINUTE": "10", "BERTH_FORMS_PER_MINUTE": "10",
		"BERTH_VALIDATIONS_PER_MINUTE": "30", "BERTH_MAX_UPLOAD": "50MB", "BERTH_MAX_UNPACKED": "1GB", "BERTH_MAX_DATA": "10GB", "BERTH_MAX_ENTRIES": "100000",
		"BERTH_MAX_UNPACKS": "8", "BERTH_MAX_BUILDS": "4", "BERTH_BUILD_TIMEOUT": "600s", "BERTH_WAIT": "90s", "BERTH_HEALTH_TIMEOUT": "60s",
		"BERTH_DRAIN": "30s", "BERTH_PROXY_TIMEOUT": "60s", "BERTH_PROXY_CONNECT_TIMEOUT": "5s", "BERTH_CONNS_PER_CLIENT": "1000", "BERTH_SUPERVISE_EVERY": "2s",
		"BERTH_BACKOFF": "1s", "BERTH_BACKOFF_MAX": "30s", "BERTH_CRASH_LIMIT": "5", "BERTH_CRASH_WINDOW": "10m", "BERTH_LOG_MAX": "5MB",
		"BERTH_WEBHOOK_TIMEOUT": "5s", "BERTH_WEBHOOK_RETRIES": "1s,5s,25s", "BERTH_WEBHOOK_ALLOW": "-", "BERTH_BUILD_ENV_FILE": "-",
		"BERTH_BUILD_CA_FILE": "-", "BERTH_CONTAINER_RUNTIME": "-", "BERTH_SERVICE_MEMORY": "-", "BERTH_SERVICE_CPUS": "-",
		"BERTH_SERVICE_PIDS": "1024", "BERTH_ACCOUNT_STACKS": "-", "BERTH_ACCOUNT_MEMORY": "-", "BERTH_ADMIN_LISTEN": "127.0.0.1:9090", "BERTH_ORPHAN_GRACE": "1h",
	} {
		if got := defaults[name]; got != want {
			t.Errorf("%s is %q unless it is set, want %q", name, got, want)
		}
	}
}

func TestPrint_ShowsEverySettingAndNoPassword(t *testing.T) {
	for _, database := range []string{
		"postgres://berth:hunter2@db.example.com/berth?sslmode=verify-full",
		"postgres://db.example.com/berth?user=berth&password=hunter2",
		"postgres://berth:hunter2%zz@db.example.com/berth",
		"postgres://berth:hunter2@%zz/berth",
	} {
		var out bytes.Buffer
		env := from(map[string]string{"BERTH_REDIS_URL": "redis://:hunter2@redis:6379", "BERTH_DATABASE_URL": database, "BERTH_REGISTRY": "berth:hunter2@registry.example.com/berth"})
		for _, smtp := range []string{"smtp://berth:hunter2@mail.example.com:587", "smtps://berth%40example.com:hunter2%40x@mail.example.com:465"} {
			mail := from(map[string]string{"BERTH_SMTP_URL": smtp, "BERTH_MAIL_FROM": "Berth <berth@example.com>"})
			if err := server.Print(&out, from(nil), mail); err != nil {
				t.Fatal(err)
			}
		}
		if err := server.Print(&out, from(nil), env); err != nil {
			t.Fatal(err)
		}
		for _, s := range server.Settings() {
			if !strings.Contains(out.String(), s.Name+" ") {
				t.Errorf("%s is not shown", s.Name)
			}
		}
		if strings.Contains(out.String(), "hunter2") {
			t.Errorf("the password of %s, of Redis, of the registry or of the mails' server is shown", database)
		}
	}
}
