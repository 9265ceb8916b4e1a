package policy

// heap is a binary heap whose items know where in it they are, so that one of
// them can be moved or taken out in O(log n). The place of an item that is in
// no heap is -1; an item is in one heap at a time.
type heap[T any] struct {
	items  []T
	before func(a, b T) bool
	place  func(T) *int
}

func (h *heap[T]) len() int { return len(h.items) }

// first is for a heap that is not empty.
func (h *heap[T]) first() T { return h.items[0] }

func (h *heap[T]) push(x T) {
	h.items = append(h.items, x)
	h.up(len(h.items) - 1)
}

// fix restores the order after x's key has changed.
func (h *heap[T]) fix(x T) {
	if i := *h.place(x); h.up(i) == i {
		h.down(i)
	}
}

func (h *heap[T]) remove(x T) {
	i, last := *h.place(x), len(h.items)-1
	moved := h.items[last]
	var none T
	h.items[last] = none
	h.items = h.items[:last]
	*h.place(x) = -1
	if i == last {
		return
	}
	h.items[i] = moved
	if h.up(i) == i {
		h.down(i)
	}
}

// up and down move the item at i to its place, and return that.
func (h *heap[T]) up(i int) int {
	x := h.items[i]
	for i > 0 {
		parent := (i - 1) / 2
		if !h.before(x, h.items[parent]) {
			break
		}
		h.set(i, h.items[parent])
		i = parent
	}
	h.set(i, x)
	return i
}

func (h *heap[T]) down(i int) int {
	x := h.items[i]
	for {
		child := 2*i + 1
		if child >= len(h.items) {
			break
		}
		if child+1 < len(h.items) && h.before(h.items[child+1], h.items[child]) {
			child++
		}
		if !h.before(h.items[child], x) {
			break
		}
		h.set(i, h.items[child])
		i = child
	}
	h.set(i, x)
	return i
}

func (h *heap[T]) set(i int, x T) {
	h.items[i] = x
	*h.place(x) = i
}
