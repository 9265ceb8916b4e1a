// Package dashboard is the scheduler's page for browsers: HTML, CSS and
// JavaScript modules under assets, embedded as they are written, without a build
// step and without code from elsewhere.
//
// In come requests for files, out go files, which hold no data: the page fetches
// all that it shows through the API, with the browser's session. Each answer has a
// Content-Security-Policy that lets nothing run, load or connect but from the same
// origin, and forbids what turns text into markup or code. The address of each file
// holds a hash over all of them, so that browsers may keep it for ever.
package dashboard
