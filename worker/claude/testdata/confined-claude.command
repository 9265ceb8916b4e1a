arg --print
arg --input-format=stream-json
arg --output-format=stream-json
arg --verbose
arg --replay-user-messages
arg --permission-mode=default
arg --permission-prompt-tool=stdio
arg --setting-sources=user
arg --strict-mcp-config
arg --add-dir={workspace}
arg --tools=Read,Glob,Grep,Edit,Write,NotebookEdit
arg --settings={scratch}/permissions.json
env ANTHROPIC_AUTH_TOKEN=the-runs-key
env ANTHROPIC_BASE_URL=http://127.0.0.1:40123
env CLAUDE_CODE_ADDITIONAL_DIRECTORIES_CLAUDE_MD=1
env CLAUDE_CODE_DISABLE_BACKGROUND_TASKS=1
env CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1
env CLAUDE_CODE_MAX_RETRIES=1
env CLAUDE_CODE_TMPDIR={user}/tmp
env CLAUDE_CONFIG_DIR={home}/claude
env DISABLE_AUTOUPDATER=1

-- {home}/claude/CLAUDE.md --
mine

-- {home}/claude/settings.json --
{"env":{"ANTHROPIC_DEFAULT_HAIKU_MODEL":"small"},"includeCoAuthoredBy":false,"model":"opus"}

-- {scratch}/permissions.json --
{"permissions":{"allow":["Read(./**)","Edit(./**)"]}}
