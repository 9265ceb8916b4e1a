// Package logging makes the loggers of the program's components.
//
// In go where lines are to be written, in which form, and from which level on,
// for each component; out come zerolog loggers whose level can be changed while
// they are in use, and a writer for the lines of the cores. It promises that
// every line is written whole, that the file gets every line in its order, and
// that a reader of the stream who does not read holds nobody up.
package logging
