package egress

import (
	"fmt"
	"net"
	"net/url"
	"strings"
)

// direct are the hosts that clients reach without the proxy: the run's own servers.
const direct = "localhost,.localhost,127.0.0.1,::1,[::1]"

// Env returns the variables, KEY=VALUE, that make clients use the proxy at proxyURL
// (see URL). git are further settings of git, each KEY=VALUE, such as a credential
// helper: the numbered variables in which git takes them stand in one list.
//
// Node reads NODE_USE_ENV_PROXY from 22.21 and 24.0 on. The JDK has no variable for a
// proxy's password: with a key, a Java program has to hand http.proxyUser and
// http.proxyPassword to its Authenticator, as Gradle does. A JVM prints the options,
// key included, to its standard error.
func (r Rules) Env(proxyURL string, git ...string) []string {
	env := []string{
		"HTTP_PROXY=" + proxyURL, "http_proxy=" + proxyURL,
		"HTTPS_PROXY=" + proxyURL, "https_proxy=" + proxyURL,
		"NO_PROXY=" + direct, "no_proxy=" + direct,
		"NODE_USE_ENV_PROXY=1",
		"npm_config_proxy=" + proxyURL, "npm_config_https_proxy=" + proxyURL, "npm_config_noproxy=" + direct,
		"YARN_HTTP_PROXY=" + proxyURL, "YARN_HTTPS_PROXY=" + proxyURL,
		"PIP_PROXY=" + proxyURL,
		"CARGO_HTTP_PROXY=" + proxyURL,
		"CARGO_NET_GIT_FETCH_WITH_CLI=true", // cargo's own git takes none of the settings below
	}
	if u, err := url.Parse(proxyURL); err == nil {
		env = append(env, "JAVA_TOOL_OPTIONS="+strings.Join(javaOptions(u), " "))
	}
	settings := []string{
		"http.proxy=" + proxyURL,
		"http.proxyAuthMethod=basic", // else the first request is one without the key
	}
	if r.Allow("github.com", 443) {
		settings = append(settings,
			"url.https://github.com/.insteadOf=git@github.com:",
			"url.https://github.com/.insteadOf=ssh://git@github.com/")
	}
	settings = append(settings, git...)
	env = append(env, fmt.Sprintf("GIT_CONFIG_COUNT=%d", len(settings)))
	for i, setting := range settings {
		key, value, _ := strings.Cut(setting, "=")
		env = append(env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i, key), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, value))
	}
	return env
}

// javaOptions are properties of the JDK. Its own list of hosts that are reached
// directly has the loopback.
func javaOptions(proxy *url.URL) []string {
	host, port, err := net.SplitHostPort(proxy.Host)
	if err != nil {
		host, port = proxy.Hostname(), "80"
	}
	var options []string
	for _, scheme := range []string{"http", "https"} {
		options = append(options, "-D"+scheme+".proxyHost="+host, "-D"+scheme+".proxyPort="+port)
		if password, ok := proxy.User.Password(); ok {
			options = append(options, "-D"+scheme+".proxyUser="+proxy.User.Username(), "-D"+scheme+".proxyPassword="+password)
		}
	}
	if proxy.User != nil {
		options = append(options, "-Djdk.http.auth.tunneling.disabledSchemes=") // Basic is disabled by default
	}
	return options
}
