// Package browser holds acceptance tests of the dashboard and nothing else: a real
// headless Chromium opens the pages of a real `scheduler serve` and does there what
// a person would do.
//
// The Go side starts the daemons, kills them where a test says so, and looks that no
// process is left; what happens in the browser is said by the scripts in testdata,
// one function a test, which one node process runs with playwright-core. What such a
// function may rely on is at the top of testdata/driver.mjs.
//
// scripts/browser installs what is needed of npm into .cache/browser. Chromium is the
// one on PATH. Where something is missing the tests are skipped, or fail if CI or
// AGENTSCHED_REQUIRE_BROWSER is set. Pictures of all pages are left in
// AGENTSCHED_SCREENSHOTS, by default .cache/screenshots: look at them after a change.
package browser
