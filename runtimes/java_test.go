package runtimes

import (
	"strings"
	"testing"
	"testing/fstest"
)

func TestJava_BuildsAndStarts(t *testing.T) {
	const flags = " --batch-mode --no-transfer-progress -DskipTests package"
	const pom = "pom.xml: <project><parent><groupId>org.springframework.boot</groupId><artifactId>spring-boot-starter-parent</artifactId></parent><artifactId>shop</artifactId>"
	jar := func(pattern string) string {
		return `"$(ls -S ` + pattern + ` | grep -vE -e '-(plain|sources|javadoc|tests)[.]jar$' | head -n 1)"`
	}
	const gradle = "sh gradlew --no-daemon "
	for i, c := range []struct {
		src          fstest.MapFS
		build, start string
	}{
		{files(pom), "mvn" + flags, "java -Dserver.port=$PORT -jar " + jar("target/shop*.jar")},
		{files(pom+"<build><finalName>app</finalName></build>", "mvnw: "), "sh mvnw" + flags, "java -Dserver.port=$PORT -jar target/app.jar"},
		{files(pom + "<packaging>war</packaging>"), "mvn" + flags, "java -Dserver.port=$PORT -jar " + jar("target/shop*.war")},
		{files("pom.xml: <dependencies><artifactId>a</artifactId></dependencies><artifactId>b</artifactId>"), "mvn" + flags, "java -jar " + jar("target/b*.jar")},
		{files("pom.xml: <artifactId>b</artifactId>io.quarkus.platform"), "mvn" + flags, "java -Dquarkus.http.host=0.0.0.0 -Dquarkus.http.port=$PORT -jar target/quarkus-app/quarkus-run.jar"},
		{files("pom.xml: <artifactId>b</artifactId><modules><module>c</module></modules>"), "mvn" + flags, ""},
		{files("build.gradle: id 'org.springframework.boot' version '4'", "gradlew: "), gradle + "bootJar", "java -Dserver.port=$PORT -jar " + jar("build/libs/*.jar")},
		{files("build.gradle.kts: plugins {\n    application\n}", "settings.gradle.kts: rootProject.name = \"shop\"", "gradlew: "), gradle + "installDist", "sh build/install/shop/bin/shop"},
		{files("build.gradle: id 'io.micronaut.application'", "gradlew: "), gradle + "build -x test", "env MICRONAUT_SERVER_PORT=$PORT java -jar " + jar("build/libs/*.jar")},
		{files("build.gradle: ", "gradlew: "), gradle + "build -x test", "java -jar " + jar("build/libs/*.jar")},
		{files("build.gradle: "), "", ""},
		{files("build.gradle: id 'io.micronaut.application'", "settings.gradle: rootProject.name = 'shop'", "gradlew: "), gradle + "installDist", "env MICRONAUT_SERVER_PORT=$PORT sh build/install/shop/bin/shop"},
		{files("settings.gradle.kts: rootProject.name = \"shop\"\ninclude(\"app\", \"lib\")", "app/build.gradle.kts: plugins {\n    application\n}", "lib/build.gradle.kts: `java-library`", "gradlew: "), gradle + ":app:installDist", "sh app/build/install/app/bin/app"},
		{files("settings.gradle: include ':lib',\n  ':back:web'", "build.gradle: id 'org.springframework.boot' version '4' apply false", "back/web/build.gradle: id 'org.springframework.boot'", "gradlew: "), gradle + ":back:web:bootJar", "java -Dserver.port=$PORT -jar " + jar("back/web/build/libs/*.jar")},
		{files("settings.gradle: include 'one', 'two'", "one/build.gradle: id 'application'", "two/build.gradle: id 'application'", "gradlew: "), "", ""},
		{files("settings.gradle: include 'one', 'web'", "one/build.gradle: id 'application'", "web/build.gradle: id 'application'", "gradlew: "), gradle + ":web:installDist", "sh web/build/install/web/bin/web"},
		{files("settings.gradle: include '../x'", "gradlew: "), "", ""},
		{files("app.jar: "), "", "java -jar app.jar"},
		{files("Main.java: class Main {}"), "find . -name '*.java' ! -path './target/*' -print0 | xargs -0 javac -cp 'lib/*' -d target/classes", "java -cp 'target/classes:lib/*' Main"},
		{files("src/App.java: package a.b;\nclass App {}"), "find src -name '*.java' ! -path './target/*' -print0 | xargs -0 javac -cp 'lib/*' -d target/classes", "java -cp 'target/classes:lib/*' a.b.App"},
	} {
		plan, ok := detectJava(c.src)
		if !ok || plan.Build.Line != c.build || plan.Start.Line != c.start || c.start == "" && plan.Hint == "" {
			t.Errorf("%d: %+v", i, plan)
		}
	}
}

func TestJava_LeavesWhatItCannotName(t *testing.T) {
	for _, src := range []fstest.MapFS{files("a.jar: ", "b.jar: "), files("Other.java: "), {}} {
		if plan, ok := detectJava(src); ok || plan.Hint == "" {
			t.Errorf("%+v", plan)
		}
	}
}

func TestJava_IsAPartOfAProjectInAnotherLanguage(t *testing.T) {
	for i, c := range []struct {
		src  fstest.MapFS
		want string
	}{
		{files("plantuml.jar: ", `package.json: {"scripts": {"start": "node a.js"}}`), "node"},
		{files("tika.jar: ", "requirements.txt: flask", "app.py: "), "python"},
		{files("Main.java: ", "deno.json: {}", "main.ts: "), "deno"},
		{files("tika.jar: ", "requirements.txt: ", "app.py: ", "Procfile: web: java -jar tika.jar"), "java"},
		{files("pom.xml: <artifactId>a</artifactId>", `package.json: {"devDependencies": {"vite": "7"}}`), "java"},
	} {
		if d, _, _ := Detect(c.src); d == nil || d.Name != c.want {
			t.Errorf("%d: %+v, want %s", i, d, c.want)
		}
	}
}

func TestJava_RunsTheJarOfAServiceThatSaysItIsJava(t *testing.T) {
	if plan, _ := detectJava(files("tika.jar: ", "requirements.txt: flask")); plan.Start.Line != "java -jar tika.jar" {
		t.Errorf("%+v", plan)
	}
}

// Gradle accepts only the version of the toolchain.
func TestJava_RefusesAToolchainThatIsNotThere(t *testing.T) {
	for i, c := range []struct {
		src  fstest.MapFS
		runs bool
	}{
		{files("gradlew: ", "build.gradle: toolchain { languageVersion = JavaLanguageVersion.of(17) }"), false},
		{files("gradlew: ", "build.gradle.kts: kotlin { jvmToolchain(25) }"), false},
		{files("gradlew: ", "build.gradle.kts: kotlin { jvmToolchain(21) }"), true},
		{files("gradlew: ", "build.gradle.kts: // jvmToolchain(17)\nplugins { java }"), true},
		{files("gradlew: ", "build.gradle: JavaLanguageVersion.of(17)", "settings.gradle: id 'org.gradle.toolchains.foojay-resolver-convention'"), true},
	} {
		plan, _ := detectJava(c.src)
		if (plan.Start.Line != "") != c.runs || strings.Contains(plan.Hint, "toolchain") == c.runs {
			t.Errorf("%d: %+v", i, plan)
		}
	}
}

func TestJava_ReadsItsVersion(t *testing.T) {
	for file, want := range map[string]string{
		".java-version: 21":                                          "21 .java-version",
		".tool-versions: java temurin-21.0.1+8":                      "21 .tool-versions",
		".sdkmanrc: # x\njava=21.0.4-tem\n":                          "21 .sdkmanrc",
		"system.properties: java.runtime.version=17\n":               "21 system.properties asks for 17, which is not offered; 21 is the nearest",
		"pom.xml: <java.version>17</java.version>":                   "21 pom.xml",
		"pom.xml: <maven.compiler.source>1.8</maven.compiler":        "21 pom.xml",
		"pom.xml: <release>24</release>":                             "21 pom.xml asks for >=24, which is not offered; 21 is the nearest",
		"build.gradle: languageVersion = JavaLanguageVersion.of(17)": "21 build.gradle asks for 17, which is not offered; 21 is the nearest",
		"build.gradle: languageVersion = JavaLanguageVersion.of(21)": "21 build.gradle",
		"build.gradle: sourceCompatibility = '17'":                   "21 build.gradle",
		"Main.java: ": " ",
	} {
		plan, _ := detectJava(files(file))
		if got := plan.Version + " " + plan.VersionFrom; got != want {
			t.Errorf("%s: %s, want %s", file, got, want)
		}
	}
}
