//! Each kernel against its scalar twin, bit for bit, and the twin against plain floats.

use super::format::{Format, TILE_ROWS};
use super::matrix::multiply_tile;
use super::pool::Pool;
use super::vector::{float_to_half, half_to_float};
use super::{Activations, Isa, Job, Matrix, Output, multiply, read_row};

/// Pseudo-random bytes by seed.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    fn float(&mut self) -> f32 {
        f32::from(u16::from_le_bytes([self.byte(), self.byte()])) / 32_768.0 - 1.0
    }
}

/// A matrix of valid blocks: random quants, scales of ordinary size.
fn weights(format: Format, rows: usize, columns: usize, dice: &mut Dice) -> Vec<u8> {
    let kind = crate::gguf::TensorType::from_id(format.type_id()).unwrap();
    let blocks = rows * columns / usize::try_from(kind.block_values).unwrap();
    let scale = |dice: &mut Dice| float_to_half(0.01 * dice.float()).to_le_bytes();
    let mut data = Vec::new();
    for _ in 0..blocks {
        let mut block: Vec<u8> = (0..kind.block_bytes).map(|_| dice.byte()).collect();
        match format {
            Format::F32 => block = dice.float().to_le_bytes().to_vec(),
            Format::F16 => block = float_to_half(dice.float()).to_le_bytes().to_vec(),
            Format::Q4K => {
                block[..2].copy_from_slice(&scale(dice));
                block[2..4].copy_from_slice(&scale(dice));
            }
            Format::Q6K => block[208..].copy_from_slice(&scale(dice)),
            _ => block[..2].copy_from_slice(&scale(dice)),
        }
        data.extend(block);
    }
    data
}

fn input(rows: usize, columns: usize, dice: &mut Dice) -> Activations {
    let mut input = Activations::default();
    input.resize(rows, columns);
    input
        .floats_mut()
        .iter_mut()
        .for_each(|value| *value = 3.0 * dice.float());
    input.quantize(&Pool::new(1).unwrap(), Isa::available()[0]);
    input
}

fn product(isa: Isa, threads: usize, matrix: &Matrix, input: &Activations, rows: usize) -> Vec<f32> {
    let mut out = vec![0.0; rows * matrix.rows()];
    let pool = Pool::new(threads).unwrap();
    let job = Job {
        matrix,
        out: Output::new(&mut out, matrix.rows()),
    };
    multiply(&pool, isa, input, &[job]);
    out
}

#[test]
fn all_instruction_sets_and_thread_counts_give_the_same_bits() {
    let mut dice = Dice(1);
    for format in Format::ALL {
        for (rows, columns) in [(16, 256), (37, 768), (200, 512)] {
            let data = weights(format, rows, columns, &mut dice);
            let matrix = Matrix::pack(format, &data, rows, columns).unwrap();
            let input = input(19, columns, &mut dice);
            let twin = product(Isa::available()[0], 1, &matrix, &input, 19);
            for isa in Isa::available() {
                for threads in [1, 3] {
                    let bits =
                        |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
                    let found = product(*isa, threads, &matrix, &input, 19);
                    assert_eq!(
                        bits(&found),
                        bits(&twin),
                        "{format:?} {} {rows}x{columns}",
                        isa.name()
                    );
                }
            }
        }
    }
}

#[test]
fn a_row_does_not_depend_on_its_batch() {
    let mut dice = Dice(2);
    for format in Format::ALL {
        let data = weights(format, 16, 512, &mut dice);
        let matrix = Matrix::pack(format, &data, 16, 512).unwrap();
        let all = input(15, 512, &mut dice);
        for isa in Isa::available() {
            let together = product(*isa, 1, &matrix, &all, 15);
            for row in 0..15 {
                let mut alone = Activations::default();
                alone.resize(1, 512);
                alone
                    .floats_mut()
                    .copy_from_slice(&all.floats[row * 512..(row + 1) * 512]);
                alone.quantize(&Pool::new(1).unwrap(), *isa);
                assert_eq!(
                    product(*isa, 1, &matrix, &alone, 1),
                    together[row * 16..(row + 1) * 16]
                );
            }
        }
    }
}

#[test]
fn the_scalar_twin_is_the_product_of_what_the_file_says() {
    let mut dice = Dice(3);
    for format in Format::ALL {
        let (rows, columns) = (16, 512);
        let data = weights(format, rows, columns, &mut dice);
        let matrix = Matrix::pack(format, &data, rows, columns).unwrap();
        let input = input(3, columns, &mut dice);
        let found = product(Isa::available()[0], 1, &matrix, &input, 3);
        let mut weights = vec![0.0; columns];
        for (row, data) in data.chunks_exact(data.len() / rows).enumerate() {
            read_row(format, data, &mut weights);
            for at in 0..3 {
                let values = &input.floats[at * columns..(at + 1) * columns];
                let exact: f64 = values
                    .iter()
                    .zip(&weights)
                    .map(|(a, b)| f64::from(*a) * f64::from(*b))
                    .sum();
                let size: f64 = values
                    .iter()
                    .zip(&weights)
                    .map(|(a, b)| f64::from((a * b).abs()))
                    .sum();
                let found = f64::from(found[at * rows + row]);
                assert!(
                    (found - exact).abs() < 0.004 * size + 1e-6,
                    "{format:?} row {row}: {found} for {exact}"
                );
            }
        }
    }
}

#[test]
fn the_extremes_of_eight_bit_weights_do_not_saturate() {
    let columns = 64;
    let block: Vec<u8> = [0x00, 0x3c].into_iter().chain([0x80; 32]).collect();
    let data = block.repeat(columns / 32 * TILE_ROWS);
    let matrix = Matrix::pack(Format::Q8_0, &data, TILE_ROWS, columns).unwrap();
    let mut input = Activations::default();
    input.resize(1, columns);
    input.floats_mut().fill(127.0);
    for isa in Isa::available() {
        input.quantize(&Pool::new(1).unwrap(), *isa);
        let mut out = [[0.0; TILE_ROWS]];
        multiply_tile(*isa, Format::Q8_0, matrix.first_tile(), &input, 0, &mut out);
        assert_eq!(out[0], [-128.0 * 127.0 * 64.0; TILE_ROWS], "{}", isa.name());
    }
}

#[test]
fn halves_convert_as_ieee_says() {
    for (half, float) in [
        (0x3c00, 1.0),
        (0xc000, -2.0),
        (0x0001, 5.960_464_5e-8),
        (0x7bff, 65_504.0),
        (0x8000, -0.0),
    ] {
        assert_eq!(half_to_float(half).to_bits(), f32::to_bits(float));
        assert_eq!(float_to_half(float), half);
    }
    assert!(half_to_float(0x7c00).is_infinite() && half_to_float(0x7e00).is_nan());
    for half in (0..0x7c00).chain(0x8000..0xfc00) {
        assert_eq!(float_to_half(half_to_float(half)), half);
    }
}

#[test]
fn the_exponential_is_close_to_the_library() {
    for step in -8700..=8800 {
        let x = f32::from(i16::try_from(step).unwrap()) / 100.0;
        let (found, exact) = (f64::from(super::vector::exp(x)), f64::from(x).exp());
        assert!(
            (found - exact).abs() <= 3e-7 * exact,
            "e^{x} is {exact}, found {found}"
        );
    }
    assert_eq!(super::vector::exp(f32::NEG_INFINITY).to_bits(), 0);
}
