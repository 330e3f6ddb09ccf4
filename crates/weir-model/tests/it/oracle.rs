//! A forward in plain double-precision loops, written from the description of the architectures and sharing no code with the
//! engine: what the engine must agree with where llama.cpp cannot tell.

use weir_model::Threads;
use weir_model::arch::{Activation, Arch, Family};
use weir_model::gguf::Gguf;
use weir_model::model::Model;
use weir_model::tiny::TinyModel;

use crate::{FAMILIES, format, ids, opened};

struct Oracle<'a> {
    gguf: &'a Gguf,
    arch: Arch,
    window: Option<usize>,
}

impl Oracle<'_> {
    fn tensor(&self, name: &str) -> Vec<f64> {
        let tensor = self.gguf.tensor(name).unwrap();
        assert_eq!(tensor.kind.name, "F32");
        self.gguf
            .data(tensor)
            .as_chunks::<4>()
            .0
            .iter()
            .map(|bytes| f64::from(f32::from_le_bytes(*bytes)))
            .collect()
    }

    fn apply(&self, name: &str, x: &[f64]) -> Vec<f64> {
        self.tensor(name)
            .chunks(x.len())
            .map(|row| row.iter().zip(x).map(|(a, b)| a * b).sum())
            .collect()
    }

    fn norm(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let weight = self.tensor(name);
        let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
        let scale = 1.0 / (mean + f64::from(self.arch.epsilon)).sqrt();
        x.iter()
            .zip(weight)
            .map(|(x, weight)| x * scale * weight)
            .collect()
    }

    fn rotate(&self, head: &mut [f64], position: usize, windowed: bool) {
        let base = f64::from(if windowed {
            self.arch.rope_windowed.base
        } else {
            self.arch.rope.base
        });
        let half = head.len() / 2;
        for pair in 0..half {
            let angle = position as f64 * base.powf(-(pair as f64) / half as f64);
            let (a, b) = if self.arch.family == Family::Llama {
                (2 * pair, 2 * pair + 1)
            } else {
                (pair, pair + half)
            };
            let (x, y) = (head[a], head[b]);
            head[a] = x * angle.cos() - y * angle.sin();
            head[b] = x * angle.sin() + y * angle.cos();
        }
    }

    fn logits(&self, ids: &[u32]) -> Vec<f64> {
        let arch = &self.arch;
        let table = self.tensor("token_embd.weight");
        let scale = if arch.family == Family::Gemma3 {
            (arch.width as f64).sqrt()
        } else {
            1.0
        };
        let embed = |id: &u32| {
            table[*id as usize * arch.width..][..arch.width]
                .iter()
                .map(|x| x * scale)
                .collect()
        };
        let mut rows: Vec<Vec<f64>> = ids.iter().map(embed).collect();
        for layer in 0..arch.layers {
            self.layer(layer, &mut rows);
        }
        let last = self.norm("output_norm.weight", rows.last().unwrap());
        let head = if self.gguf.tensor("output.weight").is_some() {
            "output.weight"
        } else {
            "token_embd.weight"
        };
        self.apply(head, &last)
    }

    fn layer(&self, layer: usize, rows: &mut [Vec<f64>]) {
        let name = |part: &str| format!("blk.{layer}.{part}");
        let has = |part: &str| self.gguf.tensor(&name(part)).is_some();
        let gemma = self.arch.family == Family::Gemma3;
        let windowed = gemma && !(layer + 1).is_multiple_of(6);
        let project = |part: &str, x: &[f64], position: Option<usize>| {
            let mut out = self.apply(&name(&format!("attn_{part}.weight")), x);
            if has(&format!("attn_{part}.bias")) {
                let bias = self.tensor(&name(&format!("attn_{part}.bias")));
                out.iter_mut().zip(bias).for_each(|(out, bias)| *out += bias);
            }
            for head in out.chunks_mut(self.arch.head_width) {
                let Some(position) = position else { break };
                if has(&format!("attn_{part}_norm.weight")) {
                    head.copy_from_slice(&self.norm(&name(&format!("attn_{part}_norm.weight")), head));
                }
                self.rotate(head, position, windowed);
            }
            out
        };
        let normed: Vec<Vec<f64>> = rows
            .iter()
            .map(|x| self.norm(&name("attn_norm.weight"), x))
            .collect();
        let take = |part: &str, turn: bool| -> Vec<Vec<f64>> {
            normed
                .iter()
                .enumerate()
                .map(|(at, x)| project(part, x, turn.then_some(at)))
                .collect()
        };
        let (queries, keys, values) = (take("q", true), take("k", true), take("v", false));
        for (at, x) in rows.iter_mut().enumerate() {
            let first = self
                .window
                .filter(|_| windowed)
                .map_or(0, |window| (at + 1).saturating_sub(window));
            let attended = self.attend(&queries[at], &keys[first..=at], &values[first..=at]);
            let mut out = self.apply(&name("attn_output.weight"), &attended);
            if gemma {
                out = self.norm(&name("post_attention_norm.weight"), &out);
            }
            x.iter_mut().zip(out).for_each(|(x, out)| *x += out);
            let normed = self.norm(&name("ffn_norm.weight"), x);
            let (gate, up) = (
                self.apply(&name("ffn_gate.weight"), &normed),
                self.apply(&name("ffn_up.weight"), &normed),
            );
            let inner: Vec<f64> = gate
                .iter()
                .zip(up)
                .map(|(gate, up)| self.activate(*gate) * up)
                .collect();
            let mut out = self.apply(&name("ffn_down.weight"), &inner);
            if gemma {
                out = self.norm(&name("post_ffw_norm.weight"), &out);
            }
            x.iter_mut().zip(out).for_each(|(x, out)| *x += out);
        }
    }

    fn activate(&self, x: f64) -> f64 {
        match self.arch.activation {
            Activation::Gelu => {
                0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh())
            }
            Activation::Silu => x / (1.0 + (-x).exp()),
        }
    }

    fn attend(&self, query: &[f64], keys: &[Vec<f64>], values: &[Vec<f64>]) -> Vec<f64> {
        let width = self.arch.head_width;
        let group = self.arch.heads / self.arch.key_heads;
        let head = |(index, query): (usize, &[f64])| {
            let place = index / group * width;
            let score = |key: &Vec<f64>| {
                let dot: f64 = query
                    .iter()
                    .zip(&key[place..place + width])
                    .map(|(a, b)| a * b)
                    .sum();
                (dot / (width as f64).sqrt()).exp()
            };
            let weights: Vec<f64> = keys.iter().map(score).collect();
            let total: f64 = weights.iter().sum();
            (0..width).map(move |at| {
                let sum: f64 = weights
                    .iter()
                    .zip(values)
                    .map(|(weight, value)| weight * value[place + at])
                    .sum();
                sum / total
            })
        };
        query
            .chunks(width)
            .enumerate()
            .flat_map(|head_query| head(head_query).collect::<Vec<_>>())
            .collect()
    }
}

fn engine(gguf: &std::sync::Arc<Gguf>, ids: &[u32]) -> Vec<f32> {
    let mut model = Model::load(gguf, 1, &Threads::new(1).unwrap()).unwrap();
    let mut logits = Vec::new();
    model.open(1, ids.len()).unwrap();
    model.feed(1, ids, &mut logits).unwrap();
    logits
}

fn difference(found: &[f32], exact: &[f64]) -> f64 {
    found
        .iter()
        .zip(exact)
        .map(|(a, b)| (f64::from(*a) - b).abs())
        .fold(0.0, f64::max)
}

#[test]
fn float_models_of_all_families_agree_with_plain_loops() {
    for family in FAMILIES {
        let gguf = opened(&TinyModel::new(family, format("F32")));
        let arch = Arch::from_gguf(&gguf).unwrap();
        let oracle = Oracle {
            gguf: &gguf,
            window: arch.window,
            arch,
        };
        let ids = ids(40, 3);
        let worst = difference(&engine(&gguf, &ids), &oracle.logits(&ids));
        assert!(worst < 2e-3, "{family:?} is off by {worst}");
    }
}

#[test]
fn the_window_ends_exactly_where_it_should() {
    let tiny = TinyModel {
        window: 12,
        ..TinyModel::new(Family::Gemma3, format("F32"))
    };
    let gguf = opened(&tiny);
    for length in [11, 12, 13, 14, 40] {
        let ids = ids(length, 5);
        let found = engine(&gguf, &ids);
        let with = |window| {
            let arch = Arch::from_gguf(&gguf).unwrap();
            difference(
                &found,
                &Oracle {
                    gguf: &gguf,
                    window: Some(window),
                    arch,
                }
                .logits(&ids),
            )
        };
        assert!(with(12) < 2e-3, "length {length}: off by {}", with(12));
        if length > 12 {
            assert!(
                with(11) > 1e-2 && with(13) > 1e-2,
                "length {length} cannot tell: {} {}",
                with(11),
                with(13)
            );
        }
    }
}
