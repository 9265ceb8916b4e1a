package access

import "net/http"

// AsVisitor returns a request that comes with a one-time link: unless who asks is known, they are a visitor, so that another
// scheduler can be asked for them.
func AsVisitor(r *http.Request) *http.Request {
	if _, known := From(r.Context()); known {
		return r
	}
	door := TCP
	if v, guarded := r.Context().Value(visitKey{}).(*visit); guarded {
		door = v.refusal.Door
	}
	return r.WithContext(With(r.Context(), Principal{Name: "a link", Role: Visitor, Door: door}))
}

// WrongLink reports a request whose link opens nothing to the guard. The error, a *Refused, says that there were too many of this
// client; nil if there were not.
func WrongLink(r *http.Request) error {
	v, guarded := r.Context().Value(visitKey{}).(*visit)
	if !guarded {
		return nil
	}
	wrong := refused(notFound, http.StatusNotFound, "the link is unknown or over")
	if e := v.refuse(wrong); e != wrong {
		return e
	}
	return nil
}
