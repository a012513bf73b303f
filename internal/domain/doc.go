// Package domain lets the owners of stacks use their own hosts. Domains is what the API
// and the pages call: it adds and removes domains, says which records they need at the DNS,
// checks these when asked and at regular times, and tells the routes and the certificates
// which domains are active.
//
// Code in this package touches the rows of domains, through the store, and asks DNS servers.
// What a check changes is decided in package stack. Several servers of one database may
// run it: each check is made by one of them, and every one routes all active domains.
package domain
