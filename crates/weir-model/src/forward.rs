//! One chunk of rows through one layer, with the scratch memory that takes.
//!
//! Rows of several sequences and positions go together; each is computed as if alone.

use crate::arch::{Activation, Arch, Rope};
use crate::cache::LayerCache;
use crate::kernels::vector::{add, add_rms_norm, gelu_mul, rms_norm, rms_norm_heads, rotate, silu_mul};
use crate::kernels::{Activations, Isa, Job, Output, attend, each_row, each_rows, multiply, pool::Pool};
use crate::weights::Layer;

/// What stays the same for all layers of a stage.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub(crate) arch: &'a Arch,
    pub(crate) pool: &'a Pool,
    pub(crate) isa: Isa,
}

/// Angles of the rows of a chunk, for the two kinds of layers.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    global: Vec<(f32, f32)>,
    windowed: Vec<(f32, f32)>,
    half: usize,
}

/// Wavelengths of rotary positions of a model.
#[derive(Debug)]
pub(crate) struct Wavelengths {
    global: Vec<f64>,
    windowed: Option<Vec<f64>>,
}

impl Wavelengths {
    pub(crate) fn new(arch: &Arch, factors: Option<&[f32]>) -> Self {
        let of = |rope: &Rope, factors: Option<&[f32]>| {
            let width = arch.rope_width as f64;
            let frequency = |pair: usize| f64::from(rope.base).powf(-2.0 * pair as f64 / width);
            let factor = |pair: usize| {
                factors
                    .and_then(|factors| factors.get(pair))
                    .map_or(1.0, |factor| f64::from(*factor))
            };
            (0..arch.rope_width / 2)
                .map(|pair| frequency(pair) / factor(pair) / f64::from(rope.divisor))
                .collect()
        };
        Self {
            global: of(&arch.rope, factors),
            windowed: arch.window.map(|_| of(&arch.rope_windowed, None)),
        }
    }
}

impl Turns {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "angles are kept in single precision"
    )]
    pub(crate) fn fill(&mut self, wavelengths: &Wavelengths, positions: impl Iterator<Item = usize>) {
        self.half = wavelengths.global.len();
        self.global.clear();
        self.windowed.clear();
        for position in positions {
            let turn = |frequency: &f64| {
                let (sin, cos) = (position as f64 * frequency).sin_cos();
                (cos as f32, sin as f32)
            };
            self.global.extend(wavelengths.global.iter().map(turn));
            if let Some(windowed) = &wavelengths.windowed {
                self.windowed.extend(windowed.iter().map(turn));
            }
        }
    }

    fn of(&self, windowed: bool, row: usize) -> &[(f32, f32)] {
        let all = if windowed { &self.windowed } else { &self.global };
        &all[row * self.half..(row + 1) * self.half]
    }
}

/// A row of a chunk: which of the stage's caches it belongs to, and where it stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) cache: usize,
    pub(crate) position: usize,
}

/// Memory for intermediate values, kept between chunks.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    normed: Activations,
    queries: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
    attended: Activations,
    gates: Activations,
    ups: Vec<f32>,
    sums: Vec<f32>,
    pub(crate) turns: Turns,
}

/// Normalizes rows into a multiplication's input.
pub(crate) fn normalize(
    context: &Context<'_>,
    hidden: &[f32],
    norm: &[f32],
    quantized: bool,
    out: &mut Activations,
) {
    let width = norm.len();
    let Context { arch, pool, isa } = context;
    out.resize(hidden.len() / width, width);
    each_row(pool, out.floats_mut(), width, &|row, out| {
        rms_norm(
            *isa,
            &hidden[row * width..(row + 1) * width],
            norm,
            arch.epsilon,
            out,
        );
    });
    if quantized {
        out.quantize(pool, *isa);
    }
}

impl Scratch {
    /// Takes the rows of `hidden` through a layer whose caches are `caches`.
    pub(crate) fn layer(
        &mut self,
        context: &Context<'_>,
        layer: &Layer,
        window: bool,
        places: &[Place],
        caches: &mut [&mut LayerCache],
        hidden: &mut [f32],
    ) {
        normalize(
            context,
            hidden,
            &layer.attention_norm,
            layer.quantized[0],
            &mut self.normed,
        );
        self.project(context, layer, places.len());
        self.place(context, layer, window, places, caches);
        self.attend(context, places, caches);
        if layer.quantized[1] {
            self.attended.quantize(context.pool, context.isa);
        }
        self.sums.resize(hidden.len(), 0.0);
        let out = Output::new(&mut self.sums, context.arch.width);
        multiply(
            context.pool,
            context.isa,
            &self.attended,
            &[Job {
                matrix: &layer.output,
                out,
            }],
        );
        residual(context, hidden, &self.sums, layer.attention_post_norm.as_deref());
        self.feed_forward(context, layer, hidden);
    }

    fn project(&mut self, context: &Context<'_>, layer: &Layer, rows: usize) {
        let (queries, keys) = (layer.query.rows(), layer.key.rows());
        self.queries.resize(rows * queries, 0.0);
        self.keys.resize(rows * keys, 0.0);
        self.values.resize(rows * keys, 0.0);
        let jobs = [
            Job {
                matrix: &layer.query,
                out: Output::new(&mut self.queries, queries),
            },
            Job {
                matrix: &layer.key,
                out: Output::new(&mut self.keys, keys),
            },
            Job {
                matrix: &layer.value,
                out: Output::new(&mut self.values, keys),
            },
        ];
        multiply(context.pool, context.isa, &self.normed, &jobs);
        for (rows, bias) in [&mut self.queries, &mut self.keys, &mut self.values]
            .into_iter()
            .zip(&layer.biases)
        {
            if let Some(bias) = bias {
                rows.chunks_exact_mut(bias.len())
                    .for_each(|row| add(context.isa, row, bias));
            }
        }
    }

    /// Norms and rotates queries and keys, then stores keys and values.
    fn place(
        &mut self,
        context: &Context<'_>,
        layer: &Layer,
        window: bool,
        places: &[Place],
        caches: &mut [&mut LayerCache],
    ) {
        let Context { arch, pool, isa } = context;
        let turns = &self.turns;
        let ready = |norm: &Option<Vec<f32>>, row: usize, heads: &mut [f32]| {
            if let Some(norm) = norm {
                rms_norm_heads(*isa, heads, norm, arch.epsilon);
            }
            rotate(heads, arch.head_width, turns.of(window, row), arch.pairing);
        };
        let (queries, keys) = (arch.heads * arch.head_width, arch.key_heads * arch.head_width);
        each_row(pool, &mut self.queries, queries, &|row, heads| {
            ready(&layer.query_norm, row, heads)
        });
        each_row(pool, &mut self.keys, keys, &|row, heads| {
            ready(&layer.key_norm, row, heads)
        });
        let rows = self.keys.chunks_exact(keys).zip(self.values.chunks_exact(keys));
        for (place, (key, value)) in places.iter().zip(rows) {
            caches[place.cache].store(place.position, key, value);
        }
    }

    fn attend(&mut self, context: &Context<'_>, places: &[Place], caches: &[&mut LayerCache]) {
        let Context { arch, pool, isa } = context;
        let width = arch.heads * arch.head_width;
        self.attended.resize(places.len(), width);
        let group = arch.heads / arch.key_heads;
        // One row on several threads shares its heads among them.
        let heads = if places.len() * arch.key_heads >= pool.threads() {
            group
        } else {
            group.div_ceil(pool.threads())
        };
        let heads = if group.is_multiple_of(heads) { heads } else { 1 };
        let queries = &self.queries;
        each_rows(
            pool,
            self.attended.floats_mut(),
            heads * arch.head_width,
            1,
            &|part, out| {
                let first = part * heads;
                let place = places[first / arch.heads];
                let seen = caches[place.cache].seen(place.position, first % arch.heads / group);
                let queries = &queries[first * arch.head_width..][..out.len()];
                attend(*isa, queries, seen, arch.attention_scale, out);
            },
        );
    }

    fn feed_forward(&mut self, context: &Context<'_>, layer: &Layer, hidden: &mut [f32]) {
        let Context { arch, pool, isa } = context;
        normalize(
            context,
            hidden,
            &layer.feed_norm,
            layer.quantized[2],
            &mut self.normed,
        );
        let (rows, inner) = (hidden.len() / arch.width, arch.feed_forward);
        self.gates.resize(rows, inner);
        self.ups.resize(rows * inner, 0.0);
        let jobs = [
            Job {
                matrix: &layer.gate,
                out: Output::new(self.gates.floats_mut(), inner),
            },
            Job {
                matrix: &layer.up,
                out: Output::new(&mut self.ups, inner),
            },
        ];
        multiply(pool, *isa, &self.normed, &jobs);
        let ups = &self.ups;
        each_row(pool, self.gates.floats_mut(), inner, &|row, gate| {
            let up = &ups[row * inner..(row + 1) * inner];
            match arch.activation {
                Activation::Gelu => gelu_mul(*isa, gate, up),
                Activation::Silu => silu_mul(*isa, gate, up),
            }
        });
        if layer.quantized[3] {
            self.gates.quantize(pool, *isa);
        }
        let out = Output::new(&mut self.sums, arch.width);
        multiply(
            pool,
            *isa,
            &self.gates,
            &[Job {
                matrix: &layer.down,
                out,
            }],
        );
        residual(context, hidden, &self.sums, layer.feed_post_norm.as_deref());
    }
}

/// Adds what a sub-layer gave, normalized where the model has a norm behind it.
fn residual(context: &Context<'_>, hidden: &mut [f32], sums: &[f32], norm: Option<&[f32]>) {
    let Context { arch, pool, isa } = context;
    each_row(pool, hidden, arch.width, &|row, hidden| {
        let sums = &sums[row * arch.width..(row + 1) * arch.width];
        match norm {
            Some(norm) => add_rms_norm(*isa, hidden, sums, norm, arch.epsilon),
            None => add(*isa, hidden, sums),
        }
    });
}
