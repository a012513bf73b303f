package runtimes

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// gradleFiles mark a build of Gradle in a folder. The settings may be there alone, with
// subprojects below.
var gradleFiles = append(gradleBuilds, gradleSettings...)

var (
	gradleBuilds   = []string{"build.gradle.kts", "build.gradle"}
	gradleSettings = []string{"settings.gradle.kts", "settings.gradle"}
)

var (
	gradleJava      = regexp.MustCompile(`(?:VERSION_|sourceCompatibility\s*=\s*['"]?)(\d+(?:\.\d+)?)`)
	gradleToolchain = regexp.MustCompile(`(?:JavaLanguageVersion\.of|jvmToolchain)\(\s*["']?(\d+)`)
	gradleResolver  = regexp.MustCompile(`foojay|toolchainManagement`)
	gradleName      = regexp.MustCompile(`(?m)^\s*rootProject\.name\s*=\s*["']([A-Za-z0-9._-]+)["']`)
	gradleStart     = regexp.MustCompile(`(?m)(?:^\s*application\s*$|["'` + "`" + `](?:io\.micronaut\.)?application["'` + "`" + `]|^\s*application\s*\{)`)
	gradleInclude   = regexp.MustCompile(`(?m)^\s*include\s*\(?((?:\s*["'][A-Za-z0-9._:-]+["']\s*,?)+)`)
	// gradleIdle matches comments, and plugins that the subprojects may apply.
	gradleIdle = regexp.MustCompile(`(?m)^\s*//.*$|^.*\bapply\s*\(?\s*false.*$`)
)

// gradleProject is the project of the service's folder, or a subproject.
type gradleProject struct {
	path string // ":" or ":app"
	name string // what its programs are called; "" when that is not known
	dir  string
	file string // its build file; "" for none
	text string // of file
}

func readGradle(src fs.FS, name, project string) gradleProject {
	g := gradleProject{path: project, name: name, dir: path.Clean("./" + strings.ReplaceAll(project[1:], ":", "/"))}
	for _, build := range gradleBuilds {
		if file := path.Join(g.dir, build); g.file == "" && isFile(src, file) {
			g.file, g.text = file, gradleIdle.ReplaceAllString(readHead(src, file), "")
		}
	}
	return g
}

// runs reports whether the project has a plugin that builds a program.
func (g gradleProject) runs() bool {
	return strings.Contains(g.text, "org.springframework.boot") || strings.Contains(g.text, "io.quarkus") || gradleStart.MatchString(g.text)
}

// planGradle builds with the project's wrapper, which names the project's version of
// Gradle.
func planGradle(src fs.FS) Plan {
	settings := readHead(src, gradleSettings[0]) + readHead(src, gradleSettings[1])
	p := Plan{From: firstFile(src, gradleFiles...), Name: group(gradleName, settings)}
	g, hint := gradleProgram(src, readGradle(src, p.Name, ":"), settings)
	toolchain := group(gradleToolchain, g.text)
	p.Version, p.VersionFrom = cmp.Or(toolchain, atLeast(gradleJava, g.text)), g.file
	switch {
	case !isFile(src, "gradlew"):
		p.Hint = "its Gradle build has no wrapper: run gradle wrapper, and add gradlew and the folder gradle"
	case hint != "":
		p.Hint = hint
	case toolchain != "" && !slices.Contains(java.Versions, toolchain) && !gradleResolver.MatchString(settings):
		p.Hint = fmt.Sprintf("the toolchain of its %[1]s is Java %[2]s, and Gradle accepts no other version, but this host has %[3]s: write %[3]s there, or have settings.gradle fetch Java %[2]s with the plugin org.gradle.toolchains.foojay-resolver-convention", g.file, toolchain, java.Default)
	default:
		p.Build, p.Start = g.commands()
	}
	return p
}

// gradleProgram returns the project that builds the program: the folder's own, else the
// subproject that has one; or why there is none.
func gradleProgram(src fs.FS, root gradleProject, settings string) (gradleProject, string) {
	if root.runs() {
		return root, ""
	}
	var found []gradleProject
	var names []string
	for _, project := range gradleIncluded(settings) {
		g := readGradle(src, project[strings.LastIndex(project, ":")+1:], project)
		if g.runs() {
			found, names = append(found, g), append(names, g.name)
		}
	}
	i := pickProgram(names, root.name)
	switch {
	case i >= 0:
		return found[i], ""
	case len(found) > 0:
		return root, "several of its Gradle projects are programs: " + strings.Join(names[:min(len(names), 8)], ", ")
	case root.file == "":
		return root, "none of the projects that its settings.gradle includes has the plugin application, Spring Boot or Quarkus"
	}
	return root, ""
}

// gradleIncluded returns the paths of the subprojects, at most a hundred.
func gradleIncluded(settings string) []string {
	var paths []string
	for _, include := range gradleInclude.FindAllStringSubmatch(settings, 100) {
		for _, m := range tomlText.FindAllStringSubmatch(include[1], 100) {
			paths = append(paths, ":"+strings.TrimPrefix(m[1], ":"))
		}
	}
	return paths[:min(len(paths), 100)]
}

// commands returns the command that builds the project, and the one that runs the
// result.
func (g gradleProject) commands() (build, start Command) {
	task := func(name string) Command {
		return Command{"sh gradlew --no-daemon " + strings.TrimPrefix(g.path+":"+name, "::"), g.file}
	}
	made := path.Join(g.dir, "build")
	switch {
	case strings.Contains(g.text, "org.springframework.boot"):
		return task("bootJar"), javaJar(g.text, oneJar(made+"/libs/*.jar"), g.file)
	case strings.Contains(g.text, "io.quarkus"):
		return task("quarkusBuild"), Command{"java -Dquarkus.http.host=0.0.0.0 -Dquarkus.http.port=$PORT -jar " + made + "/quarkus-app/quarkus-run.jar", g.file + " with Quarkus"}
	case gradleStart.MatchString(g.text) && g.name != "":
		return task("installDist"), Command{micronautPort(g.text) + "sh " + path.Join(made, "install", g.name, "bin", g.name), g.file + " application"}
	default:
		return task("build -x test"), javaJar(g.text, oneJar(made+"/libs/*.jar"), g.file)
	}
}
