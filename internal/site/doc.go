// Package site serves one published folder: the output of a static service of one
// generation. The folder never changes while it is served. Open reads its tree once
// into an index; after Reopen, Read or the first request does. Requests are answered
// from the index alone: a path that is not in it does not exist, whatever it contains.
// So nothing outside the folder, no device, no FIFO and no hidden file can be
// requested. Every file is opened through os.Root, also when it is opened again later.
// Code in this package touches that folder and requests; it knows no stacks.
//
// The parts, in the order a request meets them:
//
//	site.go       Open, Reopen, Close, methods
//	scan.go       the folder's tree becomes files and links
//	routes.go     files become URL paths: clean URLs, folders, redirects, spa
//	send.go       one file as a response: conditions, ranges, body
//	ready.go      the same for a whole file, without net/http
//	coding.go     which encoding a client gets
//	blob.go       bytes of one encoding: entity tag, reading, compressing
//	memory.go     the bounded memory of small bodies that all sites share
//	kind.go       content types
//	lifetime.go   which names carry a hash of their content
//	page.go       answers without a file
package site
