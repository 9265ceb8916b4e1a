#!/bin/sh
# usage: stage.sh STAGE < input.json
#
# Runs one stage of the web-testing pipeline: reads its input, one JSON object,
# and prints its answer, another. Needs nothing but sh and awk.
set -eu
here=$(dirname "$0")
exec awk -v site="$here/../site" -f "$here/json.awk" -f "$here/$1.awk"
