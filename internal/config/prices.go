package config

import "github.com/agentsched/agentsched/job"

// defaultPrices are for models of OpenAI, since Codex prints tokens and no
// cost; the other workers print what they cost. They are list prices for
// standard processing as known at the time of writing, change without notice
// and must be checked against the provider's price list before a limit in US
// dollars is relied on. A price in the configuration replaces the one here.
func defaultPrices() map[string]job.Price {
	price := func(input, cached, output float64) job.Price {
		return job.Price{Input: input, CachedRead: &cached, Output: output}
	}
	return map[string]job.Price{
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
