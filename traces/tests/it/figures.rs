use std::path::Path;

use tpusim_sim::profile::Profile;
use tpusim_traces::figure::{self, Figure, FigureError};
use tpusim_traces::report::Report;

use crate::sample;

fn report() -> Report {
    Report::new(&sample::program(), &sample::chip(), &sample::profile(), "timing")
}

// Oracle: the files' own headers, and the column's width of 240 points.
#[test]
fn draws_svg_and_png_with_the_numbers_beside() {
    let dir = sample::folder();
    for extension in ["svg", "png"] {
        let (a, b) = (dir.join(format!("utilization.{extension}")), dir.join(format!("roofline.{extension}")));
        figure::utilization(&a, &report(), &sample::profile()).unwrap();
        figure::roofline(&b, &report()).unwrap();
        for path in [a, b] {
            let bytes = std::fs::read(&path).unwrap();
            if extension == "svg" {
                let text = String::from_utf8(bytes).unwrap();
                assert!(text.starts_with("<svg width=\"240pt\""), "{}", &text[..80]);
                assert!(text.contains("viewBox=\"0 0 2400 "));
                // Every text is 8 points, ten times as large in the drawing.
                let sizes: Vec<f64> =
                    text.split("font-size=\"").skip(1).map(|s| s.split('"').next().unwrap().parse().unwrap()).collect();
                assert!(!sizes.is_empty() && sizes.iter().all(|s| (s - 80.0).abs() < 0.01), "{sizes:?}");
            } else {
                assert_eq!(&bytes[..8], b"\x89PNG\r\n\x1a\n");
                assert_eq!(u32::from_be_bytes([bytes[16], bytes[17], bytes[18], bytes[19]]), 1200);
            }
            assert!(std::fs::read_to_string(path.with_extension("csv")).unwrap().lines().count() > 4);
        }
    }
    let csv = std::fs::read_to_string(dir.join("roofline.csv")).unwrap();
    assert!(csv.lines().any(|l| l.starts_with("dot_general.4,model.py:41,bf16,MXU,2,")), "{csv}");
}

// Oracle: a second drawing.
#[test]
fn drawing_is_repeatable() {
    let draw = |dir: &Path, name: &str| {
        let path = dir.join(name);
        figure::utilization(&path, &report(), &sample::profile()).unwrap();
        let first = std::fs::read(&path).unwrap();
        figure::roofline(&path, &report()).unwrap();
        (first, std::fs::read(&path).unwrap())
    };
    let dir = tempfile::tempdir().unwrap();
    for name in ["a.svg", "a.png"] {
        assert_eq!(draw(dir.path(), name), draw(dir.path(), name));
    }
}

// Oracle: the kind of error; nothing may be left behind.
#[test]
fn says_what_it_cannot_draw() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.svg");
    let empty = Report::new(&Default::default(), &sample::chip(), &Profile::default(), "");
    assert!(matches!(figure::utilization(&path, &empty, &Profile::default()), Err(FigureError::Empty(_))));
    assert!(matches!(figure::roofline(&path, &empty), Err(FigureError::Empty(_))));
    for name in ["a.pdf", "a", "a.csv"] {
        let e = figure::roofline(&dir.path().join(name), &report()).unwrap_err();
        assert!(e.to_string().contains(".svg or .png"), "{e}");
    }
    assert!(figure::roofline(&dir.path().join("none/a.svg"), &report()).unwrap_err().to_string().contains("a.svg"));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

// Oracle: an em is 8 points; text of the font is about half an em per character.
#[test]
fn text_has_a_width() {
    let w = Figure::text_width("utilization");
    assert!((30.0..60.0).contains(&w), "{w}");
}

// Oracle: none but that it draws; left in the sample folder to be looked at. Thirty operations of two types, a long run.
#[test]
fn draws_a_crowded_run() {
    use tpusim_isa::num::DType;
    let (mut program, mut profile) = (sample::program(), sample::profile());
    let (info, run) = (program.ops[0].clone(), profile.ops[0].clone());
    for i in 0..30u64 {
        let mut info = info.clone();
        info.name = format!("fusion.{i}");
        info.dtype = if i % 3 == 0 { DType::I8 } else { DType::BF16 };
        info.mxu_flops /= 1 + i * i * i / 4;
        let mut run = run.clone();
        run.op = program.ops.len() as u32;
        run.busy[0] /= 1 + i / 2;
        run.busy[7] /= 1 + i % 5;
        run.start = profile.cycles;
        run.end = run.start + 3_000_000 / (1 + i * 7 % 11);
        run.hbm_read /= 1 + i % 4;
        profile.cycles = run.end;
        program.ops.push(info);
        profile.ops.push(run);
    }
    let windows = profile.cycles.div_ceil(1000);
    profile.series.window = 1000;
    profile.series.busy = (0..windows).map(|w| [f64::from((w / 100 % 40) as u32) * 100.0; 8]).collect();
    let report = Report::new(&program, &sample::chip(), &profile, "timing");
    figure::roofline(&sample::folder().join("crowded.png"), &report).unwrap();
    figure::utilization(&sample::folder().join("long.png"), &report, &profile).unwrap();
}
