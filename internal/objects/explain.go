package objects

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/minio/minio-go/v7"
)

// fields are what is wrong in the configuration where a service answers with a code.
var fields = map[string]string{
	"InvalidAccessKeyId":           "access_key: the service does not know it",
	"SignatureDoesNotMatch":        "secret_key: it is not that of access_key",
	"NoSuchBucket":                 "bucket: there is none of this name",
	"AuthorizationHeaderMalformed": "region: it is not the bucket's",
	"InvalidRegion":                "region: it is not the bucket's",
	"PermanentRedirect":            "endpoint: the bucket is reached by another one",
	"TemporaryRedirect":            "endpoint: the bucket is reached by another one",
	"RequestTimeTooSkewed":         "the clocks of this host and of the service differ: set them",
	"AccessDenied":                 "access_key: it may not do this; allow s3:PutObject, s3:GetObject, s3:DeleteObject and s3:ListBucket",
}

// explain says what could not be done with a key, and which field of the configuration is wrong, if one is known.
func (b *Bucket) explain(what, key string, err error) error {
	if err == nil {
		return nil
	}
	answer, answered := errors.AsType[minio.ErrorResponse](err)
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	_, network := errors.AsType[net.Error](err)
	hint := fields[answer.Code]
	switch {
	case answer.Code == "NoSuchKey":
		err = ErrNotFound
	case hint == "" && answered && answer.StatusCode/100 == 3:
		hint = fields["TemporaryRedirect"]
	case hint != "" || errors.Is(err, context.Canceled):
	case untrusted:
		hint = "ca_file: it does not have who signed the service's certificate, or the certificate has another name than endpoint"
	case network && !errors.Is(err, context.DeadlineExceeded):
		hint = "endpoint: it is not reached"
	}
	if answered && !errors.Is(err, ErrNotFound) {
		err = fmt.Errorf("the service answers %s %.200q (%d)", printable(answer.Code), answer.Message, answer.StatusCode)
	}
	err = fmt.Errorf("%s object %s of bucket %s: %w", what, b.full(key), b.cfg.Bucket, err)
	if hint != "" {
		err = fmt.Errorf("%s: %w", hint, err)
	}
	return err
}

// printable returns a code of a service's, or what says that it is none.
func printable(code string) string {
	if code == "" || len(code) > 64 || strings.ContainsFunc(code, func(r rune) bool { return r < '!' || r > '~' }) {
		return "without a code"
	}
	return code
}
