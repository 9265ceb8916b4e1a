package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/parcel"
	"github.com/agentsched/agentsched/internal/parcel/parceltest"
)

func TestParcels(t *testing.T) {
	d, err := Connect(t.Context(), config(t, newDatabase(t), "a"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	exec := func(t *testing.T, statement string, args ...any) {
		t.Helper()
		if _, err := d.pool.Exec(context.Background(), statement, args...); err != nil {
			t.Fatal(err)
		}
	}
	parceltest.Run(t, func(t *testing.T) (parcel.Store, parceltest.Age) {
		exec(t, `DELETE FROM parcels`)
		return d.Parcels(), func(digest string, age time.Duration) {
			exec(t, `UPDATE parcels SET used = used - make_interval(secs => $2) WHERE digest = $1`, digest, age.Seconds())
		}
	})
}
