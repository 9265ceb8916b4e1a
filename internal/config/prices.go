package config

import "github.com/agentsched/agentsched/job"

// defaultPrices are list prices for standard processing as known at the time of
// writing. They change without notice and must be checked against the
// provider's price list before a limit in US dollars is relied on. A price in the
// configuration replaces the one here. Those of Anthropic are what Claude Code
// 2.1.197 itself multiplies with.
func defaultPrices() map[string]job.Price {
	price := func(input, cached, output float64) job.Price {
		return job.Price{Input: input, CachedRead: &cached, Output: output}
	}
	opus, sonnet, haiku := anthropic(5), anthropic(3), anthropic(1)
	return map[string]job.Price{
		"claude-fable-5":             anthropic(10),
		"claude-haiku-4-5":           haiku,
		"claude-haiku-4-5-20251001":  haiku,
		"claude-opus-4-5":            opus,
		"claude-opus-4-5-20251101":   opus,
		"claude-opus-4-6":            opus,
		"claude-opus-4-7":            opus,
		"claude-opus-4-8":            opus,
		"claude-sonnet-4-5":          sonnet,
		"claude-sonnet-4-5-20250929": sonnet,
		"claude-sonnet-4-6":          sonnet,
		"claude-sonnet-5":            sonnet,

		"gpt-5":              price(1.25, 0.125, 10),
		"gpt-5-codex":        price(1.25, 0.125, 10),
		"gpt-5-mini":         price(0.25, 0.025, 2),
		"gpt-5-nano":         price(0.05, 0.005, 0.40),
		"gpt-5.1":            price(1.25, 0.125, 10),
		"gpt-5.1-codex":      price(1.25, 0.125, 10),
		"gpt-5.1-codex-max":  price(1.25, 0.125, 10),
		"gpt-5.1-codex-mini": price(0.25, 0.025, 2),
		"gpt-5.2":            price(1.75, 0.175, 14),
		"gpt-5.2-codex":      price(1.75, 0.175, 14),
	}
}

// anthropic returns the price of a model by that of its input: output is five
// times as much, reading a cache a tenth, and writing it a quarter more.
func anthropic(input float64) job.Price {
	read, write := input/10, input*1.25
	return job.Price{Input: input, CachedRead: &read, CacheWrite: &write, Output: 5 * input}
}
