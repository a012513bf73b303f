package manifest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hbollon/go-edlib"

	"github.com/berth-host/berth/internal/safetext"
)

// The existing fields, in the order of the documentation.
var (
	manifestFields = []string{"name", "ttl", "claim_email", "notify", "services"}
	notifyFields   = []string{"webhook"}
	serviceFields  = []string{
		"name", "runtime", "root", "install", "build", "release", "start", "port", "health",
		"env", "depends_on", "strategy", "stop_timeout", "publish", "spa", "paths",
	}
	envFields  = []string{"generate"}
	pathFields = []string{"service", "strip"}
)

// aliases maps names that other hosts use, in lower case and without - and _, to the
// field here, or to a sentence if there is no such field.
type aliases struct {
	fields    map[string]string
	sentences map[string]string
}

var manifestAliases = aliases{
	fields: invert(map[string]string{
		"name":           "app appname project projectname slug title",
		"ttl":            "lifetime expires expiresin expiry timetolive",
		"claim_email":    "email owner owneremail claimemail",
		"notify.webhook": "webhook webhookurl notifications notifywebhook",
		"services":       "service apps processes components workers",
	}),
	sentences: invert(map[string]string{
		"leave it out: a manifest has no version":                                                        "version apiversion schema kind",
		"every service has a $DATA_DIR that keeps its data without any field":                            "volumes disks mounts volume",
		"leave it out: the services of a stack share a network and find each other by name":              "networks network",
		"a database is a service, as in services: [{name: db, runtime: postgres}]":                       "databases database addons plugins",
		"every service has its own env":                                                                  "env envvars envvargroups environment variables secrets",
		`it belongs to a service, as in services: [{name: web, runtime: node, start: "node server.js"}]`: serviceNames(),
	}),
}

var serviceAliases = aliases{
	fields: invert(map[string]string{
		"name":         "service servicename id",
		"runtime":      "language lang type platform engine framework stack environmentslug builder buildpack buildpacks runtimeversion",
		"root":         "rootdir rootdirectory base basedirectory sourcedir source workingdir workdir directory dir path context cwd appdir folder",
		"install":      "installcommand installcmd installscript",
		"build":        "buildcommand buildcmd buildscript",
		"release":      "releasecommand releasecmd predeploycommand predeploy initialdeployhook prestart migrate migrations",
		"start":        "startcommand startcmd startscript run runcommand runcmd command cmd entrypoint dockercommand process exec web",
		"port":         "internalport httpport ports expose targetport containerport listen",
		"health":       "healthcheck healthcheckpath healthcheckurl healthpath httpchecks checks probe readinessprobe livenessprobe",
		"env":          "envvars environment environmentvariables variables envs vars secrets config envfile",
		"depends_on":   "dependson depends dependencies needs requires links after",
		"strategy":     "deploystrategy updatestrategy deploymentstrategy rollout",
		"stop_timeout": "stoptimeout stopgraceperiod graceperiod terminationgraceperiodseconds killtimeout maxshutdowndelayseconds drainingseconds shutdowntimeout",
		"publish":      "staticpublishpath publishdirectory publishdir publishpath outputdirectory outputdir output dist static statics staticpath distdir public",
		"spa":          "singlepageapp singlepage fallback fallbackpage rewrites redirects",
		"paths":        "routes pathroutes ingress proxy proxies proxypass",
	}),
	sentences: invert(map[string]string{
		"every service has a $DATA_DIR that keeps its data without any field":               "volumes volume disk disks mounts mount storage tmpfs",
		"container images are not run: the runtimes build from source":                      "image dockerfile dockerfilepath docker",
		"leave it out: a crashed service is always restarted":                               "restart restartpolicy restartpolicytype restartpolicymaxretries",
		"leave it out: each service runs one process":                                       "replicas scale numinstances instances instancecount autoscaling scaling numreplicas",
		"leave it out: the host decides about memory and processors":                        "plan memory cpu cpus resources vm size instancesizeslug deploy",
		"leave it out: the host gives each service its URL":                                 "domain domains customdomains hosts hostname host",
		"leave it out: the source comes from the archive":                                   "repo repository branch autodeploy buildfilter github git",
		"leave it out: the services of a stack share a network and find each other by name": "networks network region",
	}),
}

var envAliases = aliases{
	fields: invert(map[string]string{"generate": "generatevalue generated random secret"}),
	sentences: invert(map[string]string{
		"write the text itself, as in LOG_LEVEL: info":                        "value default key",
		"write a reference, as in API: ${services.api.internal_url}":          "fromservice fromdatabase fromgroup valuefrom from",
		"write the value in the request's manifest, and not in the archive's": "sync file",
	}),
}

var pathAliases = aliases{fields: invert(map[string]string{
	"service": "name to target component backend destination upstream",
	"strip":   "stripprefix strippath removeprefix rewrite",
})}

var notifyAliases = aliases{fields: invert(map[string]string{"webhook": "url webhookurl webhooks endpoint hook"})}

// unknown says what to write instead of an unknown field.
func unknown(name string, known []string, a aliases) string {
	key := plainKey(name)
	message := fmt.Sprintf("unknown field %s; ", safetext.Quote(name))
	if here := a.fields[key]; here != "" {
		return message + fmt.Sprintf("here it is %q", here)
	}
	if sentence := a.sentences[key]; sentence != "" {
		return message + sentence
	}
	if i := slices.IndexFunc(known, func(k string) bool { return plainKey(k) == key }); i >= 0 {
		return message + fmt.Sprintf("here it is %q", known[i])
	}
	if near := nearest(strings.ToLower(name), known); near != "" {
		return message + fmt.Sprintf("did you mean %q?", near)
	}
	return message + "the fields are " + strings.Join(known, ", ")
}

// plainKey returns a field's name without differences of style.
func plainKey(name string) string {
	return strings.NewReplacer("_", "", "-", "", ".", "").Replace(strings.ToLower(name))
}

// nearest returns the known name with the fewest typing errors, swapped neighbours
// included; "" if none is near.
func nearest(name string, known []string) string {
	if len(name) > 40 {
		return ""
	}
	best, found := max(1, len(name)/3)+1, ""
	for _, k := range known {
		if d := edlib.OSADamerauLevenshteinDistance(name, k); d < best {
			best, found = d, k
		}
	}
	return found
}

// invert turns field -> "names of it" into name -> field.
func invert(table map[string]string) map[string]string {
	byName := map[string]string{}
	for field, names := range table {
		for name := range strings.FieldsSeq(names) {
			byName[name] = field
		}
	}
	return byName
}

// serviceNames lists the fields of a service that a manifest may have at the top by
// mistake.
func serviceNames() string {
	var names []string
	for _, f := range serviceFields {
		if f != "name" && f != "env" {
			names = append(names, plainKey(f))
		}
	}
	return strings.Join(names, " ") + " buildcommand startcommand installcommand healthcheckpath staticpublishpath rootdir internalport command"
}
