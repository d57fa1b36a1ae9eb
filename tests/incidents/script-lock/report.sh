#!/bin/bash
# Another job that must not run beside the backup.
exec 9>"$1"
echo ready
flock 9
echo "all orders: 0"
