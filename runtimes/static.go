package runtimes

import (
	"io/fs"
	"path"
)

var static = Definition{
	Name:    "static",
	Shows:   "an `index.html` in `dist`, `build`, `out`, `public`, `_site` or the folder itself, and no program",
	Aliases: []string{"html", "site", "web", "nginx", "spa"},
}

// detectStatic detects a folder with a page and no program.
func detectStatic(src fs.FS) (Plan, bool) {
	plan := Plan{Static: true}
	folder := FindPublish(src)
	if folder == "" {
		return plan, false
	}
	plan.From = path.Join(folder, indexPage)
	plan.Publish = Command{folder, plan.From}
	program := readProcfile(src)["web"] != "" || folder != "." && firstFile(src, projects...) != ""
	return plan, !program
}

// projects are files that mean a program: a public folder is only a part of it.
var projects = []string{
	"Gemfile", "composer.json", "index.php", "pom.xml", "build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts",
	"Cargo.toml", "mix.exs", "deno.json", "Dockerfile",
}

// PublishFolders are where a site's files are looked for, in order.
var PublishFolders = []string{"dist", "build", "out", "public", "_site", "."}

const indexPage = "index.html"

// FindPublish returns the folder to serve: the first of PublishFolders with an
// index.html, else the first with one up to two folders further down (like Angular's
// dist/<name>/browser). It returns "" if there is no such page.
func FindPublish(src fs.FS) string {
	for _, folder := range PublishFolders {
		if isFile(src, path.Join(folder, indexPage)) {
			return folder
		}
	}
	for _, folder := range PublishFolders {
		if folder == "." {
			continue
		}
		for _, inner := range subfolders(src, folder) {
			for _, candidate := range []string{inner, path.Join(inner, "browser")} {
				if isFile(src, path.Join(candidate, indexPage)) {
					return candidate
				}
			}
		}
	}
	return ""
}
