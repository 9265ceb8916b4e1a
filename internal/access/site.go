package access

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
)

// sameSite returns why a browser's page of another site may have sent the request;
// nil if none did. Programs that are no browsers send neither header and pass.
//
// Sec-Fetch-Site is the browser's own word and decides where it is there: a form of
// the dashboard itself has "Origin: null", since it sends no referrer. Another port
// of the same host is another site here, although its pages have our cookies.
func sameSite(protection *http.CrossOriginProtection, r *http.Request) error {
	sites, origins := r.Header.Values("Sec-Fetch-Site"), r.Header.Values("Origin")
	if len(sites) > 1 || len(origins) > 1 {
		return errors.New("the header Origin or Sec-Fetch-Site is there twice")
	}
	if err := protection.Check(r); err != nil { // methods that change something
		return err
	}
	switch site := r.Header.Get("Sec-Fetch-Site"); site {
	case "same-origin", "none":
		return nil
	case "":
	default:
		if (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document" {
			return nil // somebody follows a link to here
		}
		return fmt.Errorf("the header Sec-Fetch-Site is %q, and only the scheduler's own pages may ask", site)
	}
	if len(origins) == 0 {
		return nil
	}
	if o, err := url.Parse(origins[0]); err != nil || o.Host == "" || o.Host != r.Host || o.Scheme != "http" && o.Scheme != "https" {
		return fmt.Errorf("the header Origin is %q, and only the scheduler's own pages, of %q, may ask", origins[0], r.Host)
	}
	return nil
}
