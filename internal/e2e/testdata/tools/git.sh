echo one > new.txt
git add new.txt
git commit -q -m one
git checkout -q -b side
echo two > new.txt
git stash
git stash pop
git commit -q -a -m two
git checkout -q -
git merge -q side
git tag v1
git -c core.pager='less -F' log -2
git clone -q . "$TMPDIR/clone"
git worktree add -q "$TMPDIR/tree" side
git worktree remove "$TMPDIR/tree"
git rev-parse side v1
git branch -D side
git reset -q --soft HEAD~2
git reset -q
rm new.txt
git init -q "$TMPDIR/test"
git -C "$TMPDIR/test" commit -q --allow-empty -m first
