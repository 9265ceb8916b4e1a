//go:build !linux

package workspace

func spread(string) {}
