//! The profiler's processes other than its first, of which nothing is recorded: a small table by
//! process id.
//!
//! ```text
//! user half     those that are there before the programs are attached   ──┐
//! kernel half   each that the profiler forks while they are attached    ──┴─▶ table ─▶ asked at each switch
//! ```
//!
//! Nobody removes one that has ended, for it may still have a while to go on its way out. Its place is taken
//! when somebody else gets its number, or another one of ours needs it.

/// How many rows the table has.
pub const ROWS: usize = 64;
/// How many processes have room in a row. There are ten or so at a time.
pub const PLACES: usize = 4;
/// Stands where there is no process: the number of the idle one, which is none of ours.
pub const NOBODY: u32 = 0;

/// A row of the table.
pub type Row = [u32; PLACES];

/// The row in which a process is, if it is in the table.
#[inline(always)]
#[must_use]
pub const fn row_of(tgid: u32) -> u32 {
    tgid & (ROWS as u32 - 1)
}

/// Whether a process is in its row.
#[inline(always)]
#[must_use]
pub const fn is_in(row: &Row, tgid: u32) -> bool {
    let [first, second, third, fourth] = *row;
    tgid == first || tgid == second || tgid == third || tgid == fourth
}

/// The place that a process takes in its row: a free one, or, if there is none, that of another process
/// that has likely ended.
#[inline(always)]
#[must_use]
pub const fn place_for(row: &Row, tgid: u32) -> usize {
    let [first, second, third, fourth] = *row;
    if first == NOBODY {
        0
    } else if second == NOBODY {
        1
    } else if third == NOBODY {
        2
    } else if fourth == NOBODY {
        3
    } else {
        (tgid as usize / ROWS) % PLACES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_room_for_some_and_then_the_next_one_takes_a_place() {
        let mut row = Row::default();
        // All are in one row.
        let processes = [5, 5 + 64, 5 + 128, 5 + 192, 5 + 256];
        for tgid in &processes[..PLACES] {
            assert!(!is_in(&row, *tgid));
            row[place_for(&row, *tgid)] = *tgid;
        }
        assert!(processes[..PLACES].iter().all(|tgid| is_in(&row, *tgid)), "{row:?}");
        row[place_for(&row, processes[4])] = processes[4];
        assert!(is_in(&row, processes[4]));
        let left = processes[..PLACES].iter().filter(|tgid| is_in(&row, **tgid)).count();
        assert_eq!(left, PLACES - 1);
    }

    #[test]
    fn each_process_has_a_row() {
        for tgid in [1, 63, 64, 4_194_303, u32::MAX] {
            assert!((row_of(tgid) as usize) < ROWS);
        }
    }
}
