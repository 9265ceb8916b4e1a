package parcel

import (
	"context"
	"errors"
	"io"
)

// Copy copies those of the parcels that there are into another store, and returns how
// many.
func Copy(ctx context.Context, from, to Store, digests []string) (n int, err error) {
	for _, digest := range digests {
		k, err := from.Use(ctx, digest)
		if errors.Is(err, ErrUnknown) {
			continue
		}
		if err == nil {
			err = to.Put(ctx, k, &pieces{ctx: ctx, of: from, digest: digest})
		}
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// pieces reads a parcel of a store.
type pieces struct {
	ctx    context.Context
	of     Store
	digest string
	offset int64
}

func (p *pieces) Read(b []byte) (int, error) {
	data, _, err := p.of.ReadAt(p.ctx, p.digest, p.offset, len(b))
	if err == nil && len(data) == 0 && len(b) > 0 {
		err = io.EOF
	}
	p.offset += int64(len(data))
	return copy(b, data), err
}
