package runtimes

import (
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

var (
	javaSettings = regexp.MustCompile(`^(MAVEN_\w+|MVNW_\w+|GRADLE_\w+|JAVA_\w+|JDK_\w+)$`)
	// javaInstalls matches commands that fetch the dependencies and do nothing else. The
	// plan has none, as the build fetches them too.
	javaInstalls = regexp.MustCompile(`^(?:(?:mvn|sh mvnw|\./mvnw)(?: -B| --batch-mode| -q| --no-transfer-progress| -ntp)* dependency:(?:go-offline|resolve|resolve-plugins)|(?:sh gradlew|\./gradlew)(?: --no-daemon| -q)* dependencies)$`)
)

// javaInputs collects what Maven or Gradle reads to find the dependencies.
func javaInputs(in *inputs) {
	if strings.Contains(in.command, "gradlew") {
		gradleInputs(in)
	} else {
		mavenInputs(in)
	}
}

// mavenInputs collects the projects of a build, their parents, and the
// settings.
func mavenInputs(in *inputs) {
	for dir := range in.upward() {
		in.add(dir, "pom.xml")
		in.addTree(path.Join(dir, ".mvn"))
	}
	in.add(in.dir, "mvnw")
	modules := in.below(in.dir, "pom.xml")
	for _, dir := range modules {
		in.add(dir, "pom.xml")
	}
	for _, dir := range modules {
		in.checkNeighbours(path.Join(dir, "pom.xml"), pomModule)
		if len(modules) > 1 {
			in.forbid(dir, "target") // a module may be taken from there
		}
	}
	in.cached = !strings.Contains(in.env["MAVEN_ARGS"], mavenRepository)
	for _, name := range slices.Sorted(maps.Keys(in.files)) {
		in.checkMaven(name)
	}
}

const mavenRepository = "maven.repo.local" // the property that moves the repository

// checkMaven doubts if a file of Maven names others that were not added, or brings code
// that may read them.
func (in *inputs) checkMaven(name string) {
	text := in.text(".", name)
	switch path.Ext(name) {
	case ".xml":
		in.checkNeighbours(name, pomParentPath)
		if localPom.MatchString(text) {
			in.doubt("%s depends on a path", in.relative(name))
		}
		if pomCode.MatchString(text) {
			in.doubt("%s may read or write other files", in.relative(name))
		}
	case ".config", ".properties":
		in.checkOptions(name, comments.ReplaceAllString(text, ""))
	}
}

// checkOptions doubts if the options in a file of Maven may name files that were not added.
func (in *inputs) checkOptions(name, options string) {
	in.cached = in.cached && !strings.Contains(options, mavenRepository)
	for _, word := range envWords.FindAllString(options, -1) {
		word = strings.TrimPrefix(word, "@") // of a file with more options
		if strings.Contains(word, "${") || in.named(word) && !in.files[path.Join(in.dir, word)] {
			in.doubt("%s may name a file of the source", in.relative(name))
		}
	}
}

// checkNeighbours doubts if a pom.xml names another in a path that the pattern finds, and
// that one was not added.
func (in *inputs) checkNeighbours(name string, pattern *regexp.Regexp) {
	for _, m := range pattern.FindAllStringSubmatch(in.text(".", name), -1) {
		other := path.Join(path.Dir(name), m[1])
		added := in.files[other] || in.files[path.Join(other, "pom.xml")]
		if strings.Contains(m[1], "${") || in.has(".", other) && !added {
			in.doubt("%s depends on a path", in.relative(name))
		}
	}
}

var (
	localPom      = regexp.MustCompile(`<systemPath>|<url>\s*(?:file:|\$\{)|<file>`)
	pomModule     = regexp.MustCompile(`<module>\s*([^<]*?)\s*</module>`)
	pomParentPath = regexp.MustCompile(`<relativePath>\s*([^<]*?)\s*</relativePath>`)
	// pomCode matches extensions of Maven, and where a command that fetches dependencies
	// writes down which.
	pomCode  = regexp.MustCompile(`<extensions\b|<outputFile>`)
	comments = regexp.MustCompile(`(?m)^\s*#.*$`)
)

// gradleInputs collects the files of all projects of a build. They are programs, which
// may read more. Gradle leaves something in the project too.
func gradleInputs(in *inputs) {
	for _, dir := range in.below(in.dir, gradleFiles...) {
		in.add(dir, gradleFiles...)
		in.add(dir, "gradle.properties", "gradle.lockfile", "buildscript-gradle.lockfile", "settings-gradle.lockfile", "gradlew")
		in.addTree(path.Join(dir, "gradle"))
	}
	in.checkSettings()
	if in.has(in.dir, "buildSrc") {
		in.doubt("buildSrc may read other files")
	}
	for _, name := range slices.Sorted(maps.Keys(in.files)) {
		script := path.Ext(name) == ".gradle" || path.Ext(name) == ".kts"
		if script && gradleReads.MatchString(in.text(".", name)) {
			in.doubt("%s may read other files", in.relative(name))
		}
	}
}

// checkSettings doubts if Gradle takes the settings from a folder above, or if a project
// in them has a folder from which nothing was added: Gradle looks whether it is there.
func (in *inputs) checkSettings() {
	for dir := range in.upward() {
		file := firstFile(in.src, path.Join(dir, gradleSettings[0]), path.Join(dir, gradleSettings[1]))
		if file == "" {
			continue
		}
		if dir != in.dir {
			in.doubt("%s includes other projects", in.relative(file))
		}
		for _, project := range gradleIncluded(in.text(".", file)) {
			folder := path.Join(dir, strings.ReplaceAll(project[1:], ":", "/"))
			added := func(name string) bool { return strings.HasPrefix(name, folder+"/") }
			if in.has(".", folder) && !slices.ContainsFunc(slices.Collect(maps.Keys(in.files)), added) {
				in.doubt("%s has no build.gradle", in.relative(folder))
			}
		}
		return
	}
}

var gradleReads = regexp.MustCompile(`\b(?:files?|fileTree|flatDir|includeBuild|includeFlat|File|Paths|Path|Files|readText|exec|ProcessBuilder)\b\s*[({:.]|\bfrom\s*[=:(]|\bbuildFileName\b`)
