package site

import (
	"path"
	"strings"
)

// kind is a content type and how to serve it.
type kind struct {
	contentType []string
	dense       bool // already compressed: gzip would gain nothing
	page        bool // something a browser navigates to
}

// The kinds of rows below: types that gzip shrinks, types that it does not, and pages.
func text(t string) kind  { return kind{contentType: []string{t}} }
func dense(t string) kind { return kind{contentType: []string{t}, dense: true} }
func page(t string) kind  { return kind{contentType: []string{t}, page: true} }

// kinds maps extensions to the web's types. The table is our own, since the host's mime
// files differ from one machine to the next.
var kinds = map[string]kind{
	".html":  page("text/html; charset=utf-8"),
	".htm":   page("text/html; charset=utf-8"),
	".xhtml": page("application/xhtml+xml"),

	".css": text("text/css; charset=utf-8"),
	".js":  text("text/javascript; charset=utf-8"),
	".mjs": text("text/javascript; charset=utf-8"),
	".cjs": text("text/javascript; charset=utf-8"),

	".txt":      text("text/plain; charset=utf-8"),
	".log":      text("text/plain; charset=utf-8"),
	".md":       text("text/markdown; charset=utf-8"),
	".markdown": text("text/markdown; charset=utf-8"),
	".csv":      text("text/csv; charset=utf-8"),
	".tsv":      text("text/tab-separated-values; charset=utf-8"),
	".vtt":      text("text/vtt; charset=utf-8"),
	".ics":      text("text/calendar; charset=utf-8"),
	".vcf":      text("text/vcard; charset=utf-8"),
	".yaml":     text("application/yaml"),
	".yml":      text("application/yaml"),
	".toml":     text("application/toml"),

	".json":        text("application/json"),
	".map":         text("application/json"),
	".jsonld":      text("application/ld+json"),
	".geojson":     text("application/geo+json"),
	".topojson":    text("application/json"),
	".ndjson":      text("application/x-ndjson"),
	".jsonl":       text("application/x-ndjson"),
	".webmanifest": text("application/manifest+json"),
	".xml":         text("application/xml"),
	".xsl":         text("application/xslt+xml"),
	".rss":         text("application/rss+xml"),
	".atom":        text("application/atom+xml"),
	".gpx":         text("application/gpx+xml"),
	".kml":         text("application/vnd.google-earth.kml+xml"),
	".rtf":         text("application/rtf"),

	".wasm": text("application/wasm"),
	".glb":  text("model/gltf-binary"),
	".gltf": text("model/gltf+json"),
	".obj":  text("model/obj"),
	".stl":  text("model/stl"),

	".svg":  text("image/svg+xml"),
	".ico":  text("image/x-icon"),
	".bmp":  text("image/bmp"),
	".png":  dense("image/png"),
	".apng": dense("image/apng"),
	".jpg":  dense("image/jpeg"),
	".jpeg": dense("image/jpeg"),
	".gif":  dense("image/gif"),
	".webp": dense("image/webp"),
	".avif": dense("image/avif"),
	".jxl":  dense("image/jxl"),
	".heic": dense("image/heic"),
	".tif":  dense("image/tiff"),
	".tiff": dense("image/tiff"),

	".ttf":   text("font/ttf"),
	".otf":   text("font/otf"),
	".ttc":   text("font/collection"),
	".eot":   text("application/vnd.ms-fontobject"),
	".woff":  dense("font/woff"),
	".woff2": dense("font/woff2"),

	".mp4":  dense("video/mp4"),
	".m4v":  dense("video/mp4"),
	".webm": dense("video/webm"),
	".ogv":  dense("video/ogg"),
	".mov":  dense("video/quicktime"),
	".ts":   dense("video/mp2t"),
	".m3u8": text("application/vnd.apple.mpegurl"),
	".mpd":  text("application/dash+xml"),
	".m4s":  dense("video/iso.segment"),
	".mp3":  dense("audio/mpeg"),
	".m4a":  dense("audio/mp4"),
	".aac":  dense("audio/aac"),
	".ogg":  dense("audio/ogg"),
	".oga":  dense("audio/ogg"),
	".opus": dense("audio/ogg"),
	".flac": dense("audio/flac"),
	".wav":  dense("audio/wav"),
	".weba": dense("audio/webm"),
	".mid":  text("audio/midi"),

	".pdf":  dense("application/pdf"),
	".epub": dense("application/epub+zip"),
	".zip":  dense("application/zip"),
	".gz":   dense("application/gzip"),
	".tgz":  dense("application/gzip"),
	".zst":  dense("application/zstd"),
	".br":   dense("application/octet-stream"),
	".bz2":  dense("application/x-bzip2"),
	".xz":   dense("application/x-xz"),
	".7z":   dense("application/x-7z-compressed"),
	".tar":  text("application/x-tar"),
	".bin":  dense("application/octet-stream"),
	".data": dense("application/octet-stream"),
	".apk":  dense("application/vnd.android.package-archive"),
	".dmg":  dense("application/x-apple-diskimage"),
	".exe":  dense("application/vnd.microsoft.portable-executable"),

	".docx": dense("application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
	".xlsx": dense("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
	".pptx": dense("application/vnd.openxmlformats-officedocument.presentationml.presentation"),
}

// named maps files whose name, not extension, determines the type.
var named = map[string]kind{
	"apple-app-site-association": text("application/json"),
}

var unknown = dense("application/octet-stream")

// kindOf returns the kind of a file by its name.
func kindOf(name string) kind {
	if k, ok := kinds[extension(name)]; ok {
		return k
	}
	if k, ok := named[path.Base(name)]; ok {
		return k
	}
	return unknown
}

// extension returns what follows the last dot of the last element, in lower case.
func extension(name string) string { return strings.ToLower(path.Ext(name)) }
