//! Numbers as people read them: three digits, a prefix, a unit.

/// `value` with three significant digits and an SI prefix, e.g. `197 TFLOP/s`. The prefix belongs to `unit`.
pub fn si(value: f64, unit: &str) -> String {
    const PREFIXES: [(&str, f64); 10] = [
        ("E", 1e18),
        ("P", 1e15),
        ("T", 1e12),
        ("G", 1e9),
        ("M", 1e6),
        ("k", 1e3),
        ("", 1.0),
        ("m", 1e-3),
        ("µ", 1e-6),
        ("n", 1e-9),
    ];
    // From 999.5 on three digits would round to 1000 of the smaller prefix.
    let found = PREFIXES.iter().find(|(_, scale)| value.abs() >= scale * 0.9995);
    let (prefix, scale) = if value == 0.0 { ("", 1.0) } else { *found.unwrap_or(&("p", 1e-12)) };
    format!("{} {prefix}{unit}", digits(value / scale))
}

/// Seconds, e.g. `12.3 µs`.
pub fn seconds(t: f64) -> String {
    si(t, "s")
}

/// A memory size in powers of 1024, as capacities are given, e.g. `15.5 GiB`.
pub fn memory(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{} {}", digits(value), UNITS[unit]) }
}

/// A fraction as a percentage, e.g. `41 %`, with a decimal below 10 %.
pub fn percent(fraction: f64) -> String {
    format!("{} %", percent_digits(fraction))
}

/// The number of [`percent`], at most four characters.
pub fn percent_digits(fraction: f64) -> String {
    match fraction * 100.0 {
        p if p >= 999.5 => ">999".to_owned(),
        p if p == 0.0 || p >= 9.95 => format!("{p:.0}"),
        p => format!("{p:.1}"),
    }
}

/// Three significant digits without an exponent for values of ordinary size.
pub fn digits(value: f64) -> String {
    match value.abs() {
        a if a >= 99.95 || a == 0.0 => format!("{value:.0}"),
        a if a >= 9.995 => format!("{value:.1}"),
        a if a >= 0.01 => format!("{value:.2}"),
        _ => format!("{value:.1e}"),
    }
}

/// An integer with its digits in groups of three, e.g. `18,518`.
pub fn grouped(value: u64) -> String {
    let text = value.to_string();
    let mut out = String::with_capacity(text.len() + text.len() / 3);
    for (i, c) in text.chars().enumerate() {
        if i > 0 && (text.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    // Oracle: the numbers written out by hand.
    #[test]
    fn reads_like_a_person_writes() {
        assert_eq!(si(197e12, "FLOP/s"), "197 TFLOP/s");
        assert_eq!(si(999.6, "B"), "1.00 kB");
        assert_eq!(si(0.0, "B"), "0 B");
        assert_eq!(seconds(12.34e-6), "12.3 µs");
        assert_eq!(seconds(6.67e-10), "667 ps");
        assert_eq!(memory(16_621_523_436), "15.5 GiB");
        assert_eq!(memory(1023), "1.00 KiB");
        assert_eq!(memory(512), "512 B");
        assert_eq!(percent(0.413), "41 %");
        assert_eq!(percent(0.0314), "3.1 %");
        assert_eq!(percent(0.0), "0 %");
        assert_eq!(percent(1e9), ">999 %");
        assert_eq!(digits(2.7149), "2.71");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(grouped(999), "999");
    }
}
