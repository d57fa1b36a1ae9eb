//! Dates of Unix times, in UTC.

const NS_OF_A_SECOND: i64 = 1_000_000_000;
const SECONDS_OF_A_DAY: i64 = 86_400;

/// Year, month and day of a day that is counted from 1970-01-01, by
/// <https://howardhinnant.github.io/date_algorithms.html#civil_from_days>.
pub(crate) fn date(days: i64) -> (i64, i64, i64) {
    const DAYS_OF_400_YEARS: i64 = 146_097;
    // Days and years are counted from 1 March of the year 0, so that a leap day comes last.
    let days = days + 719_468;
    let (era, day_of_era) =
        (days.div_euclid(DAYS_OF_400_YEARS), days.rem_euclid(DAYS_OF_400_YEARS));
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let months_since_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * months_since_march + 2) / 5 + 1;
    let month =
        if months_since_march < 10 { months_since_march + 3 } else { months_since_march - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

/// A Unix time in nanoseconds as `2026-03-01 07:26:40 UTC`.
pub(crate) fn utc(unix_ns: i64) -> String {
    let seconds = unix_ns.div_euclid(NS_OF_A_SECOND);
    let (year, month, day) = date(seconds.div_euclid(SECONDS_OF_A_DAY));
    let second = seconds.rem_euclid(SECONDS_OF_A_DAY);
    let (hour, minute) = (second / 3_600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{:02} UTC", second % 60)
}

#[cfg(test)]
mod tests {
    use super::{date, utc};

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (days, expected) in [
            (0, (1970, 1, 1)),
            (-1, (1969, 12, 31)),
            (58, (1970, 2, 28)),
            (59, (1970, 3, 1)),
            (11_016, (2000, 2, 29)),
            (11_017, (2000, 3, 1)),
            (20_512, (2026, 2, 28)),
            (20_513, (2026, 3, 1)),
            (47_540, (2100, 2, 28)),
            (47_541, (2100, 3, 1)),
            (-106_752, (1677, 9, 21)),
        ] {
            assert_eq!(date(days), expected, "{days}");
        }
    }

    #[test]
    fn times_are_those_of_utc() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(-1), "1969-12-31 23:59:59 UTC");
        assert_eq!(utc(1_772_350_001_999_999_999), "2026-03-01 07:26:41 UTC");
    }
}
