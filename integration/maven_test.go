package integration

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // Maven compares it
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
)

// javaServer answers with a text of the package greeting.
const javaServer = `import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;

class Main {
    public static void main(String[] args) throws Exception {
        int port = Integer.parseInt(System.getenv("PORT"));
        HttpServer server = HttpServer.create(new InetSocketAddress(port), 0);
        byte[] text = Main.class.getResourceAsStream("/greeting.txt").readAllBytes();
        server.createContext("/", x -> {
            x.sendResponseHeaders(200, text.length);
            try (var body = x.getResponseBody()) {
                body.write(text);
            }
        });
        server.start();
    }
}
`

const (
	mavenInstall    = "mvn -B dependency:resolve"
	mavenRepository = "/cache/maven/repository" // the image's
	greetingJar     = "/test/greeting/1.0.0/greeting-1.0.0.jar"
)

// mavenTree is a project whose Maven takes everything from the packages. The image's own
// settings refuse a repository with plain HTTP, but not a mirror.
func (p *packages) mavenTree() Tree {
	return Tree{
		"pom.xml": mavenPom("x", "x", "<dependencies><dependency><groupId>test</groupId><artifactId>greeting</artifactId><version>[1.0,2.0)</version></dependency></dependencies>"+
			"<build><plugins><plugin><artifactId>"+mavenPlugin+"</artifactId><version>1.0.0</version></plugin></plugins></build>"),
		".mvn/maven.config": "--settings\n.mvn/settings.xml\n",
		".mvn/settings.xml": "<settings><mirrors><mirror><id>test</id><mirrorOf>*</mirrorOf><url>" + p.url + "/maven</url></mirror></mirrors></settings>\n",
		"Main.java":         javaServer,
	}
}

func mavenPom(group, name, more string) string {
	return fmt.Sprintf("<project><modelVersion>4.0.0</modelVersion><groupId>%s</groupId><artifactId>%s</artifactId><version>1.0.0</version>%s</project>\n", group, name, more)
}

const mavenPlugin = "maven-dependency-plugin"

// addMaven adds a Maven folder. Besides greeting it has a plugin in place of the one of
// Maven Central, which has many dependencies. Before the goal of this one runs, Maven
// fetches what the pom.xml names; the goal itself does nothing.
func (p *packages) addMaven() {
	p.addArtifact("test", "greeting", "", map[string]string{"greeting.txt": "hello"})
	p.addArtifact("org.apache.maven.plugins", mavenPlugin, "<packaging>maven-plugin</packaging>", map[string]string{
		"META-INF/maven/plugin.xml": "<plugin><groupId>org.apache.maven.plugins</groupId><artifactId>" + mavenPlugin + "</artifactId><version>1.0.0</version><goalPrefix>dependency</goalPrefix>" +
			"<mojos><mojo><goal>resolve</goal><requiresDependencyResolution>test</requiresDependencyResolution><implementation>test.Resolve</implementation><language>java</language>" +
			"<instantiationStrategy>per-lookup</instantiationStrategy></mojo></mojos></plugin>",
		"test/Resolve.class": string(mojoClass()),
	})
}

// addArtifact adds version 1.0.0 of a jar with files: the jar, its pom and the list of
// versions.
func (p *packages) addArtifact(group, name, more string, files map[string]string) {
	folder := strings.ReplaceAll(group, ".", "/") + "/" + name
	file := folder + "/1.0.0/" + name + "-1.0.0"
	p.addMavenFile(file+".pom", mavenPom(group, name, more))
	p.addMavenFile(file+".jar", string(zipOf(files)))
	p.addMavenFile(folder+"/maven-metadata.xml", "<metadata><groupId>"+group+"</groupId><artifactId>"+name+"</artifactId><versioning><versions><version>1.0.0</version></versions></versioning></metadata>")
}

func (p *packages) addMavenFile(name, content string) {
	p.files["/maven/"+name] = []byte(content)
	p.files["/maven/"+name+".sha1"] = fmt.Appendf(nil, "%x", sha1.Sum([]byte(content))) //nolint:gosec // see above
}

// mojoClass is this class, compiled:
//
//	package test;
//	public class Resolve extends org.apache.maven.plugin.AbstractMojo {
//		public void execute() {}
//	}
func mojoClass() []byte {
	var b bytes.Buffer
	raw := func(text string) {
		data, _ := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
		b.Write(data)
	}
	constant := func(text string) {
		b.WriteByte(1)
		_ = binary.Write(&b, binary.BigEndian, uint16(len(text)))
		b.WriteString(text)
	}
	raw("cafebabe 0000 0032 000b") // of Java 6, with the constants 1 to 10
	constant("test/Resolve")
	raw("07 0001") // 2: the class named by 1
	constant("org/apache/maven/plugin/AbstractMojo")
	raw("07 0003") // 4: the class named by 3
	constant("<init>")
	constant("()V")
	raw("0c 0005 0006") // 7: the name 5 with the type 6
	raw("0a 0004 0007") // 8: the method 7 of the class 4
	constant("execute")
	constant("Code")
	raw("0021 0002 0004 0000 0000 0002") // public, 2 extends 4, with two methods
	// The constructor: aload_0, invokespecial 8, return.
	raw("0001 0005 0006 0001 000a 00000011 0001 0001 00000005 2a b70008 b1 0000 0000")
	// execute: return.
	raw("0001 0009 0006 0001 000a 0000000d 0000 0001 00000001 b1 0000 0000")
	raw("0000") // no attributes
	return b.Bytes()
}
