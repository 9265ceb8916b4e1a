package access

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
)

const tokenIDLength = 8

var tokenID = regexp.MustCompile(`^[a-z2-7]{8}$`)

// record is a token as it is kept.
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

// parseTokens reads what lies at where, of which an error says so; nil stands for none.
func parseTokens(text []byte, where string) ([]record, error) {
	if text == nil {
		return nil, nil
	}
	var f tokenFile
	if err := decodeStrict(text, &f); err != nil {
		return nil, damagedTokens(where, err)
	}
	if f.Version != tokenFileVersion {
		return nil, fmt.Errorf("%s has version %d, and this program knows version %d: use the program that wrote it", where, f.Version, tokenFileVersion)
	}
	ids, names := map[string]bool{}, map[string]bool{}
	for i, r := range f.Tokens {
		_, badRole := ParseTokenRole(string(r.Role))
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
			return nil, damagedTokens(where, fmt.Errorf("token %d: %w", i, why))
		}
		ids[r.ID], names[r.Name] = true, true
	}
	return f.Tokens, nil
}

func damagedTokens(where string, err error) error {
	return fmt.Errorf("%s is damaged: %w; put a copy of it back, or remove it and make new tokens with `scheduler token create`", where, err)
}

func encodeTokens(list []record) ([]byte, error) {
	text, err := json.MarshalIndent(tokenFile{Version: tokenFileVersion, Tokens: list}, "", "  ")
	return append(text, '\n'), err
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
