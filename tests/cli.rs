//! The `tpusim` command as users meet it: exit codes, messages, files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// Runs `tpusim` in `dir`.
fn tpusim(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tpusim")).args(args).current_dir(dir).output().expect("tpusim starts")
}

struct Dir(TempDir);

impl Dir {
    fn new() -> Dir {
        Dir(tempfile::tempdir().expect("a temporary folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(name), bytes).unwrap();
    }

    /// Runs a command that must succeed; gives what it printed.
    fn ok(&self, args: &[&str]) -> String {
        let out = tpusim(self.0.path(), args);
        let err = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(0), "{args:?}: {err}");
        String::from_utf8(out.stdout).unwrap()
    }

    /// Runs a command that must fail with `code`, print nothing to stdout, and say each of `words`; gives the message.
    fn fails(&self, code: i32, args: &[&str], words: &[&str]) -> String {
        let out = tpusim(self.0.path(), args);
        let err = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(code), "{args:?}: {err}");
        assert!(out.stdout.is_empty(), "{args:?} printed {}", String::from_utf8_lossy(&out.stdout));
        assert!(err.starts_with("error"), "{args:?}: {err}");
        for word in words {
            assert!(err.contains(word), "{args:?}: `{word}` is not in: {err}");
        }
        err
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(self.0.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// An .npy file of version 1.0, written here from numpy's description of the format.
fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
    while (10 + header.len() + 1) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.as_bytes());
    file.extend(data);
    file
}

fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// The f32 elements of an .npy file of version 1.0.
fn read_f32s(path: &Path) -> Vec<f32> {
    let file = fs::read(path).unwrap();
    let start = 10 + usize::from(u16::from_le_bytes([file[8], file[9]]));
    file[start..].chunks_exact(4).map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect()
}

const SUB: &str = "module @sub {
  func.func public @main(%a: tensor<2x3xf32> loc(\"a\"), %b: tensor<2x3xf32> loc(\"b\")) -> tensor<2x3xf32> {
    %0 = stablehlo.subtract %a, %b : tensor<2x3xf32>
    return %0 : tensor<2x3xf32>
  }
}
";

const COMMANDS: &[&str] =
    &["run", "compile", "eval", "exec", "asm", "disasm", "chips", "workloads", "scale", "validate"];

// Oracle: the house rule that help shows how.
#[test]
fn help_of_every_command_has_an_example() {
    let dir = Dir::new();
    let overview = dir.ok(&["--help"]);
    for command in COMMANDS {
        assert!(overview.contains(&format!("\n  {command} ")), "{command} is not in the overview");
        let help = dir.ok(&[command, "--help"]);
        let example = help.split("Example").nth(1).unwrap_or_default();
        assert!(example.contains(&format!("tpusim {command}")), "{command}: {help}");
    }
    let listed = overview.lines().skip_while(|l| *l != "Commands:").skip(1).take_while(|l| l.starts_with("  "));
    let listed: Vec<&str> = listed.filter_map(|l| l.split_whitespace().next()).filter(|n| *n != "help").collect();
    assert_eq!(listed, COMMANDS);
}

// Oracle: subtraction, which also tells the two inputs apart.
#[test]
fn inputs_and_outputs_round_trip() {
    let dir = Dir::new();
    dir.write("sub.mlir", SUB);
    dir.write("a.npy", npy("<f4", "2, 3", &f32s(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])));
    dir.write("b.npy", npy("<f4", "2, 3", &f32s(&[0.5, 0.5, 0.5, 1.0, 1.0, 8.0])));
    let expected = [0.5, 1.5, 2.5, 3.0, 4.0, -2.0];
    dir.ok(&["run", "sub.mlir", "--input", "a.npy", "--input", "b.npy", "--output-dir", "made/out", "--check"]);
    assert_eq!(read_f32s(&dir.path("made/out/out0.npy")), expected);
    assert_eq!(fs::read_dir(dir.path("made/out")).unwrap().count(), 1);
    dir.ok(&["run", "sub.mlir", "--input", "b=b.npy", "--input", "a=a.npy", "--output-dir", "named"]);
    assert_eq!(read_f32s(&dir.path("named/out0.npy")), expected);
    dir.ok(&["eval", "sub.mlir", "--input", "a.npy", "--input", "b.npy", "--output-dir", "eval"]);
    assert_eq!(fs::read(dir.path("eval/out0.npy")).unwrap(), fs::read(dir.path("named/out0.npy")).unwrap());
}

// Oracle: the file's own shape and type, the parameter's, and an empty folder.
#[test]
fn wrong_inputs_say_file_expected_and_found() {
    let dir = Dir::new();
    dir.write("sub.mlir", SUB);
    dir.write("good.npy", npy("<f4", "2, 3", &f32s(&[0.0; 6])));
    dir.write("shape.npy", npy("<f4", "3, 2", &f32s(&[0.0; 6])));
    dir.write("type.npy", npy("<i4", "2, 3", &f32s(&[0.0; 6])));
    dir.write("short.npy", npy("<f4", "2, 3", &f32s(&[0.0; 5])));
    let before = dir.names();
    let run = |files: &[&str], words: &[&str]| {
        let mut args = vec!["run", "sub.mlir", "--output-dir", "out"];
        files.iter().for_each(|f| args.extend(["--input", f]));
        dir.fails(2, &args, words);
        assert_eq!(dir.names(), before, "{files:?}");
    };
    run(&["good.npy", "shape.npy"], &["shape.npy", "f32[2, 3]", "(3, 2)"]);
    run(&["good.npy", "type.npy"], &["type.npy", "f32[2, 3]", "<i4"]);
    run(&["good.npy", "short.npy"], &["short.npy", "truncated"]);
    run(&["good.npy", "none.npy"], &["none.npy"]);
    run(&["good.npy", "sub.mlir"], &["sub.mlir", "not an .npy file"]);
    run(&["good.npy"], &["parameter 1", "`b`", "takes 2"]);
    run(&["good.npy"; 3], &["one file too many", "takes 2"]);
    run(&["c=good.npy"], &["no parameter `c`", "a: tensor<2x3xf32>"]);
    run(&["a=good.npy", "a=good.npy"], &["two files"]);
}

// Oracle: exit code 2 is for the command line and files, 1 for programs.
#[test]
fn usage_errors_exit_with_2() {
    let dir = Dir::new();
    dir.write("sub.mlir", SUB);
    dir.write("file", "");
    let fails = |args: &[&str], words: &[&str]| dir.fails(2, args, words);
    fails(&["run", "none.mlir"], &["cannot read `none.mlir`"]);
    fails(&["run", "matmull"], &["matmull", "matmul, mlp"]);
    fails(&["run", "matmul", "q=4"], &["`q`", "m=1024"]);
    fails(&["run", "matmul", "m=0"], &["m=0", "from 1 to"]);
    fails(&["run", "matmul", "m=99999999999999999999"], &["whole number"]);
    fails(&["run", "matmul", "m=-3"], &["m=-3"]);
    fails(&["run", "matmul", "m=4", "m=4"], &["twice"]);
    fails(&["run", "matmul", "dtype=f31"], &["bf16, f32"]);
    fails(&["run", "matmul", "m"], &["KEY=VALUE"]);
    fails(&["run", "matmul", "m=16777216", "n=16777216"], &["too large"]);
    fails(&["run", "attention", "heads=3", "kv_heads=2"], &["does not divide"]);
    fails(&["run", "sub.mlir", "m=4"], &["takes no parameters"]);
    fails(&["run", "--chip", "v9"], &["unknown chip `v9`", "v5e"]);
    fails(&["run", "--set", "hbm.bps=1"], &["hbm.bps", "bps_chip"]);
    fails(&["run", "--set", "hbm.bps_chip=fast"], &["expected a value"]);
    fails(&["run", "--set", "mxu.dim=7"], &["mxu.dim=7"]);
    fails(&["run", "--set", "latency.vload=4e9"], &["from 0 to 10000"]);
    fails(&["run", "--chip", "v4", "--set", "tensorcores_per_device=3"], &["must divide"]);
    fails(&["run", "--threads", "0"], &["--threads"]);
    fails(&["run", "--mode", "time", "--output-dir", "out"], &["--mode execute"]);
    fails(&["run", "--trip-count", "3"], &["--trip-count", "--mode time"]);
    fails(&["run", "--trip-count", "often"], &["LOOP=N"]);
    fails(&["run", "--mode", "time", "--branch", "case.0=x"], &["expected a number"]);
    fails(&["run", "matmul", "--mode", "time", "--branch", "case.0=1"], &["case.0", "the program has none"]);
    fails(&["run", "--json", "none/r.json"], &["--json", "none/r.json"]);
    fails(&["run", "--json", "."], &["--json", "."]);
    fails(&["run", "--output-dir", "file/out"], &["--output-dir", "file"]);
    fails(&["run", "--plot", "util.pdf"], &["util.pdf", ".svg or .png"]);
    fails(&["run", "--plot", "a.svg", "--csv", "a.csv"], &["both write `a.csv`"]);
    fails(&["chips", "v9"], &["unknown chip"]);
    fails(&["workloads", "none"], &["unknown workload"]);
    fails(&["asm", "none.asm", "-o", "x.bin"], &["cannot read `none.asm`"]);
    fails(&["nonsense"], &["nonsense"]);
    assert_eq!(dir.names(), ["file", "sub.mlir"]);
}

// Oracle: as above; each of these programs has the mistake its message names.
#[test]
fn program_errors_exit_with_1_and_leave_nothing() {
    let dir = Dir::new();
    dir.write("parse.mlir", SUB.replace("subtract", "subtrct"));
    dir.write("verify.mlir", SUB.replace("-> tensor<2x3xf32>", "-> tensor<2x4xf32>"));
    dir.write("bytes.mlirbc", b"ML\xefRgarbage");
    dir.write("noise", b"\xff\xfe\x00");
    dir.write("bad.asm", "program \"x\" chip \"v5e\" hbm_peak 0 vmem_peak 0\ncode { { vadd.f32 v3, v1 } }");
    dir.write("unset.asm", "program \"x\" chip \"v5e\" hbm_peak 0 vmem_peak 0\ncode { { vadd.f32 v3, v1, v2 } }");
    dir.write("cut.bin", b"TPUSIMPG\x01\x00\x00\x00");
    let before = dir.names();
    let all = ["--output-dir", "out", "--json", "r.json", "--trace", "t.pftrace", "--csv", "o.csv", "--plot", "p.svg"];
    let fails = |args: &[&str], words: &[&str]| {
        dir.fails(1, &[args, all.as_slice()].concat(), words);
        assert_eq!(dir.names(), before, "{args:?}");
    };
    fails(&["run", "parse.mlir"], &["subtrct", "parse.mlir:3"]);
    fails(&["run", "verify.mlir"], &["verify.mlir", "tensor<2x4xf32>"]);
    fails(&["run", "bytes.mlirbc"], &["bytes.mlirbc"]);
    fails(&["run", "./noise"], &["neither MLIR bytecode nor UTF-8"]);
    fails(&["exec", "bad.asm"], &["bad.asm:2:"]);
    fails(&["exec", "unset.asm"], &["v1 is read before"]);
    fails(&["exec", "cut.bin"], &["cut.bin"]);
    let huge = ["run", "matmul", "m=262144", "n=262144", "k=128", "--mode", "time"];
    dir.fails(1, &huge, &["of HBM", "the device has", "bf16[262144,262144]"]);
    assert_eq!(dir.names(), before);
}

/// Counts a word of HBM down to 0 in SMEM, and takes a branch each time.
const COUNT: &str = r#"program "count" chip "v5e" hbm_peak 8 vmem_peak 0
flow 0 while "stablehlo.while" at "count.mlir:3"
flow 1 case "stablehlo.case" at "count.mlir:5"
buffer 0 param 0 offset 0 bytes 4 live 0..0
buffer 1 output 0 offset 4 bytes 4 live 0..0
desc d0 load elem 4 rows 1 stride 0 cols 1 stride 4 hbm 0 smem 0
desc d1 store elem 4 rows 1 stride 0 cols 1 stride 4 hbm 4 smem 1
code {
  { dma d0, flag0 }
  { dma.wait flag0, 1 ; s.li s4, 0 }
  { s.ld s2, [s0+0] }
  while 0 {
  } test s2 {
    { s.addi s2, s2, -1 }
    case 1 s2 {
      branch { { s.addi s4, s4, 100 } }
      branch { { s.addi s4, s4, 1 } loop s5 = 0..7 { { s.li s6, 0 } } }
    }
  }
  { s.st s4, [s0+1] }
  { dma d1, flag0 }
  { dma.wait flag0, 1 }
}
"#;

// Oracle: the loop in Rust: from 6 down, five times 1 and at 0 once 100. Time is told as much.
#[test]
fn loops_that_data_ends_are_run_or_told() {
    let dir = Dir::new();
    dir.write("count.asm", COUNT);
    dir.write("n.npy", npy("<i4", "1,", &6i32.to_le_bytes()));
    let run = |args: &[&str]| -> serde_json::Value {
        serde_json::from_str(&dir.ok(&[&["exec", "count.asm", "--json", "-"], args].concat())).unwrap()
    };
    let executed = run(&["--input", "n.npy", "--output-dir", "out"]);
    let out = fs::read(dir.path("out/out0.npy")).unwrap();
    assert_eq!(out[out.len() - 4..], 105i32.to_le_bytes());
    assert_eq!(executed["assumptions"].as_array().unwrap().len(), 0);
    assert_eq!(executed["control_fraction"], 1.0);
    let timed =
        |branch: &str| run(&["--mode", "time", "--trip-count", "9", "--trip-count", "while.0=6", "--branch", branch]);
    // Branch 0 once and branch 1 five times lies between all of the one and all of the other.
    let cycles = |r: &serde_json::Value| r["cycles"].as_u64().unwrap();
    let (short, long) = (cycles(&timed("case.1=0")), cycles(&timed("stablehlo.case=1")));
    assert_eq!(6 * cycles(&executed), short + 5 * long);
    let text = dir.ok(&["exec", "count.asm", "--mode", "time", "--trip-count", "6"]);
    for part in [
        "assumed     while.0 (stablehlo.while at count.mlir:3) runs 6 times\n",
        "            case.1 (stablehlo.case at count.mlir:5) takes branch 1, the longest\n",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    dir.fails(
        2,
        &["exec", "count.asm", "--mode", "time"],
        &["while.0 (`stablehlo.while` at count.mlir:3)", "--trip-count N"],
    );
    dir.fails(2, &["exec", "count.asm", "--mode", "time", "--trip-count", "while.1=2"], &["while.1", "has while.0"]);
    let endless = ["exec", "count.asm", "--input", "n.npy", "--max-iterations", "5"];
    dir.fails(1, &endless, &["has run 5 times", "--max-iterations"]);
}

// Oracle: the keys that scripts rely on, and that both modes take the same cycles.
#[test]
fn json_on_stdout_is_json_alone() {
    let dir = Dir::new();
    let report = |mode: &str| -> serde_json::Value {
        let text = dir.ok(&["run", "matmul", "m=64", "n=128", "k=256", "--mode", mode, "--json", "-"]);
        serde_json::from_str(&text).unwrap()
    };
    let (timed, executed) = (report("time"), report("execute"));
    for key in ["program", "chip", "cycles", "time_s", "mfu", "hbm_bytes_read", "utilization", "advice", "ops"] {
        assert!(!timed[key].is_null(), "{key}");
    }
    assert_eq!(timed["flops"], 2 * 64 * 128 * 256);
    assert_eq!((&timed["mode"], &executed["mode"]), (&"time".into(), &"execute".into()));
    assert_eq!(timed["cycles"], executed["cycles"]);
    let chips: serde_json::Value = serde_json::from_str(&dir.ok(&["chips", "--json"])).unwrap();
    assert!(chips.as_array().unwrap().iter().any(|c| c["name"] == "v5e"));
    let numbers: serde_json::Value = serde_json::from_str(&dir.ok(&["chips", "v5e", "--json"])).unwrap();
    assert!(numbers.as_array().unwrap().iter().all(|n| !n["source"].as_str().unwrap().is_empty()));
    let list: serde_json::Value = serde_json::from_str(&dir.ok(&["workloads", "--json"])).unwrap();
    assert_eq!(list.as_array().unwrap().len(), tpusim_workloads::ALL.len());
    assert!(dir.names().is_empty());
}

// Oracle: each file's own first bytes, and the tables that figures promise beside them.
#[test]
fn every_report_is_written_where_asked() {
    let dir = Dir::new();
    let files =
        ["--json", "r.json", "--trace", "t.pftrace", "--csv", "o.csv", "--plot", "p.svg", "--roofline", "f.png"];
    let text = dir.ok(&[&["run", "softmax", "rows=64", "cols=256"], files.as_slice()].concat());
    assert!(text.starts_with("softmax on v5e"), "{text}");
    assert_eq!(dir.names(), ["f.csv", "f.png", "o.csv", "p.csv", "p.svg", "r.json", "t.pftrace"]);
    assert!(fs::read(dir.path("f.png")).unwrap().starts_with(b"\x89PNG"));
    assert!(fs::read_to_string(dir.path("p.svg")).unwrap().contains("<svg"));
    assert!(fs::read_to_string(dir.path("o.csv")).unwrap().starts_with("op,"));
    assert!(fs::metadata(dir.path("t.pftrace")).unwrap().len() > 0);
}

// Oracle: an empty array takes no time, and there is nothing to draw of it.
#[test]
fn programs_without_work_still_report() {
    let dir = Dir::new();
    let text = "func.func public @main(%a: tensor<0x3xf32>) -> tensor<0x3xf32> {\n  return %a : tensor<0x3xf32>\n}\n";
    dir.write("empty.mlir", text);
    let files = ["--output-dir", "out", "--json", "r.json", "--plot", "p.svg", "--roofline", "f.svg"];
    dir.ok(&[&["run", "empty.mlir", "--check"], files.as_slice()].concat());
    assert_eq!(dir.names(), ["empty.mlir", "out", "r.json"]);
}

// Oracle: the folder holds what it held before.
#[test]
fn outputs_are_written_together_or_not_at_all() {
    let dir = Dir::new();
    let twice = SUB.replace("-> tensor<2x3xf32>", "-> (tensor<2x3xf32>, tensor<2x3xf32>)");
    let twice = twice.replace("return %0 : tensor<2x3xf32>", "return %0, %a : tensor<2x3xf32>, tensor<2x3xf32>");
    dir.write("two.mlir", twice);
    fs::create_dir_all(dir.path("out/out1.npy")).unwrap();
    dir.fails(2, &["run", "two.mlir", "--output-dir", "out"], &["out1.npy", "is a folder"]);
    let left: Vec<_> = fs::read_dir(dir.path("out")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["out1.npy"]);
}

// Oracle: none of the engine's switches may change results; overrides of the chip must change time.
#[test]
fn switches_keep_results_and_overrides_change_time() {
    let dir = Dir::new();
    let cycles = |extra: &[&str]| {
        let base = ["run", "softmax", "rows=96", "cols=200", "--output-dir", "out", "--json", "-", "--chip", "v4"];
        let text = dir.ok(&[base.as_slice(), extra].concat());
        let report: serde_json::Value = serde_json::from_str(&text).unwrap();
        (report["cycles"].as_u64().unwrap(), fs::read(dir.path("out/out0.npy")).unwrap())
    };
    let plain = cycles(&[]);
    for switch in [&["--no-fold-loops"][..], &["--no-fold"], &["--poison"], &["--dma", "late"], &["--threads", "1"]] {
        assert_eq!(cycles(switch), plain, "{switch:?}");
    }
    let one_core = cycles(&["--set", "tensorcores_per_device=1"]);
    assert!(one_core.1 == plain.1 && one_core.0 != plain.0, "{} {}", one_core.0, plain.0);
    let slow = cycles(&["--set", "hbm.bps_chip=1e10"]);
    assert!(slow.1 == plain.1 && slow.0 > plain.0, "{} {}", slow.0, plain.0);
    assert_ne!(cycles(&["--seed", "1"]).1, plain.1);
}

// Oracle: the text of a program is the same however it is stored, and it runs in as many cycles as before.
#[test]
fn programs_survive_assembly() {
    let dir = Dir::new();
    let softmax = ["softmax", "rows=32", "cols=256"];
    let compile = |emit: &str, file: &str| {
        dir.ok(&[&["compile"], softmax.as_slice(), &["--emit", emit, "-o", file]].concat());
    };
    compile("asm", "a.asm");
    compile("bin", "a.bin");
    dir.ok(&["asm", "a.asm", "-o", "b.bin"]);
    assert_eq!(fs::read(dir.path("a.bin")).unwrap(), fs::read(dir.path("b.bin")).unwrap());
    assert_eq!(dir.ok(&["disasm", "a.bin"]), fs::read_to_string(dir.path("a.asm")).unwrap());
    let cycles = |args: &[&str]| {
        let report: serde_json::Value = serde_json::from_str(&dir.ok(args)).unwrap();
        report["cycles"].as_u64().unwrap()
    };
    let direct = cycles(&[&["run"], softmax.as_slice(), &["--json", "-"]].concat());
    assert_eq!(cycles(&["exec", "a.asm", "--json", "-"]), direct);
    assert_eq!(cycles(&["exec", "a.bin", "--mode", "time", "--json", "-"]), direct);
    // The module's text is a program again.
    compile("hlo", "a.mlir");
    assert_eq!(cycles(&["run", "a.mlir", "--json", "-"]), direct);
    assert!(dir.ok(&[&["compile"], softmax.as_slice(), &["--emit", "tile"]].concat()).contains("block planes"));
}

// Oracle: the module's own attribute.
#[test]
fn partitioned_programs_say_that_one_device_runs_them() {
    let dir = Dir::new();
    let text = SUB.replace("@sub {", "@sub attributes {mhlo.num_partitions = 8 : i32} {");
    dir.write("sub.mlir", text);
    let out = tpusim(dir.0.path(), &["run", "sub.mlir", "--json", "-"]);
    assert_eq!(out.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&out.stderr).contains("meant for 8 devices"));
    assert!(serde_json::from_slice::<serde_json::Value>(&out.stdout).is_ok());
}

// Oracle: a reader that goes away is not an error of ours.
#[test]
fn closed_pipes_are_quiet() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tpusim"))
        .args(["compile", "matmul", "m=64", "n=64", "k=64", "--emit", "asm"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let out = child.wait_with_output().unwrap();
    assert!(out.stderr.is_empty(), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(out.status.code(), Some(0));
}

/// A language model small enough to be compiled in a moment.
const TINY: &[&str] = &["qwen3-0.6b", "layers=2", "d=256", "ff=512", "heads=4", "kv_heads=2", "dim=128", "vocab=1024"];

/// `command` of the tiny model with `some` and `more` flags.
fn tiny<'a>(command: &'a str, some: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [&[command], TINY, some, more].concat()
}

// Oracle: by hand: 8 chips of two devices, as many sequences each as 8192 tokens are, useful FLOPs of `6 N` and attention.
#[test]
fn models_train_on_pods() {
    let dir = Dir::new();
    let text = dir.ok(&tiny(
        "run",
        &[],
        &["--chip", "v7x", "--chips", "8", "--mesh", "tensor=2", "--seq", "256", "--json", "-"],
    ));
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let t = &json["training"];
    assert_eq!((t["mesh"].as_str(), t["batch"].as_i64()), (Some("fsdp=8,tensor=2"), Some(256)));
    let n = 2 * (2 * 256 * 128 * (4 + 2) + 3 * 256 * 512) + 1024 * 256;
    let tokens = 256.0 * 256.0;
    let full = 6.0 * f64::from(n) * tokens + 12.0 * 2.0 * 4.0 * 128.0 * 256.0 * tokens;
    assert_eq!(t["useful_flops_full"].as_f64(), Some(full));
    let time = json["time_s"].as_f64().unwrap();
    assert_eq!(t["tokens_per_s_chip"].as_f64(), Some(tokens / time / 8.0));
    let parts = ["arguments", "constants", "temporaries"].map(|p| json[format!("hbm_{p}_bytes")].as_u64().unwrap());
    assert_eq!(json["hbm_peak_bytes"].as_u64(), Some(parts.iter().sum()));
    let text = dir.ok(&tiny("run", &[], &["--chip", "v5e", "--seq", "256", "--batch", "1"]));
    assert!(text.contains("step time") && text.contains("mesh one device"), "{text}");
}

// Oracle: by hand: 2 key heads on 2 devices each of 2 copies, which hold half of the matrices and of 2 sequences' cache.
#[test]
fn models_serve_on_pods() {
    let dir = Dir::new();
    let flags = ["--chip", "v5e", "--chips", "4", "--batch", "4", "--context", "512"];
    let decode = dir.ok(&tiny("run", &flags, &["--step", "decode", "--json", "-"]));
    let json: serde_json::Value = serde_json::from_str(&decode).unwrap();
    let s = &json["serving"];
    assert_eq!((s["mesh"].as_str(), s["phase"].as_str()), (Some("data=2,tensor=2"), Some("decode")));
    let n = 2 * (2 * 256 * 128 * (4 + 2) + 3 * 256 * 512) + 1024 * 256;
    let norms = 2 * (2 * 256 + 2 * 128);
    assert_eq!(s["weight_bytes_device"].as_i64(), Some(2 * (n / 2 + norms)));
    assert_eq!(s["cache_bytes_device"].as_i64(), Some(2 * 2 * 2 * 512 * 128 * 2));
    let time = json["time_s"].as_f64().unwrap();
    assert_eq!(s["tokens_per_s"].as_f64(), Some(4.0 / time));
    let attention = 4.0 * 2.0 * 4.0 * 128.0 * 512.0 * 4.0;
    assert_eq!(s["useful_flops"].as_f64(), Some(2.0 * n as f64 * 4.0 + attention));
    let (bound, mbu) = (s["hbm_bound_s"].as_f64().unwrap(), s["mbu"].as_f64().unwrap());
    assert!((mbu - bound / time).abs() < 1e-9 && bound > 0.0 && bound < time, "{s}");
    let text = dir.ok(&tiny("run", &flags, &["--step", "prefill", "--seq", "256"]));
    assert!(
        text.contains("prefill, 4 sequences of 256 tokens, cache of 512 positions") && text.contains("MBU"),
        "{text}"
    );
    dir.fails(2, &tiny("run", &flags, &[]), &["--context is for --step prefill or decode"]);
    dir.fails(2, &tiny("run", &flags, &["--step", "decode", "--seq", "8"]), &["--seq: a step of decoding takes one"]);
    dir.fails(2, &tiny("run", &flags, &["--step", "decode", "remat=dots"]), &["remat= is for --step train"]);
    dir.fails(2, &tiny("run", &flags, &["--step", "prefill", "--seq", "513"]), &["does not hold 513 tokens"]);
}

// Oracle: experts with room for the hottest drop nothing and take longer than with room for an even share; the seed decides.
#[test]
fn hot_experts_take_the_time_of_all() {
    let dir = Dir::new();
    let model = ["run", "qwen3-30b-a3b", "layers=2", "d=256", "heads=4", "kv_heads=2", "dim=128", "vocab=1024"];
    let flags = ["experts=8", "active=2", "expert_ff=512", "--chip", "v5e", "--chips", "4", "--mesh", "expert=4"];
    let run = |more: &[&str]| -> serde_json::Value {
        let all = [&model[..], &flags, &["--seq", "512", "--json", "-"], more].concat();
        serde_json::from_str(&dir.ok(&all)).unwrap()
    };
    let even = run(&[]);
    assert!(even["experts"].is_null());
    let hot = run(&["--imbalance", "zipf=1.2,seed=3"]);
    let e = &hot["experts"];
    let [dropped, room, hottest] = ["dropped", "room", "hottest"].map(|k| e[k].as_f64().unwrap());
    assert!(dropped == 0.0 && room >= hottest && room < 1.1 * hottest, "{e}");
    assert!(hottest > 2.0 && hot["time_s"].as_f64() > even["time_s"].as_f64(), "{e}");
    assert_eq!(hot, run(&["--imbalance", "zipf=1.2,seed=3"]));
    let tight = run(&["--imbalance", "zipf=1.2,seed=3", "capacity=125"]);
    assert!(tight["experts"]["dropped"].as_f64().unwrap() > 0.2, "{}", tight["experts"]);
    // Room for as many rows as without: what is more is that the router likes some experts.
    let ratio = tight["time_s"].as_f64().unwrap() / even["time_s"].as_f64().unwrap();
    assert!((0.99..1.01).contains(&ratio), "{ratio}");
    dir.fails(2, &tiny("run", &[], &["--imbalance", "zipf=1"]), &["`qwen3-0.6b` has no experts"]);
    dir.fails(2, &tiny("run", &[], &["--imbalance", "even"]), &["zipf=S or dirichlet=A"]);
}

// Oracle: what the messages promise, asked for in the next run.
#[test]
fn models_that_do_not_fit_say_what_would() {
    let dir = Dir::new();
    let base = ["--chip", "v5e", "--seq", "256"];
    dir.fails(
        2,
        &tiny("run", &base, &["--chips", "8", "--mesh", "fsdp=4,tensor=4"]),
        &["has 16 devices, the pod 8", "fsdp=4,tensor=2"],
    );
    dir.fails(2, &tiny("run", &base, &["--chips", "8", "--batch", "12"]), &["8 or 16 would work"]);
    dir.fails(2, &tiny("run", &base, &["--chips", "8", "--mesh", "columns=2"]), &["axes data, pipeline, fsdp, "]);
    dir.fails(2, &["run", "matmul", "--batch", "3"], &["--batch is for the step of a model"]);
    let small = ["--set", "hbm.usable_bytes_device=40000000"];
    let error = dir.fails(
        2,
        &tiny("run", &base, &[&["--chips", "4", "--batch", "64"], &small[..]].concat()),
        &["would fit: --batch "],
    );
    let batch = error.split("--batch ").nth(1).unwrap().split([' ', ';']).next().unwrap();
    dir.ok(&tiny("run", &base, &[&["--chips", "4", "--batch", batch], &small[..]].concat()));
    dir.ok(&tiny("run", &base, &[&["--chips", "4", "--batch", "64", "--ignore-hbm-limit"], &small[..]].concat()));
}

/// A published run as it might be written down, and another number of it.
const RUNS: &str = r#"{"id": "small", "chip": "v5e", "chips": 4, "topology": "2x2", "config": {"kind": "train step (MaxText)", "dtype": "bf16", "ici_fsdp": 4, "per_device_batch": 2, "seq": 256, "remat": "full", "model": {"emb": 256, "head_dim": 128, "heads": 2, "layers": 2, "mlp": 512, "mlp_kind": "relu, 2 matrices", "tied_embeddings": true, "vocab": 1024}}, "metric": "step_time", "value": 0.001, "confidence": "exact", "source": "by hand"}
{"id": "small-tok", "chip": "v5e", "chips": 4, "topology": "2x2", "config": {"ref": "small"}, "metric": "tokens_per_s_per_chip", "value": 512000, "source": "by hand"}
{"id": "unknown", "chip": "v5e", "chips": 4, "topology": "2x2", "config": {"kind": "train step", "model": "nobody-7b"}, "metric": "MFU", "value": 50, "source": "by hand"}
"#;

// Oracle: two numbers of one run, 512 tokens a chip in a millisecond, are equally far off; threads change nothing.
#[test]
fn predictions_are_held_against_measurements() {
    let dir = Dir::new();
    dir.write("runs.jsonl", RUNS);
    let args = ["validate", "training", "--data", "runs.jsonl", "--plot", "corr.svg"];
    let text = dir.ok(&args);
    assert!(text.contains("no shapes of `nobody-7b`\n    unknown"), "{text}");
    assert_eq!(text, dir.ok(&[&args[..], &["--threads", "1"]].concat()));
    assert_eq!(dir.names(), ["corr.csv", "corr.svg", "runs.jsonl"]);
    let json: serde_json::Value = serde_json::from_str(&dir.ok(&[&args[..4], &["--json"]].concat())).unwrap();
    let rows = json["compared"].as_array().unwrap();
    let error = |i: usize| rows[i]["error"].as_f64().unwrap();
    assert_eq!(rows.len(), 2);
    assert!((error(0) - error(1)).abs() < 1e-9 * error(0).abs().max(1.0), "{json}");
    assert_eq!(rows[0]["error"].as_f64().unwrap(), rows[0]["predicted"].as_f64().unwrap() / 0.001 - 1.0);
    assert_eq!((json["summaries"][0]["rows"].as_u64(), json["summaries"][2]["rows"].as_u64()), (Some(1), Some(2)));
    dir.fails(2, &["validate", "training", "--only", "nothing like it"], &["no row of training"]);
    dir.write("bad.jsonl", "{}\n");
    dir.fails(2, &["validate", "training", "--data", "bad.jsonl"], &["line 1"]);
}

// Oracle: a weak scaling keeps the tokens of a chip, a strong one the batch.
#[test]
fn models_are_timed_on_more_and_more_chips() {
    let dir = Dir::new();
    let scale = |more: &[&str]| {
        let text =
            dir.ok(&[&["scale"], TINY, &["--chip", "v5e", "--seq", "256", "--json", "--chips", "2..8"], more].concat());
        serde_json::from_str::<serde_json::Value>(&text).unwrap()
    };
    let column = |json: &serde_json::Value, key: &str| -> Vec<i64> {
        json.as_array().unwrap().iter().map(|p| p[key].as_i64().unwrap()).collect()
    };
    let weak = scale(&["--batch", "4", "--plot", "scaling.svg"]);
    assert_eq!((column(&weak, "chips"), column(&weak, "batch")), (vec![2, 4, 8], vec![4, 8, 16]));
    assert_eq!(dir.names(), ["scaling.csv", "scaling.svg"]);
    let strong = scale(&["--batch", "16", "--strong", "--mesh", "fsdp=2"]);
    assert_eq!(column(&strong, "batch"), [16, 16, 16]);
    assert_eq!(strong[2]["mesh"].as_str(), Some("data=4,fsdp=2"));
    dir.fails(2, &["scale", "matmul", "--chips", "2..4"], &["takes the name of a model"]);
}

// Clocks that differ cost time, the same for the same seed, and a run of every chip takes as long as one of each kind.
#[test]
fn chips_differ_by_jitter() {
    let dir = Dir::new();
    let time = |extra: &[&str]| {
        let base =
            ["run", "qwen3-0.6b", "--chip", "v5p", "--chips", "8", "--batch", "8", "--seq", "256", "--json", "-"];
        let report: serde_json::Value = serde_json::from_str(&dir.ok(&[base.as_slice(), extra].concat())).unwrap();
        (report["time_s"].as_f64().unwrap(), report["simulated"].as_u64().unwrap())
    };
    let (plain, _) = time(&[]);
    assert_eq!(time(&["--no-fold"]), (plain, 8));
    let (slow, all) = time(&["--jitter", "0.05"]);
    assert!(slow > plain && slow < plain / 0.95 * 1.01 && all == 8, "{plain} {slow}");
    assert_eq!(time(&["--jitter", "0.05"]), (slow, 8));
    assert_ne!(time(&["--jitter", "0.05", "--seed", "1"]).0, slow);
    dir.fails(2, &["run", "qwen3-0.6b", "--chips", "8", "--jitter", "1.5"], &["--jitter", "0.02"]);
}

// Oracle: the files that are asked for, and that chips that are not there are refused.
#[test]
fn runs_on_pods_are_drawn_and_traced() {
    let dir = Dir::new();
    let run = [&["run"], TINY, &["--chip", "v5e", "--seq", "256", "--chips", "4"]].concat();
    dir.ok(&[
        &run[..],
        &["--plot", "step.svg", "--links", "links.png", "--trace", "t.pftrace", "--trace-chips", "0,3"],
    ]
    .concat());
    assert_eq!(dir.names(), ["links.csv", "links.png", "step.csv", "step.svg", "t.pftrace"]);
    dir.fails(2, &[&run[..], &["--trace", "t.pftrace", "--trace-chips", "4"]].concat(), &["no chip 4"]);
}
