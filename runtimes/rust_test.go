package runtimes

import (
	"strings"
	"testing"
	"testing/fstest"
)

func TestRust_BuildsTheProgramsThatThereAre(t *testing.T) {
	const pkg = "Cargo.toml: [package]\nname = \"shop\"\n"
	const locked = "Cargo.lock: [[package]]\nname = \"a\"\nsource = \"registry\"\n"
	const touch = "find /app -type f -exec touch {} + && "
	const to = " --target-dir /cache/target && install -Dt target/release"
	for i, c := range []struct {
		src                   fstest.MapFS
		install, build, start string
	}{
		{files(pkg, "src/main.rs: "), "", touch + "cargo build --release" + to + " /cache/target/release/shop", "./target/release/shop"},
		{files(pkg+"[dependencies]\na = \"1\"\n", "src/main.rs: "), "cargo fetch", touch + "cargo build --release" + to + " /cache/target/release/shop", "./target/release/shop"},
		{files(pkg, locked, "src/main.rs: "), "cargo fetch --locked", touch + "cargo build --release --locked" + to + " /cache/target/release/shop", "./target/release/shop"},
		{files(pkg, locked, "src/main.rs: ", "vendor/a/x: "), "", touch + "cargo build --release --locked" + to + " /cache/target/release/shop", "./target/release/shop"},
		{files(pkg, "Cargo.lock: [[package]]\nname = \"shop\"\n", "src/main.rs: "), "", touch + "cargo build --release --locked" + to + " /cache/target/release/shop", "./target/release/shop"},
		{files(pkg+"[[bin]]\nname = \"web\"\npath = \"src/main.rs\"\n", "src/main.rs: "), "", touch + "cargo build --release" + to + " /cache/target/release/web", "./target/release/web"},
		{files(pkg, "src/main.rs: ", "src/bin/seed.rs: ", "src/bin/two/main.rs: ", "src/bin/no/x.rs: "), "", touch + "cargo build --release" + to + " /cache/target/release/seed /cache/target/release/shop /cache/target/release/two", "./target/release/shop"},
		{files(pkg+"default-run = \"a\"\n", "src/bin/a.rs: ", "src/bin/b.rs: "), "", touch + "cargo build --release" + to + " /cache/target/release/a /cache/target/release/b", "./target/release/a"},
		{files(pkg+"[[bin]]\nname = \"x\"\nrequired-features = [\"x\"]\n", "src/main.rs: ", "src/bin/x.rs: "), "", touch + "cargo build --release" + to + " /cache/target/release/shop", "./target/release/shop"},
		{files(pkg, "src/bin/a.rs: ", "src/bin/b.rs: "), "", touch + "cargo build --release" + to + " /cache/target/release/a /cache/target/release/b", ""},
		{files("Cargo.toml: [workspace]\nresolver = \"3\"\nmembers = [\n  \"crates/*\", # all\n  './web'\n]\n", "web/Cargo.toml: [package]\nname = \"web\"", "web/src/main.rs: ", "crates/a/Cargo.toml: [package]\nname = \"a\"", "crates/a/src/lib.rs: "), "", touch + "cargo build --release --workspace" + to + " /cache/target/release/web", "./target/release/web"},
		{files(pkg+"[workspace]\nmembers = [\"x\"]\n", "src/main.rs: ", "x/Cargo.toml: [package]\nname = \"x\"", "x/src/main.rs: "), "", touch + "cargo build --release" + to + " /cache/target/release/shop", "./target/release/shop"},
		{files(pkg+"[dependencies.rocket]\nversion = \"0.5\"\n", "src/main.rs: "), "cargo fetch", touch + "cargo build --release" + to + " /cache/target/release/shop", "env ROCKET_PORT=$PORT ./target/release/shop"},
		{files(pkg, "src/lib.rs: "), "", "", ""},
		{files("Cargo.toml: [workspace]\nmembers = [\"../x\", \"[\"]\n"), "", "", ""},
	} {
		plan, ok := detectRust(c.src)
		if !ok || plan.Install.Line != c.install || plan.Build.Line != c.build || plan.Start.Line != c.start || c.start == "" && plan.Hint == "" {
			t.Errorf("%d: %+v", i, plan)
		}
	}
}

func TestRust_IsAPartOfAProjectThatItIsALibraryOf(t *testing.T) {
	const pkg = "Cargo.toml: [package]\nname = \"shop\"\n"
	node := `package.json: {"scripts": {"start": "node a.js"}}`
	if d, _, _ := Detect(files(pkg, "src/lib.rs: ", node)); d.Name != "node" {
		t.Error(d.Name)
	}
	if d, _, _ := Detect(files(pkg, "src/main.rs: ", node)); d.Name != "rust" {
		t.Error(d.Name)
	}
}

func TestRust_TakesItsVersionAsTheLeast(t *testing.T) {
	for file, want := range map[string]string{
		"rust-toolchain.toml: [toolchain]\nchannel = \"1.80.1\"\n": "1.85 rust-toolchain.toml",
		"rust-toolchain: 1.85\n":                                   "1.85 rust-toolchain",
		"rust-toolchain: stable":                                   " ",
		".tool-versions: rust 1.70":                                "1.85 .tool-versions",
		"x: ":                                                      " ",
		"rust-toolchain.toml: [toolchain]\nchannel = \"1.91\"": "1.85 rust-toolchain.toml asks for >=1.91, which is not offered; 1.85 is the nearest",
	} {
		plan, _ := detectRust(files("Cargo.toml: [package]\n", file))
		if got := plan.Version + " " + plan.VersionFrom; got != want {
			t.Errorf("%s: %s, want %s", file, got, want)
		}
	}
	plan, _ := detectRust(files("Cargo.toml: [package]\nrust-version = \"1.80\"\n"))
	if plan.Version != "1.85" || !strings.HasPrefix(plan.VersionFrom, "Cargo.toml") {
		t.Errorf("%+v", plan)
	}
}
