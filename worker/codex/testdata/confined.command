arg app-server
arg -c
arg features.apps=false
arg -c
arg features.plugins=false
arg -c
arg features.hooks=false
arg -c
arg features.image_generation=false
arg -c
arg features.browser_use=false
arg -c
arg features.computer_use=false
arg -c
arg features.unbounded_connection_retries=false
arg -c
arg web_search="disabled"
env AGENTSCHED_MODEL_KEY=the-runs-key
env CODEX_HOME={home}/codex
env RUST_LOG=error,codex_http_client::client[{status}]=debug

-- {home}/codex/AGENTS.md --
mine

-- {home}/codex/config.toml --
check_for_update_on_startup = false
model = "gpt-mine"
model_provider = "agentsched"
model_reasoning_effort = "high"
suppress_unstable_features_warning = true

[analytics]
  enabled = false

[history]
  persistence = "none"

[model_providers]
  [model_providers.agentsched]
    base_url = "http://127.0.0.1:40123/v1"
    env_key = "AGENTSCHED_MODEL_KEY"
    name = "agentsched"
    request_max_retries = 0
    stream_max_retries = 0
    wire_api = "responses"

[projects]
  [projects."{workspace}"]
    trust_level = "untrusted"

[shell_environment_policy]
  exclude = ["AGENTSCHED_MODEL_KEY", "CODEX_API_KEY", "CODEX_HOME", "RUST_LOG"]
  inherit = "all"
