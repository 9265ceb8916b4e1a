package job

// WorkerSettings is what the configuration says about one kind of worker.
// The zero value means: find the program on PATH and use the user's own login.
type WorkerSettings struct {
	// Adapter is the adapter that drives this kind; "" means the one of the
	// kind's own name. It lets a host have several kinds of one adapter, e.g.
	// "reviewer" with adapter exec.
	Adapter string `json:"adapter,omitempty"`
	// Command is the program and its leading arguments; empty means the
	// adapter's default, looked up on PATH. Required for the exec adapter.
	Command []string `json:"command,omitempty"`
	// Model is used by jobs that name none.
	Model string `json:"model,omitempty"`
	// BaseURL points the program at another model endpoint, e.g. a gateway.
	BaseURL string `json:"base_url,omitempty"`
	// KeyEnv names the variable, in the scheduler's environment, that holds the
	// key for BaseURL.
	KeyEnv string `json:"key_env,omitempty"`
	// Env are names of variables passed through to every job of this kind.
	Env []string `json:"env,omitempty"`
	// MaxConcurrent bounds how many run at once; 0 means no bound of its own.
	MaxConcurrent int `json:"max_concurrent,omitempty"`
}

// Price is what a model's tokens cost, in US dollars per million tokens. It is
// used where a worker prints tokens but no cost.
type Price struct {
	Input      float64  `json:"input"`                 // uncached input
	CachedRead *float64 `json:"cached,omitempty"`      // input read from a cache; nil: as Input
	CacheWrite *float64 `json:"cache_write,omitempty"` // input written to a cache; nil: as Input
	Output     float64  `json:"output"`                // output, reasoning included
}

// Cost returns the price of u's tokens in US dollars.
func (p Price) Cost(u Usage) float64 {
	rate := func(r *float64) float64 {
		if r == nil {
			return p.Input
		}
		return *r
	}
	plain := u.InputTokens - u.CachedTokens - u.CacheWriteTokens
	sum := float64(max(plain, 0))*p.Input +
		float64(u.CachedTokens)*rate(p.CachedRead) +
		float64(u.CacheWriteTokens)*rate(p.CacheWrite) +
		float64(u.OutputTokens)*p.Output
	return sum / 1e6
}
