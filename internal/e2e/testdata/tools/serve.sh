node serve.js > port &
until test -s port; do sleep 0.1; done
for host in localhost 127.0.0.1 '[::1]'; do curl -fsS "http://$host:$(cat port)/" | grep hello; done
kill $!
wait
