# order.sh SOCKET LOG: asks a server again and again. curl polls with a timeout until the answer comes.
echo ready
while :; do
    seconds=$(curl --silent --output /dev/null --write-out '%{time_total}' --unix-socket "$1" http://shop/)
    echo "order $seconds" >> "$2"
done
