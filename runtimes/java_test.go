package runtimes

import (
	"testing"
	"testing/fstest"
)

func TestJava_BuildsAndStarts(t *testing.T) {
	const flags = " --batch-mode --no-transfer-progress -DskipTests package"
	const pom = "pom.xml: <project><parent><groupId>org.springframework.boot</groupId><artifactId>spring-boot-starter-parent</artifactId></parent><artifactId>shop</artifactId>"
	for i, c := range []struct {
		src          fstest.MapFS
		build, start string
	}{
		{files(pom), "mvn" + flags, "java -Dserver.port=$PORT -jar target/shop*.jar"},
		{files(pom+"<build><finalName>app</finalName></build>", "mvnw: "), "sh mvnw" + flags, "java -Dserver.port=$PORT -jar target/app.jar"},
		{files(pom + "<packaging>war</packaging>"), "mvn" + flags, "java -Dserver.port=$PORT -jar target/shop*.war"},
		{files("pom.xml: <dependencies><artifactId>a</artifactId></dependencies><artifactId>b</artifactId>"), "mvn" + flags, "java -jar target/b*.jar"},
		{files("pom.xml: <artifactId>b</artifactId>io.quarkus.platform"), "mvn" + flags, "java -Dquarkus.http.host=0.0.0.0 -Dquarkus.http.port=$PORT -jar target/quarkus-app/quarkus-run.jar"},
		{files("pom.xml: <artifactId>b</artifactId><modules><module>c</module></modules>"), "mvn" + flags, ""},
		{files("build.gradle: id 'org.springframework.boot' version '4'", "gradlew: "), "sh gradlew --no-daemon bootJar", "java -Dserver.port=$PORT -jar build/libs/*.jar"},
		{files("build.gradle.kts: plugins {\n    application\n}", "settings.gradle.kts: rootProject.name = \"shop\"", "gradlew: "), "sh gradlew --no-daemon installDist", "sh build/install/shop/bin/shop"},
		{files("build.gradle: id 'io.micronaut.application'", "gradlew: "), "sh gradlew --no-daemon build -x test", "java -Dmicronaut.server.port=$PORT -jar build/libs/*.jar"},
		{files("build.gradle: ", "gradlew: "), "sh gradlew --no-daemon build -x test", "java -jar build/libs/*.jar"},
		{files("build.gradle: "), "", ""},
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

func TestJava_ReadsItsVersion(t *testing.T) {
	for file, want := range map[string]string{
		".java-version: 21":                                          "21 .java-version",
		".tool-versions: java temurin-21.0.1+8":                      "21 .tool-versions",
		".sdkmanrc: # x\njava=21.0.4-tem\n":                          "21 .sdkmanrc",
		"system.properties: java.runtime.version=17\n":               "21 system.properties asks for 17, which is not offered; 21 is the nearest",
		"pom.xml: <java.version>17</java.version>":                   "21 pom.xml",
		"pom.xml: <maven.compiler.source>1.8</maven.compiler":        "21 pom.xml",
		"pom.xml: <release>24</release>":                             "21 pom.xml asks for >=24, which is not offered; 21 is the nearest",
		"build.gradle: languageVersion = JavaLanguageVersion.of(17)": "21 build.gradle",
		"Main.java: ": " ",
	} {
		plan, _ := detectJava(files(file))
		if got := plan.Version + " " + plan.VersionFrom; got != want {
			t.Errorf("%s: %s, want %s", file, got, want)
		}
	}
}
