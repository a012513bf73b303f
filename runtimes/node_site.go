package runtimes

import (
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
)

// generator is a tool that builds a site. Its publish returns the folder if the source
// shows it; nil or "" means to look for it after the build.
type generator struct {
	dependency string
	publish    func(src fs.FS, pkg packageJSON) string
	server     []string // dependencies with which it builds a server instead
	bundler    bool     // it builds both servers and sites: the build script must run it
}

// generators lists the more specific ones before the tools that they use.
var generators = []generator{
	{"react-scripts", folder("build"), nil, false},
	{"@docusaurus/core", folder("build"), nil, false},
	{"@angular/core", angularFolder, []string{"@angular/ssr", "@angular/platform-server"}, false},
	{"astro", folder("dist"), []string{"@astrojs/node"}, false},
	{"@sveltejs/adapter-static", folder("build"), nil, false},
	{"@11ty/eleventy", folder("_site"), nil, false},
	{"@vue/cli-service", folder("dist"), nil, false},
	{"gatsby", folder("public"), nil, false},
	{"vitepress", nil, nil, false},
	{"parcel", folder("dist"), nil, false},
	{"vite", viteFolder, []string{"@sveltejs/kit", "@remix-run/serve", "@remix-run/node", "@react-router/serve", "@react-router/node", "@builder.io/qwik-city", "@solidjs/start", "vike", "@tanstack/react-start"}, false},
	{"webpack", nil, listeners, true},
	{"esbuild", nil, listeners, true},
}

// findSite returns the folder of the site that the package's build makes, and reports
// whether it makes one.
func findSite(src fs.FS, pkg packageJSON) (Command, bool) {
	if pkg.Scripts["build"] == "" {
		return Command{}, false
	}
	if line, ok := exportedSite(src, pkg); ok {
		return line, true
	}
	if start := pkg.Scripts["start"]; start != "" && !previews.MatchString(start) {
		return Command{}, false
	}
	for _, g := range generators {
		if !pkg.has(g.dependency) {
			continue
		}
		if slices.ContainsFunc(g.server, pkg.has) || listens(src, pkg) {
			return Command{}, false
		}
		if g.bundler && !strings.Contains(pkg.Scripts["build"], g.dependency) {
			continue
		}
		publish := Command{From: "package.json dependency " + g.dependency}
		if g.publish != nil {
			publish.Line = g.publish(src, pkg)
		}
		return publish, true
	}
	return Command{}, false
}

// listens reports whether the package contains a server: something to listen with, and
// a file that does.
func listens(src fs.FS, pkg packageJSON) bool {
	return slices.ContainsFunc(listeners, pkg.has) && (pkg.Main != "" || firstFile(src, nodeEntries[:3]...) != "")
}

var listeners = []string{"express", "fastify", "koa", "hono", "@hapi/hapi", "@nestjs/core", "ws", "socket.io", "polka", "h3"}

// previews matches start scripts that serve a site during development, or the result of
// its build.
var previews = regexp.MustCompile(`^(\S+=\S+ |cross-env |npx )*(react-scripts start|craco start|vite\b|vue-cli-service serve|ng serve|docusaurus (start|serve)|` +
	`(npx )?(@11ty/)?eleventy\b|astro (dev|preview|start)|gatsby (develop|serve|start)|vitepress (dev|preview|serve)|parcel\b|webpack(-dev-server| serve)|` +
	`(serve|http-server|live-server|sirv)\b|svelte-kit (dev|preview)|(npm|yarn|pnpm)( run)? (dev|develop|preview|serve)$)`)

// exportedSite detects frameworks that render on a server unless they are configured to
// export.
func exportedSite(src fs.FS, pkg packageJSON) (Command, bool) {
	switch {
	case pkg.has("next"):
		for _, config := range []string{"next.config.js", "next.config.mjs", "next.config.ts"} {
			if nextExport.MatchString(readHead(src, config)) {
				return Command{"out", config + " output"}, true
			}
		}
	case pkg.has("nuxt") && strings.Contains(pkg.Scripts["build"], "nuxt generate"):
		return Command{".output/public", "package.json scripts.build"}, true
	}
	return Command{}, false
}

var nextExport = regexp.MustCompile(`(?m)^[^/\n]*\boutput\s*:\s*["'` + "`" + `]export`)

func folder(name string) func(fs.FS, packageJSON) string {
	return func(fs.FS, packageJSON) string { return name }
}

// viteFolder reads the folder from vite's configuration; "" if that or build's
// arguments set it in a way that cannot be read.
func viteFolder(src fs.FS, pkg packageJSON) string {
	if strings.Contains(pkg.Scripts["build"], "outDir") {
		return ""
	}
	for _, ext := range []string{"js", "ts", "mjs", "mts", "cjs", "cts"} {
		config := readHead(src, "vite.config."+ext)
		if m := outDir.FindStringSubmatch(config); m != nil && fs.ValidPath(strings.TrimPrefix(m[1], "./")) {
			return strings.TrimPrefix(m[1], "./")
		}
		if strings.Contains(config, "outDir") || viteRoot.MatchString(config) {
			return ""
		}
	}
	return "dist"
}

var (
	outDir   = regexp.MustCompile(`\boutDir\s*:\s*["'` + "`" + `]([^"'` + "`" + `$]+)["'` + "`" + `]`)
	viteRoot = regexp.MustCompile(`(?m)^\s*root\s*:`)
)

// angularFolder returns the builder's default, dist/<project>/browser, unless
// angular.json says otherwise.
func angularFolder(src fs.FS, _ packageJSON) string {
	config := readHead(src, "angular.json")
	if m := outputPath.FindStringSubmatch(config); m != nil && fs.ValidPath(m[1]) {
		if strings.Contains(config, ":application\"") {
			return m[1] + "/browser"
		}
		return m[1]
	}
	if m := angularProject.FindStringSubmatch(config); m != nil {
		return fmt.Sprintf("dist/%s/browser", m[1])
	}
	return ""
}

var (
	outputPath     = regexp.MustCompile(`"outputPath"\s*:\s*"([^"]+)"`)
	angularProject = regexp.MustCompile(`"projects"\s*:\s*\{\s*"([A-Za-z0-9_-]+)"`)
)
