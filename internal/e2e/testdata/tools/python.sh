cd pyp
python3 -m venv venv
. venv/bin/activate
pip install --disable-pip-version-check --trusted-host 127.0.0.2 --index-url http://REGISTRY/simple/ hello
python -m unittest -v
