package access

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"

	"github.com/agentsched/agentsched/internal/statedir"
)

// The files' names in the state directory.
const (
	TokensFile   = "tokens.json"
	SessionsFile = "sessions.json"
)

const tokenIDLength = 8

var tokenID = regexp.MustCompile(`^[a-z2-7]{8}$`)

// record is a token as the file keeps it.
type record struct {
	Token
	Hash digest `json:"sha256"` // of the secret, as text
}

// tokenFile is the content of tokens.json.
type tokenFile struct {
	Version int      `json:"version"`
	Tokens  []record `json:"tokens"`
}

const tokenFileVersion = 1

// readTokens reads the file at path. An error names it.
func readTokens(path string) ([]record, stamp, error) {
	text, s, err := readPrivate(path)
	if err != nil || s == (stamp{}) {
		return nil, s, wrapNamed("read tokens", err)
	}
	var f tokenFile
	if err := decodeStrict(text, &f); err != nil {
		return nil, s, damagedTokens(path, err)
	}
	if f.Version != tokenFileVersion {
		return nil, s, fmt.Errorf("%s has version %d, and this program knows version %d: use the program that wrote it", path, f.Version, tokenFileVersion)
	}
	ids, names := map[string]bool{}, map[string]bool{}
	for i, r := range f.Tokens {
		_, badRole := ParseRole(string(r.Role))
		var why error
		switch {
		case !tokenID.MatchString(r.ID):
			why = fmt.Errorf("id %q is no token's", r.ID)
		case !tokenName.MatchString(r.Name):
			why = fmt.Errorf("name %q is no token's", r.Name)
		case badRole != nil:
			why = badRole
		case r.Hash == digest{}:
			why = errors.New("sha256 is missing")
		case ids[r.ID] || names[r.Name]:
			why = fmt.Errorf("%s (id %s) is there twice", r.Name, r.ID)
		}
		if why != nil {
			return nil, s, damagedTokens(path, fmt.Errorf("token %d: %w", i, why))
		}
		ids[r.ID], names[r.Name] = true, true
	}
	return f.Tokens, s, nil
}

func damagedTokens(path string, err error) error {
	return fmt.Errorf("%s is damaged: %w; put a copy of it back, or remove it and make new tokens with `scheduler token create`", path, err)
}

func writeTokens(path string, list []record) error {
	text, err := json.MarshalIndent(tokenFile{Version: tokenFileVersion, Tokens: list}, "", "  ")
	if err != nil {
		return err
	}
	return statedir.WriteFile(path, append(text, '\n'))
}

// decodeStrict reads one JSON value without unknown fields and nothing after it.
func decodeStrict(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		if errors.Is(err, io.EOF) {
			return errors.New("it is empty")
		}
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows its end")
	}
	return nil
}

func wrapNamed(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}
