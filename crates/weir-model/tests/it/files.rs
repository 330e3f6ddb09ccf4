//! Bad files: every header field, cut at every byte, and bytes changed at random. Named errors, no panic, no reservation
//! ahead of the file's size.

use std::sync::Arc;

use weir_model::Threads;
use weir_model::arch::{Arch, Family};
use weir_model::gguf::{Gguf, GgufWriter};
use weir_model::model::Model;
use weir_model::tiny::TinyModel;
use weir_model::tokenizer::Tokenizer;

use crate::{FAMILIES, format, ids};

fn small(family: Family) -> TinyModel {
    let base = TinyModel::new(family, format("Q8_0"));
    TinyModel {
        layers: 1,
        width: 32,
        feed_forward: 32,
        heads: 1,
        key_heads: 1,
        head_width: 32,
        context: 64,
        ..base
    }
}

fn refusal(bytes: Vec<u8>) -> String {
    Gguf::from_bytes(bytes).map(|_| ()).unwrap_err().to_string()
}

/// Uses a file as far as it goes; whatever it says must not panic.
fn use_file(bytes: Vec<u8>) -> Result<(), String> {
    let gguf = Arc::new(Gguf::from_bytes(bytes).map_err(|fault| fault.to_string())?);
    if let Ok(tokenizer) = Tokenizer::from_gguf(&gguf) {
        let ids = tokenizer.encode(b"the <bos> <|im_end|>\xff  and", Default::default());
        assert!(tokenizer.decode(&ids).len() < 10_000);
    }
    let arch = Arch::from_gguf(&gguf).map_err(|fault| fault.to_string())?;
    // Shapes a mutation made huge are as valid as a large model; what is mapped is small, so loading must refuse them.
    let mut model = Model::load(&gguf, 1, &Threads::new(1).map_err(|fault| fault.to_string())?)
        .map_err(|fault| fault.to_string())?;
    model
        .open(1, 16.min(arch.context))
        .map_err(|fault| fault.to_string())?;
    model
        .feed(1, &[1, 2, 3], &mut Vec::new())
        .map_err(|fault| fault.to_string())
}

#[test]
fn a_file_cut_at_any_byte_is_refused() {
    let bytes = small(Family::Gemma3).to_bytes().unwrap();
    use_file(bytes.clone()).unwrap();
    for end in 0..bytes.len() {
        if end > 16_384 && end % 97 != 0 {
            continue;
        }
        assert!(
            use_file(bytes[..end].to_vec()).is_err(),
            "cut at {end} of {}",
            bytes.len()
        );
    }
}

#[test]
fn random_changes_never_panic() {
    for family in FAMILIES {
        let original = small(family).to_bytes().unwrap();
        let mut state = 0x5eed_u64;
        let mut dice = move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(state >> 33).unwrap()
        };
        let (mut refused, mut used) = (0, 0);
        for round in 0..1500 {
            let mut bytes = original.clone();
            // Most of the file is weights; changes there are valid, so aim at the head.
            let head = 14_000.min(bytes.len());
            for _ in 0..=round % 4 {
                let at = dice() % head;
                match dice() % 3 {
                    0 => bytes[at] ^= 1 << (dice() % 8),
                    1 => bytes[at] = 0xff,
                    _ => bytes[at..(at + 8).min(head)].fill(u8::try_from(dice() % 256).unwrap()),
                }
            }
            if use_file(bytes).is_ok() {
                used += 1
            } else {
                refused += 1
            }
        }
        assert!(
            refused > 200 && used > 50,
            "{family:?}: {refused} refused, {used} used"
        );
    }
}

#[test]
fn each_header_field_is_named_when_it_is_wrong() {
    let good = small(Family::Llama).to_bytes().unwrap();
    let with = |at: usize, value: &[u8]| {
        let mut bytes = good.clone();
        bytes[at..at + value.len()].copy_from_slice(value);
        refusal(bytes)
    };
    assert!(with(0, b"GGML").contains("not a GGUF file"));
    assert!(refusal(b"\x7fELF".to_vec()).contains("not a GGUF file"));
    assert!(refusal(Vec::new()).contains("truncated at byte 0"));
    assert!(with(4, &1_u32.to_le_bytes()).contains("version 1 is not supported"));
    assert!(with(4, &3_u32.to_be_bytes()).contains("big-endian"));
    assert!(with(8, &(1_u64 << 60).to_le_bytes()).contains("the tensor directory"));
    assert!(with(16, &(1_u64 << 60).to_le_bytes()).contains("the metadata"));
    assert!(with(24, &(1_u64 << 60).to_le_bytes()).contains("a metadata key"));
    assert!(with(24, &u64::MAX.to_le_bytes()).contains("a metadata key"));
}

/// A file with one tensor whose directory entry is given.
fn one_tensor(rank: u32, dims: &[u64], kind: u32, offset: u64, data: usize) -> Vec<u8> {
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(3_u32.to_le_bytes());
    bytes.extend(1_u64.to_le_bytes());
    bytes.extend(0_u64.to_le_bytes());
    bytes.extend(4_u64.to_le_bytes());
    bytes.extend(b"name");
    bytes.extend(rank.to_le_bytes());
    dims.iter().for_each(|extent| bytes.extend(extent.to_le_bytes()));
    bytes.extend(kind.to_le_bytes());
    bytes.extend(offset.to_le_bytes());
    bytes.resize(bytes.len().next_multiple_of(32) + data, 0);
    bytes
}

#[test]
fn each_field_of_a_tensor_is_named_when_it_is_wrong() {
    assert!(Gguf::from_bytes(one_tensor(2, &[32, 4], 8, 0, 136)).is_ok());
    for (bytes, says) in [
        (one_tensor(5, &[1; 5], 0, 0, 4), "5 dimensions"),
        (one_tensor(0, &[], 0, 0, 64), "0 dimensions"),
        (one_tensor(2, &[32, 4], 99, 0, 136), "unknown type 99"),
        (one_tensor(2, &[33, 4], 8, 0, 1360), "rows of 33 values"),
        (one_tensor(2, &[0, 4], 0, 0, 136), "impossible shape"),
        (one_tensor(2, &[1 << 40, 1 << 40], 0, 0, 136), "impossible shape"),
        (one_tensor(1, &[1 << 60], 0, 0, 136), "beyond the file"),
        (one_tensor(1, &[1 << 63], 0, 0, 136), "beyond the file"),
        (one_tensor(2, &[32, 4], 8, 0, 135), "beyond the file"),
        (one_tensor(2, &[32, 4], 8, 1 << 60, 136), "beyond the file"),
        (one_tensor(2, &[32, 4], 8, u64::MAX, 136), "beyond the file"),
        (one_tensor(2, &[32, 4], 8, 8, 200), "no multiple of the alignment"),
    ] {
        let found = refusal(bytes);
        assert!(
            found.contains("name") && found.contains(says),
            "{found} should say {says}"
        );
    }
}

#[test]
fn each_kind_of_metadata_fault_is_named() {
    let file = |value: &[u8]| {
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(3_u32.to_le_bytes());
        bytes.extend(0_u64.to_le_bytes());
        bytes.extend(1_u64.to_le_bytes());
        bytes.extend(1_u64.to_le_bytes());
        bytes.extend(b"k");
        bytes.extend(value);
        bytes.resize(bytes.len() + 64, 0);
        refusal(bytes)
    };
    let array = |kind: u32, count: u64| {
        [
            9_u32.to_le_bytes().to_vec(),
            kind.to_le_bytes().to_vec(),
            count.to_le_bytes().to_vec(),
        ]
        .concat()
    };
    assert!(file(&13_u32.to_le_bytes()).contains("value type 13 does not exist"));
    assert!(file(&[7, 0, 0, 0, 2]).contains("a boolean holds 2"));
    assert!(file(&array(0, 1 << 60)).contains("an array in the metadata"));
    assert!(file(&array(12, 1 << 62)).contains("an array in the metadata"));
    assert!(file(&array(8, 1 << 60)).contains("an array in the metadata"));
    assert!(file(&array(9, 1)).contains("arrays of arrays"));
    assert!(file(&[8, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe]).contains("not UTF-8"));
}

#[test]
fn unknown_architectures_types_and_tokenizers_are_named() {
    let mut writer = GgufWriter::default();
    writer.text("general.architecture", "mamba");
    writer.text("tokenizer.ggml.model", "t5");
    let mut bytes = Vec::new();
    writer.write(&mut bytes).unwrap();
    let gguf = Gguf::from_bytes(bytes).unwrap();
    let found = Arch::from_gguf(&gguf).unwrap_err().to_string();
    assert!(found.contains("\"mamba\"") && found.contains("qwen3"), "{found}");
    assert!(
        Tokenizer::from_gguf(&gguf)
            .unwrap_err()
            .to_string()
            .contains("\"t5\"")
    );
    let tiny = TinyModel::new(Family::Llama, format("Q5_K"));
    let found = use_file(tiny.to_bytes().unwrap()).unwrap_err();
    assert!(found.contains("Q5_K") && found.contains("no kernel"), "{found}");
}

#[test]
fn a_model_larger_than_memory_is_refused_with_numbers() {
    // The directory may only name data that is there, so the file is sparse.
    let (rows, columns) = (1_u64 << 28, 4096_u64);
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut tiny = TinyModel::new(Family::Llama, format("Q4_0"));
    tiny.layers = 1;
    let mut bytes = tiny.to_bytes().unwrap();
    let name = b"blk.0.attn_q.weight";
    let at = bytes
        .windows(name.len())
        .position(|window| window == name)
        .unwrap()
        + name.len()
        + 4;
    bytes[at..at + 8].copy_from_slice(&columns.to_le_bytes());
    bytes[at + 8..at + 16].copy_from_slice(&rows.to_le_bytes());
    std::fs::write(file.path(), &bytes).unwrap();
    file.as_file()
        .set_len(bytes.len() as u64 + rows * columns / 32 * 18)
        .unwrap();
    let gguf = Arc::new(Gguf::open(file.path()).unwrap());
    let found = Model::load(&gguf, 1, &Threads::new(1).unwrap())
        .unwrap_err()
        .to_string();
    assert!(
        found.contains("not enough memory") && found.contains("MiB are free"),
        "{found}"
    );
}

#[test]
fn what_was_written_is_read_back() {
    let tiny = TinyModel {
        template: Some("hi".to_owned()),
        ..small(Family::Qwen3)
    };
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), tiny.to_bytes().unwrap()).unwrap();
    let gguf = Gguf::open(file.path()).unwrap();
    assert_eq!(gguf.text("tokenizer.chat_template"), Some("hi"));
    assert_eq!(gguf.integer("qwen3.embedding_length"), Some(32));
    assert_eq!(gguf.tensor("blk.0.attn_q.weight").unwrap().dims, [32, 32]);
    assert!(
        Gguf::open("/does/not/exist".as_ref())
            .unwrap_err()
            .to_string()
            .contains("/does/not/exist")
    );
    assert!(
        Gguf::open(std::env::temp_dir().as_path())
            .unwrap_err()
            .to_string()
            .contains("not a regular file")
    );
    assert_eq!(ids(3, 0).len(), 3);
}
