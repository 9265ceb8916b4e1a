// Package fields reads what struct tags and doc comments say about the fields of
// a file, so that each field is described once.
//
// The type of a file is a struct. Of returns its fields, Check returns the
// values that break the rules of their tags, Schema writes the JSON schema and
// Reference the rows of the reference page. Package strictyaml decodes a file
// into such a struct. A new field is one line with its doc comment.
//
// These tags describe a field; those from words to secret hold for the items of
// a list and the values of a map:
//
//	yaml      the name in a file, if json has another; "-" if a file cannot give
//	          it; ",inline" for a struct whose fields stand in its place
//	json      the name; with omitempty or omitzero, here or there, zero means not given
//	words     the words that are allowed, divided by spaces
//	min, max  bounds of a number, a duration or a size; of a text, in bytes
//	above     an exclusive lower bound
//	zero      0 is allowed besides, and means this
//	match     a regular expression (RE2) that a text matches
//	is        what a text that does not match is not, e.g. "a name of a tenant"
//	form      the name of a pattern that many fields have: word, variable
//	want      what would be right, for messages; made from the bounds if absent
//	secret    "true": messages do not repeat the value
//	need      the value must be given; this says what is wanted
//	items     how many items a list has at least
//	short     the name of the field that a value stands for which is no mapping
//	single    "true": a list of one item may be written as the item
//	keys      the tags of a map's keys
//	text      a regular expression of how a file writes a value that is no text,
//	          for the schema
//	number    "true": a plain number will do for the text too
//	rows      "below": the reference describes what is below the field elsewhere
//	offer     words or values for editors to offer, divided by spaces
//	otherwise how the default is described; its value if absent
//	type      how the form is described; made from the type if absent
//	strict    "reserved": the field is refused
//
// The names are none that huma reads, since some of the types are in the API too.
//
// A type may have tags itself, which its fields take over: see Tagged.
package fields
