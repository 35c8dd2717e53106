//! The chip files.

use tpusim_isa::chip::{CHIP_FILES, ChipError, ChipSpec, Sourced};
use tpusim_isa::num::DType;

fn chips() -> Vec<ChipSpec> {
    CHIP_FILES.iter().map(|(name, _)| ChipSpec::load(name).unwrap_or_else(|e| panic!("{e}"))).collect()
}

fn set(key: &str, value: &str) -> Result<ChipSpec, ChipError> {
    ChipSpec::load_with("v5e", &[(key.to_owned(), value.to_owned())])
}

fn set_error(key: &str, value: &str) -> String {
    set(key, value).map_or_else(|e| e.to_string(), |_| "accepted".to_owned())
}

// Oracle: the names that the files are listed under.
#[test]
fn every_chip_loads() {
    for ((name, _), chip) in CHIP_FILES.iter().zip(chips()) {
        assert_eq!(*name, chip.name);
    }
}

// Oracle: the peaks that Google publishes. 0 stands for none.
#[test]
fn geometry_times_clock_is_the_published_peak() {
    let mut compared = 0;
    for chip in chips() {
        let check = |peak: &Sourced<f64>, dtype: DType| {
            let computed = chip.peak_flops_device(dtype) * f64::from(chip.devices_per_chip());
            let error = (computed / peak.v - 1.0).abs();
            let reached = peak.v == 0.0 || error <= 0.005;
            assert!(reached, "{} {dtype}: {computed:.4e} computed, {:.4e} published", chip.name, peak.v);
            usize::from(peak.v != 0.0)
        };
        compared += check(&chip.peak.bf16_flops, DType::BF16);
        compared += check(&chip.peak.fp8_flops, DType::F8E4M3FN);
        compared += check(&chip.peak.fp8_flops, DType::F8E5M2);
        compared += check(&chip.peak.int8_ops, DType::I8);
    }
    assert_eq!(compared, 7 + 2 * 3 + 4);
}

// Oracle: the rule that every number names its source.
#[test]
fn every_number_has_a_source() {
    for chip in chips() {
        let table = chip.table();
        assert!(table.len() >= 57, "{} has {} numbers", chip.name, table.len());
        for (key, value, src) in table {
            assert!(src.trim().len() >= 2, "{} {key} = {value} has no source", chip.name);
        }
    }
}

// Oracle: what the machine model needs to run at all.
#[test]
fn chips_are_usable() {
    for chip in chips() {
        let name = &chip.name;
        assert!(matches!(chip.mxu.dim.v, 128 | 256), "{name}");
        assert!(chip.mxu.rows_per_cycle_16bit.v > 0, "{name}");
        assert_eq!(chip.tensorcores_per_chip.v % chip.tensorcores_per_device.v, 0, "{name}");
        assert_eq!(chip.vmem_bytes.v % 4096, 0, "{name}: whole registers");
        let device = chip.hbm.bytes_chip.v / u64::from(chip.devices_per_chip());
        let usable = chip.hbm.usable_bytes_device.v;
        assert!(usable < device && usable > device / 100 * 90, "{name}: {usable} of {device}");
        assert_eq!(chip.ici.pod.len(), chip.ici.dims.v as usize, "{name}");
        assert_eq!(chip.ici.links.v, 2 * chip.ici.dims.v, "{name}");
        for share in [chip.hbm.read_efficiency.v, chip.hbm.write_efficiency.v] {
            assert!(share > 0.0 && share <= 1.0, "{name}");
        }
        // Registers, units and flags of every chip fit the default widths of the bundle encoding.
        assert!(chip.regs.vector.v <= 64 && chip.regs.mask.v <= 64 && chip.regs.scalar.v <= 64, "{name}");
        assert!(chip.mxu.count.v <= 8 && chip.xlus.v <= 8 && chip.regs.flags.v <= 256, "{name}");
    }
}

// Oracle: the value given.
#[test]
fn overrides_replace_value_and_source() {
    let chip = set("hbm.bps_chip", "1_000_000_000_000").unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((chip.hbm.bps_chip.v, chip.hbm.bps_chip.src.as_str()), (1_000_000_000_000, "set by the user"));
    let chip = set("hbm.latency_s", "3e-7").unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(chip.hbm.latency_s.v, 3e-7);
    let chip = set("clock_hz", "1.5e9").unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(chip.clock_hz.v, 1_500_000_000);
}

// Oracle: the messages say what is wrong and what there is instead.
#[test]
fn wrong_overrides_say_why() {
    let starts = |key: &str, value: &str, expected: &str| {
        let message = set_error(key, value);
        assert!(message.starts_with(expected), "{message}");
    };
    starts("hbm.bps", "1", "--set hbm.bps=1: no such key; there are: bps_chip, bytes_chip,");
    starts("hbm", "1", "--set hbm=1: names a group; name one of its keys");
    starts("name", "v9", "--set name=v9: not a number of the chip file");
    starts("clock_hz.src", "x", "--set clock_hz.src=x: not a number of the chip file");
    starts("clock_hz", "fast", "--set clock_hz=fast: expected a value like 1500000000");
    starts("clock_hz", "-1", "--set clock_hz=-1: expected a value like 1500000000");
    starts("clock_hz", "0.5", "--set clock_hz=0.5: expected a value like 1500000000");
    starts("hbm.latency_s", "nan", "--set hbm.latency_s=nan: expected a value like");
    starts("mxu.count", "5000000000", "--set mxu.count=5000000000: ");
    starts("", "1", "--set =1: no such key; there are: ");
}

// Oracle: the list of chips.
#[test]
fn unknown_chips_list_the_known_ones() {
    let error = ChipSpec::load("v1").map_or_else(|e| e.to_string(), |c| c.name);
    assert_eq!(error, "unknown chip `v1`; known chips: v2, v3, v4, v5e, v5p, v6e, v7x");
    for (alias, name) in [("Ironwood", "v7x"), ("tpu7x", "v7x"), ("trillium", "v6e"), ("V5LITEPOD", "v5e")] {
        assert_eq!(ChipSpec::load(alias).map(|c| c.name), Ok(name.to_owned()));
    }
}

// Oracle: deny_unknown_fields.
#[test]
fn broken_files_are_errors() {
    let (name, text) = CHIP_FILES[0];
    for broken in
        [text.replace("clock_hz", "clock"), format!("{text}\n[extra]\n"), text.replace("[mxu]", "[mxu"), String::new()]
    {
        assert!(matches!(ChipSpec::parse(name, &broken, &[]), Err(ChipError::Parse { .. })));
    }
}
