package runtimes

import (
	"io/fs"
	"path"
	"regexp"
	"strings"
)

var java = Definition{
	Name:     "java",
	Shows:    "`pom.xml`, `build.gradle` or `settings.gradle` (also `.kts`); a single jar or a file such as `Main.java`, if the folder has no file of another language's package manager",
	Versions: []string{"21"},
	Default:  "21",
	Aliases:  []string{"jvm", "jdk", "openjdk", "kotlin", "spring", "maven", "gradle"},
	Example:  "java -jar target/*.jar",
	inputs:   javaInputs,
	installs: javaInstalls,
	settings: javaSettings,
	programs: []string{"java", "mvn", "mvnw", "gradlew"},
	// By itself Java leaves three quarters of a bounded memory unused. A program
	// that is out of memory ends, to be started anew.
	Env: map[string]string{
		"JAVA_TOOL_OPTIONS": "-XX:MaxRAMPercentage=50 -XX:+ExitOnOutOfMemoryError",
	},
	buildEnv: map[string]string{
		"GRADLE_USER_HOME": "/cache/gradle",
		"MAVEN_USER_HOME":  "/cache/maven",
		"MAVEN_OPTS":       "-Dmaven.repo.local=/cache/maven/repository",
	},
}

func detectJava(src fs.FS) (Plan, bool) {
	p, ofJava := Plan{}, true
	switch {
	case isFile(src, "pom.xml"):
		p = planMaven(src)
	case firstFile(src, gradleFiles...) != "":
		p = planGradle(src)
	default:
		p = planJava(src)
		ofJava = firstFile(src, notJava...) == "" || strings.HasPrefix(readProcfile(src)["web"], "java ")
	}
	sources := append(javaVersions(src), source{p.Version, p.VersionFrom})
	p.Version, p.VersionFrom = java.firstVersion(sources...)
	return p, ofJava && p.From != ""
}

// javaVersions returns the places where tools look for a version. Distributions put
// their name before it, and SDKMAN after it.
func javaVersions(src fs.FS) []source {
	asked := func(text string) string { return javaNumber.FindString(text) }
	sources := []source{
		{asked(firstLine(src, ".java-version")), ".java-version"},
		{asked(toolVersion(src, "java")), ".tool-versions"},
	}
	for _, property := range []struct{ file, name string }{{".sdkmanrc", "java="}, {"system.properties", "java.runtime.version="}} {
		for line := range strings.Lines(readHead(src, property.file)) {
			if value, ok := strings.CutPrefix(strings.TrimSpace(line), property.name); ok {
				sources = append(sources, source{asked(value), property.file})
			}
		}
	}
	return sources
}

var javaNumber = regexp.MustCompile(`\d+(\.\d+)*`)

// atLeast returns the range for the version that a project compiles for, which newer
// ones run: 17, or 1.8 in the old form. It is not a range if the pattern finds nothing.
func atLeast(pattern *regexp.Regexp, text string) string {
	return ">=" + strings.TrimPrefix(group(pattern, text), "1.")
}

var (
	pomJava    = regexp.MustCompile(`<(?:java\.version|maven\.compiler\.(?:release|source|target)|release)>\s*(\d+(?:\.\d+)?)\s*<`)
	pomParent  = regexp.MustCompile(`(?s)<(parent|dependencies|dependencyManagement|build|profiles|properties)>.*?</(?:parent|dependencies|dependencyManagement|build|profiles|properties)>`)
	pomName    = regexp.MustCompile(`<artifactId>\s*([A-Za-z0-9._-]+)\s*</artifactId>`)
	pomFinal   = regexp.MustCompile(`<finalName>\s*([A-Za-z0-9._-]+)\s*</finalName>`)
	pomWar     = regexp.MustCompile(`<packaging>\s*war\s*</packaging>`)
	pomModules = regexp.MustCompile(`<modules>`)
)

// planMaven builds with the project's wrapper if it has one, and runs the jar named
// like the project: Spring Boot's contains everything.
func planMaven(src fs.FS) Plan {
	pom := readHead(src, "pom.xml")
	p := Plan{From: "pom.xml", Version: atLeast(pomJava, pom), VersionFrom: "pom.xml"}
	program := "mvn"
	if isFile(src, "mvnw") {
		program = "sh mvnw"
	}
	p.Build = Command{program + " --batch-mode --no-transfer-progress -DskipTests package", "pom.xml"}
	suffix := ".jar"
	if pomWar.MatchString(pom) {
		suffix = ".war"
	}
	p.Name = group(pomName, pomParent.ReplaceAllString(pom, ""))
	jar := oneJar("target/" + p.Name + "*" + suffix)
	if final := group(pomFinal, pom); final != "" {
		jar = "target/" + final + suffix
	}
	switch {
	case strings.Contains(pom, "io.quarkus"):
		p.Start = Command{"java -Dquarkus.http.host=0.0.0.0 -Dquarkus.http.port=$PORT -jar target/quarkus-app/quarkus-run.jar", "pom.xml with Quarkus"}
	case pomModules.MatchString(pom):
		p.Hint = "its pom.xml has modules, and one of them is the program"
	default:
		p.Start = javaJar(pom, jar, "pom.xml")
	}
	return p
}

// javaJar runs a jar, with the port as an argument for frameworks that do not read
// PORT.
func javaJar(project, jar, from string) Command {
	options := ""
	if strings.Contains(project, "org.springframework.boot") {
		options, from = "-Dserver.port=$PORT ", from+" with Spring Boot"
	}
	return Command{micronautPort(project) + "java " + options + "-jar " + jar, from}
}

// micronautPort returns the beginning of a start command of Micronaut, which does not
// read PORT.
func micronautPort(project string) string {
	if strings.Contains(project, "io.micronaut") {
		return "env MICRONAUT_SERVER_PORT=$PORT "
	}
	return ""
}

// oneJar returns the jar of a pattern that contains the program: the largest has all
// dependencies, and some are never programs.
func oneJar(pattern string) string {
	return `"$(ls -S ` + pattern + ` | grep -vE -e '-(plain|sources|javadoc|tests)[.]jar$' | head -n 1)"`
}

// javaEntries are the files in which programs begin, in the folder or in src.
var javaEntries = []string{"Main.java", "App.java", "Server.java", "Application.java"}

// notJava are files of projects in other languages that may contain a jar or a class.
var notJava = []string{
	"package.json", "deno.json", "deno.jsonc", "requirements.txt", "pyproject.toml", "Pipfile", "setup.py",
	"go.mod", "Gemfile", "composer.json", "Cargo.toml",
}

// planJava runs an existing jar, or compiles files without a build tool, with the jars
// of lib.
func planJava(src fs.FS) Plan {
	if jars, _ := fs.Glob(src, "*.jar"); len(jars) == 1 {
		return Plan{From: jars[0], Start: Command{"java -jar " + word(jars[0]), jars[0]}}
	}
	for _, folder := range []string{".", "src", "src/main/java"} {
		for _, name := range javaEntries {
			file := path.Join(folder, name)
			if !isFile(src, file) {
				continue
			}
			class := strings.TrimSuffix(name, ".java")
			if m := javaPackage.FindStringSubmatch(readHead(src, file)); m != nil {
				class = m[1] + "." + class
			}
			return Plan{
				From:  file,
				Build: Command{"find " + folder + " -name '*.java' ! -path './target/*' -print0 | xargs -0 javac -cp 'lib/*' -d target/classes", file},
				Start: Command{"java -cp 'target/classes:lib/*' " + class, file},
			}
		}
	}
	return Plan{Hint: "it has no pom.xml, no build.gradle, no single jar and none of " + strings.Join(javaEntries, ", ")}
}

var javaPackage = regexp.MustCompile(`(?m)^\s*package\s+([A-Za-z0-9_.]+)\s*;`)
