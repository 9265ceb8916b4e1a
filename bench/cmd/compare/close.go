package main

import "errors"

// joinClose closes something at the end of a function that returns err.
func joinClose(err error, close func() error) error { return errors.Join(err, close()) }
