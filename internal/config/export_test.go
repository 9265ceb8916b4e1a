package config

import "reflect"

// Overrides returns which fields of c, which was read with them, the variables
// of environ have set, in the order of their names.
func Overrides(c Config, environ []string) []Override {
	var given []Override
	for _, one := range overrides(environ) {
		if names, err := locate(reflect.ValueOf(c), one.steps); err == nil {
			given = append(given, Override{one.name, pathOf(names)})
		}
	}
	return given
}
