package proc

// Kin tells the processes of a tree from others, for a process that has not started it. Nothing of another tree can make
// itself look so, other than by the tag; what of the tree itself cannot be told from others is not of it.
type Kin struct {
	Leader Proc   `json:"leader"`
	Cgroup string `json:"cgroup,omitempty"` // path, "" if it has none; then the mark tells
	Mark   uint64 `json:"mark,omitempty"`   // 0 if it has none; then the session of the leader does
}
