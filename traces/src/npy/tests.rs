use super::*;

/// A file with the given dictionary, made without the writer.
fn file(dict: &str, data: &[u8]) -> Vec<u8> {
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend((dict.len() as u16).to_le_bytes());
    out.extend(dict.bytes());
    out.extend(data);
    out
}

fn message(bytes: &[u8]) -> String {
    read_from(bytes).unwrap_err().to_string()
}

// Oracle: the bytes that numpy 2.4 with ml_dtypes 0.6 saves for zeros((2, 3), bfloat16).
#[test]
fn writes_what_numpy_writes() {
    let array = NpyArray::new(DType::BF16, &[2, 3], vec![0; 12]).unwrap();
    let mut expected = b"\x93NUMPY\x01\x00v\x00{'descr': '<V2', 'fortran_order': False, 'shape': (2, 3), }".to_vec();
    expected.resize(127, b' ');
    expected.push(b'\n');
    expected.extend([0; 12]);
    assert_eq!(array.to_bytes(), expected);
    for (dtype, text) in [
        (DType::I1, "|b1"),
        (DType::I4, "<V1"),
        (DType::F8E4M3FN, "<V1"),
        (DType::I8, "|i1"),
        (DType::U32, "<u4"),
        (DType::F16, "<f2"),
        (DType::F64, "<f8"),
        (DType::C64, "<c8"),
    ] {
        assert_eq!(Descr::of(dtype).to_string(), text);
    }
}

// Oracle: what went in.
#[test]
fn round_trips_every_type_and_rank() {
    for dtype in DType::ALL {
        for shape in [&[][..], &[3], &[2, 0, 4], &[2, 3, 1]] {
            let n: usize = shape.iter().product();
            let data: Vec<u8> = (0..n * dtype.bytes()).map(|i| if *dtype == DType::I1 { 1 } else { i as u8 }).collect();
            let array = NpyArray::new(*dtype, shape, data).unwrap();
            let back = read_from(array.to_bytes().as_slice()).unwrap();
            assert_eq!(back, array);
            let wanted: Vec<i64> = shape.iter().map(|d| *d as i64).collect();
            fits(&back, *dtype, &wanted).unwrap();
        }
    }
}

// Oracle: the definition of Fortran order, element (i, j) of a (2, 3) array at i + 2 j, and of big-endian.
#[test]
fn normalizes_order_and_endianness() {
    let data: Vec<u8> = (0..6u16).flat_map(u16::to_be_bytes).collect();
    let a = read_from(&*file("{'descr': '>u2', 'fortran_order': True, 'shape': (2, 3)}\n", &data)).unwrap();
    let c: Vec<u8> = [0u16, 2, 4, 1, 3, 5].iter().flat_map(|v| v.to_le_bytes()).collect();
    assert_eq!((a.descr.to_string().as_str(), a.data), ("<u2", c));
    let z = read_from(&*file("{'shape': (1L,), 'descr': '>c8', 'fortran_order': False, }", &[1, 2, 3, 4, 5, 6, 7, 8]));
    assert_eq!(z.unwrap().data, [4, 3, 2, 1, 8, 7, 6, 5]);
    let b = read_from(&*file("{\"descr\": \"|b1\", 'fortran_order': False, 'shape': (3,)}", &[0, 1, 7])).unwrap();
    assert_eq!(b.data, [0, 1, 1]);
    let v = read_from(&*file("{'descr': '|V2', 'fortran_order': False, 'shape': ()}", &[1, 2])).unwrap();
    assert_eq!(v.data, [1, 2]);
}

// Oracle: the format's description of versions 2 and 3: a 4-byte length.
#[test]
fn reads_later_versions() {
    let dict = b"{'descr': '|u1', 'fortran_order': False, 'shape': (1,)}";
    for version in [2, 3] {
        let mut bytes = b"\x93NUMPY".to_vec();
        bytes.extend([version, 0]);
        bytes.extend((dict.len() as u32).to_le_bytes());
        bytes.extend(dict);
        bytes.push(9);
        assert_eq!(read_from(bytes.as_slice()).unwrap().data, [9]);
        bytes[6] = 4;
        assert!(message(&bytes).contains("version 4.0"));
        bytes[6] = 2;
        bytes[11] = 0xff;
        assert!(message(&bytes).contains("at most"), "{}", message(&bytes));
    }
}

// Oracle: the cause in each message. No case may panic or allocate by the claimed size.
#[test]
fn refuses_bad_files() {
    assert!(message(b"PK\x03\x04....").contains("not an .npy file"));
    assert!(message(b"").contains("not an .npy file"));
    assert!(message(b"\x93NUM").contains("truncated"));
    let cases = [
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (4,)}", "data needs 16 bytes, 3 are there"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,)}", "data needs 8000000000000 bytes"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", "too large"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999999999,)}", "a dimension"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}", "a dimension"),
        ("{'descr': '<f8', 'fortran_order': 1, 'shape': (1,)}", "True or False"),
        ("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", "`|O`"),
        ("{'descr': '<U3', 'fortran_order': False, 'shape': (1,)}", "`<U3`"),
        ("{'descr': '<f16', 'fortran_order': False, 'shape': (1,)}", "`<f16`"),
        ("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", "structured"),
        ("{'descr': '<f4', 'shape': (1,)}", "no `fortran_order`"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x", "the end"),
        ("{'descr': '<f4, 'fortran_order", "found"),
        ("{'descr': '<f4'", "`}`"),
        ("{'descr': '|u1', 'fortran_order': False, 'shape': (2,)}", "more bytes"),
    ];
    for (dict, part) in cases {
        let text = message(&file(dict, &[1, 2, 3]));
        assert!(text.contains(part), "{dict}: {text}");
    }
    let many = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({})}}", "1, ".repeat(100));
    assert!(message(&file(&many, &[1])).contains("64 dimensions"));
    let good = NpyArray::new(DType::F32, &[2], vec![0; 8]).unwrap().to_bytes();
    for end in 0..good.len() {
        assert!(read_from(&good[..end]).is_err(), "prefix of {end} bytes");
    }
    assert!(NpyArray::new(DType::F32, &[2], vec![0; 7]).is_err());
}

// Oracle: the table in the module's documentation.
#[test]
fn the_parameter_decides_how_a_file_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("in0.npy");
    NpyArray::new(DType::U16, &[2, 2], vec![0; 8]).unwrap().write(&path).unwrap();
    read_as(&path, DType::BF16, &[2, 2]).unwrap();
    read_as(&path, DType::U16, &[2, 2]).unwrap();
    let text = read_as(&path, DType::F32, &[2, 3]).unwrap_err().to_string();
    for part in ["in0.npy", "f32[2, 3]", "<f4", "<u2 of shape (2, 2)"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(read_as(&path, DType::F16, &[2, 2]).is_err());
    assert!(read_as(&path, DType::BF16, &[4]).is_err());
    assert!(read_as(&path, DType::BF16, &[2, -2]).is_err());
    let bytes = NpyArray::new(DType::U8, &[1], vec![1]).unwrap();
    fits(&bytes, DType::F8E5M2, &[1]).unwrap();
    fits(&bytes, DType::U4, &[1]).unwrap();
    assert!(fits(&bytes, DType::I1, &[1]).is_err());
    assert!(fits(&bytes, DType::I4, &[1]).is_err());
    let gone = read(&dir.path().join("none.npy")).unwrap_err().to_string();
    assert!(gone.contains("none.npy"), "{gone}");
}

// Oracle: shapes and types that each fixture's meta.json lists.
#[test]
fn reads_the_fixtures() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/fixtures");
    let Ok(folders) = std::fs::read_dir(&root) else {
        let mut err = io::stderr();
        let _ = io::Write::write_fmt(&mut err, format_args!("skipped: no {}\n", root.display()));
        return;
    };
    let mut seen = 0;
    for folder in folders.flatten() {
        let Ok(text) = std::fs::read_to_string(folder.path().join("meta.json")) else { continue };
        let meta: serde_json::Value = serde_json::from_str(&text).unwrap();
        for entry in ["inputs", "outputs"].iter().flat_map(|k| meta[*k].as_array().cloned().unwrap_or_default()) {
            let path = folder.path().join(entry["file"].as_str().unwrap());
            let shape: Vec<i64> = entry["shape"].as_array().unwrap().iter().map(|d| d.as_i64().unwrap()).collect();
            let dtype = match entry["dtype"].as_str().unwrap() {
                "bfloat16" => DType::BF16,
                "float32" => DType::F32,
                "float16" => DType::F16,
                "int32" => DType::I32,
                "uint32" => DType::U32,
                "int8" => DType::I8,
                "uint8" => DType::U8,
                "bool" => DType::I1,
                "float8_e4m3fn" => DType::F8E4M3FN,
                "float8_e5m2" => DType::F8E5M2,
                other => panic!("{}: {other}", path.display()),
            };
            read_as(&path, dtype, &shape).unwrap();
            seen += 1;
        }
    }
    assert!(seen > 100, "{seen}");
}

// Oracle: no panic and no array larger than its file, for files changed at random places.
#[test]
fn survives_damaged_files() {
    let array = NpyArray::new(DType::F32, &[3, 2], (0..24).collect()).unwrap();
    let good = file("{'descr': '>f4', 'fortran_order': True, 'shape': (3, 2), }", &array.data);
    let mut state = 1u64;
    let mut random = move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize
    };
    let alphabet = b"0123456789'(),{}:<>|iufcVbL[]TF \x00\xff";
    let mut read = 0;
    for _ in 0..20_000 {
        let mut bad = good.clone();
        for _ in 0..=random() % 4 {
            let at = random() % bad.len();
            bad[at] = alphabet[random() % alphabet.len()];
        }
        bad.truncate(bad.len() - 20 + random() % 200);
        if let Ok(a) = read_from(bad.as_slice()) {
            assert!(a.data.len() <= bad.len());
            read += 1;
        }
    }
    assert!(read > 1000, "only {read} files were still files");
}
