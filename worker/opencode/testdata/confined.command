arg opencode-relay
arg opencode
arg serve
arg --hostname=127.0.0.1
arg --port=0
arg --pure
arg --print-logs
arg --log-level=ERROR
env AGENTSCHED_MODEL_KEY=the-runs-key
env OPENCODE_CLIENT=agentsched
env OPENCODE_CONFIG={scratch}/opencode.json
env OPENCODE_DISABLE_AUTOUPDATE=1
env OPENCODE_DISABLE_LSP_DOWNLOAD=1
env OPENCODE_DISABLE_MODELS_FETCH=1
env OPENCODE_DISABLE_PROJECT_CONFIG=1
env XDG_CONFIG_HOME={home}/config
env XDG_DATA_HOME={home}/data
env XDG_STATE_HOME={home}/state

-- {home}/config/opencode/AGENTS.md --
mine

-- {scratch}/opencode.json --
{"agent":{"agentsched":{"description":"works on one job of the scheduler","mode":"primary","permission":{"*":"ask","external_directory":{"*":"ask","{home}/data/opencode/tool-output/*":"allow"}}},"explore":{"permission":{"*":"ask","external_directory":{"*":"ask","{home}/data/opencode/tool-output/*":"allow"},"edit":"deny","task":"deny","todowrite":"deny"}}},"autoupdate":false,"enabled_providers":["anthropic"],"experimental":{"continue_loop_on_deny":true},"permission":{"*":"ask","external_directory":{"*":"ask","{home}/data/opencode/tool-output/*":"allow"}},"provider":{"anthropic":{"models":{"claude-x":{}},"name":"anthropic","npm":"@ai-sdk/anthropic","options":{"apiKey":"{env:AGENTSCHED_MODEL_KEY}","baseURL":"http://127.0.0.1:40123/v1"}}},"share":"disabled","small_model":"anthropic/claude-x","snapshot":false}
