package site

import (
	"path"
	"strings"
)

// How long a response may be cached without asking again.
var (
	lifetimePage   = []string{"no-cache"}
	lifetimeAsset  = []string{"public, max-age=0, must-revalidate"}
	lifetimeHashed = []string{"public, max-age=31536000, immutable"}
)

// lifetimeOf returns the Cache-Control of a file. A name with a hash of the content
// never stands for other content, so it is cached for a year. A name that might as well
// contain a date or a word counts as unhashed: that costs a request per visit, while
// the opposite mistake shows an old file for a year.
func lifetimeOf(name string, k kind) []string {
	switch {
	case k.page:
		return lifetimePage
	case isHashed(name):
		return lifetimeHashed
	default:
		return lifetimeAsset
	}
}

// isHashed reports whether a bundler put a hash of the content into the name.
func isHashed(name string) bool {
	dir, base := path.Split(name)
	if hasHexToken(base) {
		return true
	}
	if !code[extension(base)] {
		return false
	}
	stem := codeStem(base)
	if strings.HasPrefix(dir, "_nuxt/") && len(stem) == tokenLen {
		return isRandom(stem)
	}
	token, ok := lastToken(stem)
	return ok && (isBase32(token) || inBundle(dir) && isRandom(token))
}

// code holds the extensions of files that bundlers name by hashes in other alphabets
// than hex.
var code = map[string]bool{
	".js": true, ".mjs": true, ".css": true, ".map": true,
	".wasm": true, ".woff": true, ".woff2": true, ".ttf": true,
}

// codeStem returns a name without its extensions: app-B3xK9qLm for app-B3xK9qLm.js.map.
func codeStem(base string) string {
	for code[extension(base)] {
		base = base[:len(base)-len(path.Ext(base))]
	}
	return base
}

// bundles are the folders that bundlers write hashed names into.
var bundles = map[string]bool{
	"assets": true, "static": true, "chunks": true, "immutable": true,
	"_astro": true, "_next": true, "_nuxt": true, "_app": true,
}

// inBundle reports whether dir is, or lies below, such a folder.
func inBundle(dir string) bool {
	for element := range strings.SplitSeq(dir, "/") {
		if bundles[element] {
			return true
		}
	}
	return false
}

// tokenLen is the length of the hashes of Vite, Rollup and esbuild.
const tokenLen = 8

// lastToken returns the last eight characters of a stem, if a dot or dash precedes
// them.
func lastToken(stem string) (string, bool) {
	at := len(stem) - tokenLen
	if at < 2 || !strings.ContainsRune("-._", rune(stem[at-1])) {
		return "", false
	}
	return stem[at:], true
}

// hasHexToken reports whether base has eight or more hexadecimal digits, letters and
// digits among them, between dots, dashes and underscores: 20240131 is a date.
func hasHexToken(base string) bool {
	isBreak := func(c rune) bool { return c == '.' || c == '-' || c == '_' || c == '~' }
	for token := range strings.FieldsFuncSeq(base, isBreak) {
		if len(token) >= tokenLen && isMixed(token, "abcdef", "0123456789") {
			return true
		}
	}
	return false
}

// isBase32 reports whether token is one of esbuild's hashes.
func isBase32(token string) bool {
	return isMixed(token, "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "234567")
}

// isMixed reports whether token has characters of both sets and no others.
func isMixed(token, letters, digits string) bool {
	return strings.Trim(token, letters+digits) == "" &&
		strings.ContainsAny(token, letters) && strings.ContainsAny(token, digits)
}

// isRandom reports whether a base64 token is not a word: it has a capital letter past
// the first place or a digit before the end. Settings and version2 are words.
func isRandom(token string) bool {
	const upper = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	const lower = "abcdefghijklmnopqrstuvwxyz"
	const digit = "0123456789"
	if strings.Trim(token, upper+lower+digit+"-_") != "" || !strings.ContainsAny(token, upper+lower) {
		return false
	}
	word := strings.TrimRight(token, digit)
	return strings.ContainsAny(word[1:], upper) || strings.ContainsAny(word, digit)
}
