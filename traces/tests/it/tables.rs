use tpusim_traces::report::Report;
use tpusim_traces::tables;

use crate::sample;

/// Rows by column name.
fn parse(bytes: &[u8]) -> Vec<std::collections::HashMap<String, String>> {
    csv::Reader::from_reader(bytes).deserialize().map(|r| r.unwrap()).collect()
}

// Oracle: the report the table is made from; quoting is checked by a name with a comma.
#[test]
fn one_row_per_operation() {
    let mut program = sample::program();
    program.ops[1].name = "a, \"b\"\nc".to_owned();
    let report = Report::new(&program, &sample::chip(), &sample::profile(), "timing");
    let mut bytes = Vec::new();
    tables::ops(&report, &mut bytes).unwrap();
    let rows = parse(&bytes);
    assert_eq!(rows.len(), report.ops.len());
    assert_eq!(rows[1]["name"], program.ops[1].name);
    assert_eq!((rows[4]["occurrence"].as_str(), rows[0]["utilization_MXU"].as_str()), ("1", "0.92"));
    assert_eq!(rows[5]["stall_cycles_modelled"], "18000");
    assert_eq!(rows[2]["time_s"].parse::<f64>().unwrap(), report.ops[2].time_s);
}

// Oracle: the series' busy cycles over window x instances; the last window is half as long as the others.
#[test]
fn one_row_per_window() {
    let profile = sample::profile();
    let mut bytes = Vec::new();
    tables::series(1_500_000_000, &profile, &mut bytes).unwrap();
    let rows = parse(&bytes);
    assert_eq!(rows.len(), 243);
    let mxu = |row: usize| rows[row]["MXU"].parse::<f64>().unwrap();
    assert!((mxu(10) - profile.series.busy[10][0] / 1600.0).abs() < 1e-12);
    let hbm: f64 = rows[242]["HBM"].parse().unwrap();
    assert!((hbm - profile.series.busy[242][7] / 200.0).abs() < 1e-12);
    assert_eq!(rows[242]["start_cycle"], "96800");
    let mut none = Vec::new();
    tables::series(1_500_000_000, &Default::default(), &mut none).unwrap();
    assert_eq!(parse(&none).len(), 0);
}
