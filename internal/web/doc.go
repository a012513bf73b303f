// Package web is the pages for people: the claim page, sign-up and sign-in, the
// dashboard and the account's settings. It shows pages and reads forms; packages
// account and supervisor change accounts and stacks. Only the form that revokes an
// agent's access changes a row here, through the store: no job follows it.
//
// It is a Fiber app behind the edge, over an in-memory listener (package appserver).
// The pages are a-h/templ templates, and their generated files are committed: go
// generate writes them, and a test finds outdated ones. The style sheet, the script and
// the icon are embedded and served under names that change with their content.
//
// Every page works without scripts: it uses plain forms, and reloads itself while
// something is under way. With scripts, a stream of server-sent events for each page
// replaces the parts that changed and adds lines to the log.
//
// Three things protect the forms. The session cookie is for this host only and hidden
// from scripts; every form carries a token bound to that cookie (form.go); and pages
// load and run only what this server sends (headers.go). Opening a link never changes
// anything: only forms do, and they all use POST.
//
// Code in this package touches requests and the database; it reaches files and the engine
// only through the interfaces of Config.
package web

//go:generate go run github.com/a-h/templ/cmd/templ@v0.3.977 generate
