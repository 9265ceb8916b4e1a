//go:build !linux

package proc

func addSystemHelpers() {}
