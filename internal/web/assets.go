package web

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"path"
	"strings"

	"github.com/gofiber/fiber/v2"
)

//go:embed assets
var files embed.FS

// asset is an embedded file.
type asset struct {
	name    string // as pages ask for it: style.3f2a9c1b.css
	content []byte
}

// assets maps the names of the embedded files in the source, such as style.css, to the
// files.
var assets = loadAssets()

func loadAssets() map[string]asset {
	entries, err := files.ReadDir("assets")
	if err != nil {
		panic(err) // it is embedded
	}
	all := map[string]asset{}
	for _, entry := range entries {
		content, err := files.ReadFile("assets/" + entry.Name())
		if err != nil {
			panic(err) // it is embedded
		}
		sum := sha256.Sum256(content)
		kind := path.Ext(entry.Name())
		name := strings.TrimSuffix(entry.Name(), kind) + "." + hex.EncodeToString(sum[:4]) + kind
		all[entry.Name()] = asset{name, content}
	}
	return all
}

// assetURL returns the address of an embedded file. It changes with the content, so
// that browsers may cache the file for good.
func assetURL(file string) string { return "/assets/" + assets[file].name }

// serveAsset answers GET /assets/{name}.
func serveAsset(c *fiber.Ctx) error {
	name := c.Params("name")
	for file, a := range assets {
		if a.name == name {
			c.Set(fiber.HeaderCacheControl, "public, max-age=31536000, immutable")
			return sendAsset(c, file)
		}
	}
	return fiber.ErrNotFound
}

// serveIcon answers GET /favicon.ico, which some browsers request by themselves.
func serveIcon(c *fiber.Ctx) error {
	c.Set(fiber.HeaderCacheControl, "public, max-age=86400")
	return sendAsset(c, "favicon.svg")
}

func sendAsset(c *fiber.Ctx, file string) error {
	c.Type(strings.TrimPrefix(path.Ext(file), "."), "utf-8")
	return c.Send(assets[file].content)
}
