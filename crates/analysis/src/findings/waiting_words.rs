//! What the name of a function says of waiting: `WaitEventSetWait` says that it waits, and not for what.

/// Words that the names of wrappers around waiting are made of.
const WAITING_WORDS: &[&str] = &[
    "wait",
    "waits",
    "waiting",
    "event",
    "events",
    "set",
    "latch",
    "or",
    "socket",
    "sleep",
    "poll",
    "epoll",
    "select",
    "block",
    "park",
    "semaphore",
    "sem",
    "cond",
    "futex",
    "for",
    "on",
    "until",
    "timeout",
    "timed",
    "internal",
    "impl",
    "do",
    "fd",
    "once",
];

/// Splits a function's name into lower-case words: `WaitEventSetWait`, `pg_sleep`.
fn words(name: &str) -> Vec<String> {
    let plain = name.split(['(', '<', '@', '.']).next().unwrap_or(name);
    let last = plain.rsplit("::").next().unwrap_or(plain);
    let mut words: Vec<String> = Vec::new();
    let mut previous = '_';
    for c in last.chars() {
        if !c.is_ascii_alphanumeric() {
            previous = '_';
            continue;
        }
        let begins = previous == '_' || (c.is_ascii_uppercase() && previous.is_ascii_lowercase());
        match words.last_mut() {
            Some(word) if !begins => word.push(c.to_ascii_lowercase()),
            _ => words.push(c.to_ascii_lowercase().to_string()),
        }
        previous = c;
    }
    words
}

/// Returns whether a name says that its function is about a lock or a queue.
pub(super) fn has_lock_word(name: &str) -> bool {
    const WORDS: &[&str] = &["lock", "acquire", "gil", "join", "queue", "monitor", "enter"];
    words(name).iter().any(|word| WORDS.contains(&word.as_str()))
}

fn is_waiting_word(word: &str) -> bool {
    WAITING_WORDS.contains(&word)
}

/// Returns whether a name says that its function waits, and maybe for what.
pub(super) fn has_waiting_word(name: &str) -> bool {
    let connecting =
        ["or", "for", "on", "set", "internal", "impl", "do", "fd", "once", "event", "events"];
    words(name).iter().any(|word| is_waiting_word(word) && !connecting.contains(&word.as_str()))
}

/// Returns whether a name says that its function waits, and not for what.
pub(super) fn is_made_of_waiting_words(name: &str) -> bool {
    let words = words(name);
    !words.is_empty() && words.iter().all(|word| is_waiting_word(word))
}

#[cfg(test)]
mod tests {
    use super::{has_waiting_word, is_made_of_waiting_words, words};

    #[test]
    fn names_are_split_into_words() {
        assert_eq!(words("WaitEventSetWait"), ["wait", "event", "set", "wait"]);
        assert_eq!(words("pg_sleep"), ["pg", "sleep"]);
        assert_eq!(words("db::pool::wait_for(u8)"), ["wait", "for"]);
    }

    #[test]
    fn wrappers_say_that_they_wait_and_not_for_what() {
        for wrapper in ["WaitEventSetWait", "WaitLatch", "WaitLatchOrSocket", "do_poll"] {
            assert!(is_made_of_waiting_words(wrapper), "{wrapper}");
        }
        for named in ["ProcSleep", "pg_sleep", "LockAcquire", "wait_for_payment", "evalCommand"] {
            assert!(!is_made_of_waiting_words(named), "{named}");
        }
        assert!(has_waiting_word("ProcSleep") && !has_waiting_word("LockAcquire"));
        assert!(!has_waiting_word("setup_events_for"));
    }
}
