//lint:file-ignore SA1019 The suite asks for what the versions that are offered have.

package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// The things that the scenarios of @modelcontextprotocol/conformance call by name. They stand beside the scheduler's tools, in
// the same server and behind the same handler.

// pixel is a picture of one pixel, and sound a sound of no length.
var (
	pixel = []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x02\x00\x00\x00\x90wS\xde\x00\x00\x00\x0cIDATx\x9cc\xf8\xcf\xc0\x00\x00\x03\x01\x01\x00\xc9\xfe\x92\xef\x00\x00\x00\x00IEND\xaeB`\x82")
	sound = []byte("RIFF$\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00@\x1f\x00\x00@\x1f\x00\x00\x01\x00\x08\x00data\x00\x00\x00\x00")
)

func fixtureSettings(o *sdk.ServerOptions) {
	o.CompletionHandler = func(context.Context, *sdk.CompleteRequest) (*sdk.CompleteResult, error) {
		return &sdk.CompleteResult{Completion: sdk.CompletionResultDetails{Values: []string{"paris"}, Total: 1}}, nil
	}
	o.SubscribeHandler = func(context.Context, *sdk.SubscribeRequest) error { return nil }
	o.UnsubscribeHandler = func(context.Context, *sdk.UnsubscribeRequest) error { return nil }
}

func addFixtures(s *sdk.Server) {
	addFixtureTools(s)
	addFixtureAsking(s)
	addFixtureResources(s)
	addFixturePrompts(s)
}

func text(format string, args ...any) *sdk.TextContent {
	return &sdk.TextContent{Text: fmt.Sprintf(format, args...)}
}

func embedded(uri, kind, text string) *sdk.EmbeddedResource {
	return &sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: uri, MIMEType: kind, Text: text}}
}

type none struct{}

// fixture registers a tool without arguments.
func fixture(s *sdk.Server, name string, do func(context.Context, *sdk.CallToolRequest) ([]sdk.Content, error)) {
	sdk.AddTool(s, &sdk.Tool{Name: name, Description: "of the conformance suite"}, func(ctx context.Context, r *sdk.CallToolRequest, _ none) (*sdk.CallToolResult, any, error) {
		content, err := do(ctx, r)
		return &sdk.CallToolResult{Content: content}, nil, err
	})
}

func addFixtureTools(s *sdk.Server) {
	answers := map[string][]sdk.Content{
		"test_simple_text":       {text("This is a simple text response for testing.")},
		"test_image_content":     {&sdk.ImageContent{Data: pixel, MIMEType: "image/png"}},
		"test_audio_content":     {&sdk.AudioContent{Data: sound, MIMEType: "audio/wav"}},
		"test_embedded_resource": {embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")},
		"test_multiple_content_types": {text("Multiple content types test:"), &sdk.ImageContent{Data: pixel, MIMEType: "image/png"},
			embedded("test://mixed-content-resource", "application/json", `{"test":"data","value":123}`)},
	}
	for name, content := range answers {
		fixture(s, name, func(context.Context, *sdk.CallToolRequest) ([]sdk.Content, error) { return content, nil })
	}
	fixture(s, "test_error_handling", func(context.Context, *sdk.CallToolRequest) ([]sdk.Content, error) {
		return nil, errors.New("This tool intentionally returns an error for testing") //nolint:staticcheck // as the suite has it
	})
	fixture(s, "test_tool_with_logging", func(ctx context.Context, r *sdk.CallToolRequest) ([]sdk.Content, error) {
		for _, what := range []string{"Tool execution started", "Tool processing data", "Tool execution completed"} {
			if err := r.Session.Log(ctx, &sdk.LoggingMessageParams{Level: "info", Data: what}); err != nil {
				return nil, err
			}
		}
		return []sdk.Content{text("logged")}, nil
	})
	fixture(s, "test_tool_with_progress", func(ctx context.Context, r *sdk.CallToolRequest) ([]sdk.Content, error) {
		for _, done := range []float64{0, 50, 100} {
			if err := r.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: done, Total: 100}); err != nil {
				return nil, err
			}
		}
		return []sdk.Content{text("progressed")}, nil
	})
	fixture(s, "test_reconnection", func(_ context.Context, r *sdk.CallToolRequest) ([]sdk.Content, error) {
		r.Extra.CloseSSEStream(sdk.CloseSSEStreamArgs{})
		return []sdk.Content{text("reconnected")}, nil
	})
	s.AddTool(&sdk.Tool{Name: "json_schema_2020_12_tool", Description: "Tool with JSON Schema 2020-12 features", InputSchema: json.RawMessage(`{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
		"$defs": {"address": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
		"properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}}, "additionalProperties": false}`)},
		func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return &sdk.CallToolResult{Content: []sdk.Content{text("valid")}}, nil
		})
}

// elicits registers a tool that asks the client's user.
func elicitsFixture(s *sdk.Server, name, schema string) {
	sdk.AddTool(s, &sdk.Tool{Name: name, Description: "of the conformance suite"}, func(ctx context.Context, r *sdk.CallToolRequest, in struct {
		Message string `json:"message,omitempty"`
	}) (*sdk.CallToolResult, any, error) {
		res, err := r.Session.Elicit(ctx, &sdk.ElicitParams{Message: firstOf(in.Message, "Please answer"), RequestedSchema: json.RawMessage(schema)})
		if err != nil {
			return nil, nil, err
		}
		content, err := json.Marshal(res.Content)
		return &sdk.CallToolResult{Content: []sdk.Content{text("Elicitation completed: action=%s, content=%s", res.Action, content)}}, nil, err
	})
}

func addFixtureAsking(s *sdk.Server) {
	elicitsFixture(s, "test_elicitation", `{"type":"object","properties":{"username":{"type":"string","description":"User's response"},"email":{"type":"string","description":"User's email address"}},"required":["username","email"]}`)
	elicitsFixture(s, "test_elicitation_sep1034_defaults", `{"type":"object","properties":{"name":{"type":"string","default":"John Doe"},"age":{"type":"integer","default":30},
		"score":{"type":"number","default":95.5},"status":{"type":"string","enum":["active","inactive","pending"],"default":"active"},"verified":{"type":"boolean","default":true}}}`)
	elicitsFixture(s, "test_elicitation_sep1330_enums", `{"type":"object","properties":{
		"untitledSingle":{"type":"string","enum":["option1","option2","option3"]},
		"titledSingle":{"type":"string","oneOf":[{"const":"value1","title":"First Option"},{"const":"value2","title":"Second Option"},{"const":"value3","title":"Third Option"}]},
		"legacyEnum":{"type":"string","enum":["opt1","opt2","opt3"],"enumNames":["Option One","Option Two","Option Three"]},
		"untitledMulti":{"type":"array","items":{"type":"string","enum":["option1","option2","option3"]}},
		"titledMulti":{"type":"array","items":{"anyOf":[{"const":"value1","title":"First Choice"},{"const":"value2","title":"Second Choice"},{"const":"value3","title":"Third Choice"}]}}}}`)
	sdk.AddTool(s, &sdk.Tool{Name: "test_sampling", Description: "of the conformance suite"}, func(ctx context.Context, r *sdk.CallToolRequest, in struct {
		Prompt string `json:"prompt"`
	}) (*sdk.CallToolResult, any, error) {
		res, err := r.Session.CreateMessage(ctx, &sdk.CreateMessageParams{MaxTokens: 100, Messages: []*sdk.SamplingMessage{{Role: "user", Content: text("%s", in.Prompt)}}})
		if err != nil {
			return nil, nil, err
		}
		said, _ := res.Content.(*sdk.TextContent)
		if said == nil {
			return nil, nil, fmt.Errorf("a %T is no text", res.Content)
		}
		return &sdk.CallToolResult{Content: []sdk.Content{text("LLM response: %s", said.Text)}}, nil, nil
	})
}

func addFixtureResources(s *sdk.Server) {
	resource := func(uri, kind string, content sdk.ResourceContents) {
		content.URI, content.MIMEType = uri, kind
		s.AddResource(&sdk.Resource{URI: uri, Name: uri, Description: "of the conformance suite", MIMEType: kind}, func(context.Context, *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
			return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{&content}}, nil
		})
	}
	resource("test://static-text", "text/plain", sdk.ResourceContents{Text: "This is the content of the static text resource."})
	resource("test://static-binary", "image/png", sdk.ResourceContents{Blob: pixel})
	resource("test://watched-resource", "text/plain", sdk.ResourceContents{Text: "watched"})
	s.AddResourceTemplate(&sdk.ResourceTemplate{URITemplate: "test://template/{id}/data", Name: "template", Description: "of the conformance suite", MIMEType: "application/json"},
		func(_ context.Context, r *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
			id := strings.TrimSuffix(strings.TrimPrefix(r.Params.URI, "test://template/"), "/data")
			return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: r.Params.URI, MIMEType: "application/json", Text: fmt.Sprintf(`{"id":%q,"templateTest":true,"data":"Data for ID: %s"}`, id, id)}}}, nil
		})
}

func addFixturePrompts(s *sdk.Server) {
	prompt := func(name string, arguments []string, content func(map[string]string) []sdk.Content) {
		p := &sdk.Prompt{Name: name, Description: "of the conformance suite"}
		for _, a := range arguments {
			p.Arguments = append(p.Arguments, &sdk.PromptArgument{Name: a, Description: a, Required: true})
		}
		s.AddPrompt(p, func(_ context.Context, r *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
			out := &sdk.GetPromptResult{}
			for _, c := range content(r.Params.Arguments) {
				out.Messages = append(out.Messages, &sdk.PromptMessage{Role: "user", Content: c})
			}
			return out, nil
		})
	}
	prompt("test_simple_prompt", nil, func(map[string]string) []sdk.Content {
		return []sdk.Content{text("This is a simple prompt for testing.")}
	})
	prompt("test_prompt_with_arguments", []string{"arg1", "arg2"}, func(a map[string]string) []sdk.Content {
		return []sdk.Content{text("Prompt with arguments: arg1='%s', arg2='%s'", a["arg1"], a["arg2"])}
	})
	prompt("test_prompt_with_embedded_resource", []string{"resourceUri"}, func(a map[string]string) []sdk.Content {
		return []sdk.Content{embedded(a["resourceUri"], "text/plain", "Embedded resource content for testing."), text("Please process the embedded resource above.")}
	})
	prompt("test_prompt_with_image", nil, func(map[string]string) []sdk.Content {
		return []sdk.Content{&sdk.ImageContent{Data: pixel, MIMEType: "image/png"}, text("Please analyze the image above.")}
	})
}
