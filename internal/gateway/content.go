package gateway

import (
	"bytes"
	"errors"
	"strings"
)

// content is what the conversation of a request holds beyond text.
type content struct {
	api        API
	images     int   // pictures in the body
	imageBytes int64 // that they take there
	documents  int   // files in the body, such as PDF
	// fetched is the first thing that the provider would get from elsewhere, such as "an image by URL"; empty: none.
	fetched string
}

// tokensOfImage is more than a picture costs whatever its size in bytes: OpenAI's tiles end at 1,445 tokens and Anthropic's
// formula at (1568 × 1568)/750 = 3,278. A model that counts more says more than was reserved.
const tokensOfImage = 5_000

// object goes over an object of the conversation and notes what it is. Names are compared without case, since a provider
// may do so.
func (c *content) object(s *scanner) error {
	from := s.pos
	var kind []byte
	typed, url := false, false
	err := s.each(func(name []byte, _ int) error {
		var folded [16]byte
		if len(name) > len(folded) {
			return s.value(c)
		}
		for i, b := range name {
			if b >= 'A' && b <= 'Z' {
				b |= 0x20
			}
			folded[i] = b
		}
		text := s.peek() == '"'
		switch lower := folded[:len(name)]; {
		case string(lower) == "type" && text:
			if typed {
				return errors.New(`an object of the conversation has "type" twice: leave one out`)
			}
			typed = true
			raw, err := s.str()
			kind = unquote(raw)
			return err
		case string(lower) == "input" && c.api == Messages:
			return s.value(nil) // arguments of a tool call: they mean something to the run alone
		case (string(lower) == "file_id" || string(lower) == "file_url") && text:
			c.reference("a file by " + string(lower))
		case string(lower) == "url" && text:
			url = true
		case bytes.HasSuffix(lower, []byte("_url")):
			return c.link(s)
		case string(lower) == "tools" && c.api == Responses && s.peek() == '[':
			return c.tools(s)
		}
		return s.value(c)
	})
	switch k := string(kind); {
	case k == "url" && url:
		c.reference("a source by URL")
	case k == "item_reference" || k == "container_upload" || k == "mcp_approval_response":
		c.reference(k)
	case k == "image" || k == "input_image" || k == "image_url":
		c.images++
		c.imageBytes += int64(s.pos - from)
	case k == "document" || k == "input_file" || k == "file":
		c.documents++
	}
	return err
}

// link goes over the value of image_url and the like: a string, or an object with a url.
func (c *content) link(s *scanner) error {
	from := s.pos
	if err := s.value(nil); err != nil {
		return err
	}
	value := s.text[from:s.pos]
	if value[0] == '{' {
		all, err := members(value, nil)
		if err != nil {
			return err
		}
		value = find(all, "url")
	}
	if len(value) > 0 && value[0] == '"' && !bytes.HasPrefix(value, []byte(`"data:`)) {
		c.reference("an image by URL")
	}
	return nil
}

// tools goes over tools that are declared in the conversation, as what a search for tools has found.
func (c *content) tools(s *scanner) error {
	from := s.pos
	if err := s.value(nil); err != nil {
		return err
	}
	all, err := elements(s.text[from:s.pos], maxTools)
	for _, tool := range all {
		if tool[0] != '{' || err != nil {
			continue
		}
		var kind string
		var outside bool
		if kind, outside, err = runsOutside(c.api, tool); outside && kind != "" {
			c.reference("tool " + printable(kind))
		}
	}
	return err
}

func (c *content) reference(what string) {
	if c.fetched == "" {
		c.fetched = what
	}
}

// find returns the value of a member, nil if there is none or it is null. Names are compared without case.
func find(all []member, name string) []byte {
	for _, m := range all {
		if strings.EqualFold(m.name, name) && string(m.value) != "null" {
			return m.value
		}
	}
	return nil
}

// text returns the string that a value is, "" if it is none.
func text(value []byte) string {
	if len(value) < 2 || value[0] != '"' {
		return ""
	}
	return string(unquote(value[1 : len(value)-1]))
}

// runsOutside reports whether the provider itself carries out a tool of a request, or may: what is not known to be carried
// out by the run is taken to be the provider's.
func runsOutside(api API, tool []byte) (kind string, outside bool, err error) {
	all, err := members(tool, nil)
	if err != nil {
		return "", false, err
	}
	kind = text(find(all, "type"))
	switch api {
	case Messages:
		inside := kind == "" || kind == "custom"
		for _, prefix := range []string{"bash_", "text_editor_", "memory_", "tool_search_tool_"} {
			inside = inside || strings.HasPrefix(kind, prefix)
		}
		return kind, !inside, nil
	case Chat:
		return kind, kind != "function" && kind != "custom", nil
	}
	switch kind {
	case "function", "custom", "local_shell", "apply_patch", "tool_search":
		return kind, false, nil
	case "shell": // OpenAI's own container, unless it says otherwise
		environment, err := members(find(all, "environment"), nil)
		return kind, err != nil || text(find(environment, "type")) != "local", nil
	case "namespace":
		nested, err := elements(find(all, "tools"), maxTools)
		for _, t := range nested {
			if k, outside, err := runsOutside(api, t); outside || err != nil {
				return k, outside, err
			}
		}
		return kind, false, err
	}
	return kind, true, nil
}

// maxTools bounds the tools of a request.
const maxTools = 1024
