package job

import "cmp"

// Lane names a part of the queue that is in order by itself: the entries of one
// tenant and priority, by RunnableAt and then ID. Whose lane comes next is for a
// policy to say.
type Lane struct {
	// Batch is the private batch whose entries they are; "" are the entries of
	// all others.
	Batch    BatchID `json:"batch,omitempty"`
	Tenant   Tenant  `json:"tenant"`
	Priority int     `json:"priority,omitempty"`
	// Only is set for a lane of that one entry, which stands in another batch and
	// that entries of Batch wait for.
	Only ID `json:"only,omitempty"`
}

// Compare orders lanes by their fields; what comes first means nothing.
func (l Lane) Compare(o Lane) int {
	return cmp.Or(cmp.Compare(l.Batch, o.Batch), cmp.Compare(l.Tenant, o.Tenant), cmp.Compare(l.Priority, o.Priority), cmp.Compare(l.Only, o.Only))
}
