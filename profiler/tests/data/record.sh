#!/bin/sh
# Makes the recordings of this directory anew; needs root, perf, Python, a C compiler and Redis.
#
#     cargo xtask build
#     cargo build -p offwake --example rebase-recording
#     profiler/tests/data/record.sh target/release/offwake target/debug
#
# A format that has changed makes them unreadable: then this, and `cargo xtask bless`.
set -eu
offwake=$(realpath "$1")
built=$(realpath "$2")
data=$(realpath "$(dirname "$0")")
work=$(mktemp -d)
started=""
trap 'kill $started 2>/dev/null || :; rm -rf "$work"' EXIT
cd "$work"

# record NAME ARGUMENTS...
record() {
    name=$1
    shift
    "$offwake" record -o raw.offwake "$@" >/dev/null
    "$built/examples/rebase-recording" raw.offwake "$data/$name.offwake"
}

cat >lock.py <<'END'
import threading, queue, time
q = queue.Queue(4)
lock = threading.Lock()
def work():
    while q.get() is not None:
        with lock:
            time.sleep(0.0005)
threads = [threading.Thread(target=work) for _ in range(3)]
for t in threads: t.start()
for n in range(9): q.put(n)
for t in threads: q.put(None)
for t in threads: t.join()
END
record python --scope target -- /usr/bin/python3 -S -E lock.py

cat >sync.py <<'END'
import os
f = os.open("sync.out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
for n in range(8):
    os.write(f, bytes(65536))
    os.fsync(f)
END
record disk --scope target -- /usr/bin/python3 -S -E sync.py

cat >tree.sh <<'END'
(sleep 0.01; echo leaf >/dev/null) &
for n in 1 2; do /bin/true; done
sh -c 'sh -c "sleep 0.005" & wait'
ls / | wc -l | cat >/dev/null
wait
END
record tree --scope target -- sh tree.sh

printf 'all: a.o b.o\n%%.o: %%.c\n\tcc -c -O1 $< -o $@\n' >Makefile
echo 'int a(int x) { return x * 3; }' >a.c
echo 'int b(int x) { return x + 3; }' >b.c
record make --scope target -- make -s -j2

record pipe --scope target -- perf bench sched pipe -l 150

redis-server --port 7777 --bind 127.0.0.1 --save "" --appendonly no >/dev/null 2>&1 &
server=$!
started="$started $server"
until redis-cli -p 7777 ping >/dev/null 2>&1; do sleep 0.1; done
redis-benchmark -h 127.0.0.1 -p 7777 -c 4 -n 100000000 -t get -q >/dev/null 2>&1 &
benchmark=$!
started="$started $benchmark"
until redis-cli -p 7777 info stats | grep -q 'total_commands_processed:[0-9]\{4\}'; do sleep 0.1; done
record redis --scope target -p "$server,$benchmark" -d 8ms

"$offwake" demo-service gateway $$ >demo.pids &
started="$started $!"
until grep -q store= demo.pids; do sleep 0.1; done
record demo -p "$(sed 's/[a-z]*=//g; s/ /,/g' demo.pids)" -d 14ms
ls -l "$data"
