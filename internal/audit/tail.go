package audit

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/agentsched/agentsched/api"
)

// Last returns the last n records that keep keeps, the oldest first; nil keeps
// all. It reads them as they are and verifies nothing; damaged is how many lines
// it could not read.
func Last(dir string, n int, keep func(*api.AuditRecord) bool) (list []api.AuditRecord, damaged int, err error) {
	numbers, err := files(dir)
	if err != nil {
		return nil, 0, fmt.Errorf("read audit log: %w", err)
	}
	for _, number := range slices.Backward(numbers) {
		var part []api.AuditRecord
		err := eachLine(filepath.Join(dir, fileName(number)), func(_ int, line []byte, whole bool) {
			r, err := parse(line)
			switch {
			case err != nil && whole:
				damaged++
			case err == nil && (keep == nil || keep(&r)):
				if part = append(part, r); len(part) > 2*n {
					part = append(part[:0], part[len(part)-n:]...)
				}
			}
		})
		if err != nil && !isMissing(err) {
			return nil, damaged, fmt.Errorf("read audit log: %w", err)
		}
		list = append(part, list...)
		if len(list) >= n {
			break
		}
	}
	return list[max(0, len(list)-n):], damaged, nil
}
