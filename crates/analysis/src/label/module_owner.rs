//! Who owns the code in a file, decided by its path.

use super::CodeOwner;
use crate::frames::base_name;

/// The kind of a frame's module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ModuleKind {
    /// A file with code of this owner.
    File(CodeOwner),
    /// Memory without a file: only the functions' names tell whose code it is.
    Memory,
}

/// A pattern that files match.
enum FilePattern {
    /// The file's name; `*` matches any rest of it.
    Named(&'static [&'static str]),
    /// A part of the file's path.
    In(&'static [&'static str]),
    /// A shared object `lib*` in a folder with this prefix.
    SharedIn(&'static [&'static str]),
}

struct ModuleRule {
    whose: CodeOwner,
    files: FilePattern,
}

const fn rule_by_name(whose: CodeOwner, names: &'static [&'static str]) -> ModuleRule {
    ModuleRule { whose, files: FilePattern::Named(names) }
}

/// The rules in order of precedence: the first that matches decides the owner; if none does, it is
/// the program.
///
/// An installed library (TLS, a database's client) is not the runtime: it is what the program called
/// for a purpose. But its owner can change only what calls it, so that the program's own frames come
/// first, and a thread that has none, such as one that the library started, is known by the library's.
const RULES: &[ModuleRule] = &[
    // glibc, musl, uClibc.
    rule_by_name(
        CodeOwner::Libc,
        &[
            "libc.*",
            "libc-*",
            "libpthread.*",
            "libpthread-*",
            "libm.*",
            "libm-*",
            "librt.*",
            "librt-*",
            "libdl.*",
            "libdl-*",
            "libanl.*",
            "libresolv.*",
            "libresolv-*",
            "libnss_*",
            "ld-linux*",
            "ld-musl*",
            "ld-uClibc*",
            "ld-2*",
            "ld64.so*",
            "libuClibc*",
            "[vdso]",
            "[vsyscall]",
        ],
    ),
    // C++, and what GCC and LLVM link to: unwinding, OpenMP, sanitizers.
    rule_by_name(
        CodeOwner::Runtime,
        &[
            "libstdc++*",
            "libc++.*",
            "libc++abi.*",
            "libgcc_s*",
            "libunwind*",
            "libgomp.*",
            "libomp.*",
            "libiomp5.*",
            "libtbb.*",
            "libasan.*",
            "libtsan.*",
            "libubsan.*",
        ],
    ),
    // Allocators.
    rule_by_name(
        CodeOwner::Runtime,
        &["libjemalloc*", "libtcmalloc*", "libmimalloc*", "libsnmalloc*"],
    ),
    // Event loops.
    rule_by_name(
        CodeOwner::Runtime,
        &[
            "libuv.*",
            "libev.*",
            "libev-*",
            "libevent.*",
            "libevent-*",
            "libevent_*",
            "libglib-2.0.*",
            "libgobject-2.0.*",
            "libQt5Core.*",
            "libQt6Core.*",
        ],
    ),
    // Python: the interpreter, and the part of its library that is in C.
    rule_by_name(CodeOwner::Runtime, &["libpython*", "python", "python2*", "python3*"]),
    ModuleRule { whose: CodeOwner::Runtime, files: FilePattern::In(&["/lib-dynload/"]) },
    // The JVM: exact names, since `libnet.so.1` is another library.
    // https://github.com/openjdk/jdk/tree/jdk-21%2B35/src/java.base
    rule_by_name(
        CodeOwner::Runtime,
        &[
            "java",
            "libjvm.so",
            "libjli.so",
            "libjava.so",
            "libjimage.so",
            "libnio.so",
            "libnet.so",
            "libextnet.so",
            "libzip.so",
            "libverify.so",
            "libmanagement.so",
            "libjdwp.so",
        ],
    ),
    // Node, which has V8, libuv and its TLS in it.
    rule_by_name(CodeOwner::Runtime, &["node", "nodejs", "libnode.*"]),
    // Other interpreters and machines.
    rule_by_name(
        CodeOwner::Runtime,
        &[
            "ruby",
            "libruby*",
            "perl",
            "libperl.*",
            "php",
            "php-fpm*",
            "libphp*",
            "beam.smp",
            "dotnet",
            "libcoreclr.so",
            "libclrjit.so",
            "libSystem.Native.so",
            "libmono*",
            "libluajit-*",
            "liblua5*",
            "libgo.so*",
        ],
    ),
    // What a language's package manager installs.
    ModuleRule {
        whose: CodeOwner::Library,
        files: FilePattern::In(&["/site-packages/", "/dist-packages/", "/node_modules/", "/gems/"]),
    },
    // What a distribution installs.
    // https://refspecs.linuxfoundation.org/FHS_3.0/fhs/ch04s06.html
    ModuleRule {
        whose: CodeOwner::Library,
        files: FilePattern::SharedIn(&["/lib", "/usr/lib", "/nix/store/", "/gnu/store/"]),
    },
];

/// Classifies the module at `path`, as a recording has it.
pub(super) fn classify_module(path: &str) -> ModuleKind {
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    let name = base_name(path);
    let holds = |rule: &&ModuleRule| match rule.files {
        FilePattern::Named(names) => names.iter().any(|pattern| matches(pattern, name)),
        FilePattern::In(parts) => parts.iter().any(|part| path.contains(part)),
        FilePattern::SharedIn(folders) => {
            name.starts_with("lib")
                && name.contains(".so")
                && folders.iter().any(|folder| path.starts_with(folder))
        }
    };
    match RULES.iter().find(holds) {
        Some(rule) => ModuleKind::File(rule.whose),
        None if is_memory(path) => ModuleKind::Memory,
        None => ModuleKind::File(CodeOwner::Program),
    }
}

/// Returns whether a mapping has no file that could be read: `[anon]`, and memory that JITs give a
/// name to.
fn is_memory(path: &str) -> bool {
    ["[", "//anon", "/memfd:", "/dev/", "/SYSV"].iter().any(|start| path.starts_with(start))
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == pattern,
    }
}
