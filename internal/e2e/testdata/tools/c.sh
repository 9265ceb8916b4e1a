make -C cp
file=$(mktemp)
folder=$(mktemp -d)
rm -r "$file" "$folder"
ps aux > /dev/null
script -qec 'test -t 0 && tty' /dev/null
LC_ALL=C.UTF-8 locale > /dev/null
TZ=Europe/Berlin date
df . > /dev/null
getent hosts localhost
tar czf cp.tgz cp
echo sound | tee /dev/stderr > /dev/null
! docker ps
