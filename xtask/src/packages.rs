//! Debian packages that the tests need beyond what a build does, all in this one place.

/// Go has the reader of profiles for pprof; the servers and musl's compiler are what is unwound, and gdb
/// unwinds it too. Docker runs containers of busybox. perf has a load of many threads that talk.
/// iptables translates addresses between network namespaces. debootstrap makes the bare systems that
/// packages are tried on, and dpkg-dev says what the program depends on. systemtap-sdt-dev has what
/// programs put probes into themselves by.
const FOR_LIVE_TESTS: [&str; 18] = [
    "busybox-static",
    "chromium",
    "chromium-driver",
    "debootstrap",
    "docker.io",
    "dpkg-dev",
    "gdb",
    "golang-go",
    "iptables",
    "librsvg2-bin",
    "linux-perf",
    "musl-tools",
    "nginx-light",
    "postgresql",
    "redis-server",
    "redis-tools",
    "systemtap-sdt-dev",
    "tmux",
];

/// What plays in the incidents besides. The Python is Debian's own: its client of PostgreSQL is a package.
const FOR_INCIDENTS: [&str; 13] = [
    "curl",
    "default-jdk-headless",
    "g++",
    "iproute2",
    "make",
    "mariadb-client-core",
    "mariadb-server-core",
    "nodejs",
    "pgbouncer",
    "php-fpm",
    "python3-psycopg2",
    "python3-pymysql",
    "util-linux",
];

/// All of them.
#[must_use]
pub fn for_tests() -> Vec<String> {
    FOR_LIVE_TESTS.iter().chain(&FOR_INCIDENTS).map(|&package| package.to_owned()).collect()
}
