// Package web is the pages for people: the claim page, sign-up and sign-in, the
// dashboard and the account's settings. It shows and asks; what happens to an
// account or a stack happens in packages account and supervisor.
//
// It is a Fiber app of its own behind the edge, over an in-memory listener (package
// appserver). Pages are a-h/templ templates whose generated files are committed (go
// generate writes them, a test finds the ones that are out of date); the style sheet,
// the script and the icon are embedded and served under names that change with their
// content.
//
// Every page works without scripts: forms are forms, and a page reloads itself while
// something is under way. With scripts, one stream of server-sent events for each page
// replaces the parts that changed and adds lines to the log.
//
// Three things keep the forms honest. The session cookie is for this host only
// and out of reach of scripts; every form carries a token that belongs to that
// cookie (form.go); and no page loads or runs anything that does not come from
// this server (headers.go). Opening a link never changes anything: only forms
// do, and they are all POST.
package web

//go:generate go run github.com/a-h/templ/cmd/templ@v0.3.977 generate
