git clone -q https://REMOTE/acme/site "$TMPDIR/site"
cd "$TMPDIR/site"
git config user.name run
git config user.email run@example.com
git commit -q --allow-empty -m pushed
git push -q origin HEAD:refs/heads/run
git fetch -q
git ls-remote origin | grep refs/heads/run
