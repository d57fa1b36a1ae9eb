#!/bin/busybox sh
# The first and only process of the guest that is not under test: it does the tasks, and says on the
# second serial line how each went. The first line is the kernel's own.

/bin/busybox mount -t proc proc /proc
/bin/busybox --install -s /bin
export PATH=/bin HOME=/root
# What the tests ask for.
export OFFWAKE_BIN=/bin/offwake OFFWAKE_PATIENCE=4

mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/shm
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /tmp
mount -t tracefs tracefs /sys/kernel/tracing
mount -t securityfs securityfs /sys/kernel/security
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tmpfs tmpfs /scratch
ip link set lo up
# It is found while the rest begins. Without it, the tests of disks fail, for want of one.
for _ in $(seq 100); do [ -b /dev/nvme0n1 ] && break; sleep 0.1; done
mount -t ext4 /dev/nvme0n1 /disk
for module in /modules/*; do insmod "$module"; done
# An emulated CPU takes long for anything; the kernel would stop sampling on account of that.
echo 0 > /proc/sys/kernel/perf_cpu_time_max_percent

# An emulated arm64 machine has one line of its own, and says which other one this is.
exec 3> "/dev/${said:-ttyS1}"
seconds() { cut -d . -f 1 /proc/uptime; }

while read -r name limit command; do
    echo "begin $name" >&3
    begin=$(seconds)
    # Where the machine under the guest is busy, a window may hold nothing that can be judged. A
    # test says so, and has two more tries; one that judges what it saw has none.
    for try in 1 2 3; do
        timeout -k 5 "$limit" sh -c "$command" > /tmp/output 2>&1 < /dev/null
        status=$?
        [ "$status" -ne 0 ] && [ "$try" -lt 3 ] && grep -q 'this proves nothing' /tmp/output || break
        echo "| try $try saw too little:" "$(grep 'this proves nothing' /tmp/output)" >&3
    done
    # What a test says first is what failed, and last which one it was.
    if [ "$(wc -c < /tmp/output)" -gt 16384 ]; then
        head -c 8192 /tmp/output; echo; echo '[...]'; tail -c 8192 /tmp/output
    else
        cat /tmp/output
    fi | sed 's/^/| /' >&3
    echo >&3
    echo "end $status $(($(seconds) - begin)) $name" >&3
done < /tasks
echo over >&3
poweroff -f
