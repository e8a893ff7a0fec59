// Package ts holds the client for JavaScript and TypeScript (live.ts): as a package
// for programs, and its JavaScript for those who serve it to browsers.
package ts

import _ "embed" // for javaScript

//go:embed live.js
var javaScript []byte

// JavaScript returns live.js, a module of ECMAScript without dependencies.
func JavaScript() []byte { return javaScript }
