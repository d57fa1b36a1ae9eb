#!/bin/bash
# The nightly backup, once at a time. flock(1) ends as soon as it has the lock, which belongs to the
# open file: this script has it for as long as it lives.
exec 9>"$1"
flock 9
echo ready
python3 "$(dirname "$0")/upload.py"
