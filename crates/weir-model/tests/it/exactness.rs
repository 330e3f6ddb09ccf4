//! Bit equality: no cut, chunk, batch, neighbour, thread count or instruction set changes a logit.

use std::sync::Arc;

use weir_model::arch::Family;
use weir_model::gguf::Gguf;
use weir_model::kernels::Isa;
use weir_model::model::Model;
use weir_model::{Row, Stage, StageError, StageSpec, Threads};

use crate::{FAMILIES, ids, mixed, opened};

fn threads(count: usize) -> Threads {
    Threads::new(count).unwrap()
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|logit| logit.to_bits()).collect()
}

/// Feeds a prompt in pieces, then more ids one by one, and returns the logits behind each piece.
fn run(model: &mut Model, sequence: u64, prompt: &[u32], chunk: usize, forced: &[u32]) -> Vec<u32> {
    let mut logits = Vec::new();
    model.open(sequence, 400).unwrap();
    for piece in prompt.chunks(chunk) {
        model.feed(sequence, piece, &mut logits).unwrap();
    }
    let mut all = bits(&logits);
    for id in forced {
        model.feed(sequence, &[*id], &mut logits).unwrap();
        all.extend(bits(&logits));
    }
    model.close(sequence);
    all
}

fn whole(gguf: &Arc<Gguf>) -> Model {
    Model::load(gguf, 1, &threads(1)).unwrap()
}

#[test]
fn every_cut_into_one_to_four_stages_gives_the_same_bits() {
    for family in FAMILIES {
        let gguf = opened(&mixed(family));
        let expected = run(&mut whole(&gguf), 1, &ids(20, 1), 20, &ids(4, 2));
        // One cut anywhere, then a second and a third: with empty stages at the start, in the middle and before the head.
        let last = mixed(family).layers;
        let one = (0..=last).map(|cut| vec![cut]);
        let more = [
            vec![0, 1],
            vec![1, last],
            vec![0, 1, 1],
            vec![1, last / 2 + 1, last],
        ];
        for cuts in one.chain(more) {
            let mut cut = Model::load_cut(&gguf, &cuts, &threads(1)).unwrap();
            assert!(
                run(&mut cut, 1, &ids(20, 1), 20, &ids(4, 2)) == expected,
                "{family:?} cut at {cuts:?}"
            );
        }
    }
}

#[test]
fn every_chunking_of_a_prompt_gives_the_same_bits() {
    for family in FAMILIES {
        let gguf = opened(&mixed(family));
        let mut model = whole(&gguf);
        let expected = run(&mut model, 1, &ids(200, 1), 200, &ids(3, 2));
        for chunk in [1, 7, 128, 129, 199] {
            assert!(
                run(&mut model, 2, &ids(200, 1), chunk, &ids(3, 2)) == expected,
                "{family:?} by {chunk}"
            );
        }
    }
}

#[test]
fn eight_sequences_in_a_batch_are_each_as_if_alone() {
    for family in FAMILIES {
        let gguf = opened(&mixed(family));
        let mut model = whole(&gguf);
        let prompt = |sequence: u64| {
            ids(
                5 + 3 * usize::try_from(sequence).unwrap(),
                usize::try_from(sequence).unwrap(),
            )
        };
        let alone: Vec<Vec<u32>> = (0..8)
            .map(|sequence| run(&mut model, sequence, &prompt(sequence), 99, &ids(5, 9)))
            .collect();
        let mut together = vec![Vec::new(); 8];
        let mut logits = Vec::new();
        for sequence in 0..8 {
            model.open(sequence, 400).unwrap();
            model.feed(sequence, &prompt(sequence), &mut logits).unwrap();
            together[usize::try_from(sequence).unwrap()].extend(bits(&logits));
        }
        for (step, id) in ids(5, 9).into_iter().enumerate() {
            let row = |sequence: u64| Row {
                sequence,
                position: prompt(sequence).len() + step,
            };
            let rows: Vec<Row> = (0..8).map(row).collect();
            model
                .step(&rows, &[id; 8], &[0, 1, 2, 3, 4, 5, 6, 7], &mut logits)
                .unwrap();
            let vocabulary = model.arch().vocabulary;
            for (all, logits) in together.iter_mut().zip(logits.chunks(vocabulary)) {
                all.extend(bits(logits));
            }
        }
        assert!(together == alone, "{family:?}");
    }
}

#[test]
fn threads_and_instruction_sets_change_nothing() {
    for family in FAMILIES {
        let gguf = opened(&mixed(family));
        let mut all = Vec::new();
        for isa in Isa::available() {
            for count in [1, 3] {
                let mut stage = Stage::load_with(
                    &gguf,
                    StageSpec::whole(mixed(family).layers),
                    &threads(count),
                    *isa,
                )
                .unwrap();
                stage.open(1, 64).unwrap();
                let mut hidden = stage.embed(&ids(9, 4)).unwrap();
                let rows: Vec<Row> = (0..9)
                    .map(|position| Row {
                        sequence: 1,
                        position,
                    })
                    .collect();
                stage.forward(&rows, &mut hidden).unwrap();
                let mut logits = Vec::new();
                stage.head(&hidden, &mut logits).unwrap();
                all.push(bits(&logits));
            }
        }
        assert!(all.windows(2).all(|pair| pair[0] == pair[1]), "{family:?}");
    }
}

#[test]
fn a_sequence_taken_back_goes_on_as_if_it_had_never_gone_further() {
    for family in FAMILIES {
        let gguf = opened(&mixed(family));
        let mut model = whole(&gguf);
        let mut expected = Vec::new();
        model.open(1, 100).unwrap();
        model.feed(1, &ids(30, 1), &mut expected).unwrap();
        model.feed(1, &[7], &mut expected).unwrap();
        let mut found = Vec::new();
        model.open(2, 40).unwrap();
        model.feed(2, &ids(30, 1), &mut found).unwrap();
        model.feed(2, &ids(10, 8), &mut found).unwrap();
        model.grow(2, 200).unwrap();
        assert!(model.truncate(2, 30));
        model.feed(2, &[7], &mut found).unwrap();
        assert_eq!(bits(&found), bits(&expected), "{family:?}");
    }
}

#[test]
fn a_window_that_has_moved_on_cannot_be_taken_back() {
    let gguf = opened(&mixed(Family::Gemma3));
    let mut model = whole(&gguf);
    let mut logits = Vec::new();
    model.open(1, 400).unwrap();
    model.feed(1, &ids(300, 1), &mut logits).unwrap();
    assert!(
        !model.truncate(1, 20),
        "the ring of 144 slots no longer holds what position 20 sees"
    );
    assert!(model.truncate(1, 290));
    assert!(
        !model.truncate(1, 165),
        "positions 150 to 155 were overwritten before it was taken back to 290"
    );
    assert!(!model.truncate(1, 291), "a sequence cannot be taken forward");
}

#[test]
fn wrong_rows_are_refused_and_change_nothing() {
    let gguf = opened(&mixed(Family::Llama));
    let mut stage = Stage::load(&gguf, StageSpec::whole(2), &threads(1)).unwrap();
    stage.open(1, 8).unwrap();
    let mut hidden = stage.embed(&[1]).unwrap();
    let mut try_row = |sequence, position| stage.forward(&[Row { sequence, position }], &mut hidden);
    assert_eq!(try_row(2, 0), Err(StageError::Unknown(2)));
    assert_eq!(
        try_row(1, 1),
        Err(StageError::Position {
            sequence: 1,
            at: 0,
            position: 1
        })
    );
    for position in 0..8 {
        assert_eq!(try_row(1, position), Ok(()));
    }
    assert_eq!(try_row(1, 8), Err(StageError::Context { asked: 9, most: 8 }));
    assert_eq!(stage.open(1, 8), Err(StageError::Open(1)));
    assert_eq!(
        stage.open(2, 1 << 20),
        Err(StageError::Context {
            asked: 1 << 20,
            most: 512
        })
    );
    assert_eq!(
        stage.embed(&[1 << 20]).unwrap_err(),
        StageError::Token {
            id: 1 << 20,
            vocabulary: 268
        }
    );
    assert_eq!(
        stage.forward(&[], &mut [0.0]),
        Err(StageError::Shape {
            rows: 0,
            need: 0,
            have: 1
        })
    );
}

#[test]
fn a_stage_holds_only_its_part() {
    let gguf = opened(&mixed(Family::Gemma3));
    let middle = StageSpec {
        layers: 2..4,
        embedding: false,
        head: false,
    };
    let mut middle = Stage::load(&gguf, middle, &threads(1)).unwrap();
    assert_eq!(middle.embed(&[1]), Err(StageError::Missing("embeddings")));
    assert_eq!(
        middle.head(&[0.0; 256], &mut Vec::new()),
        Err(StageError::Missing("head"))
    );
    let whole = whole(&gguf);
    assert!(middle.loaded_bytes() * 3 < whole.loaded_bytes());
    let nothing = StageSpec {
        layers: 5..9,
        embedding: false,
        head: false,
    };
    assert!(
        Stage::load(&gguf, nothing, &threads(1))
            .unwrap_err()
            .to_string()
            .contains("layers 5..9 do not exist")
    );
}
